//! Three kinds of resources that check fencing tokens behave alike: a register in the process, a
//! hash in a real Redis, and a row in a real SQL database. Without a `redis-server`, the test on
//! Redis is reported as ignored.

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
