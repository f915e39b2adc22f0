//! The lock on real masters: the known faults of other libraries, dropped futures, zombies, faults.
//! Simulated masters cannot show any of it, because they behave as we believe that Redis does.
//!
//! `support.rs` has the helpers of all tests, `raw.rs` a client without a protocol, and `proxy.rs`
//! a faulty network. Without a `redis-server` all tests are reported as ignored.

/// A list of async tests.
#[cfg(unix)]
macro_rules! cases {
    ($($test:ident),* $(,)?) => {
        vec![$(redquorum_rig::trials::with_masters(stringify!($test), || {
            crate::support::run($test())
        })),*]
    };
}

#[cfg(unix)]
mod clock;
#[cfg(unix)]
mod drops;
#[cfg(unix)]
mod ends;
#[cfg(unix)]
mod fair;
#[cfg(unix)]
mod faults;
#[cfg(unix)]
mod fencing;
#[cfg(unix)]
mod grace;
#[cfg(unix)]
mod guard;
#[cfg(unix)]
mod pitfalls;
#[cfg(unix)]
mod proxy;
#[cfg(unix)]
mod queues;
#[cfg(unix)]
mod raw;
#[cfg(unix)]
mod reentry;
#[cfg(unix)]
mod several;
#[cfg(unix)]
mod storm;
#[cfg(unix)]
mod support;
#[cfg(unix)]
mod waking;
#[cfg(unix)]
mod zombies;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    let cases = [
        pitfalls::cases(),
        drops::cases(),
        ends::cases(),
        zombies::cases(),
        fair::cases(),
        faults::cases(),
        fencing::cases(),
        grace::cases(),
        guard::cases(),
        clock::cases(),
        queues::cases(),
        reentry::cases(),
        several::cases(),
        storm::cases(),
        waking::cases(),
    ];
    redquorum_rig::trials::run(cases.into_iter().flatten())
}

#[cfg(not(unix))]
fn main() {
    eprintln!("real masters run on Unix systems only: use Linux, macOS or WSL");
}
