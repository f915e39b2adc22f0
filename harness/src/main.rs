//! The command `redquorum-chaos`.

use std::process::ExitCode;

#[cfg(unix)]
fn main() -> ExitCode {
    redquorum_harness::cli::main()
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    eprintln!("error: redquorum-chaos stops and starts processes by signals: run it on a Unix");
    ExitCode::from(3)
}
