//! Tests of the suite itself, on real masters. It notices a wrong expectation, a key that is left,
//! a client that misbehaves, and a mutant. It leaves nothing behind when it is killed.
//!
//! `tests/simulation/blindness.rs` shows that it notices a missing fault.

#[cfg(unix)]
#[macro_use(cases)]
extern crate redquorum_rig;

#[cfg(unix)]
mod clients;
#[cfg(unix)]
mod expectations;
#[cfg(unix)]
mod kills;
#[cfg(unix)]
mod mutants;
#[cfg(unix)]
mod support;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    redquorum_rig::trials::run(
        [expectations::cases(), clients::cases(), mutants::cases(), kills::cases()]
            .into_iter()
            .flatten(),
    )
}

#[cfg(not(unix))]
fn main() {}
