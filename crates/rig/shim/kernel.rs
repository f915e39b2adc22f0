//! Files and system calls, through functions that every C library has. Called by `shim.rs`.

use core::{
    ffi::{c_char, c_int, c_long, c_void},
    ptr,
};

use crate::{Timespec, Words, setting::PAGE_BYTES};

unsafe extern "C" {
    fn open(path: *const c_char, how: c_int, ...) -> c_int;
    fn close(file: c_int) -> c_int;
    fn read(file: c_int, into: *mut c_void, count: usize) -> isize;
    fn write(file: c_int, from: *const c_void, count: usize) -> isize;
    fn mmap(
        at: *mut c_void,
        length: usize,
        access: c_int,
        how: c_int,
        file: c_int,
        from: i64,
    ) -> *mut c_void;
    /// Makes a system call. On an error it returns -1 and sets `errno`.
    fn syscall(number: c_long, ...) -> c_long;
}

/// An open file.
pub(crate) struct File(c_int);

impl File {
    /// Opens it to be read. The path ends with a zero.
    pub(crate) fn open(path: &[u8]) -> Option<Self> {
        Self::open_as(path, 0)
    }

    /// Opens it to be written at its end, and makes it if it is not there. The path ends with a
    /// zero.
    pub(crate) fn append(path: &[u8]) -> Option<Self> {
        const WRONLY_CREAT_APPEND: c_int = 0o1 | 0o100 | 0o2_000;
        Self::open_as(path, WRONLY_CREAT_APPEND)
    }

    fn open_as(path: &[u8], how: c_int) -> Option<Self> {
        const CLOEXEC: c_int = 0o2_000_000;
        // SAFETY: the path ends with a zero and outlives the call.
        let file = unsafe { open(path.as_ptr().cast(), how | CLOEXEC, 0o600) };
        (file >= 0).then_some(Self(file))
    }

    /// Writes some words, in one piece: they do not mix with those of other writers.
    pub(crate) fn write(&self, words: &[u64]) {
        // SAFETY: the words may be read, and outlive the call.
        unsafe { write(self.0, words.as_ptr().cast(), size_of_val(words)) };
    }

    /// Reads until the buffer is full or the file at its end; returns how much.
    pub(crate) fn read(&self, into: &mut [u8]) -> usize {
        let mut length = 0;
        while let Some(rest) = into.get_mut(length..).filter(|rest| !rest.is_empty()) {
            // SAFETY: the buffer may be written, up to its length.
            match usize::try_from(unsafe { read(self.0, rest.as_mut_ptr().cast(), rest.len()) }) {
                Ok(read @ 1..) => length += read,
                _ => break,
            }
        }
        length
    }

    /// Maps the page, for ever. Null if that fails.
    pub(crate) fn map(&self) -> *mut Words {
        const READ: c_int = 1;
        const SHARED: c_int = 1;
        // SAFETY: a new mapping at a place of the kernel's choice harms nothing.
        let page = unsafe { mmap(ptr::null_mut(), PAGE_BYTES, READ, SHARED, self.0, 0) };
        if page.addr() == usize::MAX { ptr::null_mut() } else { page.cast() }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: it is open, and not shared.
        unsafe { close(self.0) };
    }
}

/// Reads a clock of the kernel.
///
/// # Safety
///
/// The memory behind the pointer may be written.
pub(crate) unsafe fn clock_gettime(clock: c_int, into: *mut Timespec) -> c_int {
    // SAFETY: the caller guarantees it.
    status(unsafe { syscall(CLOCK_GETTIME, c_long::from(clock), into) })
}

/// The number and the length of an open file.
pub(crate) fn look_at(file: c_int) -> Option<(u64, u64)> {
    // As large as any of these systems makes it. Both have the number and the length in these words.
    let mut stat = [0_u64; 18];
    const NUMBER: usize = 1;
    const LENGTH: usize = 6;
    // SAFETY: it may be written, and is large enough.
    let result = unsafe { syscall(FSTAT, c_long::from(file), stat.as_mut_ptr()) };
    (result == 0).then_some((stat[NUMBER], stat[LENGTH]))
}

/// Brings a file to the disk: all of it, or as much as it takes to read it again. Not with the C
/// library's functions, which the shim overrides.
pub(crate) fn sync(file: c_int, all: bool) -> c_int {
    let call = if all { FSYNC } else { FDATASYNC };
    // SAFETY: the kernel checks the argument.
    status(unsafe { syscall(call, c_long::from(file)) })
}

const fn status(result: c_long) -> c_int {
    if result == 0 { 0 } else { -1 }
}

/// The number of a system call: on x86-64, and on aarch64.
const fn number(x86_64: c_long, aarch64: c_long) -> c_long {
    if cfg!(target_arch = "x86_64") { x86_64 } else { aarch64 }
}

const FSTAT: c_long = number(5, 80);
const FSYNC: c_long = number(74, 82);
const FDATASYNC: c_long = number(75, 83);
const CLOCK_GETTIME: c_long = number(228, 113);
