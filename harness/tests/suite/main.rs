//! Tests of the program and of the suite itself, on real masters. The suite notices a wrong
//! expectation, a key that is left, a client that misbehaves, and a mutant. It leaves nothing
//! behind when it is killed.
//!
//! `tests/simulation.rs` shows that it notices a missing fault.

#[cfg(unix)]
#[macro_use(cases)]
extern crate redquorum_rig;

#[cfg(unix)]
mod expectations;
#[cfg(unix)]
mod program;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    let all = [program::cases(), expectations::cases()];
    redquorum_rig::trials::run(all.into_iter().flatten())
}

#[cfg(not(unix))]
fn main() {
    eprintln!("masters and clients are stopped by signals: use Linux, macOS or WSL");
}
