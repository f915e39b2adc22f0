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

#[test]
fn a_wrong_option_of_scale_is_answered_with_what_is_wrong() {
    for (arguments, why) in [
        (&["shard"][..], "there is no part or option `shard`"),
        (&["--clients", "100,0"], "--clients needs a list of numbers above 0, not `100,0`"),
        (&["--rounds"], "--rounds needs one number above 0, not ``"),
        (&["--near", "5,10,15"], "give as many"),
        (&["--masters", "10"], "at most 9 masters"),
    ] {
        let bench = Command::new(env!("CARGO_BIN_EXE_redquorum-bench"))
            .arg("--scale")
            .args(arguments)
            .output()
            .expect("the program runs");
        let error = String::from_utf8_lossy(&bench.stderr);
        assert_eq!(bench.status.code(), Some(64), "{arguments:?}: {error}");
        assert!(error.contains(why) && error.contains("usage: "), "{error}");
        assert!(bench.stdout.is_empty());
    }
}
