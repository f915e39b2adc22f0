//! A link with a guard: what it sends, and when it trusts a master.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::{Command, Greeting};
use redquorum_protocol::{
    Admitted, Bounds, Cause, Distrust, Drift, Fingerprint, Guard, LinkEffect, LinkInput, MastersId,
    Reply, RunId, Time,
};

use super::bench::*;

const S: Duration = Duration::from_secs(1);
const MARKER: &str = "a 3000";

fn guard() -> Guard {
    Guard::new(3 * S, Drift::default(), 7).unwrap()
}

/// A link that is connected to run "a" of a master with this boot marker.
fn greeted(boot: Option<&str>) -> Bench {
    let mut bench = Bench::guarded(Bounds::for_node_timeout(50 * MS), guard());
    bench.greet(1, with_boot(1, "a", boot));
    bench
}

fn with_boot(epoch: u64, run: &str, boot: Option<&str>) -> Greeting {
    Greeting { boot: boot.map(Arc::from), ..greeting(epoch, run) }
}

fn shows(boot: &str, probation: &str) -> Reply {
    let text = |text: &str| (!text.is_empty()).then(|| Arc::from(text));
    Reply::Marked { boot: text(boot), probation: text(probation) }
}

/// The guard's check, which must be the only effect.
fn look(bench: &mut Bench) -> (Option<String>, Option<String>) {
    match &bench.look()[..] {
        [LinkEffect::Write(Command::Watch { begin, ended, run_id, marker, .. })] => {
            assert_eq!((run_id, &**marker), (&RunId(Arc::from("a")), MARKER));
            (begin.as_deref().map(str::to_owned), ended.as_deref().map(str::to_owned))
        }
        other => panic!("{other:?}"),
    }
}

fn distrusted(tag: u64, why: Distrust, left: Duration) -> TestEffect {
    unknown(tag, Cause::Distrusted { why, left: Some(left) })
}

#[test]
fn a_master_without_a_marker_gets_no_grants_but_extensions_and_clean_ups() {
    let mut bench = greeted(None);
    look(&mut bench);
    bench.set(1, 1);
    assert_eq!(bench.look(), [distrusted(1, Distrust::Unmarked, guard().quarantine())]);
    assert_eq!(bench.link.claimed(), 0, "nothing was sent, so nothing is owed");
    bench.keep(2, 2);
    assert!(matches!(bench.look()[..], [LinkEffect::Write(Command::Keep { .. })]));
    bench.clean_up(2, 3);
    assert_eq!(bench.look(), [write_delete(2)]);
}

#[test]
fn a_grant_that_met_another_marker_is_unknown_and_the_watch_begins() {
    let mut bench = greeted(Some(MARKER));
    bench.set(1, 1);
    bench.set(2, 2);
    bench.look();
    bench.reply(1, shows("", ""));
    bench.reply(1, shows("", ""));
    let forgot = |tag| distrusted(tag, Distrust::Forgot, guard().quarantine());
    assert_eq!(bench.look(), [forgot(1), forgot(2)]);
    // The clean-up stays pending: the link does not rely on the script having set nothing.
    assert_eq!(bench.link.claimed(), 2);
    bench.pass(Duration::ZERO);
    let (begin, _) = look(&mut bench);
    bench.reply(1, shows("", &begin.unwrap()));
    bench.set(3, 3);
    assert_eq!(bench.look(), [forgot(3)], "why it began is remembered");
}

#[test]
fn a_grant_that_met_a_newer_marker_of_the_same_process_costs_one_vote() {
    let mut bench = greeted(Some("b 3000 always"));
    look(&mut bench);
    bench.reply(1, shows(MARKER, ""));
    bench.set(1, 1);
    bench.look();
    bench.reply(1, shows("a 3000 always", ""));
    assert_eq!(bench.look(), [distrusted(1, Distrust::Forgot, Duration::ZERO)]);
    bench.set(2, 2);
    assert!(matches!(&bench.look()[..],
        [LinkEffect::Write(Command::Guarded { marker, .. })] if &**marker == "a 3000 always"));
}

