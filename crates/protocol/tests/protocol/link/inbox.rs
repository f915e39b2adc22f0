//! The inbox of a link: one subscription per connection, through which the master wakes waiters.

use redquorum_protocol::wire::{Command, Expect};
use redquorum_protocol::{
    Bounds, Cause, Key, LinkEffect, LinkInput, Position, QueueEvent, Reply, Time, VoteRequest,
    Waiter, WaiterId, WakeUp,
};

use super::bench::*;

const HELLO: TestEffect = LinkEffect::Write(Command::Hello);
const SUBSCRIBE: TestEffect = LinkEffect::Write(Command::Subscribe { inbox: INBOX });

fn resource(number: u64) -> Key {
    Key::from(number.to_be_bytes())
}

fn waiter_id(number: u64) -> WaiterId {
    WaiterId::new(2 * number)
}

/// The link notifies the waiter with this number. Each waiter waits for a resource of its own.
fn event(number: u64, event: QueueEvent) -> TestEffect {
    LinkEffect::QueueEvent(resource(number), event)
}

fn forbidden() -> Reply {
    Reply::Unknown(Cause::Error("NOPERM".into()))
}

fn busy() -> Reply {
    Reply::Unknown(Cause::Error("BUSY Redis is busy running a script.".into()))
}

fn waiter(inbox: u64) -> Waiter {
    Waiter { inbox, waiter_id: waiter_id(1) }
}

impl Bench {
    fn listen(&mut self, number: u64) {
        let (key, waiter_id) = (resource(number), waiter_id(number));
        self.handle(LinkInput::Subscribe { key, waiter_id });
    }

    fn woken(&mut self, epoch: u64, number: u64) {
        self.handle(LinkInput::Woken { epoch, waiter_id: waiter_id(number) });
    }

    /// A link that is subscribed for waiter 1.
    fn subscribed() -> Self {
        let mut bench = Self::connected();
        bench.listen(1);
        bench.reply(1, Reply::Alive);
        bench.reply(1, Reply::Alive);
        bench.look();
        bench
    }

    /// The identity of waiter 1 in three commands: the request for a position, the leave, and a
    /// release.
    fn names(&mut self) -> [Waiter; 3] {
        let (key, waiter_id) = (resource(1), waiter_id(1));
        self.look();
        self.handle(LinkInput::Enqueue {
            key: key.clone(),
            waiter_id,
            position: Position::Last,
            tag: 0,
        });
        self.handle(LinkInput::Dequeue { key: key.clone(), waiter_id, wake: true });
        let (token, wake_up, leave) = (token(9), WakeUp::First, Some(waiter_id));
        self.handle(LinkInput::CleanUp { key, token, wake_up, leave, tag: 0 });
        let name = |effect: &TestEffect| match effect {
            LinkEffect::Write(
                Command::Enqueue { waiter, .. } | Command::Dequeue { waiter, .. },
            ) => *waiter,
            LinkEffect::Write(Command::Delete { leave: Some(waiter), .. }) => *waiter,
            other => panic!("{other:?}"),
        };
        let names: Vec<Waiter> = self.look().iter().map(name).collect();
        names.try_into().expect("three commands")
    }
}

#[test]
fn a_link_subscribes_once_behind_an_answered_hello_and_notifies_its_waiters() {
    let mut bench = Bench::connected();
    bench.listen(1);
    assert_eq!(bench.look(), [event(1, QueueEvent::NotSubscribed), HELLO]);
    bench.listen(2);
    assert_eq!(bench.look(), [event(2, QueueEvent::NotSubscribed)], "not yet");
    bench.reply(1, Reply::Alive);
    assert_eq!(bench.look(), [SUBSCRIBE]);
    bench.reply(1, Reply::Alive);
    assert_eq!(bench.look(), [event(1, QueueEvent::Subscribed), event(2, QueueEvent::Subscribed)]);
    bench.listen(3);
    assert_eq!(bench.look(), [event(3, QueueEvent::Subscribed)], "nothing more is written");
    (1..=3).for_each(|number| bench.handle(LinkInput::Unsubscribe(waiter_id(number))));
    bench.listen(4);
    assert_eq!(
        bench.look(),
        [event(4, QueueEvent::Subscribed)],
        "it stays subscribed without waiters"
    );
}

#[test]
fn a_master_that_forbids_subscriptions_is_asked_again_only_on_the_next_connection() {
    for replied in [vec![forbidden()], vec![Reply::Alive, forbidden()]] {
        let mut bench = Bench::connected();
        bench.listen(1);
        replied.into_iter().for_each(|reply| bench.reply(1, reply));
        assert_eq!(bench.look().last(), Some(&event(1, QueueEvent::Refused)));
        bench.listen(2);
        assert_eq!(bench.look(), [event(2, QueueEvent::Refused)]);
        assert_eq!(bench.link.subscriptions(), 2, "waiters that it cannot wake count, too");
        assert_eq!(bench.link.epoch(), Some(1), "the connection stays open");
        bench.close(1);
        bench.connect(2);
        assert!(bench.look().contains(&HELLO));
    }
}

