//! The `masters` binary, and the harness that runs these tests.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
};

use redquorum_rig::{REQUIRE_VARIABLE, SERVER_VARIABLE, trials::Case};

use crate::{both::tests_without, support::Owner};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_signal_ends_the_binary_with_its_code_and_nothing_is_left,
        plain: bad_arguments_exit_with_64_and_the_usage,
        plain: without_a_server_the_exit_code_is_3_and_the_error_names_the_package,
        plain: without_a_server_tests_are_ignored_or_fail_if_it_is_required,
    ]
}

fn a_signal_ends_the_binary_with_its_code_and_nothing_is_left() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut owner = Owner::binary("2", &format!("binary_{signal}"));
        let lines = owner.read_until("redis://");
        let export = lines.iter().find_map(|line| line.strip_prefix("export REDQUORUM_URLS="));
        let (urls, also) = export.unwrap().split_once(' ').unwrap();
        assert_eq!(also, format!("REDQUORUM_MASTERS={urls}"));
        let urls: Vec<_> = urls.split(',').collect();
        assert_eq!((urls.len(), lines.last().unwrap().as_str()), (2, urls[0]));
        assert_eq!(owner.read_until("redis://"), [urls[1]]);
        // The standard input of the binary is at its end from the start. The binary still runs.
        for url in urls {
            let mut stream = TcpStream::connect(url.strip_prefix("redis://").unwrap()).unwrap();
            stream.write_all(b"PING\r\n").unwrap();
            let mut reply = [0; 7];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(&reply, b"+PONG\r\n");
        }
        assert!(owner.child.try_wait().unwrap().is_none());

        owner.signal_group(signal);
        assert_eq!(owner.child.wait().unwrap().code(), Some(code));
        assert_eq!(owner.processes(), 0, "all was gone before it ended");
        owner.nothing_is_left();
    }
}

fn masters(args: &[&str], server: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_masters"));
    let output = command.args(args).env(SERVER_VARIABLE, server).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn bad_arguments_exit_with_64_and_the_usage() {
    for args in [&["0"][..], &["101"], &["-1"], &["five"], &[""], &["--count=5"], &["1", "2"]] {
        let (code, out, err) = masters(args, "");
        assert_eq!((code, out.as_str()), (Some(64), ""), "{args:?}");
        assert!(err.starts_with("masters: ") && err.contains("usage: masters [N]"), "{err}");
    }
    let (code, out, _) = masters(&["--help"], "");
    assert!(code == Some(0) && out.starts_with("usage: masters [N]"), "{out}");
}

fn without_a_server_the_exit_code_is_3_and_the_error_names_the_package() {
    let (code, out, err) = masters(&[], "/nowhere/redis-server");
    assert_eq!((code, out.as_str()), (Some(3), ""));
    assert!(err.starts_with("masters: no redis-server: "), "{err}");
    assert!(err.contains("/nowhere/redis-server cannot be run"), "{err}");
    assert!(err.contains("apt-get install redis-server"), "{err}");
}

fn without_a_server_tests_are_ignored_or_fail_if_it_is_required() {
    let missing = (SERVER_VARIABLE, "/nowhere/redis-server");
    tests_without(
        missing,
        REQUIRE_VARIABLE,
        ["are ignored: no redis-server: ", "are required: no redis-server: "],
    );
}