#[test]
fn a_master_that_is_busy_at_a_look_is_neither_distrusted_for_it_nor_watched_anew() {
    let busy = || Reply::Unknown(Cause::Error(Arc::from("BUSY Redis is busy running a script.")));
    let mut bench = greeted(None);
    let (begin, _) = look(&mut bench);
    bench.reply(1, shows("", &begin.clone().unwrap()));
    for _ in 0..5 {
        bench.pass(S);
        look(&mut bench);
        bench.reply(1, busy());
    }
    bench.pass(S);
    assert_eq!(look(&mut bench).1, begin, "watched for a whole quarantine");
    let mut bench = greeted(Some(MARKER));
    bench.handle(LinkInput::Probe(1));
    bench.look();
    bench.reply(1, busy());
    bench.reply(1, busy());
    bench.look();
    bench.set(2, 2);
    assert!(matches!(bench.look()[..], [LinkEffect::Write(Command::Guarded { .. })]));
}

#[test]
fn one_look_is_under_way_at_a_time_and_a_stalled_link_looks_no_more() {
    let mut bench = greeted(None);
    look(&mut bench);
    bench.pass(50 * MS);
    assert_eq!(bench.look(), []);
    bench.pass(S);
    assert!(matches!(bench.look()[..], [LinkEffect::Dial(2)]), "stalled");
    bench.pass(S);
    assert_eq!(bench.look(), []);
}

#[test]
fn a_master_of_another_set_is_checked_and_never_watched_until_its_marker_is_gone() {
    let [ours, theirs] = ["ours", "theirs"].map(|it| MastersId::Of(Fingerprint::of_name(it)));
    let own = format!("a 3000 masters={ours}");
    let other = format!("a 3000 masters={theirs}");
    let mut bench = Bench::guarded(Bounds::for_node_timeout(50 * MS), guard().over(ours));
    bench.greet(1, with_boot(1, "a", Some(&other)));
    let look = |bench: &mut Bench| match &bench.look()[..] {
        [LinkEffect::Write(Command::Watch { begin, ended, marker, .. })] => {
            assert_eq!((&**marker, ended), (&*own, &None));
            begin.is_some()
        }
        other => panic!("{other:?}"),
    };
    assert!(!look(&mut bench), "no wait may initialize it as ours");
    bench.set(1, 1);
    let why = Distrust::OtherMasters { marked: Some(Admitted::only(theirs)), ours };
    assert_eq!(bench.look(), [unknown(1, Cause::Distrusted { why, left: None })]);
    for _ in 0..10 {
        bench.reply(1, shows(&other, ""));
        bench.pass(guard().quarantine());
        assert!(!look(&mut bench));
    }
    // The marker was deleted: probation starts as for any other master.
    bench.reply(1, shows("", ""));
    bench.pass(S);
    assert!(look(&mut bench));
    bench.reply(1, shows(&own, ""));
    bench.set(2, 2);
    assert!(
        matches!(&bench.look()[..], [LinkEffect::Write(Command::Guarded { marker, .. })] if **marker == *own)
    );
    // If the marker changes after the lock trusted it, the next command that would grant reports
    // that.
    bench.reply(1, shows(&other, ""));
    let why = Distrust::OtherMasters { marked: Some(Admitted::only(theirs)), ours };
    assert!(bench.look().contains(&unknown(2, Cause::Distrusted { why, left: None })));
}

/// A client of the old masters, one that moves, and one of the new masters, beside a master that
/// goes through the steps of the move. No step that admits a client costs it a vote, and none that
/// does not lets it acquire or extend.
#[test]
fn a_step_of_a_move_costs_no_vote_of_those_that_it_admits_and_ends_those_that_it_does_not() {
    let [from, to] = ["a", "b"].map(Fingerprint::of_name);
    let clients = [MastersId::Of(from), MastersId::Moving { from, to }, MastersId::Of(to)];
    for (ours, admitted_at) in clients.into_iter().zip([0..=1, 1..=3, 3..=4]) {
        let own = format!("a 3000 masters={ours}");
        for step in 0..=4 {
            let mut bench = Bench::guarded(Bounds::for_node_timeout(50 * MS), guard().over(ours));
            let shown = format!("a 3000 masters={}", Admitted::at_step(step, from, to));
            bench.greet(1, with_boot(1, "a", Some(&shown)));
            drop(bench.look());
            let tag = step as u64 * 2;
            bench.set(tag, tag);
            let sent = bench.look();
            bench.keep(tag, tag + 1);
            let kept = bench.look();
            if admitted_at.contains(&step) {
                assert!(
                    matches!(&sent[..], [LinkEffect::Write(Command::Guarded { marker, .. })] if **marker == *own),
                    "{ours} at step {step}: {sent:?}"
                );
                let admits = format!("- masters={ours}");
                assert!(
                    matches!(&kept[..], [LinkEffect::Write(Command::Keep { marker: Some(marker), .. })] if **marker == *admits),
                    "{ours} at step {step}: {kept:?}"
                );
            } else {
                for (tag, effects) in [(tag, sent), (tag + 1, kept)] {
                    let why =
                        guard().over(ours).check(Some(&shown), Some(&RunId("a".into())), false);
                    let cause = Cause::Distrusted { why: why.unwrap_err(), left: None };
                    assert_eq!(effects, [unknown(tag, cause)], "{ours} at step {step}");
                }
            }
        }
    }
}

