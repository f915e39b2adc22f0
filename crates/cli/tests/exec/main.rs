//! The command `redquorum` on real masters: every exit code, a command that is stopped before its
//! lease ends whatever becomes of masters and of this program, terminals, cron jobs, and programs
//! in other languages.
//!
//! `ROUNDS=100` repeats what must hold each time.

#[cfg(unix)]
#[macro_use(cases)]
extern crate redquorum_rig;

#[cfg(unix)]
mod agent;
#[cfg(unix)]
mod breaks;
#[cfg(unix)]
mod codes;
#[cfg(unix)]
mod cron;
#[cfg(unix)]
mod ends;
#[cfg(unix)]
mod moving;
#[cfg(unix)]
#[path = "../support/program.rs"]
mod program;
#[cfg(unix)]
mod support;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    let all = [
        codes::cases(),
        ends::cases(),
        breaks::cases(),
        cron::cases(),
        agent::cases(),
        moving::cases(),
    ];
    redquorum_rig::trials::run(all.into_iter().flatten())
}

#[cfg(not(unix))]
fn main() {
    eprintln!("commands are stopped by signals: use Linux, macOS or WSL");
}
