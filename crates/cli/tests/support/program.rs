//! The program under test, shared by the test programs that run it.

use std::process::{Command, Output, Stdio};

/// The program, with no options from the environment.
pub(crate) fn bare() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redquorum"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("REDQUORUM_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// The exit code, standard output and standard error.
pub(crate) fn ended(Output { status, stdout, stderr }: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().expect("it ends by itself"), text(stdout), text(stderr))
}
