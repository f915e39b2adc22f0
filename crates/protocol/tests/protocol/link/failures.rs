//! Faulty masters: lost scripts, errors, garbage, closed connections.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::{Command, Expect};
use redquorum_protocol::{
    Cause, LinkEffect, LinkInput, LinkState, Reply, Time, VoteRequest, WaiterId,
};

use super::bench::*;

#[test]
fn a_master_that_loads_scripts_and_does_not_know_them_is_not_asked_in_a_spin() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.clean_up(1, 2);
    bench.reply(1, Reply::Created);
    let mut deletes = 0;
    for _ in 0..100 {
        deletes += bench.look().iter().filter(|outcomes| **outcomes == write_delete(1)).count();
        match bench.link.oldest() {
            Some((Expect::Delete, _)) => bench.reply(1, Reply::Unknown(Cause::NoScript)),
            Some(_) => bench.reply(1, Reply::Alive),
            None => break,
        }
    }
    assert!(deletes <= 2, "{deletes}");
    assert_eq!(
        (bench.link.pending_cleanups(), bench.link.next_wake()),
        (1, bench.now.plus(1_000 * MS))
    );
}

#[test]
fn scripts_that_cannot_be_loaded_end_the_connection() {
    let mut bench = Bench::connected();
    bench.keep(1, 1);
    bench.reply(1, Reply::Unknown(Cause::NoScript));
    bench.look();
    bench.reply(1, Reply::Unknown(Cause::Error(Arc::from("OOM"))));
    assert_eq!(bench.look(), [LinkEffect::Close(1)]);
    assert!(matches!(bench.link.state(), LinkState::Down(_)));
    bench.pass(1_000 * MS);
    assert_eq!(bench.look(), [LinkEffect::Dial(2)]);
}

/// A link with 200 clean-ups that each met an error, of keys with this TTL.
fn refused(ttl_ms: u64) -> Bench {
    let mut bench = Bench::connected();
    for number in 1..=200 {
        let request = VoteRequest::Set { token: token(number), ttl_ms, fair: false, fence: None };
        bench.handle(LinkInput::Send { key: key(), request, tag: 0 });
        bench.clean_up(number, 0);
        bench.reply(1, Reply::Created);
        bench.reply(1, error());
    }
    bench.look();
    bench
}

fn error() -> Reply {
    Reply::Unknown(Cause::Error(Arc::from("NOPERM")))
}

/// The number of clean-ups that the link sends before it waits for its timer, if the master replies
/// to each with `reply`.
fn sent(bench: &mut Bench, reply: &Reply) -> usize {
    let mut sent = 0;
    loop {
        let outcomes = bench.look();
        sent += outcomes.iter().filter(|outcomes| matches!(outcomes, LinkEffect::Write(_))).count();
        if bench.link.unanswered() == 0 {
            return sent;
        }
        bench.reply(1, reply.clone());
    }
}

#[test]
fn clean_ups_that_meet_errors_are_sent_again_ever_more_rarely_and_few_at_a_time() {
    let mut bench = refused(1_000_000);
    let mut pauses = Vec::new();
    for _ in 0..7 {
        let wake = bench.link.next_wake();
        pauses.push(wake.since(bench.now).as_millis());
        bench.pass(wake.since(bench.now));
        assert_eq!(bench.look().len(), 64, "after {pauses:?}");
        (0..64).for_each(|_| bench.reply(1, error()));
    }
    assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 16_000, 16_000]);
    // All clean-ups are sent. The first one that completes lets the others follow at once.
    bench.pass(16_000 * MS);
    assert_eq!(sent(&mut bench, &Reply::Absent), 200);
    assert_eq!((bench.link.pending_cleanups(), bench.link.next_wake()), (0, Time::NEVER));
}

#[test]
fn a_clean_up_that_meets_errors_for_longer_than_its_key_lives_is_given_up() {
    let mut bench = refused(1_000);
    // The keys live for 1 s plus 12 ms of drift.
    bench.pass(1_000 * MS);
    assert_eq!(sent(&mut bench, &error()), 64);
    assert_eq!(bench.link.pending_cleanups(), 200);
    bench.pass(2_000 * MS);
    assert_eq!(sent(&mut bench, &error()), 200, "one after the other, 64 at a time");
    assert_eq!((bench.link.pending_cleanups(), bench.link.next_wake()), (0, Time::NEVER));
}

