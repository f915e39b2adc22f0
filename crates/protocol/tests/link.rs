//! One link, step by step: the order of commands, the ledger, replacement, and what a master
//! can do to it.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::{Command, Expect};
use redquorum_protocol::{
    Answer, Ask, Bounds, Cause, Holder, Key, Link, LinkEffect, LinkInput, LinkState, RunId,
    TOKEN_LEN, Time, Token,
};

const MS: Duration = Duration::from_millis(1);

type Said = LinkEffect<u32>;

/// A link, the time, and what it said since one looked last.
struct Bench {
    link: Link<u32>,
    now: Time,
    said: Vec<Said>,
}

impl Bench {
    fn dialling() -> Self {
        Self::with(Bounds::for_node_timeout(50 * MS))
    }

    fn with(bounds: Bounds) -> Self {
        let mut said = Vec::new();
        let link = Link::start(bounds, &mut said);
        Self { link, now: Time::from_millis(1_000), said }
    }

    fn connected() -> Self {
        let mut bench = Self::dialling();
        bench.connect(1);
        bench.look();
        bench
    }

    fn tell(&mut self, input: LinkInput<u32>) {
        self.link.handle(self.now, input, &mut self.said);
    }

    /// The connection is greeted by run "a"; its client id is its number plus 100.
    fn connect(&mut self, epoch: u64) {
        self.connect_to(epoch, "a");
    }

    fn connect_to(&mut self, epoch: u64, run: &str) {
        let run_id = Some(RunId(Arc::from(run)));
        self.tell(LinkInput::Connected { epoch, client_id: Some(100 + epoch), run_id });
    }

    fn close(&mut self, epoch: u64) {
        self.tell(LinkInput::Closed { epoch, why: Arc::from("refused"), random: 0 });
    }

    fn set(&mut self, number: u8, tag: u32) {
        let ask = Ask::Set { token: token(number), ttl_ms: 1_000 };
        self.tell(LinkInput::Send { key: key(), ask, tag });
    }

    fn keep(&mut self, number: u8, tag: u32) {
        let ask = Ask::Keep { token: token(number), ttl_ms: 1_000, repair: true };
        self.tell(LinkInput::Send { key: key(), ask, tag });
    }

    fn settle(&mut self, number: u8, tag: u32) {
        self.tell(LinkInput::Settle { key: key(), token: token(number), tag });
    }

    fn answer(&mut self, epoch: u64, answer: Answer) {
        self.tell(LinkInput::Answered { epoch, answer });
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        self.tell(LinkInput::Wake);
    }

    /// What was said since the last look.
    fn look(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.said)
    }
}

fn key() -> Key {
    Arc::from(&b"r"[..])
}

fn token(number: u8) -> Token {
    Token::new([number; TOKEN_LEN])
}

fn write_set(number: u8) -> Said {
    LinkEffect::Write(Command::Set { key: key(), token: token(number), ttl_ms: 1_000 })
}

fn write_delete(number: u8) -> Said {
    LinkEffect::Write(Command::Delete { key: key(), token: token(number) })
}

fn write_kill(client_id: u64) -> Said {
    LinkEffect::Write(Command::Kill { client_id })
}

fn unknown(tag: u32, cause: Cause) -> Said {
    LinkEffect::Tell(tag, Answer::Unknown(cause))
}

#[test]
fn a_set_is_in_the_ledger_before_it_is_queued_and_its_delete_follows_it() {
    let mut bench = Bench::connected();
    bench.set(1, 7);
    assert_eq!((bench.link.claimed(), bench.link.owed()), (1, 0));
    bench.settle(1, 8);
    assert_eq!((bench.link.claimed(), bench.link.owed()), (0, 1));
    assert_eq!(bench.look(), [write_set(1), write_delete(1)]);
    bench.answer(1, Answer::Created);
    assert_eq!(bench.link.owed(), 1, "the answer to the SET pays nothing");
    bench.answer(1, Answer::Deleted);
    assert_eq!((bench.link.claimed(), bench.link.owed()), (0, 0));
    let told = [LinkEffect::Tell(7, Answer::Created), LinkEffect::Tell(8, Answer::Deleted)];
    assert_eq!(bench.look(), told);
}