#[test]
fn a_probe_looks_at_the_marker_once_more_and_counts_only_where_it_is_there() {
    let mut bench = greeted(Some(MARKER));
    let probe = |bench: &mut Bench, tag| {
        bench.handle(LinkInput::Probe(tag));
        match &bench.look()[..] {
            [LinkEffect::Write(look), LinkEffect::Write(Command::Probe)] => {
                let Command::Watch { begin: None, ended: None, .. } = look else {
                    panic!("it changes something: {look:?}")
                };
            }
            other => panic!("{other:?}"),
        }
    };
    probe(&mut bench, 1);
    bench.reply(1, shows(MARKER, "").stamped(1));
    bench.reply(1, Reply::Alive);
    assert_eq!(bench.look(), [LinkEffect::Reply(1, Reply::Alive)]);
    probe(&mut bench, 2);
    bench.reply(1, shows("", "").stamped(2));
    bench.reply(1, Reply::Alive);
    assert_eq!(bench.look(), [distrusted(2, Distrust::Forgot, guard().quarantine())]);
    // The link checks the marker anyway, so the probe adds no check.
    bench.handle(LinkInput::Probe(3));
    assert_eq!(bench.look(), [LinkEffect::Write(Command::Probe)]);
    bench.reply(1, Reply::Unknown(Cause::Error(Arc::from("READONLY"))));
    assert_eq!(bench.look(), [unknown(3, Cause::Error(Arc::from("READONLY")))]);
}

/// A link to a master without a marker whose connections last for half a quarantine at most. The
/// next process is `next(epoch)`, and shows the probation key `key(epoch)`. Returns the marker that
/// the link ends with.
fn recycled(next: fn(u64) -> &'static str, key: fn(u64) -> &'static str) -> Option<Arc<str>> {
    let mut bench = Bench::guarded(Bounds::for_node_timeout(50 * MS), guard());
    let mut epoch = 1;
    bench.greet(epoch, with_boot(epoch, next(epoch), None));
    for _ in 0..4 {
        for _ in 0..2 {
            let begun = bench.look();
            let [LinkEffect::Write(Command::Watch { begin: Some(_), ended, marker, .. })] =
                &begun[..]
            else {
                panic!("{begun:?}")
            };
            if ended.is_some() {
                assert_eq!(ended.as_deref(), Some(key(epoch)));
                return Some(marker.clone());
            }
            bench.reply(epoch, shows("", key(epoch)));
            bench.pass(S);
        }
        bench.look();
        bench.close(epoch);
        bench.pass(S);
        epoch += 1;
        bench.look();
        bench.greet(epoch, with_boot(epoch, next(epoch), None));
    }
    None
}

#[test]
fn a_quarantine_goes_on_over_reconnects_to_the_same_process_with_the_same_probation_key() {
    assert_eq!(recycled(|_| "a", |_| "x").as_deref(), Some(MARKER));
    // Another process may have forgotten, even if it has the key. So may have a master with another
    // key.
    let other = |epoch: u64| if epoch.is_multiple_of(2) { "b" } else { "a" };
    assert_eq!(recycled(other, |_| "x"), None);
    assert_eq!(recycled(|_| "a", |epoch| if epoch.is_multiple_of(2) { "y" } else { "x" }), None);
}

#[test]
fn a_master_that_lost_its_marker_while_it_was_not_connected_is_not_new() {
    let mut bench = greeted(Some(MARKER));
    bench.look();
    bench.close(1);
    bench.pass(S);
    bench.look();
    bench.greet(2, with_boot(2, "a", None));
    look(&mut bench);
    bench.set(1, 1);
    assert_eq!(bench.look(), [distrusted(1, Distrust::Forgot, guard().quarantine())]);
}

