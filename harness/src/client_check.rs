//! Whether a command speaks the client protocol.

use std::process::ExitCode;

/// Tries a command.
pub fn main(_command: &str) -> ExitCode {
    eprintln!("error: `client-check` is not built yet");
    ExitCode::from(70)
}