#[test]
fn every_answer_of_the_master_itself_to_a_delete_pays_the_debt_and_no_other_does() {
    let holder = Holder::NoExpiry;
    for (answer, owed) in [
        (Answer::Deleted, 0),
        (Answer::Absent, 0),
        (Answer::Taken(holder), 0),
        (Answer::Unknown(Cause::Error(Arc::from("BUSY"))), 1),
        (Answer::Unknown(Cause::NoScript), 1),
        (Answer::Unknown(Cause::Garbage), 1),
    ] {
        let mut bench = Bench::connected();
        bench.set(1, 0);
        bench.settle(1, 0);
        bench.answer(1, Answer::Created);
        bench.answer(1, answer.clone());
        assert_eq!(bench.link.owed(), owed, "{answer:?}");
    }
}

#[test]
fn a_link_that_is_down_or_shut_down_refuses_and_owes_nothing() {
    let mut bench = Bench::dialling();
    bench.set(1, 7);
    bench.settle(1, 8);
    let down = Cause::Down(Arc::from("connecting"));
    let told = [LinkEffect::Dial(1), unknown(7, down.clone()), unknown(8, down)];
    assert_eq!(bench.look(), told);
    let mut bench = Bench::connected();
    bench.tell(LinkInput::ShutDown);
    bench.set(1, 7);
    bench.settle(1, 8);
    assert_eq!(bench.look(), [unknown(7, Cause::ShutDown), unknown(8, Cause::ShutDown)]);
    assert_eq!((bench.link.claimed(), bench.link.owed()), (0, 0));
}

#[test]
fn after_a_shut_down_what_is_owed_is_still_paid() {
    let mut bench = Bench::connected();
    bench.set(1, 0);
    bench.tell(LinkInput::ShutDown);
    bench.settle(1, 0);
    assert_eq!(bench.look(), [write_set(1), write_delete(1)]);
    bench.close(1);
    bench.look();
    bench.connect(2);
    assert_eq!(bench.look(), [write_kill(101), write_delete(1)]);
}

#[test]
fn a_stalled_link_refuses_without_owing_but_queues_what_is_owed() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.pass(99 * MS);
    assert_eq!(bench.link.state(), LinkState::Up);
    bench.pass(MS);
    assert_eq!(bench.link.state(), LinkState::Stalled);
    bench.look();
    bench.set(2, 2);
    bench.settle(2, 3);
    assert_eq!(bench.look(), [unknown(2, Cause::Stalled), unknown(3, Cause::Stalled)]);
    assert_eq!((bench.link.claimed(), bench.link.owed()), (1, 0));
    bench.settle(1, 4);
    assert_eq!(bench.look(), [write_delete(1)]);
}

#[test]
fn a_link_with_too_much_unanswered_refuses_without_owing() {
    let bounds = Bounds { unanswered: 2, ..Bounds::for_node_timeout(50 * MS) };
    let mut bench = Bench::with(bounds);
    bench.connect(1);
    (1..=3).for_each(|number| bench.set(number, number.into()));
    assert_eq!(bench.look()[1..], [write_set(1), write_set(2), unknown(3, Cause::Overloaded)]);
    assert_eq!(bench.link.claimed(), 2);
    bench.answer(1, Answer::Created);
    bench.set(4, 4);
    assert_eq!(bench.link.claimed(), 3);
}

#[test]
fn bytes_that_were_answered_count_no_more_and_others_do() {
    let bounds = Bounds { unanswered_bytes: 100, ..Bounds::for_node_timeout(50 * MS) };
    let mut bench = Bench::with(bounds);
    bench.connect(1);
    for number in 1..=20 {
        bench.set(number, 0);
        bench.set(number + 100, 1);
        assert_eq!(bench.said.last(), Some(&unknown(1, Cause::Overloaded)));
        bench.answer(1, Answer::Created);
    }
    assert_eq!(bench.link.claimed(), 20);
}

