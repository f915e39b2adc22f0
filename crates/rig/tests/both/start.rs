//! Masters start with the requested options, or return an error with the reason.

use std::time::Duration;

use redquorum_rig::{Builder, RespValue, RigError};

tests![
    five_masters_start_and_all_answer,
    options_reach_the_server,
    a_bad_directive_fails_at_once_and_shows_the_log,
    a_server_that_is_never_ready_is_given_up_in_time,
    none_and_too_many_are_refused,
];

fn five_masters_start_and_all_answer(builder: Builder) {
    let masters = builder.start().unwrap();
    assert_eq!((masters.len(), masters.urls().len()), (5, 5));
    // The program may have any name, such as `valkey-server` or that of an older Redis.
    let description = masters.describe();
    let version = description.split(' ').nth(1).is_some_and(|word| word.split('.').count() == 3);
    assert!(version && description.contains(", 5 "), "{description}");
    for node in 1..=5 {
        assert_eq!(masters.ask(node, "PING").unwrap(), RespValue::Status("PONG".into()));
        assert_eq!(masters.ask(node, "DBSIZE").unwrap(), RespValue::Integer(0));
        assert_eq!(masters.url(node), format!("redis://127.0.0.1:{}", masters.port(node)));
    }
    // The masters are independent: each has its own keys.
    masters.command(1, &[b"SET", b"key", b"two words"]).unwrap();
    assert_eq!(masters.ask(1, "GET key").unwrap(), RespValue::Bulk(b"two words".into()));
    assert_eq!(masters.ask(2, "GET key").unwrap(), RespValue::Nil);
}

fn options_reach_the_server(builder: Builder) {
    let builder = builder.count(2).config("maxmemory", "1mb").password("p@ss:w/rd");
    let masters = builder.args(["--rename-command", "FLUSHALL", ""]).start().unwrap();
    for (name, value) in [("maxmemory", "1048576"), ("requirepass", "p@ss:w/rd")] {
        let expected = [name, value].map(|text| RespValue::Bulk(text.into()));
        let found = masters.ask(1, &format!("CONFIG GET {name}")).unwrap();
        assert_eq!(found, RespValue::Array(expected.into()));
    }
    let url = format!("redis://:p%40ss%3Aw%2Frd@127.0.0.1:{}", masters.port(2));
    assert_eq!(masters.url(2), url);
    // An error of the server is a reply, and not text that could be taken for a value.
    let reply = masters.ask(1, "FLUSHALL").unwrap();
    assert!(matches!(&reply, RespValue::Error(why) if why.starts_with("ERR unknown command")));
    assert_eq!(reply.text(), None);
}

fn a_bad_directive_fails_at_once_and_shows_the_log(builder: Builder) {
    let error = builder.count(2).config("no-such-directive", "1").start().unwrap_err();
    assert!(matches!(error, RigError::NotUp { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("the server ended") && text.contains("no-such-directive"), "{text}");
}

fn a_server_that_is_never_ready_is_given_up_in_time(builder: Builder) {
    let builder = builder.count(1).args(["--rename-command", "PING", ""]);
    let error = builder.within(Duration::from_secs(1)).start().unwrap_err().to_string();
    assert!(error.contains("not within 1s: it answers, but with Error("), "{error}");
    assert!(error.contains("eady to accept connections"), "its log is shown: {error}");
}

fn none_and_too_many_are_refused(builder: Builder) {
    for asked in [0, 101] {
        let error = builder.clone().count(asked).start().unwrap_err();
        assert_eq!(error.to_string(), format!("{asked} masters were asked for: use 1 to 100"));
    }
}
