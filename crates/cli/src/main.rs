//! The command `redquorum`.

use std::process::ExitCode;

#[cfg(unix)]
fn main() -> ExitCode {
    redquorum_cli::main()
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    eprintln!("error: redquorum stops commands by signals: run it on a Unix");
    ExitCode::from(71)
}
