//! Tests of the suite itself, on real masters. It notices a missing fault, a wrong expectation, a
//! key that is left, a client that misbehaves, and a mutant. It leaves nothing behind when it is
//! killed.

#[cfg(unix)]
#[macro_use(cases)]
extern crate redquorum_rig;

#[cfg(unix)]
mod blindness;
#[cfg(unix)]
mod clients;
#[cfg(unix)]
mod expectations;
#[cfg(unix)]
mod finds;
#[cfg(unix)]
mod kills;
#[cfg(unix)]
mod mutants;
#[cfg(unix)]
mod support;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    redquorum_rig::trials::run(
        blindness::cases()
            .into_iter()
            .chain(expectations::cases())
            .chain(clients::cases())
            .chain(mutants::cases())
            .chain(finds::cases())
            .chain(kills::cases()),
    )
}

#[cfg(not(unix))]
fn main() {}
