//! The command `redquorum-chaos`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("client") => redquorum_harness::client::main(),
        Some("client-check") => {
            let command = std::env::args().nth(2).unwrap_or_default();
            match redquorum_harness::client_check::check(&command, &mut std::io::stdout()) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::from(1),
                Err(why) => {
                    eprintln!("{why}");
                    ExitCode::from(3)
                }
            }
        }
        _ => ExitCode::SUCCESS,
    }
}
