//! The mutants on real masters: each does what its name says, and the honest client does not.

use std::thread::sleep;
use std::time::Duration;

use redquorum_harness::client_check::check;
use redquorum_harness::client_protocol::{Answer, FailureReason};
use redquorum_harness::mutants::Mutant;
use redquorum_rig::Masters;
use redquorum_rig::trials::Case;

use crate::talk::{Client, acquire, await_having, having, mutant_command, step};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: the_honest_one_is_accepted,
        with_masters: who_keeps_no_order_is_not_fair,
        with_masters: all_are_granted_what_is_free,
        with_masters: no_deadline_check_takes_a_lease_that_is_over,
        with_masters: small_quorum_is_granted_by_a_minority,
        with_masters: server_twice_is_granted_by_one_of_three,
        with_masters: plain_del_frees_what_another_holds,
        with_masters: release_acknowledged_only_leaves_a_key,
        with_masters: blind_extend_extends_what_another_holds,
        with_masters: a_minority_extends,
        with_masters: one_token_comes_again,
        with_masters: a_silent_loss_is_not_told,
    ]
}

/// The replies of the honest client and of a mutant, each on three masters of its own.
fn both(name: &str, test: impl Fn(&mut Client, &Masters) -> Answer) -> [Answer; 2] {
    ["none", name].map(|name| {
        let masters = Masters::start(3).unwrap();
        test(&mut Client::start(&mutant_command(name), &masters), &masters)
    })
}

fn the_honest_one_is_accepted() {
    let mut page = Vec::new();
    let well = check(&mutant_command("none").join(" "), &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(well && !page.contains("skipped"), "{page}");
}

fn who_keeps_no_order_is_not_fair() {
    for mutant in [Mutant::JumpsQueue, Mutant::KeepsPlace] {
        let mut page = Vec::new();
        let well = check(&mutant_command(mutant.name()).join(" "), &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(
            !well && page.contains("wrong    fair: 3 processes that are told"),
            "{mutant}: {page}"
        );
    }
}

fn all_are_granted_what_is_free() {
    let masters = Masters::start(3).unwrap();
    for mutant in Mutant::ALL {
        let mut client = Client::start(&mutant_command(mutant.name()), &masters);
        let deadline = client.granted("c1", mutant.name()).deadline_ns.unwrap();
        assert!(client.extend("c1", mutant.name()).deadline_ns.unwrap() > deadline, "{mutant}");
        assert!(client.release("c1", mutant.name()).ok, "{mutant}");
        await_having(&masters, mutant.name(), 0);
    }
}

fn no_deadline_check_takes_a_lease_that_is_over() {
    let [honest, liar] = both("no-deadline-check", |client, masters| {
        (1..=3).for_each(|node| masters.pause(node).unwrap());
        let asked = client.say("c1", acquire("r", 500));
        sleep(Duration::from_millis(30));
        client.process.pause().unwrap();
        (1..=3).for_each(|node| masters.resume(node).unwrap());
        sleep(Duration::from_millis(600));
        client.process.resume().unwrap();
        client.answer(asked)
    });
    assert!(!honest.ok, "{honest:?}");
    assert!(liar.ok && liar.deadline_ns < liar.at_ns, "{liar:?}");
}

fn small_quorum_is_granted_by_a_minority() {
    let [honest, liar] = both("small-quorum", |client, masters| {
        (2..=3).for_each(|node| masters.kill(node).unwrap());
        client.acquire("c1", "r")
    });
    assert_eq!(honest.why, Some(FailureReason::NoQuorum));
    assert!(liar.ok, "{liar:?}");
}

fn server_twice_is_granted_by_one_of_three() {
    let [honest, liar] = both("server-twice", |client, masters| {
        (2..=3).for_each(|node| masters.kill(node).unwrap());
        client.acquire("c1", "r")
    });
    assert_eq!(honest.why, Some(FailureReason::NoQuorum));
    assert!(liar.ok, "{liar:?}");
}

fn plain_del_frees_what_another_holds() {
    let [honest, liar] = both("plain-del", |client, masters| {
        client.granted("c1", "r");
        assert_eq!(client.acquire("c2", "r").why, Some(FailureReason::Taken));
        sleep(Duration::from_millis(50));
        assert!(matches!(having(masters, "r"), 0 | 3));
        client.acquire("c3", "r")
    });
    assert_eq!(honest.why, Some(FailureReason::Taken));
    assert!(liar.ok, "{liar:?}");
}

fn release_acknowledged_only_leaves_a_key() {
    for (name, left) in [("none", 0), ("release-acknowledged-only", 1)] {
        let masters = Masters::start(3).unwrap();
        let mut client = Client::start(&mutant_command(name), &masters);
        masters.pause(3).unwrap();
        client.granted("c1", "r");
        client.release("c1", "r");
        masters.resume(3).unwrap();
        sleep(Duration::from_millis(100));
        assert_eq!(having(&masters, "r"), left, "{name}");
    }
}

fn blind_extend_extends_what_another_holds() {
    let [honest, liar] = both("extend-without-token-check", |client, masters| {
        client.granted("c1", "r");
        await_having(masters, "r", 3);
        (1..=3).for_each(|node| drop(masters.ask(node, "SET r another PX 500").unwrap()));
        client.extend("c1", "r")
    });
    assert!(!honest.ok, "{honest:?}");
    assert!(liar.ok, "{liar:?}");
}

fn a_minority_extends() {
    let [honest, liar] = both("extend-counts-minority", |client, masters| {
        client.granted("c1", "r");
        await_having(masters, "r", 3);
        (1..=2).for_each(|node| drop(masters.ask(node, "DEL r").unwrap()));
        client.extend("c1", "r")
    });
    assert!(!honest.ok, "{honest:?}");
    assert!(liar.ok, "{liar:?}");
}

fn one_token_comes_again() {
    for (name, again) in [("none", false), ("one-token", true)] {
        let masters = Masters::start(3).unwrap();
        let mut client = Client::start(&mutant_command(name), &masters);
        let mut token = |who: &str| {
            let token = client.granted(who, "r").token.unwrap();
            client.release(who, "r");
            token
        };
        let first = token("c1");
        assert_eq!(first == token("c1"), again, "{name}");
        assert_ne!(first, token("c2"), "{name}");
    }
}

fn a_silent_loss_is_not_told() {
    let [honest, liar] = both("silent-loss", |client, _| {
        client.granted("c1", "r");
        let told = client.is_told_lost(Duration::from_millis(1300));
        let answer = client.ask("c1", step(Some("r")));
        assert_eq!(told, !answer.ok);
        answer
    });
    assert_eq!(honest.why, Some(FailureReason::Lost));
    assert!(liar.ok, "{liar:?}");
}