/// As after `appendonly no` and back by a restart: the file is the one from before.
#[test]
fn a_marker_that_was_replaced_and_comes_back_in_another_process_is_of_older_data() {
    const OLD: &str = "a 3000 always";
    let mut bench = Bench::guarded(Bounds::for_node_timeout(50 * MS), guard());
    let mut epoch = 0;
    let mut trusts = |bench: &mut Bench, run: &str, boot: &str, durable| {
        if epoch > 0 {
            bench.close(epoch);
            bench.pass(S);
        }
        epoch += 1;
        let boot = (!boot.is_empty()).then_some(boot);
        bench.greet(epoch, Greeting { durable, ..with_boot(epoch, run, boot) });
        bench.look();
        bench.link.distrust(bench.now).is_none()
    };
    assert!(trusts(&mut bench, "a", OLD, true));
    assert!(trusts(&mut bench, "b", OLD, true), "every write was synced, before and after");
    assert!(!trusts(&mut bench, "c", "", false));
    assert!(trusts(&mut bench, "c", "c 3000", false));
    assert!(!trusts(&mut bench, "d", OLD, true), "it lacks what c has granted");
    assert!(trusts(&mut bench, "d", "d 3000 always", true));
    assert!(trusts(&mut bench, "e", "d 3000 always", true));
    // A marker that is written again, by the process that it names, is not of older data.
    assert!(!trusts(&mut bench, "f", "", true));
    assert!(trusts(&mut bench, "f", "f 3000 always", true));
    assert!(!trusts(&mut bench, "f", "", true), "flushed");
    assert!(trusts(&mut bench, "f", "f 3000 always", true));
    assert!(trusts(&mut bench, "g", "f 3000 always", true));
    // A client that was not connected meanwhile cannot know it.
    let mut bench = Bench::guarded(Bounds::for_node_timeout(50 * MS), guard());
    bench.greet(1, Greeting { durable: true, ..with_boot(1, "d", Some(OLD)) });
    assert_eq!(bench.link.distrust(bench.now), None);
}

/// A master that ran without `always` for a while may have forgotten extensions of that time, and
/// has the old marker all the time.
#[test]
fn a_marker_that_a_process_without_always_has_shown_is_not_believed_again() {
    const OLD: &str = "a 3000 always";
    let mut bench = Bench::guarded(Bounds::for_node_timeout(50 * MS), guard());
    let greet = |bench: &mut Bench, epoch, run: &str, durable| {
        bench.greet(epoch, Greeting { durable, ..with_boot(epoch, run, Some(OLD)) });
        bench.look();
        bench.link.distrust(bench.now)
    };
    assert_eq!(greet(&mut bench, 1, "a", true), None);
    for (epoch, run, durable) in [(2, "b", false), (3, "c", true)] {
        bench.close(epoch - 1);
        bench.pass(S);
        assert!(greet(&mut bench, epoch, run, durable).is_some(), "{run}");
    }
}

/// The `KEEP` that a link writes for a repair: with the marker that it trusts.
fn repair(bench: &mut Bench, token: u64, tag: u64) -> Option<String> {
    bench.repair(token, tag);
    match &bench.look()[..] {
        [LinkEffect::Write(Command::Keep { repair: true, marker, .. })] => {
            Some(marker.as_deref().expect("a repair under a guard has its marker").to_owned())
        }
        [LinkEffect::Reply(..)] => None,
        other => panic!("{other:?}"),
    }
}

/// It may have forgotten the key of another client, whose attempt counts it.
#[test]
fn a_master_that_forgot_gets_no_repairs() {
    let mut bench = greeted(Some(MARKER));
    assert_eq!(repair(&mut bench, 1, 1).as_deref(), Some(MARKER));
    bench.reply(1, Reply::Created.stamped(1));
    assert_eq!(bench.look(), [LinkEffect::Reply(1, Reply::Created)]);
    // It was flushed: the script compares the marker, and creates nothing.
    assert_eq!(repair(&mut bench, 2, 2).as_deref(), Some(MARKER));
    bench.reply(1, shows("", "").stamped(2));
    let forgot = |tag| distrusted(tag, Distrust::Forgot, guard().quarantine());
    assert_eq!(bench.look(), [forgot(2)]);
    assert_eq!(repair(&mut bench, 3, 3), None, "nothing is sent until it is trusted again");
    // A member, which had the key all the time, is still asked to keep it.
    bench.keep(1, 4);
    assert!(bench.look().iter().any(|effect| {
        matches!(effect, LinkEffect::Write(Command::Keep { repair: false, marker: None, .. }))
    }));
}