#[test]
fn a_question_about_a_key_that_was_never_set_is_not_asked_again_after_an_error() {
    let mut bench = Bench::connected();
    bench.clean_up(1, 0);
    bench.reply(1, error());
    assert_eq!((bench.link.pending_cleanups(), bench.link.next_wake()), (0, Time::NEVER));
}

#[test]
fn an_answer_to_no_command_ends_the_connection() {
    let mut bench = Bench::connected();
    bench.reply(1, Reply::Created);
    assert_eq!(bench.look(), [LinkEffect::Close(1)]);
    assert_eq!(bench.link.epoch(), None);
}

/// The pauses of a link before its next `tries` connections, each of which `fail` makes fail.
fn pauses(bench: &mut Bench, tries: usize, mut fail: impl FnMut(&mut Bench, u64)) -> Vec<Duration> {
    let mut epoch = 1;
    let mut pauses = Vec::new();
    for _ in 0..tries {
        let failed = bench.now;
        let dialled = |outcomes: &TestEffect| matches!(outcomes, LinkEffect::Dial(_));
        if !bench.look().iter().any(dialled) {
            bench.pass(bench.link.next_wake().since(bench.now));
            assert!(bench.look().iter().any(dialled));
        }
        pauses.push(bench.now.since(failed));
        epoch += 1;
        fail(bench, epoch);
    }
    pauses
}

fn assert_growing(pauses: &[Duration]) {
    assert!(pauses.is_sorted(), "{pauses:?}");
    assert_eq!(*pauses.last().unwrap(), 500 * MS, "half of the longest pause is for the jitter");
    assert!(pauses.iter().filter(|pause| **pause < 5 * MS).count() <= 1, "{pauses:?}");
}

#[test]
fn a_master_that_refuses_connections_or_greets_and_hangs_up_is_not_dialled_in_a_spin() {
    for (greets, cleans_up) in [(false, false), (true, false), (true, true)] {
        let mut bench = Bench::connected();
        if cleans_up {
            bench.set(1, 1);
            bench.clean_up(1, 2);
        }
        bench.close(1);
        let flap = |bench: &mut Bench, epoch| {
            if greets {
                bench.connect(epoch);
            }
            if bench.effects.contains(&write_kill(101)) {
                // The reply to the kill of an older connection is no sign of health.
                bench.reply(epoch, Reply::Alive);
            }
            assert_eq!(bench.effects.contains(&write_delete(1)), cleans_up);
            bench.close(epoch);
        };
        assert_growing(&pauses(&mut bench, 12, flap));
    }
}

#[test]
fn a_connection_that_was_closed_for_idleness_is_dialled_again_at_once() {
    let mut bench = Bench::connected();
    for epoch in 1..10 {
        bench.pass(60_000 * MS);
        bench.close(epoch);
        assert_eq!(bench.look(), [LinkEffect::Dial(epoch + 1)], "after idle time number {epoch}");
        bench.connect(epoch + 1);
    }
}

#[test]
fn a_master_that_answers_slowly_but_steadily_is_not_dialled_again_for_every_answer() {
    let mut bench = Bench::connected();
    (1..=50).for_each(|number| bench.set(number, number));
    // A backlog, as after a pause: each command is old when its reply arrives.
    bench.pass(100 * MS);
    assert_eq!(bench.link.state(), LinkState::Stalled);
    bench.look();
    for number in 1..=50 {
        bench.pass(MS);
        bench.reply(1, Reply::Created);
        bench.handle(LinkInput::Wake);
        let dials = |outcomes: &TestEffect| matches!(outcomes, LinkEffect::Dial(_));
        assert!(!bench.look().iter().any(dials), "at answer {number}");
    }
    // The master stalls again. The last stall was only slowness, so the link waits twice as long.
    bench.set(51, 51);
    bench.pass(100 * MS);
    assert_eq!(bench.look(), [write_set(51)]);
    bench.pass(100 * MS);
    assert_eq!(bench.look(), [LinkEffect::Dial(3)]);
    // Replies in time reset that wait.
    bench.reply(1, Reply::Created);
    (52..=55).for_each(|number| bench.set(number, number));
    (52..=55).for_each(|_| bench.reply(1, Reply::Created));
    bench.look();
    bench.set(56, 56);
    bench.pass(100 * MS);
    assert_eq!(bench.look(), [write_set(56), LinkEffect::Dial(4)]);
}

