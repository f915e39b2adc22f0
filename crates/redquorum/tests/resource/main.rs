//! The three kinds of resources that obey fencing tokens do the same: a register in the process, a hash in
//! a real Redis, a row in a real SQL database. Without a `redis-server` Redis is reported as ignored.

#[cfg(unix)]
mod cases;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    redquorum_rig::trials::run(cases::cases())
}

#[cfg(not(unix))]
fn main() {
    eprintln!("real masters run on Unix systems only: use Linux, macOS or WSL");
}
