//! Containers start at the same time, from the requested image and with the requested options, or
//! return an error with the reason.

use std::{net::TcpStream, time::Duration};

use redquorum_rig::{Cluster, Containers, Persistence, RespValue, RigError, engine, trials::Case};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_containers: five_containers_start_and_all_answer,
        with_containers: the_engine_says_what_it_is,
        with_containers: directives_reach_the_server,
        with_containers: they_listen_on_loopback_only,
        with_containers: a_bad_directive_fails_at_once_and_shows_the_log,
        with_containers: a_server_that_is_never_ready_is_given_up_in_time,
        plain: none_and_too_many_are_refused,
    ]
}

fn five_containers_start_and_all_answer() {
    let containers = Containers::start(5).unwrap();
    assert_eq!(containers.len(), 5);
    for node in 1..=5 {
        assert_eq!(containers.ask(node, "PING").unwrap(), RespValue::Status("PONG".into()));
        assert_eq!(containers.ask(node, "DBSIZE").unwrap(), RespValue::Integer(0));
    }
    // The masters are independent: each has its own keys.
    containers.command(1, &[b"SET", b"key", b"two words"]).unwrap();
    assert_eq!(containers.ask(1, "GET key").unwrap(), RespValue::Bulk(b"two words".into()));
    assert_eq!(containers.ask(2, "GET key").unwrap(), RespValue::Nil);

    let (image, version) = (containers.image(), containers.version());
    let described = containers.describe();
    assert!(described.ends_with(&format!(" {version} in image {image}, 5 containers")));
    assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{described}");
}

fn the_engine_says_what_it_is() {
    let engine = engine().unwrap();
    let shown = engine.to_string();
    assert!(shown.starts_with("engine ") && shown.contains(engine.version()), "{shown}");
    assert!(shown.ends_with(engine.address()), "{shown}");
}

fn directives_reach_the_server() {
    let builder = Containers::builder().count(1).config("maxmemory", "1mb");
    let containers = builder.persistence(Persistence::AofAlways).start().unwrap();
    let value = |name: &str| match containers.ask(1, &format!("CONFIG GET {name}")).unwrap() {
        RespValue::Array(pair) => pair[1].text().unwrap().into_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(value("maxmemory"), "1048576");
    assert_eq!((value("appendonly"), value("appendfsync")), ("yes".into(), "always".into()));
}

fn they_listen_on_loopback_only() {
    let containers = Containers::start(1).unwrap();
    let address = containers.address(1);
    assert!(address.ip().is_loopback());
    // All of 127/8 is loopback, but only one address of it was requested.
    let other = ([127, 0, 0, 2], address.port()).into();
    let error = TcpStream::connect_timeout(&other, Duration::from_secs(1)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

fn a_bad_directive_fails_at_once_and_shows_the_log() {
    let error =
        Containers::builder().count(2).config("no-such-directive", "1").start().unwrap_err();
    assert!(matches!(error, RigError::NotUp { node: 1, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("the server ended") && text.contains("no-such-directive"), "{text}");
}

fn a_server_that_is_never_ready_is_given_up_in_time() {
    let builder = Containers::builder().count(1).within(Duration::from_secs(3));
    // The server replies, but only with errors.
    let error = builder.config("requirepass", "secret").start().unwrap_err();
    assert!(error.to_string().contains("NOAUTH"), "{error}");
}

fn none_and_too_many_are_refused() {
    for count in [0, 101] {
        let error = Containers::start(count).unwrap_err();
        assert_eq!(error.to_string(), format!("{count} masters were asked for: use 1 to 100"));
    }
}
