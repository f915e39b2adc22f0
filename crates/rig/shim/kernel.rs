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

#[cfg(target_arch = "x86_64")]
mod sys {
    pub(crate) const READ: usize = 0;
    pub(crate) const CLOSE: usize = 3;
    pub(crate) const MMAP: usize = 9;
    pub(crate) const CLOCK_GETTIME: usize = 228;
    pub(crate) const OPENAT: usize = 257;
}

#[cfg(target_arch = "aarch64")]
mod sys {
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