#[test]
fn a_master_that_was_busy_is_asked_again_on_the_same_connection() {
    let answers: [&[Reply]; 2] = [&[], &[Reply::Alive]];
    for before in answers {
        let mut bench = Bench::connected();
        bench.listen(1);
        let mut pause = 1_000 * MS;
        for _ in 0..7 {
            before.iter().for_each(|reply| bench.reply(1, reply.clone()));
            bench.reply(1, busy());
            let refused = event(1, QueueEvent::Refused);
            assert!(!bench.look().contains(&refused), "it is not forbidden");
            assert_eq!(bench.names()[0], waiter(INBOX), "its positions keep their name");
            (0..3).for_each(|_| bench.reply(1, Reply::Alive));
            bench.look();
            assert_eq!(bench.link.next_wake(), bench.now.plus(pause), "the pause doubles");
            bench.pass(pause);
            assert_eq!(bench.look(), [HELLO]);
            pause = (2 * pause).min(16_000 * MS);
        }
        (0..2).for_each(|_| bench.reply(1, Reply::Alive));
        assert_eq!(bench.look(), [SUBSCRIBE, event(1, QueueEvent::Subscribed)]);
        bench.handle(LinkInput::Unsubscribe(waiter_id(1)));
        assert_eq!(bench.link.next_wake(), Time::NEVER);
    }
}

#[test]
fn a_busy_master_is_not_asked_again_while_the_link_refuses_requests_or_no_one_waits() {
    let mut bench = Bench::with(Bounds { unanswered: 1, ..Bounds::for_node_timeout(50 * MS) });
    bench.connect(1);
    bench.listen(1);
    bench.reply(1, busy());
    bench.look();
    bench.pass(990 * MS);
    bench.set(1, 0);
    bench.pass(20 * MS);
    assert_eq!(bench.look(), [write_set(1)], "an unanswered command more would be too many");
    assert!(bench.link.next_wake() > bench.now, "it does not spin");
    bench.reply(1, Reply::Created);
    assert!(bench.look().contains(&HELLO));
    bench.reply(1, busy());
    bench.handle(LinkInput::Unsubscribe(waiter_id(1)));
    assert_eq!(bench.link.next_wake(), Time::NEVER);
    bench.look();
    bench.pass(60_000 * MS);
    assert_eq!(bench.look(), []);
    bench.listen(2);
    assert_eq!(bench.look(), [event(2, QueueEvent::NotSubscribed), HELLO]);
}

/// Waits for a second, and connects. Returns the number of the connection, and what follows.
fn next_connection(bench: &mut Bench) -> (u64, Vec<TestEffect>) {
    bench.pass(1_000 * MS);
    let dialled = |effect: &TestEffect| match effect {
        LinkEffect::Dial(epoch) => Some(*epoch),
        _ => None,
    };
    let epoch = bench.look().iter().find_map(dialled).expect("it dials");
    bench.connect(epoch);
    let effects = bench.look();
    let kills = |effect: &&TestEffect| matches!(effect, LinkEffect::Write(Command::Kill { .. }));
    effects.iter().filter(kills).for_each(|_| bench.reply(epoch, Reply::Alive));
    (epoch, effects)
}

/// A link with a waiter, whose connections broke `times` times at `step`, each as `breaks` does it.
fn broken_at(step: &TestEffect, times: usize, breaks: fn(&mut Bench, u64)) -> Bench {
    let mut bench = Bench::dialling();
    bench.listen(1);
    for _ in 0..times {
        let (epoch, mut written) = next_connection(&mut bench);
        assert!(written.contains(&HELLO), "{written:?}");
        if *step != HELLO {
            bench.reply(epoch, Reply::Alive);
            written = bench.look();
        }
        assert!(written.contains(step), "{written:?}");
        breaks(&mut bench, epoch);
    }
    bench
}

fn hangs_up(bench: &mut Bench, epoch: u64) {
    bench.close(epoch);
}

