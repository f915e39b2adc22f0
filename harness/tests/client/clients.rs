//! The built-in client, and the honest client of the mutants: the behaviour that scenarios rely on.

use std::thread::sleep;
use std::time::{Duration, Instant};

use redquorum_harness::client_protocol::{FailureReason, Notice, Op};
use redquorum_harness::stamp;
use redquorum_rig::Masters;
use redquorum_rig::trials::Case;

use crate::talk::{BUILT_IN, Client, acquire, await_having, having, mutant_command, step};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_pause_past_the_deadline_is_seen_by_who_looks,
        with_masters: a_client_that_is_hung_up_on_cleans_nothing_up,
        with_masters: a_watchdog_tells_each_extension_and_its_end,
        with_masters: clients_of_one_process_are_rivals,
        with_masters: a_dropped_acquire_leaves_no_key,
        with_masters: masters_that_hang_do_not_keep_a_client_from_being_ready,
    ]
}

/// Runs a test with both clients, each on three masters.
fn each(test: impl Fn(Client, &Masters)) {
    for command in [BUILT_IN, &mutant_command("none")] {
        let masters = Masters::start(3).unwrap();
        test(Client::start(command, &masters), &masters);
    }
}

fn a_pause_past_the_deadline_is_seen_by_who_looks() {
    each(|mut client, _| {
        let deadline = client.granted("c1", "r").deadline_ns.unwrap();
        client.process.pause().unwrap();
        let unchecked = client.say("c1", step(None));
        let checked = client.say("c1", step(Some("r")));
        sleep(Duration::from_millis(1200));
        client.process.resume().unwrap();
        let late = client.answer(unchecked);
        assert!(late.ok && late.at_ns.unwrap() > deadline, "{late:?}");
        assert_eq!(client.answer(checked).why, Some(FailureReason::Lost));
        assert!(client.is_told_lost(Duration::from_secs(1)));
        assert_eq!(client.release("c1", "r").why, Some(FailureReason::Lost));
        assert!(client.granted("c1", "r").deadline_ns.unwrap() > stamp::now());
    });
}

fn a_client_that_is_hung_up_on_cleans_nothing_up() {
    each(|mut client, masters| {
        client.granted("c1", "r");
        await_having(masters, "r", 3);
        let start = Instant::now();
        client.process.hang_up();
        let exit = client.process.wait(Duration::from_secs(2));
        assert_eq!(exit.as_deref(), Some("it ended with exit code 0"));
        assert!(start.elapsed() < Duration::from_millis(900), "the keys have not expired");
        assert_eq!(having(masters, "r"), 3);
    });
}

fn a_watchdog_tells_each_extension_and_its_end() {
    each(|mut client, _| {
        let mut deadline = client.granted("c1", "r").deadline_ns.unwrap();
        let op = Op::KeepAlive { resource: "r".into(), max_ms: 2000 };
        assert!(client.ask("c1", op).ok);
        let end = stamp::later(stamp::now(), Duration::from_millis(2000));
        assert!(client.is_told_lost(Duration::from_secs(4)));
        let mut extensions = 0;
        for notice in &client.notices {
            match notice {
                Notice::Extended { deadline_ns, .. } => {
                    assert!(*deadline_ns > deadline && *deadline_ns <= end, "{notice:?}");
                    deadline = *deadline_ns;
                    extensions += 1;
                }
                Notice::Lost { at_ns, .. } => {
                    assert!((deadline..deadline + 200_000_000).contains(at_ns), "{notice:?}");
                }
                _ => {}
            }
        }
        assert!(extensions >= 3, "{:?}", client.notices);
    });
}

fn clients_of_one_process_are_rivals() {
    each(|mut client, masters| {
        client.granted("c1", "r");
        assert_eq!(client.acquire("c2", "r").why, Some(FailureReason::Taken));
        assert_eq!(client.ask("c2", step(Some("r"))).why, Some(FailureReason::Lost));
        assert!(client.ask("c1", step(Some("r"))).ok);
        let op = Op::Acquire { resource: "r".into(), ttl_ms: 1000, wait_ms: 5000, again: false };
        let waiting = client.say("c2", op);
        sleep(Duration::from_millis(50));
        assert!(client.release("c1", "r").ok);
        assert!(client.answer(waiting).ok);
        assert!(client.release("c2", "r").ok);
        await_having(masters, "r", 0);
    });
}

fn a_dropped_acquire_leaves_no_key() {
    each(|mut client, masters| {
        (1..=2).for_each(|node| masters.pause(node).unwrap());
        let acquire = client.say("c1", acquire("r", 1000));
        sleep(Duration::from_millis(20));
        assert_eq!(having_alive(masters), 1);
        assert!(client.ask("c1", Op::Cancel { request: acquire }).ok);
        assert_eq!(client.answer(acquire).why, Some(FailureReason::Cancelled));
        (1..=2).for_each(|node| masters.resume(node).unwrap());
        await_having(masters, "r", 0);
    });
}

fn having_alive(masters: &Masters) -> usize {
    usize::from(masters.ask(3, "GET r").unwrap().text().is_some())
}

fn masters_that_hang_do_not_keep_a_client_from_being_ready() {
    for command in [BUILT_IN, &mutant_command("none")] {
        let masters = Masters::start(3).unwrap();
        masters.kill(1).unwrap();
        masters.pause(2).unwrap();
        let start = Instant::now();
        let mut client = Client::start(command, &masters);
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        assert_eq!(client.acquire("c1", "r").why, Some(FailureReason::NoQuorum));
        masters.resume(2).unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        while !client.acquire("c1", "r").ok {
            assert!(Instant::now() < until, "a majority answers again");
            client.pass(Duration::from_millis(20));
        }
    }
}
