//! The wall clock of a master steps, drifts and strobes as requested, and no other clock does.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use redquorum_rig::{Builder, ClockChange, Masters, RespValue, RigError, clocks_supported};

use super::Test;

/// Readings are cut to milliseconds, and Redis reads its clock once per turn of its event loop. A
/// clock at twenty times the rate turns one such millisecond into twenty.
const ROUNDED: i64 = 60;

tests![
    a_step_shortens_a_key_or_expires_it_and_a_cure_is_a_step_too,
    a_fast_clock_and_a_slow_one_run_at_their_rates,
    a_strobe_is_seen_in_every_second_period,
    no_other_master_sees_a_step_and_the_event_loop_does_not,
    a_change_while_a_master_is_dead_or_paused_holds_when_it_is_back,
    a_clock_without_effect_is_an_error,
    an_impossible_change_is_an_error_and_changes_nothing,
];

/// Tests that check nothing must not pass.
pub(crate) fn tests() -> &'static [(&'static str, Test)] {
    if clocks_supported().is_ok() {
        return TESTS;
    }
    &[("clocks_are_refused_with_a_reason", |builder| {
        let why = clocks_supported().unwrap_err().to_string();
        assert_eq!(builder.clocks().start().unwrap_err().to_string(), why);
        let arch = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
        assert!(!cfg!(target_os = "linux") || !arch, "they should be possible here: {why}");
    })]
}

fn start(builder: Builder, count: usize) -> Masters {
    builder.count(count).clocks().start().unwrap()
}

fn forward(seconds: u64) -> ClockChange {
    ClockChange::forward(Duration::from_secs(seconds))
}

fn back(seconds: u64) -> ClockChange {
    ClockChange::back(Duration::from_secs(seconds))
}

fn set(masters: &Masters, key: &str, millis: u64) {
    let reply = masters.ask(1, &format!("SET {key} value PX {millis}")).unwrap();
    assert_eq!(reply.text().unwrap(), "OK");
}

fn pttl(masters: &Masters, key: &str) -> i64 {
    match masters.ask(1, &format!("PTTL {key}")).unwrap() {
        RespValue::Integer(millis) => millis,
        other => panic!("PTTL: {other:?}"),
    }
}

fn real_millis() -> i64 {
    let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(real.as_millis()).unwrap()
}

/// How far a master's `TIME` is ahead of the real time, in milliseconds: at least and at most,
/// since the master read its clock between the request and the reply.
fn ahead(masters: &Masters, node: usize) -> (i64, i64) {
    let before = real_millis();
    let time = masters.ask(node, "TIME").unwrap();
    let after = real_millis();
    let RespValue::Array(parts) = time else { panic!("TIME: {time:?}") };
    let [seconds, micros] = [0, 1].map(|part| parts[part].text().unwrap().parse::<i64>().unwrap());
    let shown = seconds * 1000 + micros / 1000;
    (shown - after, shown - before)
}

fn is_within((low, high): (i64, i64), expected: (i64, i64)) -> bool {
    low <= expected.1 + ROUNDED && high >= expected.0 - ROUNDED
}

#[track_caller]
fn is_ahead(masters: &Masters, node: usize, expected: i64) {
    let shown = ahead(masters, node);
    assert!(is_within(shown, (expected, expected)), "{shown:?} is not {expected}");
}

/// A key's TTL, `ttl` less what passed since before it was set.
#[track_caller]
fn has_left(masters: &Masters, key: &str, ttl: i64, since: Instant) {
    let left = pttl(masters, key);
    let passed = millis(since.elapsed());
    assert!(is_within((left, left), (ttl - passed, ttl)), "{left} of {ttl} after {passed}");
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap()
}

fn a_step_shortens_a_key_or_expires_it_and_a_cure_is_a_step_too(builder: Builder) {
    let masters = start(builder, 1);
    let first = Instant::now();
    set(&masters, "key", 100_000);
    has_left(&masters, "key", 100_000, first);
    masters.set_clock(1, forward(60)).unwrap();
    has_left(&masters, "key", 40_000, first);
    is_ahead(&masters, 1, 60_000);
    masters.set_clock(1, forward(50)).unwrap();
    assert_eq!(pttl(&masters, "key"), -2);
    is_ahead(&masters, 1, 110_000);
    let second = Instant::now();
    set(&masters, "key", 100_000);
    masters.set_clock(1, back(300)).unwrap();
    has_left(&masters, "key", 400_000, second);
    set(&masters, "later", 100_000);
    masters.set_clock(1, ClockChange::Heal).unwrap();
    has_left(&masters, "key", 210_000, second);
    assert_eq!(pttl(&masters, "later"), -2, "healing was a step forward");
    is_ahead(&masters, 1, 0);
}

