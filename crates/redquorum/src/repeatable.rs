//! Random numbers and a wall clock that repeat, for simulations.

use std::cell::Cell;

use redquorum_protocol::splitmix64;

thread_local! {
    static SOURCES: Cell<Option<Sources>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Sources {
    random: u64,
    wall_micros: u64,
}

/// Random numbers from a seed, and a wall clock that you set: makes a run of a lock repeat itself.
///
/// Use it with masters in memory, Tokio's paused clock and a runtime with one thread. Never use it
/// with masters that anything else uses: tokens that can be repeated protect nothing.
#[derive(Debug)]
pub struct Repeatable(u64);

impl Repeatable {
    /// Starts the random numbers of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Calls `run`. Meanwhile all locks in this thread take their random numbers, also those of
    /// tokens, from the seed. The wall clock shows this number of microseconds since 1970.
    ///
    /// # Panics
    /// If `run` panics, or calls this function.
    pub fn run<R>(&mut self, wall_micros: u64, run: impl FnOnce() -> R) -> R {
        /// Ends the replacement, also after a panic.
        struct End<'a>(&'a mut u64);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                *self.0 = SOURCES.take().map_or(*self.0, |sources| sources.random);
            }
        }
        let before = SOURCES.replace(Some(Sources { random: self.0, wall_micros }));
        assert!(before.is_none(), "`Repeatable::run` inside of another one");
        let _end = End(&mut self.0);
        run()
    }
}

/// Fills random bytes, if a simulation runs. Returns whether it does.
pub(crate) fn fill(bytes: &mut [u8]) -> bool {
    let Some(mut sources) = SOURCES.get() else { return false };
    for chunk in bytes.chunks_mut(8) {
        let random = splitmix64(&mut sources.random).to_le_bytes();
        chunk.copy_from_slice(&random[..chunk.len()]);
    }
    SOURCES.set(Some(sources));
    true
}

pub(crate) fn wall_micros() -> Option<u64> {
    SOURCES.get().map(|sources| sources.wall_micros)
}