#[test]
fn a_master_that_is_initialized_is_trusted_by_this_link_and_only_if_it_says_so() {
    for (reply, trusts) in [(Reply::Initialized, true), (shows("b 3000", ""), false)] {
        let mut bench = greeted(None);
        let (begin, _) = look(&mut bench);
        bench.reply(1, shows("", &begin.unwrap()));
        bench.handle(LinkInput::Initialize(5));
        let marker = Arc::from(MARKER);
        assert_eq!(bench.look(), [LinkEffect::Write(Command::Initialize { marker })]);
        bench.reply(1, reply.clone());
        assert_eq!(bench.look(), [LinkEffect::Reply(5, reply)]);
        bench.set(1, 1);
        let asks = matches!(bench.look()[..], [LinkEffect::Write(Command::Guarded { .. })]);
        assert_eq!(asks, trusts);
    }
}

#[test]
fn a_master_without_a_known_process_and_a_link_without_a_guard_are_not_initialized() {
    let mut bench = Bench::guarded(Bounds::for_node_timeout(50 * MS), guard());
    bench.greet(1, Greeting::default());
    bench.look();
    bench.handle(LinkInput::Initialize(5));
    let nameless = Cause::Distrusted { why: Distrust::Nameless, left: None };
    assert_eq!(bench.look(), [unknown(5, nameless)]);
    let mut bench = Bench::connected();
    bench.handle(LinkInput::Initialize(5));
    assert!(
        matches!(bench.look()[..], [LinkEffect::Reply(5, Reply::Unknown(Cause::Error(_)))]),
        "it needs no marker"
    );
}

#[test]
fn a_quarantine_ends_with_a_look_and_a_probation_key_that_is_gone_is_another_one_next_time() {
    let mut bench = greeted(None);
    let (first, _) = look(&mut bench);
    bench.reply(1, shows("", ""));
    bench.pass(S);
    let (begin, _) = look(&mut bench);
    assert_ne!(begin, first, "a value is never used twice");
    let begun = bench.now;
    bench.reply(1, shows("", begin.as_deref().unwrap()));
    let ends = begun.plus(guard().quarantine());
    let mut looks = 0;
    while bench.now < ends {
        assert!(bench.link.next_wake() <= ends, "no look comes later than the end");
        bench.pass(bench.link.next_wake().since(bench.now));
        let (_, ended) = look(&mut bench);
        assert_eq!(ended.is_some(), bench.now == ends);
        if bench.now < ends {
            bench.reply(1, shows("", begin.as_deref().unwrap()));
        }
        looks += 1;
    }
    assert_eq!(looks, 6, "one each second, and one at the end");
    bench.set(1, 1);
    assert_eq!(bench.look(), [distrusted(1, Distrust::Unmarked, Duration::ZERO)], "any moment");
    // The master did not take the marker: there is another look a second later.
    bench.reply(1, shows("", begin.as_deref().unwrap()));
    assert_eq!(bench.link.next_wake(), bench.now.plus(S));
}

#[test]
fn a_link_that_is_shut_down_or_stalled_asks_for_no_wake_to_look() {
    let mut bench = greeted(None);
    look(&mut bench);
    bench.reply(1, shows("", ""));
    let mut shut_down = Bench { link: bench.link.clone(), effects: vec![], ..bench };
    shut_down.handle(LinkInput::ShutDown);
    assert_eq!(shut_down.link.next_wake(), Time::NEVER);
    bench.keep(1, 1);
    bench.pass(2 * S);
    bench.look();
    assert!(bench.link.next_wake() > bench.now, "it would spin");
}

#[test]
fn a_master_that_cannot_be_watched_is_distrusted_for_it_and_looked_at_again() {
    let text: Arc<str> = Arc::from("NOPERM no permissions");
    let error = || Reply::Unknown(Cause::Error(text.clone()));
    let unwatched = || distrusted(9, Distrust::Unwatched(text.clone()), guard().quarantine());
    let mut new = greeted(None);
    look(&mut new);
    new.reply(1, error());
    new.set(9, 9);
    assert_eq!(new.look(), [unwatched()]);
    new.pass(S);
    look(&mut new);
    // A trusted one, too: its marker may have changed.
    let mut trusted = greeted(Some(MARKER));
    trusted.handle(LinkInput::Probe(1));
    trusted.look();
    trusted.reply(1, error());
    trusted.reply(1, Reply::Alive);
    trusted.look();
    trusted.set(9, 9);
    assert_eq!(trusted.look(), [unwatched()]);
}
