//! The shim: a library that is preloaded into a process and overrides the functions by which it
//! reads the wall clock. What they show is what the page says that `REDQUORUM_CLOCK` names; without
//! it, or if it is not a page, they show the real time.
//!
//! Compiled by `build.rs`, not by cargo. It needs nothing but the kernel: no libc of a certain kind
//! or version, so that one file serves every server and every container. The one libc symbol that it
//! knows, `__errno_location`, may be missing.
//!
//! Only the wall clock: a monotonic clock, by which event loops wait, passes through. Not reached
//! are static executables and those that ask the kernel themselves (Go), and waits with a deadline
//! on the wall clock, which end by the real one.

#![no_std]

use core::{
    arch::{asm, global_asm},
    ffi::{c_int, c_void},
    ptr,
    sync::atomic::{AtomicPtr, AtomicU64, Ordering},
};

#[path = "../src/clock/setting.rs"]
#[expect(dead_code, reason = "the writer's half is for the crate that writes pages")]
mod setting;

use setting::{ClockSetting, MAGIC, PAGE_BYTES, SLOT_WORDS, SLOTS};

/// With the `=`, so that no variable with a longer name is taken for it.
const VARIABLE: &[u8] = b"REDQUORUM_CLOCK=";

/// The longest path that the kernel takes, with its final zero.
const PATH_MAX: usize = 4096;

const CLOCK_REALTIME: c_int = 0;
const CLOCK_REALTIME_COARSE: c_int = 5;
const NANOS: u64 = 1_000_000_000;

type Words = [AtomicU64; PAGE_BYTES / 8];

/// The mapped page. Null: there is none. Never unmapped.
static PAGE: AtomicPtr<Words> = AtomicPtr::new(ptr::null_mut());

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Timespec {
    seconds: i64,
    nanos: i64,
}

#[repr(C)]
pub struct Timeval {
    seconds: i64,
    micros: i64,
}

#[repr(C)]
pub struct Timezone {
    minutes_west: c_int,
    dst: c_int,
}

/// # Safety
///
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, into: *mut Timespec) -> c_int {
    if clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE {
        // SAFETY: the kernel checks both arguments.
        return unsafe { result(raw_clock_gettime(clock, into)) };
    }
    let shown = shown(clock);
    // SAFETY: the caller says that it may be written.
    unsafe {
        *into = Timespec {
            seconds: (shown / NANOS).cast_signed(),
            nanos: (shown % NANOS).cast_signed(),
        }
    };
    0
}

/// # Safety
///
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(into: *mut Timeval, zone: *mut Timezone) -> c_int {
    let shown = shown(CLOCK_REALTIME);
    // SAFETY: the caller says that what is not null may be written.
    unsafe {
        if !into.is_null() {
            *into = Timeval {
                seconds: (shown / NANOS).cast_signed(),
                micros: (shown % NANOS / 1000).cast_signed(),
            };
        }
        if !zone.is_null() {
            // What the C libraries answer: the kernel's time zone is no one's.
            *zone = Timezone { minutes_west: 0, dst: 0 };
        }
    }
    0
}

/// # Safety
///
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(into: *mut i64) -> i64 {
    let seconds = (shown(CLOCK_REALTIME) / NANOS).cast_signed();
    if !into.is_null() {
        // SAFETY: the caller says that it may be written.
        unsafe { *into = seconds };
    }
    seconds
}

/// Nanoseconds since the epoch, as the page says.
fn shown(clock: c_int) -> u64 {
    let mut now = Timespec { seconds: 0, nanos: 0 };
    // SAFETY: it may be written. A clock that exists does not fail.
    unsafe { raw_clock_gettime(clock, &mut now) };
    let real = now.seconds.cast_unsigned() * NANOS + now.nanos.cast_unsigned();
    match setting() {
        Some(setting) => setting.shown(real),
        None => real,
    }
}

/// The newest setting of which no word is torn.
fn setting() -> Option<ClockSetting> {
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: null, or mapped for ever, for reading, with this size.
    let page = unsafe { page.as_ref() }?;
    // Twice in a row both are torn only if this thread slept through two updates in between. The
    // bound is for a page that someone else has filled with rubbish.
    for _ in 0..10_000 {
        let [a, b] = SLOTS;
        let sequence = |slot: usize| page[slot].load(Ordering::Acquire);
        let (newer, older) = if sequence(a) > sequence(b) { (a, b) } else { (b, a) };
        for slot in [newer, older] {
            let mut words = [0; SLOT_WORDS];
            for (index, word) in words.iter_mut().enumerate() {
                *word = page[slot + index].load(Ordering::Acquire);
            }
            if let Some(setting) = ClockSetting::from_slot(&words) {
                return Some(setting);
            }
        }
    }
    None
}

