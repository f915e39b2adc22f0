//! The wall clock of a master steps, drifts and strobes as requested, and no other clock does.

use std::{
    io::Read,
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use redquorum_rig::{
    ClockChange, Cluster, Masters, RespValue, RigError, clocks_supported,
    trials::{Case, plain},
};

/// An allowance in milliseconds for a busy machine between two readings.
const SLACK: i64 = 500;

pub(crate) fn cases() -> Vec<Case> {
    if let Err(why) = clocks_supported() {
        // Tests that check nothing must not pass.
        return vec![plain("clocks_are_refused_with_a_reason", move || {
            let error = Masters::builder().count(1).clocks().start().unwrap_err();
            assert_eq!(error.to_string(), why.to_string());
            let arch = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
            assert!(!cfg!(target_os = "linux") || !arch, "they should be possible here: {why}");
        })];
    }
    cases![
        with_masters: a_step_forward_shortens_a_key_and_a_longer_one_expires_it,
        with_masters: a_step_back_lengthens_a_key_and_a_cure_is_a_step_too,
        with_masters: a_fast_clock_and_a_slow_one_run_at_their_rates,
        with_masters: a_strobe_is_seen_in_every_second_period,
        with_masters: no_other_master_sees_a_step_and_the_event_loop_does_not,
        with_masters: a_clock_survives_the_restart_of_its_master,
        with_masters: a_change_while_a_master_is_dead_or_paused_holds_when_it_is_back,
        with_masters: each_of_many_steps_is_obeyed,
        with_masters: a_clock_that_is_not_obeyed_is_an_error,
        with_masters: an_impossible_change_is_an_error_and_changes_nothing,
        with_masters: masters_without_clocks_say_so,
        with_masters: no_client_ever_sees_half_a_change,
        with_masters: clocks_are_set_through_any_cluster,
    ]
}

fn masters(count: usize) -> Masters {
    Masters::builder().count(count).clocks().start().unwrap()
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

/// How far a master's `TIME` is ahead of the real time, in milliseconds.
fn ahead(masters: &Masters, node: usize) -> i64 {
    millis_ahead(&masters.ask(node, "TIME").unwrap())
}

pub(crate) fn millis_ahead(time: &RespValue) -> i64 {
    let RespValue::Array(parts) = time else { panic!("TIME: {time:?}") };
    let [seconds, micros] = [0, 1].map(|part| parts[part].text().unwrap().parse::<i64>().unwrap());
    seconds * 1000 + micros / 1000 - real_millis()
}

pub(crate) fn real_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

#[track_caller]
fn about(value: i64, expected: i64) {
    assert!((value - expected).abs() <= SLACK, "{value} is not about {expected}");
}

fn a_step_forward_shortens_a_key_and_a_longer_one_expires_it() {
    let masters = masters(1);
    set(&masters, "key", 10_000);
    about(pttl(&masters, "key"), 10_000);
    masters.set_clock(1, forward(8)).unwrap();
    about(pttl(&masters, "key"), 2000);
    about(ahead(&masters, 1), 8000);
    masters.set_clock(1, forward(7)).unwrap();
    assert_eq!(pttl(&masters, "key"), -2);
    about(ahead(&masters, 1), 15_000);
}

fn a_step_back_lengthens_a_key_and_a_cure_is_a_step_too() {
    let masters = masters(1);
    set(&masters, "key", 10_000);
    masters.set_clock(1, back(60)).unwrap();
    about(pttl(&masters, "key"), 70_000);
    set(&masters, "later", 10_000);
    masters.set_clock(1, ClockChange::Cure).unwrap();
    about(pttl(&masters, "key"), 10_000);
    assert_eq!(pttl(&masters, "later"), -2, "the cure was a step forward");
    about(ahead(&masters, 1), 0);
}

fn a_fast_clock_and_a_slow_one_run_at_their_rates() {
    let masters = masters(2);
    set(&masters, "key", 100_000);
    let began = Instant::now();
    masters.set_clock(1, ClockChange::Rate(20.0)).unwrap();
    masters.set_clock(2, ClockChange::Rate(0.5)).unwrap();
    thread::sleep(Duration::from_millis(1200));
    let (fast, slow) = (ahead(&masters, 1), ahead(&masters, 2));
    let left = pttl(&masters, "key");
    let real = i64::try_from(began.elapsed().as_millis()).unwrap();
    about(fast, 19 * real);
    assert!((slow + real / 2).abs() <= 100, "{slow} after {real}");
    about(left, 100_000 - 20 * real);
    // From twice the real rate to the real one: the gain stays.
    masters.set_clock(1, ClockChange::Rate(1.0)).unwrap();
    let gained = ahead(&masters, 1);
    thread::sleep(Duration::from_millis(100));
    assert!((ahead(&masters, 1) - gained).abs() <= 20);
}

fn a_strobe_is_seen_in_every_second_period() {
    let masters = masters(1);
    let (by, every) = (Duration::from_secs(100), Duration::from_millis(50));
    masters.set_clock(1, ClockChange::Strobe { by, every }).unwrap();
    let (mut low, mut high, mut jumps, mut was) = (0, 0, 0, false);
    let until = Instant::now() + Duration::from_millis(600);
    while Instant::now() < until {
        let shown = ahead(&masters, 1);
        let is = shown > 50_000;
        about(shown, if is { 100_000 } else { 0 });
        *(if is { &mut high } else { &mut low }) += 1;
        jumps += usize::from(is != was);
        was = is;
    }
    assert!(low > 5 && high > 5 && (6..=12).contains(&jumps), "{low}, {high}, {jumps}");
    masters.set_clock(1, ClockChange::Strobe { by: Duration::ZERO, every }).unwrap();
    about(ahead(&masters, 1), 0);
}

fn no_other_master_sees_a_step_and_the_event_loop_does_not() {
    let masters = masters(3);
    masters.set_clock(2, forward(3600)).unwrap();
    let seen = [1, 2, 3].map(|node| ahead(&masters, node));
    for (seen, expected) in seen.into_iter().zip([0, 3_600_000, 0]) {
        about(seen, expected);
    }
    // A blocked client waits as long as it requested.
    let began = Instant::now();
    masters.set_clock(2, back(7200)).unwrap();
    assert_eq!(masters.ask(2, "BLPOP nothing 0.3").unwrap(), RespValue::Nil);
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(290) && waited < Duration::from_millis(900));
    // The master still serves a connection that existed before the step.
    let mut stream = TcpStream::connect(masters.address(2)).unwrap();
    masters.set_clock(2, forward(1_000_000)).unwrap();
    std::io::Write::write_all(&mut stream, b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}

fn a_clock_survives_the_restart_of_its_master() {
    let masters = masters(1);
    masters.set_clock(1, forward(100)).unwrap();
    masters.restart(1).unwrap();
    about(ahead(&masters, 1), 100_000);
    masters.stop(1).unwrap();
    masters.restart(1).unwrap();
    about(ahead(&masters, 1), 100_000);
    masters.set_clock(1, ClockChange::Cure).unwrap();
    about(ahead(&masters, 1), 0);
}

fn a_change_while_a_master_is_dead_or_paused_holds_when_it_is_back() {
    let masters = masters(1);
    masters.pause(1).unwrap();
    let began = Instant::now();
    masters.set_clock(1, forward(10)).unwrap();
    assert!(began.elapsed() < Duration::from_millis(500), "it is not waited for");
    masters.resume(1).unwrap();
    about(ahead(&masters, 1), 10_000);
    masters.kill(1).unwrap();
    masters.set_clock(1, forward(10)).unwrap();
    masters.restart(1).unwrap();
    about(ahead(&masters, 1), 20_000);
}

fn each_of_many_steps_is_obeyed() {
    let masters = masters(1);
    for _ in 0..200 {
        masters.set_clock(1, forward(1)).unwrap();
    }
    about(ahead(&masters, 1), 200_000);
}

fn a_clock_that_is_not_obeyed_is_an_error() {
    let masters = masters(1);
    // The page is removed before the master restarts, so the master shows the real time.
    std::fs::remove_file(masters.dir(1).join("clock.page")).unwrap();
    masters.kill(1).unwrap();
    masters.set_clock(1, forward(10)).unwrap();
    let error = masters.restart(1).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, RigError::Clock { node: 1, .. }), "{text}");
    assert!(text.contains("TIME says ") && text.contains("should be between"), "{text}");
    assert!(matches!(masters.set_clock(1, forward(1)), Err(RigError::Clock { .. })));
    // The master is up nevertheless, and a clock that shows the right time is no error.
    masters.set_clock(1, ClockChange::Cure).unwrap();
}