#[test]
fn scripts_that_a_master_lost_are_loaded_once_and_the_clean_ups_follow_behind_the_last() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.keep(1, 2);
    bench.clean_up(1, 3);
    bench.reply(1, Reply::Created);
    bench.look();
    bench.reply(1, Reply::Unknown(Cause::NoScript));
    let written = |effects: &[TestEffect]| {
        effects.iter().filter(|it| matches!(it, LinkEffect::Write(Command::Load(_)))).count()
    };
    let loads = written(&bench.look());
    assert!(loads > 1);
    bench.reply(1, Reply::Unknown(Cause::NoScript));
    assert_eq!(written(&bench.look()), 0, "they are being loaded");
    for _ in 1..loads {
        bench.reply(1, Reply::Alive);
        assert_eq!(bench.look(), []);
    }
    bench.reply(1, Reply::Alive);
    assert_eq!(bench.look(), [write_delete(1)]);
    assert_eq!(bench.link.state(), LinkState::Up);
    bench.reply(1, Reply::Deleted);
    // The next time they are loaded again.
    bench.keep(2, 4);
    bench.look();
    bench.reply(1, Reply::Unknown(Cause::NoScript));
    assert_eq!(written(&bench.look()), loads);
}

#[test]
fn a_clean_up_for_which_a_master_never_has_the_script_is_given_up_once_its_key_is_gone() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.clean_up(1, 2);
    bench.reply(1, Reply::Created);
    let start = bench.now;
    while bench.link.pending_cleanups() > 0 {
        match bench.link.oldest() {
            Some((Expect::Delete, _)) => bench.reply(1, Reply::Unknown(Cause::NoScript)),
            Some(_) => bench.reply(1, Reply::Alive),
            None => bench.pass(1_000 * MS),
        }
        assert!(bench.now.since(start) < 20_000 * MS, "it never ends");
    }
    assert!(bench.now.since(start) > 1_000 * MS, "the key may still be there");
}

#[test]
fn a_reply_that_a_claim_asked_for_ends_the_flapping_and_no_other_does() {
    let set = |bench: &mut Bench| bench.set(1, 1);
    let clean_up = |bench: &mut Bench| bench.clean_up(1, 1);
    let subscribe = |bench: &mut Bench| {
        let waiter_id = WaiterId::new(2);
        bench.handle(LinkInput::Subscribe { key: key(), waiter_id });
    };
    for (command, reply, ends) in [
        (set as fn(&mut Bench), Reply::Created, true),
        (clean_up, Reply::Absent, true),
        (set, Reply::Unknown(Cause::Error(Arc::from("OOM"))), false),
        (subscribe, Reply::Alive, false),
    ] {
        let mut bench = Bench::connected();
        bench.close(1);
        bench.connect(2);
        bench.close(2);
        bench.reconnect(3);
        command(&mut bench);
        bench.reply(3, reply.clone());
        bench.look();
        bench.close(3);
        let dials = bench.look().contains(&LinkEffect::Dial(4));
        assert_eq!(dials, ends, "{reply:?}");
    }
}

#[test]
fn pauses_between_connects_are_spread_over_their_upper_half() {
    for (random, pause) in [(0, 5_000_000), (1, 5_000_001), (5_000_000, 10_000_000)] {
        let mut bench = Bench::dialling();
        bench.handle(LinkInput::Closed { epoch: 1, why: Arc::from("refused"), random });
        assert_eq!(bench.link.next_wake().since(bench.now), Duration::from_nanos(pause));
    }
}

#[test]
fn the_first_connect_is_under_way_until_it_succeeds_fails_or_is_no_longer_wanted() {
    let ends: [fn(&mut Bench); 3] = [
        |bench| bench.connect(1),
        |bench| bench.close(1),
        |bench| bench.handle(LinkInput::ShutDown),
    ];
    for end in ends {
        let mut bench = Bench::dialling();
        assert!(bench.link.is_first_dial());
        end(&mut bench);
        assert!(!bench.link.is_first_dial());
    }
    let mut again = Bench::dialling();
    again.close(1);
    again.pass(1_000 * MS);
    assert!(again.link.awaits(2) && !again.link.is_first_dial());
}