fn a_fast_clock_and_a_slow_one_run_at_their_rates(builder: Builder) {
    let masters = start(builder, 2);
    let hour: i64 = 3_600_000;
    set(&masters, "key", hour.unsigned_abs());
    let before = Instant::now();
    masters.set_clock(1, ClockChange::Rate(20.0)).unwrap();
    masters.set_clock(2, ClockChange::Rate(0.5)).unwrap();
    let changed = Instant::now();
    thread::sleep(Duration::from_millis(1200));
    let at_least = millis(changed.elapsed());
    let (fast, slow, left) = (ahead(&masters, 1), ahead(&masters, 2), pttl(&masters, "key"));
    let at_most = millis(before.elapsed()) + 1;
    assert!(is_within(fast, (19 * at_least, 19 * at_most)), "{fast:?} {at_least} {at_most}");
    assert!(is_within(slow, (-at_most / 2, -at_least / 2)), "{slow:?} {at_least} {at_most}");
    let expected = (hour - 20 * at_most, hour - 20 * at_least);
    assert!(is_within((left, left), expected), "{left} {expected:?}");
    // From twenty times the real rate to the real one: the gain stays.
    masters.set_clock(1, ClockChange::Rate(1.0)).unwrap();
    let gained = ahead(&masters, 1);
    thread::sleep(Duration::from_millis(100));
    let later = ahead(&masters, 1);
    assert!(is_within(later, gained), "{gained:?} {later:?}");
}

fn a_strobe_is_seen_in_every_second_period(builder: Builder) {
    let masters = start(builder, 1);
    let (by, every) = (Duration::from_secs(100), Duration::from_millis(50));
    let start = Instant::now();
    masters.set_clock(1, ClockChange::Strobe { by, every }).unwrap();
    let (mut jumps, mut was) = (0, false);
    while jumps < 8 {
        let shown = ahead(&masters, 1);
        let is = shown.0 > 50_000;
        let expected = if is { 100_000 } else { 0 };
        assert!(is_within(shown, (expected, expected)), "{shown:?} is not {expected}");
        jumps += u32::from(is != was);
        was = is;
        assert!(start.elapsed() < Duration::from_secs(30), "only {jumps} jumps");
    }
    assert!(start.elapsed() >= 6 * every, "{:?} is too early", start.elapsed());
    masters.set_clock(1, ClockChange::Strobe { by: Duration::ZERO, every }).unwrap();
    is_ahead(&masters, 1, 0);
}

fn no_other_master_sees_a_step_and_the_event_loop_does_not(builder: Builder) {
    let masters = start(builder, 3);
    masters.set_clock(2, forward(3600)).unwrap();
    for (node, expected) in [(1, 0), (2, 3_600_000), (3, 0)] {
        is_ahead(&masters, node, expected);
    }
    // A blocked client waits as long as it requested.
    let began = Instant::now();
    masters.set_clock(2, back(7200)).unwrap();
    assert_eq!(masters.ask(2, "BLPOP nothing 0.3").unwrap(), RespValue::Nil);
    assert!(began.elapsed() >= Duration::from_millis(290));
    // The master still serves a connection that existed before the step.
    let mut stream = TcpStream::connect(masters.address(2)).unwrap();
    masters.set_clock(2, forward(1_000_000)).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}

fn a_change_while_a_master_is_dead_or_paused_holds_when_it_is_back(builder: Builder) {
    let masters = start(builder, 1);
    masters.pause(1).unwrap();
    masters.set_clock(1, forward(10)).unwrap();
    masters.resume(1).unwrap();
    is_ahead(&masters, 1, 10_000);
    masters.kill(1).unwrap();
    masters.set_clock(1, forward(10)).unwrap();
    masters.restart(1).unwrap();
    is_ahead(&masters, 1, 20_000);
    masters.stop(1).unwrap();
    masters.restart(1).unwrap();
    is_ahead(&masters, 1, 20_000);
}

fn a_clock_without_effect_is_an_error(builder: Builder) {
    let masters = start(builder, 1);
    // The page is removed before the master restarts, so the master shows the real time.
    std::fs::remove_file(masters.dir(1).join("clock.page")).unwrap();
    masters.kill(1).unwrap();
    masters.set_clock(1, forward(10)).unwrap();
    let error = masters.restart(1).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, RigError::Clock { node: 1, .. }), "{text}");
    assert!(text.contains("TIME says ") && text.contains("should be between"), "{text}");
    let again = masters.set_clock(1, forward(1));
    assert!(matches!(again, Err(RigError::Clock { .. })), "{again:?}");
    // The master is up nevertheless, and a clock that shows the right time is no error.
    masters.set_clock(1, ClockChange::Heal).unwrap();
}

fn an_impossible_change_is_an_error_and_changes_nothing(builder: Builder) {
    let masters = builder.clone().count(1).start().unwrap();
    assert!(masters.clock(1).is_none() && !masters.dir(1).join("clock.so").exists());
    let error = masters.set_clock(1, forward(1)).unwrap_err().to_string();
    assert_eq!(error, "clocks cannot be set: the masters were started without Builder::clocks");
    let masters = start(builder, 1);
    masters.set_clock(1, forward(100)).unwrap();
    let before = masters.clock(1).unwrap().setting();
    let error = masters.set_clock(1, ClockChange::Rate(-1.0)).unwrap_err().to_string();
    assert_eq!(
        error,
        "the clock of master 1: rate -1: a clock cannot run at a rate of -1: use 0 to 1000000"
    );
    assert_eq!(masters.clock(1).unwrap().setting(), before);
    is_ahead(&masters, 1, 100_000);
}