#[test]
fn after_three_connections_that_broke_at_a_step_the_next_ones_do_without() {
    let garbles = |bench: &mut Bench, epoch| bench.reply(epoch, Reply::Unknown(Cause::Garbage));
    // The link connects beside a connection that is silent.
    let is_silent = |_: &mut Bench, _| ();
    for (step, breaks) in [
        (HELLO, hangs_up as fn(&mut Bench, u64)),
        (HELLO, garbles),
        (HELLO, is_silent),
        (SUBSCRIBE, hangs_up),
        (SUBSCRIBE, garbles),
        (SUBSCRIBE, is_silent),
    ] {
        let mut bench = broken_at(&step, 3, breaks);
        for _ in 0..3 {
            let (epoch, effects) = next_connection(&mut bench);
            assert!(effects.contains(&event(1, QueueEvent::Refused)), "{effects:?}");
            assert!(!effects.contains(&HELLO), "{effects:?}");
            bench.listen(2);
            bench.set(1, 0);
            assert_eq!(bench.look(), [event(2, QueueEvent::Refused), write_set(1)]);
            bench.reply(epoch, Reply::Created);
            bench.close(epoch);
        }
        // An hour later one connection tries, and the next ones do without again if it breaks.
        bench.pass(3_600_000 * MS);
        let (epoch, effects) = next_connection(&mut bench);
        assert!(effects.contains(&HELLO), "{effects:?}");
        bench.close(epoch);
        assert!(!next_connection(&mut bench).1.contains(&HELLO));
    }
}

#[test]
fn a_connection_that_does_without_steps_takes_them_after_an_hour() {
    let mut bench = broken_at(&HELLO, 3, hangs_up);
    let broken = bench.now;
    let (epoch, effects) = next_connection(&mut bench);
    assert!(effects.contains(&event(1, QueueEvent::Refused)), "{effects:?}");
    for _ in 0..400 {
        // Longer than an hour with idle probes, which are answered.
        bench.pass(10_000 * MS);
        let effects = bench.look();
        if effects.contains(&HELLO) {
            assert!(bench.now.since(broken) >= 3_600_000 * MS);
            bench.reply(epoch, Reply::Alive);
            assert!(bench.look().contains(&SUBSCRIBE));
            bench.reply(epoch, Reply::Alive);
            assert_eq!(bench.look(), [event(1, QueueEvent::Subscribed)]);
            return;
        }
        let probes = |effect: &&TestEffect| matches!(effect, LinkEffect::Write(_));
        effects.iter().filter(probes).for_each(|_| bench.reply(epoch, Reply::Alive));
    }
    panic!("it never asked again");
}

#[test]
fn connections_that_broke_at_a_step_by_chance_are_forgotten_once_the_master_answers() {
    for answers in [&[Reply::Alive, Reply::Alive][..], &[forbidden()]] {
        let mut bench = broken_at(&SUBSCRIBE, 2, hangs_up);
        let (epoch, _) = next_connection(&mut bench);
        answers.iter().for_each(|reply| bench.reply(epoch, reply.clone()));
        bench.close(epoch);
        for _ in 0..3 {
            let (epoch, effects) = next_connection(&mut bench);
            assert!(effects.contains(&HELLO), "{effects:?}");
            bench.close(epoch);
        }
    }
}

#[test]
fn only_known_waiters_are_woken_and_only_by_the_current_connection() {
    let mut bench = Bench::subscribed();
    bench.woken(1, 1);
    assert_eq!(bench.look(), [event(1, QueueEvent::Free(waiter_id(1)))]);
    bench.woken(1, 2);
    bench.woken(9, 1);
    assert_eq!(bench.look(), [], "an unknown waiter, a connection that is gone");
    bench.handle(LinkInput::Unsubscribe(waiter_id(1)));
    bench.woken(1, 1);
    assert_eq!(bench.look(), [], "the message was under way as the waiter left");
    assert_eq!(bench.link.subscriptions(), 0);
}

#[test]
fn the_master_knows_waiters_by_the_inbox_unless_it_cannot_wake_them() {
    let mut bench = Bench::subscribed();
    assert_eq!(bench.names(), [waiter(INBOX); 3]);
    bench.handle(LinkInput::Unsubscribe(waiter_id(1)));
    assert_eq!(bench.names(), [waiter(INBOX); 3], "a lease that is given back keeps its waiter");
    let mut early = Bench::connected();
    early.listen(1);
    assert_eq!(early.names(), [waiter(INBOX); 3], "before the subscription is confirmed");
    early.reply(1, forbidden());
    assert_eq!(early.names()[0], waiter(0));
    assert_eq!(Bench::connected().names(), [waiter(0); 3], "it does not subscribe");
}

#[test]
fn a_stalled_or_shut_down_link_subscribes_for_nothing() {
    let mut bench = Bench::connected();
    bench.set(1, 0);
    bench.pass(100 * MS);
    bench.look();
    bench.listen(1);
    assert_eq!(bench.look(), [event(1, QueueEvent::NotSubscribed)]);
    bench.reply(1, Reply::Created);
    assert!(bench.look().contains(&HELLO), "as soon as the master answers");
    let mut bench = Bench::connected();
    bench.handle(LinkInput::ShutDown);
    bench.listen(1);
    assert_eq!(bench.look(), [event(1, QueueEvent::NotSubscribed)]);
}