#[test]
fn a_full_ledger_takes_no_new_token_but_extends_those_that_it_has() {
    let bounds = Bounds { ledger: 2, ..Bounds::for_node_timeout(50 * MS) };
    let mut bench = Bench::with(bounds);
    bench.connect(1);
    (1..=3).for_each(|number| bench.set(number, number.into()));
    bench.answer(1, Answer::Created);
    bench.answer(1, Answer::Created);
    bench.look();
    bench.set(3, 3);
    bench.settle(3, 4);
    assert_eq!(bench.look(), [unknown(3, Cause::Overloaded), unknown(4, Cause::Overloaded)]);
    // Two leases fill it: their watchdogs must not lose them for it.
    bench.keep(2, 5);
    assert!(matches!(bench.look()[..], [LinkEffect::Write(Command::Keep { .. })]));
    bench.tell(LinkInput::Probe(6));
    assert_eq!(bench.look(), [LinkEffect::Write(Command::Ping)]);
}

#[test]
fn a_stalled_link_dials_a_second_connection_and_the_old_one_that_answers_cancels_it() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.pass(100 * MS);
    assert_eq!(bench.look(), [write_set(1), LinkEffect::Dial(2)]);
    bench.answer(1, Answer::Created);
    assert_eq!(bench.look(), [LinkEffect::Close(2), LinkEffect::Tell(1, Answer::Created)]);
    assert_eq!(bench.link.state(), LinkState::Up);
    assert_eq!(bench.link.next_wake(), Time::NEVER);
    // Its greeting was on its way already.
    bench.connect(2);
    assert_eq!(bench.look(), [LinkEffect::Close(2)]);
    assert_eq!(bench.link.epoch(), Some(1));
}

#[test]
fn a_new_connection_that_is_greeted_first_resets_the_old_one_kills_it_and_only_then_pays() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.settle(1, 2);
    bench.set(2, 3);
    bench.pass(100 * MS);
    bench.look();
    bench.connect(2);
    let gone = Cause::Disconnected;
    let expected = [
        LinkEffect::Close(1),
        unknown(1, gone.clone()),
        unknown(2, gone.clone()),
        unknown(3, gone),
        write_kill(101),
        write_delete(1),
    ];
    assert_eq!(bench.look(), expected, "and no SET is sent again");
    // The old one answers after all: that is nobody's answer.
    bench.answer(1, Answer::Created);
    assert_eq!((bench.look(), bench.link.owed()), (vec![], 1));
    bench.answer(2, Answer::Alive);
    bench.answer(2, Answer::Absent);
    assert_eq!((bench.link.claimed(), bench.link.owed()), (1, 0));
    bench.settle(2, 4);
    assert_eq!(bench.look(), [write_delete(2)]);
}

#[test]
fn an_old_connection_is_killed_until_the_master_has_answered_the_kill() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.close(1);
    bench.connect(2);
    bench.close(2);
    bench.pass(1_000 * MS);
    bench.look();
    bench.connect(3);
    assert_eq!(bench.look(), [write_kill(101), write_kill(102)]);
    bench.answer(3, Answer::Alive);
    bench.close(3);
    bench.pass(1_000 * MS);
    bench.look();
    bench.connect(4);
    assert_eq!(bench.look(), [write_kill(102), write_kill(103)]);
}

#[test]
fn a_connection_that_was_given_up_is_killed_though_all_its_commands_seemed_to_be_answered() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    // It may be anything, and the answer to the SET still to come.
    bench.answer(1, Answer::Unknown(Cause::Garbage));
    bench.pass(1_000 * MS);
    bench.look();
    bench.connect(2);
    assert_eq!(bench.look(), [write_kill(101)]);
    // Nor is garbage the answer to a kill.
    bench.answer(2, Answer::Unknown(Cause::Garbage));
    bench.pass(1_000 * MS);
    bench.look();
    bench.connect(3);
    assert_eq!(bench.look(), [write_kill(101), write_kill(102)]);
}

#[test]
fn a_client_id_of_another_run_of_the_master_is_not_killed() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.close(1);
    bench.look();
    bench.connect_to(2, "b");
    assert_eq!(bench.look(), [], "it may be somebody else's");
    // nor later, should the first run come back
    bench.close(2);
    bench.pass(1_000 * MS);
    bench.look();
    bench.connect_to(3, "a");
    assert_eq!(bench.look(), []);
}

