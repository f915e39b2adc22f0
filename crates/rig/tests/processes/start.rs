//! Masters start with the requested options, on free ports, or return an error with the reason.

use std::{
    io::{Read, Write},
    net::TcpListener,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use redquorum_rig::{Masters, RespValue, RigError, trials::Case};

use crate::support::Owner;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: five_masters_start_and_all_answer,
        with_masters: urls_name_the_ports_and_contain_the_password,
        with_masters: directives_and_arguments_reach_the_server,
        with_masters: a_unix_socket_answers,
        with_masters: a_bad_directive_fails_at_once_and_shows_the_log,
        with_masters: a_server_that_is_never_ready_is_given_up_in_time,
        with_masters: a_taken_port_is_passed_over,
        with_masters: the_port_of_a_killed_master_is_not_given_away,
        with_masters: the_server_of_someone_else_is_not_taken_for_ours,
        plain: none_and_too_many_are_refused,
    ]
}

fn five_masters_start_and_all_answer() {
    let masters = Masters::start(5).unwrap();
    assert_eq!(masters.len(), 5);
    for node in 1..=5 {
        assert_eq!(masters.ask(node, "PING").unwrap(), RespValue::Status("PONG".into()));
        assert_eq!(masters.ask(node, "DBSIZE").unwrap(), RespValue::Integer(0));
    }
    // The masters are independent: each has its own keys.
    masters.command(1, &[b"SET", b"key", b"two words"]).unwrap();
    assert_eq!(masters.ask(1, "GET key").unwrap(), RespValue::Bulk(b"two words".into()));
    assert_eq!(masters.ask(2, "GET key").unwrap(), RespValue::Nil);
}

fn urls_name_the_ports_and_contain_the_password() {
    let masters = Masters::start(1).unwrap();
    assert_eq!(masters.urls(), [format!("redis://127.0.0.1:{}", masters.port(1))]);

    let masters = Masters::builder().count(2).password("p@ss:w/rd").start().unwrap();
    let url = format!("redis://:p%40ss%3Aw%2Frd@127.0.0.1:{}", masters.port(2));
    assert_eq!(masters.url(2), url);
    assert_eq!(masters.urls().len(), 2);
    assert_eq!(masters.ask(1, "PING").unwrap().text().unwrap(), "PONG");
    let value = masters.ask(1, "CONFIG GET requirepass").unwrap();
    let expected = ["requirepass", "p@ss:w/rd"].map(|text| RespValue::Bulk(text.into()));
    assert_eq!(value, RespValue::Array(expected.into()));
}

fn directives_and_arguments_reach_the_server() {
    let masters = Masters::builder()
        .count(1)
        .config("maxmemory", "1mb")
        .args(["--rename-command", "FLUSHALL", ""])
        .start()
        .unwrap();
    let RespValue::Array(value) = masters.ask(1, "CONFIG GET maxmemory").unwrap() else { panic!() };
    assert_eq!(value[1], RespValue::Bulk(b"1048576".into()));
    // An error of the server is a reply, and not text that could be taken for a value.
    let reply = masters.ask(1, "FLUSHALL").unwrap();
    assert!(matches!(&reply, RespValue::Error(why) if why.starts_with("ERR unknown command")));
    assert_eq!(reply.text(), None);
}

fn a_unix_socket_answers() {
    let masters = Masters::builder().count(2).unix_socket().password("a b").start().unwrap();
    let path = masters.socket(2).unwrap();
    assert!(path.starts_with(masters.dir(2)));
    assert_eq!(masters.socket_url(2).unwrap(), format!("unix://{}?pass=a%20b", path.display()));
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(b"AUTH \"a b\"\r\nPING\r\n").unwrap();
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n+PONG\r\n");
    assert_eq!(Masters::start(1).unwrap().socket_url(1), None);
}

fn a_bad_directive_fails_at_once_and_shows_the_log() {
    let begun = Instant::now();
    let error = Masters::builder().count(2).config("no-such-directive", "1").start().unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(matches!(error, RigError::NotUp { .. }), "{error:?}");
    assert!(error.to_string().contains("the server ended"), "{error}");
    assert!(error.to_string().contains("no-such-directive"), "{error}");
}

fn a_server_that_is_never_ready_is_given_up_in_time() {
    let builder = Masters::builder().count(1).args(["--rename-command", "PING", ""]);
    let error = builder.within(Duration::from_secs(1)).start().unwrap_err().to_string();
    assert!(error.contains("not within 1s: it answers, but with Error("), "{error}");
    assert!(error.contains("eady to accept connections"), "its log is shown: {error}");
}

fn a_taken_port_is_passed_over() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().port();
    // The rig starts the server on that port without a check, as if the port was lost in between.
    let masters = Masters::builder().count(2).ports([taken]).start().unwrap();
    assert!((1..=2).all(|node| masters.port(node) != taken));
    assert!((1..=2).all(|node| masters.ask(node, "PING").is_ok()));
}

fn the_port_of_a_killed_master_is_not_given_away() {
    let masters = Masters::start(1).unwrap();
    masters.kill(1).unwrap();
    let others = Masters::builder().count(1).ports([masters.port(1)]).start().unwrap();
    assert_ne!(others.port(1), masters.port(1));
    masters.restart(1).unwrap();
    assert!(masters.ask(1, "PING").is_ok() && others.ask(1, "PING").is_ok());
}

fn the_server_of_someone_else_is_not_taken_for_ours() {
    // This owner uses another temporary directory, so it does not claim the port there.
    let mut owner = Owner::binary("1", "someone_else");
    let url = owner.read_until("redis://").pop().unwrap();
    let port = url.rsplit(':').next().unwrap().parse().unwrap();
    let masters = Masters::builder().count(1).ports([port]).start().unwrap();
    assert_ne!(masters.port(1), port, "it answers PING, but is not ours");
}

fn none_and_too_many_are_refused() {
    for asked in [0, 101] {
        let error = Masters::start(asked).unwrap_err();
        assert_eq!(error.to_string(), format!("{asked} masters were asked for: use 1 to 100"));
    }
}