/// Runs when the library is loaded, before `main`. `glibc` hands the environment to such functions,
/// `musl` does not: so it is read from where both have it.
#[used]
#[unsafe(link_section = ".init_array")]
static OPEN: extern "C" fn() = open;

extern "C" fn open() {
    // Not on the stack, where it would have to be zeroed by a function of the C library.
    static mut PATH: [u8; PATH_MAX] = [0; PATH_MAX];
    // SAFETY: the loader calls this once, while there is one thread.
    let path = unsafe { &mut *(&raw mut PATH) };
    if !find_variable(path) {
        return;
    }
    let Some(file) = File::open(path) else { return };
    // A file that is shorter than what is read of its mapping would be a SIGBUS, and later.
    let mut start = [0; (SLOTS[1] + SLOT_WORDS) * 8];
    if file.read(&mut start) == start.len() && start.starts_with(&MAGIC.to_ne_bytes()) {
        PAGE.store(file.map(), Ordering::Release);
    }
}

/// Copies the value of the variable, and says whether it is set. What follows it stays zero.
fn find_variable(value: &mut [u8; PATH_MAX]) -> bool {
    let Some(file) = File::open(b"/proc/self/environ\0") else { return false };
    let mut chunk = [0; 128];
    // How much of the name has matched in this entry, or that something else stands there.
    let (mut matched, mut other, mut length) = (0, false, 0);
    loop {
        let read = file.read(&mut chunk);
        for &byte in chunk.iter().take(read) {
            let found = matched == VARIABLE.len();
            if byte == 0 {
                if found {
                    return true;
                }
                (matched, other) = (0, false);
            } else if found {
                // The last byte must stay zero.
                if length + 1 >= PATH_MAX {
                    return false;
                }
                value[length] = byte;
                length += 1;
            } else if !other && VARIABLE.get(matched) == Some(&byte) {
                matched += 1;
            } else {
                other = true;
            }
        }
        if read == 0 {
            return matched == VARIABLE.len();
        }
    }
}

/// An open file of the kernel.
struct File(usize);

impl File {
    /// Opens it to be read. The path ends with a zero.
    fn open(path: &[u8]) -> Option<Self> {
        const AT_FDCWD: usize = (-100_isize).cast_unsigned();
        const O_CLOEXEC: usize = 0o2_000_000;
        // SAFETY: the path ends with a zero and outlives the call.
        let file =
            unsafe { syscall(sys::OPENAT, [AT_FDCWD, path.as_ptr().addr(), O_CLOEXEC, 0, 0, 0]) };
        usize::try_from(file).ok().map(Self)
    }

    /// Reads until the buffer is full or the file at its end; returns how much.
    fn read(&self, into: &mut [u8]) -> usize {
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
    fn map(&self) -> *mut Words {
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

/// # Safety
///
/// What the pointer leads to may be written, or the kernel finds that it may not.
unsafe fn raw_clock_gettime(clock: c_int, into: *mut Timespec) -> isize {
    let clock = (clock as isize).cast_unsigned();
    // SAFETY: the caller says so.
    unsafe { syscall(sys::CLOCK_GETTIME, [clock, into.expose_provenance(), 0, 0, 0, 0]) }
}

/// What a function of the C library returns for the kernel's answer.
fn result(answer: isize) -> c_int {
    if answer >= 0 {
        return 0;
    }
    let location = errno_location();
    if !location.is_null() {
        // SAFETY: the C library's function returns where this thread's `errno` is.
        unsafe {
            let location: extern "C" fn() -> *mut c_int = core::mem::transmute(location);
            *location() = -answer as c_int;
        }
    }
    -1
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

// Weak: null where no C library has it. The compiler has no stable word for that.
global_asm!(".weak __errno_location");

#[cfg(target_arch = "x86_64")]
fn errno_location() -> *const c_void {
    let address;
    // SAFETY: reads what the loader has written into the table.
    unsafe {
        asm!("mov {}, qword ptr [rip + __errno_location@GOTPCREL]", out(reg) address,
             options(nostack, pure, readonly, preserves_flags));
    }
    address
}

#[cfg(target_arch = "aarch64")]
fn errno_location() -> *const c_void {
    let address;
    // SAFETY: reads what the loader has written into the table.
    unsafe {
        asm!("adrp {0}, :got:__errno_location", "ldr {0}, [{0}, :got_lo12:__errno_location]",
             out(reg) address, options(nostack, pure, readonly, preserves_flags));
    }
    address
}

// The compiled `core` names it, and nothing here unwinds. In assembler, so that it is not exported:
// a process of Rust's own may have the true one in a library that is loaded after this one.
global_asm!(".globl rust_eh_personality", ".hidden rust_eh_personality", "rust_eh_personality:");

/// Nothing here panics; without the standard library the compiler wants to be told what then.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