fn an_impossible_change_is_an_error_and_changes_nothing() {
    let masters = masters(1);
    masters.set_clock(1, forward(100)).unwrap();
    let before = masters.clock(1).unwrap().setting();
    let error = masters.set_clock(1, ClockChange::Rate(-1.0)).unwrap_err().to_string();
    assert_eq!(
        error,
        "the clock of master 1: rate -1: a clock cannot run at a rate of -1: use 0 to 1000000"
    );
    assert_eq!(masters.clock(1).unwrap().setting(), before);
    about(ahead(&masters, 1), 100_000);
}

fn masters_without_clocks_say_so() {
    let masters = Masters::start(1).unwrap();
    assert!(masters.clock(1).is_none() && !masters.dir(1).join("clock.so").exists());
    let error = masters.set_clock(1, forward(1)).unwrap_err().to_string();
    assert_eq!(error, "clocks cannot be set: the masters were started without Builder::clocks");
}

fn no_client_ever_sees_half_a_change() {
    const READERS: usize = 20;
    const FAR: i64 = 500_000_000;
    let masters = masters(1);
    let clock = masters.clock(1).unwrap();
    let stop = AtomicBool::new(false);
    // The number of readings of each of the two valid times.
    let read = || {
        let mut seen = [0_u64; 2];
        while !stop.load(Relaxed) {
            let shown = ahead(&masters, 1);
            let which = [0, FAR].iter().position(|set| (shown - set).abs() <= 10 * SLACK);
            seen[which.unwrap_or_else(|| panic!("{shown} was never set"))] += 1;
        }
        seen
    };
    let (seen, writes) = thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
        let until = Instant::now() + Duration::from_millis(1500);
        let mut writes = 0_u64;
        while Instant::now() < until {
            for change in [forward(500_000), ClockChange::Rate(0.0), ClockChange::Cure] {
                clock.change(change).unwrap();
                writes += 1;
            }
        }
        stop.store(true, Relaxed);
        let seen = readers.into_iter().map(|reader| reader.join().unwrap());
        (seen.fold([0_u64; 2], |sum, seen| [sum[0] + seen[0], sum[1] + seen[1]]), writes)
    });
    assert!(seen[0] > 20 && seen[1] > 20 && writes > 1000, "{seen:?}, {writes}");
}

fn clocks_are_set_through_any_cluster() {
    let masters = masters(2);
    let cluster: &dyn Cluster = &masters;
    assert!(cluster.describe().ends_with(", 2 processes"), "{}", cluster.describe());
    assert!(cluster.describe().contains(&cluster.version()));
    assert_eq!((cluster.len(), cluster.address(2)), (2, ([127, 0, 0, 1], masters.port(2)).into()));
    cluster.set_clock(2, forward(50)).unwrap();
    about(millis_ahead(&cluster.command(2, &[b"TIME"]).unwrap()), 50_000);
    cluster.pause(2).unwrap();
    cluster.resume(2).unwrap();
    cluster.stop(2).unwrap();
    cluster.kill(2).unwrap();
    assert!(matches!(cluster.stop(2), Err(RigError::NotRunning { node: 2 })));
    cluster.restart(2).unwrap();
    about(millis_ahead(&cluster.command(2, &[b"TIME"]).unwrap()), 50_000);
}
