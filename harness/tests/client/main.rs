//! Client processes: what holds one, and what one does on real masters.
//!
//! `processes.rs` starts, pauses and kills them, and looks for what is left behind; `check.rs` has
//! good and bad ones judged by `client-check`; `clients.rs` holds the built-in one to what scenarios
//! rely on, `mutants.rs` the saboteurs to their names. `talk.rs` is how the last two talk to them.

#[cfg(unix)]
#[macro_use(cases)]
extern crate redquorum_rig;

#[cfg(unix)]
mod check;
#[cfg(unix)]
mod clients;
#[cfg(unix)]
mod mutants;
#[cfg(unix)]
mod processes;
#[cfg(unix)]
mod talk;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    if std::env::var_os(processes::PARENT).is_some() {
        return processes::parent();
    }
    let cases = [processes::cases(), check::cases(), clients::cases(), mutants::cases()];
    redquorum_rig::trials::run(cases.into_iter().flatten())
}

#[cfg(not(unix))]
fn main() {
    eprintln!("client processes are paused and killed by signals: use Linux, macOS or WSL");
}