#[test]
fn a_connection_whose_commands_were_all_answered_needs_no_kill() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.answer(1, Answer::Created);
    bench.close(1);
    bench.look();
    bench.connect(2);
    assert_eq!((bench.look(), bench.link.claimed()), (vec![], 1));
}

#[test]
fn scripts_that_were_flushed_are_loaded_again_and_then_debts_are_paid_and_no_set_is_sent_again() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.keep(2, 2);
    bench.settle(1, 3);
    bench.look();
    let no_script = Answer::Unknown(Cause::NoScript);
    bench.answer(1, Answer::Created);
    bench.answer(1, no_script.clone());
    let [load_delete, load_keep] = Command::load_scripts().map(LinkEffect::Write);
    let told = LinkEffect::Tell(2, no_script.clone());
    let created = LinkEffect::Tell(1, Answer::Created);
    assert_eq!(bench.look(), [created, told, load_delete, load_keep]);
    bench.answer(1, no_script.clone());
    assert_eq!(bench.look(), [LinkEffect::Tell(3, no_script)], "they are being loaded already");
    bench.answer(1, Answer::Alive);
    assert_eq!(bench.look(), []);
    bench.answer(1, Answer::Alive);
    assert_eq!(bench.look(), [write_delete(1)]);
    bench.answer(1, Answer::Deleted);
    assert_eq!((bench.link.claimed(), bench.link.owed()), (1, 0));
}

#[test]
fn a_master_that_loads_scripts_and_does_not_know_them_is_not_asked_in_a_spin() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.settle(1, 2);
    bench.answer(1, Answer::Created);
    let mut deletes = 0;
    for _ in 0..100 {
        deletes += bench.look().iter().filter(|said| **said == write_delete(1)).count();
        match bench.link.oldest() {
            Some((Expect::Delete, _)) => bench.answer(1, Answer::Unknown(Cause::NoScript)),
            Some(_) => bench.answer(1, Answer::Alive),
            None => break,
        }
    }
    assert!(deletes <= 2, "{deletes}");
    assert_eq!((bench.link.owed(), bench.link.next_wake()), (1, bench.now.plus(1_000 * MS)));
}

#[test]
fn scripts_that_cannot_be_loaded_end_the_connection() {
    let mut bench = Bench::connected();
    bench.keep(1, 1);
    bench.answer(1, Answer::Unknown(Cause::NoScript));
    bench.look();
    bench.answer(1, Answer::Unknown(Cause::Error(Arc::from("OOM"))));
    assert_eq!(bench.look(), [LinkEffect::Close(1)]);
    assert!(matches!(bench.link.state(), LinkState::Down(_)));
    bench.pass(1_000 * MS);
    assert_eq!(bench.look(), [LinkEffect::Dial(2)]);
}

#[test]
fn a_debt_that_met_an_error_is_paid_again_after_a_pause() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.settle(1, 2);
    bench.answer(1, Answer::Created);
    bench.answer(1, Answer::Unknown(Cause::Error(Arc::from("BUSY"))));
    bench.look();
    assert_eq!(bench.link.next_wake(), bench.now.plus(1_000 * MS));
    bench.pass(999 * MS);
    assert_eq!(bench.look(), []);
    bench.pass(MS);
    assert_eq!(bench.look(), [write_delete(1)]);
    bench.answer(1, Answer::Absent);
    assert_eq!((bench.link.owed(), bench.link.next_wake()), (0, Time::NEVER));
}

#[test]
fn an_answer_to_no_command_ends_the_connection() {
    let mut bench = Bench::connected();
    bench.answer(1, Answer::Created);
    assert_eq!(bench.look(), [LinkEffect::Close(1)]);
    assert_eq!(bench.link.epoch(), None);
}

#[test]
fn an_answer_that_is_not_redis_s_ends_the_connection_and_the_debt_is_kept() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.set(2, 2);
    bench.settle(1, 3);
    bench.look();
    bench.answer(1, Answer::Unknown(Cause::Garbage));
    let gone = Cause::Disconnected;
    let told = [
        unknown(1, Cause::Garbage),
        LinkEffect::Close(1),
        unknown(2, gone.clone()),
        unknown(3, gone),
    ];
    assert_eq!(bench.look(), told);
    assert_eq!((bench.link.claimed(), bench.link.owed()), (1, 1));
    bench.pass(1_000 * MS);
    bench.look();
    bench.connect(2);
    assert_eq!(bench.look(), [write_kill(101), write_delete(1)]);
}

