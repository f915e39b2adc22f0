//! The command `redquorum-chaos`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("client") => redquorum_harness::client::main(),
        _ => ExitCode::SUCCESS,
    }
}
