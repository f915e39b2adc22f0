//! Client processes: the handle of one, and the behaviour of one on real masters.
//!
//! - `processes.rs` starts, pauses and kills them, and checks that nothing is left behind.
//! - `check.rs` runs `client-check` on correct and on faulty ones, and checks the behaviour of the
//!   built-in client that scenarios rely on, and that each mutant does what its name says.

#[cfg(unix)]
#[macro_use(cases)]
extern crate redquorum_rig;

#[cfg(unix)]
mod check;
#[cfg(unix)]
#[path = "../support/folder.rs"]
mod folder;
#[cfg(unix)]
mod processes;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    if std::env::var_os(processes::PARENT).is_some() {
        return processes::parent();
    }
    let cases = [processes::cases(), check::cases()];
    redquorum_rig::trials::run(cases.into_iter().flatten())
}

#[cfg(not(unix))]
fn main() {
    eprintln!("client processes are paused and killed by signals: use Linux, macOS or WSL");
}