#[test]
fn an_answer_on_an_older_connection_is_nobodys() {
    let mut bench = Bench::connected();
    bench.close(1);
    bench.connect(2);
    bench.set(1, 1);
    bench.settle(1, 2);
    bench.look();
    bench.answer(1, Answer::Created);
    bench.answer(1, Answer::Absent);
    assert_eq!((bench.look(), bench.link.owed(), bench.link.unanswered()), (vec![], 1, 2));
}

/// How long a link pauses before each of its next `tries`, when `fail` has each of them fail.
fn pauses(bench: &mut Bench, tries: usize, mut fail: impl FnMut(&mut Bench, u64)) -> Vec<Duration> {
    let mut epoch = 1;
    let mut pauses = Vec::new();
    for _ in 0..tries {
        let failed = bench.now;
        let dialled = |said: &Said| matches!(said, LinkEffect::Dial(_));
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
fn a_master_that_refuses_connections_is_not_dialled_in_a_spin() {
    let mut bench = Bench::connected();
    bench.close(1);
    assert_growing(&pauses(&mut bench, 12, |bench, epoch| bench.close(epoch)));
}

#[test]
fn a_master_that_greets_and_hangs_up_is_not_dialled_in_a_spin() {
    let mut bench = Bench::connected();
    bench.close(1);
    let flap = |bench: &mut Bench, epoch| {
        bench.connect(epoch);
        bench.close(epoch);
    };
    assert_growing(&pauses(&mut bench, 12, flap));
}

#[test]
fn a_master_that_hangs_up_at_every_clean_up_is_not_dialled_in_a_spin() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.answer(1, Answer::Created);
    bench.settle(1, 2);
    bench.close(1);
    // That the kill of the connection before was answered is no sign of health.
    let flap = |bench: &mut Bench, epoch| {
        bench.connect(epoch);
        assert!(bench.said.contains(&write_kill(100 + epoch - 1)));
        bench.answer(epoch, Answer::Alive);
        bench.close(epoch);
    };
    assert_growing(&pauses(&mut bench, 12, flap));
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
    (1..=50).for_each(|number| bench.set(number, number.into()));
    // A backlog, as after a pause: each command is old when its answer comes.
    bench.pass(100 * MS);
    assert_eq!(bench.link.state(), LinkState::Stalled);
    bench.look();
    for number in 1..=50_u8 {
        bench.pass(MS);
        bench.answer(1, Answer::Created);
        bench.tell(LinkInput::Wake);
        let dials = |said: &Said| matches!(said, LinkEffect::Dial(_));
        assert!(!bench.look().iter().any(dials), "at answer {number}");
    }
    // and when it falls silent again, it is
    bench.set(51, 51);
    bench.pass(100 * MS);
    assert_eq!(bench.look(), [write_set(51), LinkEffect::Dial(3)]);
}

#[test]
fn a_stalled_link_whose_second_connection_fails_tries_again_and_stays_stalled() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.pass(100 * MS);
    bench.look();
    bench.close(2);
    assert_eq!(bench.link.state(), LinkState::Stalled);
    bench.pass(bench.link.next_wake().since(bench.now));
    assert_eq!(bench.look(), [LinkEffect::Dial(3)]);
    // The old one breaks meanwhile: the try goes on.
    bench.close(1);
    assert_eq!(bench.look(), [unknown(1, Cause::Disconnected)]);
    bench.connect(3);
    assert_eq!((bench.link.state(), bench.look()), (LinkState::Up, vec![write_kill(101)]));
}

#[test]
fn a_lease_that_was_lost_and_is_then_released_is_cleaned_up_once_and_told_twice() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.settle(1, 2);
    bench.settle(1, 3);
    bench.answer(1, Answer::Created);
    bench.answer(1, Answer::Deleted);
    assert_eq!(bench.link.owed(), 0);
    bench.answer(1, Answer::Absent);
    assert_eq!((bench.link.owed(), bench.link.claimed()), (0, 0));
}