#[test]
fn a_clean_up_reports_how_many_wait_if_waiters_were_to_be_counted_or_woken() {
    for (wake_up, reports) in [(WakeUp::None, false), (WakeUp::Count, true), (WakeUp::First, true)]
    {
        let mut bench = Bench::connected();
        bench.set(1, 0);
        bench.reply(1, Reply::Created);
        let (token, leave) = (token(1), Some(waiter_id(1)));
        bench.handle(LinkInput::CleanUp { key: key(), token, wake_up, leave, tag: 5 });
        bench.look();
        assert_eq!(bench.link.oldest().map(|(expect, _)| expect), Some(Expect::Delete));
        bench.reply(1, Reply::Freed { waiters: 2, denied: false });
        let mut effects = vec![LinkEffect::Reply(5, Reply::Deleted)];
        if reports {
            effects.insert(0, LinkEffect::QueueEvent(key(), QueueEvent::Waiters(2)));
        }
        assert_eq!(bench.look(), effects, "{wake_up:?}");
        assert_eq!(bench.link.claimed() + bench.link.pending_cleanups(), 0);
    }
}

#[test]
fn what_a_master_forbids_is_asked_once_on_a_connection() {
    let release = |bench: &mut Bench, number, reply| {
        bench.set(number, 0);
        let (token, leave) = (token(number), Some(waiter_id(1)));
        let wake_up = WakeUp::First;
        bench.handle(LinkInput::CleanUp { key: key(), token, wake_up, leave, tag: 5 });
        bench.look();
        let epoch = bench.link.epoch().unwrap();
        bench.reply(epoch, Reply::Created);
        bench.reply(epoch, reply);
        assert!(bench.look().contains(&LinkEffect::Reply(5, Reply::Deleted)));
    };
    let asks = |bench: &mut Bench, number| {
        bench.set(number, 0);
        bench.handle(LinkInput::CleanUp {
            key: key(),
            token: token(number),
            wake_up: WakeUp::First,
            leave: None,
            tag: 5,
        });
        let asked = bench.look().into_iter().find_map(|effect| match effect {
            LinkEffect::Write(Command::Delete { wake_up, .. }) => Some(wake_up),
            _ => None,
        });
        let epoch = bench.link.epoch().unwrap();
        bench.reply(epoch, Reply::Created);
        bench.reply(epoch, Reply::Deleted);
        bench.look();
        asked.unwrap()
    };
    for (waiters, less) in [(0, WakeUp::None), (2, WakeUp::Quiet)] {
        let mut bench = Bench::connected();
        release(&mut bench, 1, Reply::Freed { waiters, denied: false });
        assert_eq!(asks(&mut bench, 2), WakeUp::First, "nothing was forbidden");
        release(&mut bench, 3, Reply::Freed { waiters, denied: true });
        assert_eq!(asks(&mut bench, 4), less);
        assert_eq!(asks(&mut bench, 5), less);
        let fair = |bench: &mut Bench, number| {
            let request =
                VoteRequest::Set { token: token(number), ttl_ms: 9, fair: true, fence: None };
            bench.handle(LinkInput::Send { key: key(), request, tag: 6 });
            let is_fair = |effect: &LinkEffect<u64>| {
                matches!(effect, LinkEffect::Write(Command::Set { fair: true, .. }))
            };
            bench.look().iter().any(is_fair)
        };
        assert_eq!(fair(&mut bench, 6), less == WakeUp::Quiet);
        // Permissions may have changed.
        bench.close(1);
        bench.reconnect(2);
        assert_eq!(asks(&mut bench, 7), WakeUp::First);
    }
}

#[test]
fn waiters_are_told_once_that_they_are_no_longer_woken_when_the_connection_ends() {
    let told = |bench: &mut Bench| {
        bench.close(1);
        bench.look().contains(&event(1, QueueEvent::NotSubscribed))
    };
    assert!(told(&mut Bench::subscribed()));
    let mut early = Bench::connected();
    early.listen(1);
    early.look();
    assert!(!told(&mut early), "they know");
}

#[test]
fn a_waiter_beyond_the_most_is_not_woken() {
    let bounds = Bounds { subscriptions: 1, ..Bounds::for_node_timeout(50 * MS) };
    let mut bench = Bench::with(bounds);
    bench.connect(1);
    bench.listen(1);
    (0..2).for_each(|_| bench.reply(1, Reply::Alive));
    bench.look();
    bench.listen(2);
    assert_eq!(bench.look(), [event(2, QueueEvent::NotSubscribed)]);
    bench.woken(1, 2);
    assert_eq!((bench.look(), bench.link.subscriptions()), (vec![], 1));
}
