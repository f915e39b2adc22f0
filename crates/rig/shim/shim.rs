//! The shim: a library that is preloaded into a process and overrides the functions by which it
//! reads the wall clock. They show the time of the page that `REDQUORUM_CLOCK` names; without it, or
//! if it is not a page, they show the real time.
//!
//! It also notes what is on disk: each sync of a file, with the file's number, its length and the
//! time when the sync began, in the file that `REDQUORUM_SYNCS` names. A power loss leaves that
//! much.
//!
//! Compiled by `build.rs`, not by cargo. Of the C library it uses only functions that all of them
//! have, without a version, so that one file serves every server and every container. Each reading of
//! a clock is a system call: a pipelined server is up to a third slower.
//!
//! Only the wall clock: a monotonic clock, by which event loops wait, passes through. Not reached
//! are static executables and those that ask the kernel themselves (Go), and waits with a deadline
//! on the wall clock, which end by the real one.

#![no_std]

use core::{
    arch::global_asm,
    ffi::c_int,
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering},
};

mod kernel;
#[path = "../src/clock/setting.rs"]
#[expect(dead_code, reason = "the writer's half is for the crate that writes pages")]
mod setting;

use kernel::File;
use setting::{ClockSetting, MAGIC, PAGE_BYTES, SLOT_WORDS, SLOTS};

/// With the `=`, so that no variable with a longer name is taken for it.
const VARIABLE: &[u8] = b"REDQUORUM_CLOCK=";

const SYNCS_VARIABLE: &[u8] = b"REDQUORUM_SYNCS=";

/// The longest path that the kernel takes, with its final zero.
const PATH_MAX: usize = 4096;

const CLOCK_REALTIME: c_int = 0;
const CLOCK_MONOTONIC: c_int = 1;
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
        // SAFETY: as this function.
        return unsafe { kernel::clock_gettime(clock, into) };
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
            // As the C libraries do, which ignore the kernel's time zone.
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

/// Where syncs are noted, with its final zero. Written before there is a second thread.
static mut SYNCS: [u8; PATH_MAX] = [0; PATH_MAX];
static NOTES_SYNCS: AtomicBool = AtomicBool::new(false);

/// As the function of the C library.
#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(file: c_int) -> c_int {
    synced(file, false)
}

/// As the function of the C library.
#[unsafe(no_mangle)]
pub extern "C" fn fsync(file: c_int) -> c_int {
    synced(file, true)
}

fn synced(file: c_int, all: bool) -> c_int {
    if !NOTES_SYNCS.load(Ordering::Acquire) {
        return kernel::sync(file, all);
    }
    // Data that is written while it syncs may be on disk or not. A power loss loses it.
    let mut now = Timespec { seconds: 0, nanos: 0 };
    // SAFETY: it may be written.
    unsafe { kernel::clock_gettime(CLOCK_MONOTONIC, &mut now) };
    let before = kernel::look_at(file);
    let answer = kernel::sync(file, all);
    // SAFETY: it was written before there was a second thread.
    let path = unsafe { &*(&raw const SYNCS) };
    if let (0, Some((number, length)), Some(notes)) = (answer, before, File::append(path)) {
        let stamp = now.seconds.cast_unsigned() * NANOS + now.nanos.cast_unsigned();
        notes.write(&[number, length, stamp]);
    }
    answer
}

/// Nanoseconds since the epoch, as the page says.
fn shown(clock: c_int) -> u64 {
    let mut now = Timespec { seconds: 0, nanos: 0 };
    // SAFETY: it may be written. A clock that exists does not fail.
    unsafe { kernel::clock_gettime(clock, &mut now) };
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
    // bound is for a page that another program has overwritten.
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
    // SAFETY: the loader calls this once, while there is one thread.
    let syncs = unsafe { &mut *(&raw mut SYNCS) };
    if find_variable(SYNCS_VARIABLE, syncs) {
        NOTES_SYNCS.store(true, Ordering::Release);
    }
    // Not on the stack, where it would have to be zeroed by a function of the C library.
    static mut PATH: [u8; PATH_MAX] = [0; PATH_MAX];
    // SAFETY: as above.
    let path = unsafe { &mut *(&raw mut PATH) };
    if !find_variable(VARIABLE, path) {
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
fn find_variable(name: &[u8], value: &mut [u8; PATH_MAX]) -> bool {
    let Some(file) = File::open(b"/proc/self/environ\0") else { return false };
    let mut chunk = [0; 128];
    // How much of the name has matched in this entry, or that something else stands there.
    let (mut matched, mut other, mut length) = (0, false, 0);
    loop {
        let read = file.read(&mut chunk);
        for &byte in chunk.iter().take(read) {
            let found = matched == name.len();
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
            } else if !other && name.get(matched) == Some(&byte) {
                matched += 1;
            } else {
                other = true;
            }
        }
        if read == 0 {
            return matched == name.len();
        }
    }
}

// The compiled `core` names it, and nothing here unwinds. In assembler, so that it is not exported:
// a process of Rust's own may have the true one in a library that is loaded after this one.
global_asm!(".globl rust_eh_personality", ".hidden rust_eh_personality", "rust_eh_personality:");

/// Nothing here panics, but without the standard library a panic handler is required.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
