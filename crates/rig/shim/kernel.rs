//! The kernel, asked without a C library. Called by `shim.rs`.

use core::{arch::asm, ffi::c_int, ptr};

use crate::{Timespec, Words, setting::PAGE_BYTES};

/// An open file of the kernel.
pub(crate) struct File(usize);

impl File {
    /// Opens it to be read. The path ends with a zero.
    pub(crate) fn open(path: &[u8]) -> Option<Self> {
        const AT_FDCWD: usize = (-100_isize).cast_unsigned();
        const O_CLOEXEC: usize = 0o2_000_000;
        // SAFETY: the path ends with a zero and outlives the call.
        let file =
            unsafe { syscall(sys::OPENAT, [AT_FDCWD, path.as_ptr().addr(), O_CLOEXEC, 0, 0, 0]) };
        usize::try_from(file).ok().map(Self)
    }

    /// Opens it to be written at its end, and makes it if it is not there. The path ends with a zero.
    pub(crate) fn append(path: &[u8]) -> Option<Self> {
        const AT_FDCWD: usize = (-100_isize).cast_unsigned();
        const O_WRONLY_CREAT_APPEND_CLOEXEC: usize = 0o1 | 0o100 | 0o2_000 | 0o2_000_000;
        let how = O_WRONLY_CREAT_APPEND_CLOEXEC;
        // SAFETY: the path ends with a zero and outlives the call.
        let file = unsafe { syscall(sys::OPENAT, [AT_FDCWD, path.as_ptr().addr(), how, 0o600, 0, 0]) };
        usize::try_from(file).ok().map(Self)
    }

    /// Writes some words, in one piece: with others who append they do not mix.
    pub(crate) fn write(&self, words: &[u64]) {
        let args = [self.0, words.as_ptr().expose_provenance(), size_of_val(words), 0, 0, 0];
        // SAFETY: the words may be read, and outlive the call.
        unsafe { syscall(sys::WRITE, args) };
    }

    /// Reads until the buffer is full or the file at its end; returns how much.
    pub(crate) fn read(&self, into: &mut [u8]) -> usize {
        let mut length = 0;
        while let Some(rest) = into.get_mut(length..).filter(|rest| !rest.is_empty()) {
            let args = [self.0, rest.as_mut_ptr().expose_provenance(), rest.len(), 0, 0, 0];
            // SAFETY: the buffer may be written, up to its length.
            match usize::try_from(unsafe { syscall(sys::READ, args) }) {
                Ok(read @ 1..) => length += read,
                _ => break,
            }
        }
        length
    }

    /// Maps the page, for ever. Null if that fails.
    pub(crate) fn map(&self) -> *mut Words {
        const PROT_READ: usize = 1;
        const MAP_SHARED: usize = 1;
        let args = [0, PAGE_BYTES, PROT_READ, MAP_SHARED, self.0, 0];
        // SAFETY: a new mapping at a place of the kernel's choice harms nothing.
        match usize::try_from(unsafe { syscall(sys::MMAP, args) }) {
            Ok(address) => ptr::with_exposed_provenance_mut(address),
            Err(_) => ptr::null_mut(),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: it is open, and no one else's.
        unsafe { syscall(sys::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// The kernel's answer: zero, or a negative error number.
///
/// # Safety
///
/// What the pointer leads to may be written, or the kernel finds that it may not.
pub(crate) unsafe fn clock_gettime(clock: c_int, into: *mut Timespec) -> isize {
    let args = [(clock as isize).cast_unsigned(), into.expose_provenance(), 0, 0, 0, 0];
    // SAFETY: the caller says so.
    unsafe { syscall(sys::CLOCK_GETTIME, args) }
}

/// The number and the length of an open file.
pub(crate) fn look_at(file: c_int) -> Option<(u64, u64)> {
    // As large as any of these systems makes it. Both have the number and the length in these words.
    let mut stat = [0_u64; 18];
    const NUMBER: usize = 1;
    const LENGTH: usize = 6;
    let args = [file as usize, stat.as_mut_ptr().expose_provenance(), 0, 0, 0, 0];
    // SAFETY: it may be written, and is large enough.
    let answer = unsafe { syscall(sys::FSTAT, args) };
    (answer == 0).then_some((stat[NUMBER], stat[LENGTH]))
}

/// Brings a file to the disk: all of it, or as much as it takes to read it again. The kernel's answer.
pub(crate) fn sync(file: c_int, all: bool) -> isize {
    let call = if all { sys::FSYNC } else { sys::FDATASYNC };
    // SAFETY: the kernel checks the argument.
    unsafe { syscall(call, [file as usize, 0, 0, 0, 0, 0]) }
}

#[cfg(target_arch = "x86_64")]
mod sys {
    pub(crate) const WRITE: usize = 1;
    pub(crate) const FSTAT: usize = 5;
    pub(crate) const FSYNC: usize = 74;
    pub(crate) const FDATASYNC: usize = 75;
    pub(crate) const READ: usize = 0;
    pub(crate) const CLOSE: usize = 3;
    pub(crate) const MMAP: usize = 9;
    pub(crate) const CLOCK_GETTIME: usize = 228;
    pub(crate) const OPENAT: usize = 257;
}

#[cfg(target_arch = "aarch64")]
mod sys {
    pub(crate) const WRITE: usize = 64;
    pub(crate) const FSTAT: usize = 80;
    pub(crate) const FSYNC: usize = 82;
    pub(crate) const FDATASYNC: usize = 83;
    pub(crate) const OPENAT: usize = 56;
    pub(crate) const CLOSE: usize = 57;
    pub(crate) const READ: usize = 63;
    pub(crate) const CLOCK_GETTIME: usize = 113;
    pub(crate) const MMAP: usize = 222;
}

/// # Safety
///
/// As the call.
#[cfg(target_arch = "x86_64")]
unsafe fn syscall(number: usize, args: [usize; 6]) -> isize {
    let answer;
    // SAFETY: the kernel changes these registers and what the arguments lead to.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number.cast_signed() => answer,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// # Safety
///
/// As the call.
#[cfg(target_arch = "aarch64")]
unsafe fn syscall(number: usize, args: [usize; 6]) -> isize {
    let answer;
    // SAFETY: the kernel changes this register and what the arguments lead to.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0].cast_signed() => answer,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    answer
}
