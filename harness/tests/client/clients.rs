//! The built-in client, and the honest client of the mutants: the behaviour that scenarios rely on
//! and that `client-check` does not check.

use std::time::Duration;

use redquorum_harness::stamp;
use redquorum_rig::Masters;
use redquorum_rig::trials::{Case, eventually};
use redquorum_scenario::client_protocol::{FailureReason, Notice, Op};

use crate::protocol::{BUILT_IN, Client, SOON, acquire, await_having, having, mutant_command};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_client_whose_input_ends_cleans_nothing_up,
        with_masters: a_watchdog_reports_each_extension_and_its_end,
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

fn a_client_whose_input_ends_cleans_nothing_up() {
    each(|mut client, masters| {
        // The keys do not expire before the test ends.
        assert!(client.ask("c1", acquire("r", 600_000, 0)).ok);
        await_having(masters, "r", 3);
        client.process.hang_up();
        let exit = client.process.wait(SOON);
        assert_eq!(exit.as_deref(), Some("it ended with exit code 0"));
        assert_eq!(having(masters, "r"), 3);
    });
}

fn a_watchdog_reports_each_extension_and_its_end() {
    each(|mut client, _| {
        let mut deadline = client.granted("c1", "r").deadline_ns.unwrap();
        let op = Op::KeepAlive { resource: "r".into(), max_ms: 2000 };
        assert!(client.ask("c1", op).ok);
        let end = stamp::later(stamp::now(), Duration::from_millis(2000));
        client.await_lost();
        let mut extensions = 0;
        for notice in &client.notices {
            match notice {
                Notice::Extended { deadline_ns, .. } => {
                    assert!(*deadline_ns > deadline && *deadline_ns <= end, "{notice:?}");
                    deadline = *deadline_ns;
                    extensions += 1;
                }
                Notice::Lost { at_ns, .. } => {
                    assert!(*at_ns >= deadline, "{notice:?}");
                }
                _ => {}
            }
        }
        assert!(extensions > 0, "{:?}", client.notices);
    });
}

fn masters_that_hang_do_not_keep_a_client_from_being_ready() {
    for command in [BUILT_IN, &mutant_command("none")] {
        let masters = Masters::start(3).unwrap();
        masters.kill(1).unwrap();
        masters.pause(2).unwrap();
        let mut client = Client::start(command, &masters);
        assert_eq!(client.acquire("c1", "r").why, Some(FailureReason::NoQuorum));
        masters.resume(2).unwrap();
        eventually("a majority replies again", || client.acquire("c1", "r").ok);
    }
}
