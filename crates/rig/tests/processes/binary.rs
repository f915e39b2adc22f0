//! The `masters` binary, and the harness that runs these tests.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

use redquorum_rig::{REQUIRE_VARIABLE, SERVER_VARIABLE, trials::Case};

use crate::{
    both::tests_without,
    support::{Owner, send},
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_signal_ends_the_binary_with_its_code_and_nothing_is_left,
        with_masters: it_kills_and_starts_masters_that_are_named_on_standard_input,
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

fn it_kills_and_starts_masters_that_are_named_on_standard_input() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_masters"));
    command.arg("2").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut orders, replies) = (child.stdin.take().unwrap(), child.stderr.take().unwrap());
    let mut replies = BufReader::new(replies).lines();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = out.find_map(|line| line.unwrap().strip_prefix("redis://").map(str::to_owned));
    let address = url.unwrap();
    let address = address.trim_end_matches('/').to_owned();
    let connects = || TcpStream::connect(&address).is_ok();
    for (order, reply, is_up) in [
        ("kill 1", "master 1 is killed", Some(false)),
        ("start 1", "master 1 runs, empty", Some(true)),
        ("pause 1", "master 1 stands still", None),
        ("resume 1", "master 1 goes on", Some(true)),
        ("kill 3", "write kill, start, pause or resume, and 1 to 2", Some(true)),
        ("end it", "write kill, start, pause or resume, and 1 to 2", Some(true)),
    ] {
        writeln!(orders, "{order}").unwrap();
        let line = replies.next().unwrap().unwrap();
        assert!(line.starts_with(reply), "{order}: {line}");
        assert!(is_up.is_none_or(|is_up| connects() == is_up), "{order}");
    }
    drop(orders);
    assert!(child.try_wait().unwrap().is_none(), "the end of its input has no effect");
    send("TERM", &child.id().to_string());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(!connects());
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
