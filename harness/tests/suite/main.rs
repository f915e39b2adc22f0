//! Whether the suite can be trusted: it notices when a fault is missing, when an expectation is
//! wrong, when a key is left, when a client misbehaves or lies; and it leaves nothing behind when
//! it is killed. On real masters.

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
