//! `redquorum doctor` on real masters, from the command line to the exit code. It reports
//! nothing if all is well. For each problem, a finding names the master and the remedy. And
//! `redquorum bench-masters` beside the same masters.

#[cfg(unix)]
mod access;
#[cfg(unix)]
mod bench_masters;
#[cfg(unix)]
mod connections;
#[cfg(unix)]
mod diagnosis;
#[cfg(unix)]
#[path = "../support/program.rs"]
mod program;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    let all = [access::cases(), bench_masters::cases(), connections::cases(), diagnosis::cases()];
    redquorum_rig::trials::run(all.into_iter().flatten())
}

#[cfg(not(unix))]
fn main() {
    eprintln!("masters are stopped by signals: use Linux, macOS or WSL");
}
