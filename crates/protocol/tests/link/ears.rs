//! What a link listens for: on every connection anew, in small numbers, and never at the lock's expense.

use redquorum_protocol::wire::{Command, Expect};
use redquorum_protocol::{Answer, Bounds, Call, Cause, Key, LinkEffect, LinkInput, Word};

use crate::bench::*;

fn resource(number: u32) -> Key {
    Key::from(number.to_be_bytes())
}

fn hear(key: Key, word: Word) -> Said {
    LinkEffect::Hear(key, word)
}

fn subscribe(key: Key) -> Said {
    LinkEffect::Write(Command::Subscribe { key })
}

impl Bench {
    fn listen(&mut self, number: u32) {
        self.tell(LinkInput::Listen(resource(number)));
    }

    /// It listens for the resource of all other tests.
    fn listening() -> Self {
        let mut bench = Self::connected();
        bench.tell(LinkInput::Listen(key()));
        bench.answer(1, Answer::Alive);
        bench.answer(1, Answer::Alive);
        bench.look();
        bench
    }
}

#[test]
fn a_link_listens_only_behind_an_answered_hello_and_says_when_it_does() {
    let mut bench = Bench::connected();
    bench.listen(1);
    let deaf = hear(resource(1), Word::Deaf);
    assert_eq!(bench.look(), [deaf, LinkEffect::Write(Command::Hello)]);
    bench.listen(2);
    assert_eq!(bench.look(), [hear(resource(2), Word::Deaf)], "not yet");
    bench.answer(1, Answer::Alive);
    assert_eq!(bench.look(), [subscribe(resource(1)), subscribe(resource(2))]);
    bench.answer(1, Answer::Alive);
    assert_eq!(bench.look(), [hear(resource(1), Word::Listening)]);
    bench.listen(1);
    assert_eq!(bench.look(), [hear(resource(1), Word::Listening)], "once is enough");
}

#[test]
fn masters_that_forbid_it_leave_the_waiter_to_its_own_devices() {
    let forbidden = || Answer::Unknown(Cause::Error("NOPERM".into()));
    let mut bench = Bench::connected();
    bench.listen(1);
    bench.look();
    bench.answer(1, forbidden());
    assert_eq!(bench.look(), [hear(resource(1), Word::Deaf)]);
    bench.listen(2);
    assert_eq!(bench.look(), [hear(resource(2), Word::Deaf)], "and asked no more");
    let mut bench = Bench::connected();
    bench.listen(1);
    bench.answer(1, Answer::Alive);
    bench.look();
    bench.answer(1, forbidden());
    assert_eq!(bench.look(), [hear(resource(1), Word::Deaf)]);
    assert_eq!(bench.link.epoch(), Some(1), "the connection is as good as ever");
}

#[test]
fn what_the_master_says_is_told_to_who_waits_and_to_nobody_else() {
    let mut bench = Bench::listening();
    bench.tell(LinkInput::Freed { epoch: 1, key: key(), next: None });
    assert_eq!(bench.look(), [hear(key(), Word::Free)]);
    bench.tell(LinkInput::Freed { epoch: 1, key: resource(7), next: None });
    bench.tell(LinkInput::Freed { epoch: 9, key: key(), next: None });
    assert_eq!(bench.look(), [], "a resource that nobody waits for, a connection that is gone");
    bench.tell(LinkInput::Unlisten(key()));
    assert_eq!(bench.look(), [LinkEffect::Write(Command::Unsubscribe { key: key() })]);
    bench.tell(LinkInput::Freed { epoch: 1, key: key(), next: None });
    assert_eq!(bench.look(), [], "under way as it was given up");
    assert_eq!(bench.link.listens(), 0);
}

#[test]
fn a_new_connection_listens_anew_and_until_then_nothing_is_heard() {
    let mut bench = Bench::listening();
    bench.close(1);
    assert!(bench.look().contains(&hear(key(), Word::Deaf)));
    bench.connect(2);
    assert!(bench.look().contains(&LinkEffect::Write(Command::Hello)));
    bench.answer(2, Answer::Alive);
    assert_eq!(bench.look(), [subscribe(key())]);
    bench.answer(2, Answer::Alive);
    assert_eq!(bench.look(), [hear(key(), Word::Listening)]);
}

#[test]
fn a_hundred_thousand_resources_are_asked_for_in_small_numbers_and_forgotten_again() {
    const MANY: u32 = 100_000;
    let mut bench = Bench::connected();
    for number in 0..MANY {
        bench.listen(number);
    }
    assert_eq!(bench.link.listens(), MANY as usize);
    let mut heard = 0;
    for epoch in 1..=2 {
        if epoch == 2 {
            bench.close(1);
            bench.connect(2);
        }
        while bench.link.oldest().is_some() {
            assert!(bench.link.unanswered() <= 64, "{}", bench.link.unanswered());
            bench.answer(epoch, Answer::Alive);
            let listening = |said: &Said| matches!(said, LinkEffect::Hear(_, Word::Listening));
            heard += bench.look().iter().filter(|said| listening(said)).count();
        }
    }
    assert_eq!(heard, 2 * MANY as usize, "each once on each connection");
    for number in 0..MANY {
        bench.tell(LinkInput::Unlisten(resource(number)));
        bench.answer(2, Answer::Alive);
    }
    assert_eq!((bench.link.listens(), bench.link.unanswered()), (0, 0));
}

#[test]
fn beyond_its_bound_a_link_listens_for_no_more() {
    let bounds = Bounds { listens: 2, ..Bounds::for_node_timeout(50 * MS) };
    let mut bench = Bench::with(bounds);
    bench.connect(1);
    (1..=3).for_each(|number| bench.listen(number));
    assert_eq!(bench.link.listens(), 2);
    bench.answer(1, Answer::Alive);
    let said = bench.look();
    assert!(said.contains(&subscribe(resource(2))) && !said.contains(&subscribe(resource(3))));
}

#[test]
fn a_stalled_or_shut_down_link_asks_for_nothing() {
    let mut bench = Bench::connected();
    bench.set(1, 0);
    bench.pass(100 * MS);
    bench.look();
    bench.listen(1);
    assert_eq!(bench.look(), [hear(resource(1), Word::Deaf)]);
    bench.answer(1, Answer::Created);
    assert!(bench.look().contains(&LinkEffect::Write(Command::Hello)), "as soon as it is well");
    let mut bench = Bench::connected();
    bench.tell(LinkInput::ShutDown);
    bench.listen(1);
    assert_eq!(bench.look(), [hear(resource(1), Word::Deaf)]);
}

#[test]
fn how_many_others_listen_is_told_and_this_link_is_not_one_of_them() {
    for (listeners, others) in [(1, 0), (3, 2)] {
        let mut bench = Bench::listening();
        bench.set(1, 0);
        bench.answer(1, Answer::Created);
        let (token, call) = (token(1), Call::Counted);
        bench.tell(LinkInput::Settle { key: key(), token, call, tag: 5 });
        bench.look();
        assert_eq!(bench.link.oldest().map(|(expect, _)| expect), Some(Expect::Delete));
        bench.answer(1, Answer::Freed { listeners });
        let told = LinkEffect::Tell(5, Answer::Deleted);
        assert_eq!(bench.look(), [hear(key(), Word::Others(others)), told]);
        assert_eq!(bench.link.claimed() + bench.link.owed(), 0);
    }
}
