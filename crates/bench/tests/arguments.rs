//! The program refuses what it does not know, before it starts any master.

use std::process::Command;

#[test]
fn an_unknown_argument_is_answered_with_the_known_ones() {
    for arguments in [&["--fast"][..], &["--quick", "--threads"]] {
        let bench = Command::new(env!("CARGO_BIN_EXE_redquorum-bench")).args(arguments).output();
        let bench = bench.expect("the program runs");
        assert_eq!(bench.status.code(), Some(64), "{arguments:?}");
        assert!(bench.stdout.is_empty());
        let error = String::from_utf8_lossy(&bench.stderr);
        assert!(error.starts_with("usage: redquorum-bench [--quick | "), "{error}");
    }
}
