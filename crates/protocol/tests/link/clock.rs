//! A link with a clock guard: when it checks a master's clock, and what it concludes.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::{Command, Greeting};
use redquorum_protocol::{
    Bounds, Cause, Distrust, Drift, Guard, Holder, LinkEffect, LinkInput, Reading, Reply,
};

use crate::bench::*;

const S: Duration = Duration::from_secs(1);
const BOUND: Duration = Duration::from_millis(500);
const MARKER: &str = "a 3000 clock=500";

fn guard() -> Guard {
    Guard::new(3 * S, Drift::default(), 7).unwrap().with_clock_bound(BOUND).unwrap()
}

struct Master {
    bench: Bench,
    ahead: Duration,
    tags: u32,
    /// The current connection.
    epoch: u64,
    /// The boot marker of the master.
    boot: &'static str,
}

impl Master {
    /// A master that is trusted by its marker and has just connected.
    fn greeted() -> Self {
        let mut bench = Bench::with(Bounds::for_node_timeout(S));
        bench.look();
        bench.link = bench.link.clone().guarded_by(Some(guard()));
        let mut master = Self { bench, ahead: 1_000_000 * S, tags: 0, epoch: 0, boot: MARKER };
        master.greet(1);
        master
    }

    fn greet(&mut self, epoch: u64) {
        self.epoch = epoch;
        let greeting = Greeting { boot: Some(Arc::from(MARKER)), ..greeting(epoch, "a") };
        self.bench.greet(epoch, greeting);
    }

    /// Restarts the master. It shows the marker of process "a", which synced every write, as the
    /// new process does.
    fn restart(&mut self, run_id: &str) {
        self.bench.close(self.epoch);
        self.bench.pass(100 * MS);
        self.bench.look();
        self.epoch += 1;
        self.boot = "a 3000 always clock=500";
        let boot = Some(Arc::from(self.boot));
        let greeting = Greeting { boot, durable: true, ..greeting(self.epoch, run_id) };
        self.bench.greet(self.epoch, greeting);
    }

    fn micros(&self) -> u64 {
        let since = Duration::from_nanos(self.bench.now.as_nanos()) + self.ahead;
        u64::try_from(since.as_micros()).unwrap()
    }

    fn answer(&mut self, answer: Reply) {
        let stamped = answer.stamped(self.micros());
        self.bench.answer(self.epoch, stamped);
    }

    /// Whether the link wrote a check of the clock. The reply comes `after` later.
    fn looked(&mut self, after: Duration) -> bool {
        match &self.bench.look()[..] {
            [] => return false,
            [LinkEffect::Write(Command::Watch { begin: None, ended: None, .. })] => {}
            other => panic!("{other:?}"),
        }
        self.bench.now = self.bench.now.plus(after);
        self.answer(Reply::Marked { boot: Some(Arc::from(self.boot)), probation: None });
        true
    }

    /// Lets `time` pass in steps of 100 ms. Replies to clock checks at once, and returns their
    /// number.
    fn pass(&mut self, time: Duration) -> usize {
        let steps = time.as_millis() / 100;
        (0..steps)
            .filter(|_| {
                self.bench.pass(100 * MS);
                self.looked(Duration::ZERO)
            })
            .count()
    }

    /// Requests a grant, to which the master replies with `said` after this time. Returns the
    /// result that the link reports.
    fn ask(&mut self, said: Reply, after: Duration) -> (Reply, Option<Reading>) {
        self.tags += 1;
        self.bench.set(u8::try_from(self.tags).unwrap(), self.tags);
        if let [LinkEffect::Write(Command::Guarded { .. })] = &self.bench.look()[..] {
            self.bench.now = self.bench.now.plus(after);
            self.answer(said);
        } else {
            // The link refused at once, and `look` took that effect: request again, to return it.
            self.bench.set(u8::try_from(self.tags).unwrap(), self.tags);
        }
        match self.bench.look().pop() {
            Some(LinkEffect::Reply(_, Reply::Timed { reading, answer })) => {
                (*answer, Some(reading))
            }
            Some(LinkEffect::Reply(_, answer)) => (answer, None),
            other => panic!("{other:?}"),
        }
    }

    fn grant(&mut self) -> (Reply, Option<Reading>) {
        self.ask(Reply::Created, MS)
    }
}

fn why(answer: &Reply) -> Option<&Distrust> {
    match answer {
        Reply::Unknown(Cause::Distrusted { why, .. }) => Some(why),
        _ => None,
    }
}

#[test]
fn a_trusted_master_is_looked_at_at_once_and_every_half_of_the_longest_lease() {
    let mut master = Master::greeted();
    assert!(master.looked(MS));
    assert_eq!(master.pass(15 * S), 10);
    assert_eq!(master.grant().0, Reply::Created);
    // A lock without a clock guard does not check the clock.
    let mut plain = Bench::with(Bounds::for_node_timeout(S));
    plain.look();
    let guard = Guard::new(3 * S, Drift::default(), 7).unwrap();
    plain.link = plain.link.clone().guarded_by(Some(guard));
    plain.greet(1, Greeting { boot: Some(Arc::from("a 3000")), ..greeting(1, "a") });
    assert_eq!(plain.look(), []);
}

#[test]
fn a_master_is_watched_once_its_first_reading_is_as_old_as_a_lease_can_be() {
    let mut master = Master::greeted();
    assert!(master.looked(MS));
    let left = |master: &mut Master| master.grant().1.unwrap().unwatched();
    assert_eq!(left(&mut master), guard().window() - MS);
    master.pass(3 * S);
    assert_eq!(left(&mut master), guard().window() - 3 * S - 2 * MS);
    master.pass(S);
    assert_eq!(left(&mut master), Duration::ZERO);
    // The watch outlives the end of a connection: the clock is the same one.
    master.bench.close(1);
    master.bench.look();
    master.bench.greet(2, Greeting { boot: Some(Arc::from(MARKER)), ..greeting(2, "a") });
    master.bench.look();
    let stamped = Reply::Marked { boot: Some(Arc::from(MARKER)), probation: None };
    master.bench.answer(2, stamped.stamped(master.micros()));
    master.bench.set(99, 99);
    master.bench.look();
    master.bench.answer(2, Reply::Created.stamped(master.micros()));
    let told = master.bench.look();
    assert!(
        matches!(&told[..], [LinkEffect::Reply(99, Reply::Timed { reading, .. })]
        if reading.unwatched().is_zero()),
        "{told:?}"
    );
}

#[test]
fn the_clock_of_another_process_is_not_watched_yet() {
    let mut master = Master::greeted();
    assert!(master.looked(MS));
    master.pass(5 * S);
    // The new process is on another machine, whose clock is behind the old one.
    master.ahead -= 10 * S;
    master.restart("b");
    // Before this client checks the clock, another client acquires, and its key is lost: the clock
    // gains 9 s, and is still behind the old one.
    master.ahead += 9 * S;
    assert!(master.looked(MS));
    let (answer, reading) = master.grant();
    assert_eq!(answer, Reply::Created);
    assert_eq!(reading.unwrap().unwatched(), guard().window() - MS, "for others to compare with");
    // From now on the watch takes as long as for any other master. The end of a connection does not
    // start it anew.
    master.pass(4 * S);
    master.restart("b");
    assert!(master.looked(MS));
    assert_eq!(master.grant().1.unwrap().unwatched(), Duration::ZERO);
}

#[test]
fn what_the_clock_of_another_process_is_ahead_of_the_one_before_is_a_step() {
    let mut master = Master::greeted();
    assert!(master.looked(MS));
    master.pass(5 * S);
    // The new process has the keys of the old one, and expires them by its own clock.
    master.ahead += BOUND + 10 * MS;
    master.restart("b");
    assert!(master.looked(MS));
    assert!(matches!(why(&master.grant().0), Some(Distrust::ClockStepped { .. })));
    // A restart does not restore a key that expired too early.
    master.restart("c");
    let distrust = master.bench.link.distrust(master.bench.now);
    assert!(
        matches!(distrust, Some(Cause::Distrusted { why: Distrust::ClockStepped { .. }, .. })),
        "{distrust:?}"
    );
}

#[test]
fn what_was_seen_too_long_ago_is_seen_for_the_first_time() {
    let mut master = Master::greeted();
    assert!(master.looked(MS));
    master.pass(5 * S);
    // A check gets no reply, and two windows pass.
    master.bench.now = master.bench.now.plus(3 * guard().window());
    master.ahead += 10 * S;
    let (answer, reading) = master.grant();
    assert_eq!(answer, Reply::Created);
    assert_eq!(reading.unwrap().unwatched(), guard().window(), "for others to compare with");
}

#[test]
fn a_step_beyond_the_bound_is_distrusted_for_a_window_from_when_it_was_seen() {
    let mut master = Master::greeted();
    assert!(master.looked(MS));
    master.pass(10 * S);
    master.ahead += BOUND + 10 * MS;
    let (answer, reading) = master.grant();
    let by = BOUND + 8 * MS;
    assert!(
        matches!(why(&answer), Some(Distrust::ClockStepped { by: of }) if *of >= by),
        "{answer:?}"
    );
    assert!(reading.is_some(), "others are compared with it all the same");
    assert_eq!(master.bench.link.claimed(), 1, "its key is there, and owed its clean-up");
    // The link sends it no acquires, but checks its clock and keeps its leases.
    let (answer, reading) = master.grant();
    assert!(matches!(why(&answer), Some(Distrust::ClockStepped { .. })) && reading.is_none());
    let left = |cause: Option<Cause>| match cause {
        Some(Cause::Distrusted { left, .. }) => left,
        other => panic!("{other:?}"),
    };
    assert_eq!(left(master.bench.link.distrust(master.bench.now)), Some(guard().window()));
    master.bench.keep(1, 77);
    assert!(matches!(master.bench.look()[..], [LinkEffect::Write(Command::Keep { .. })]));
    master.bench.answer(1, Reply::Kept);
    assert_eq!(master.bench.look(), [LinkEffect::Reply(77, Reply::Kept)]);
    assert!(master.pass(3 * S) >= 2);
    assert!(master.bench.link.distrust(master.bench.now).is_some());
    master.pass(100 * MS);
    assert_eq!(master.bench.link.distrust(master.bench.now), None);
    let (answer, reading) = master.grant();
    assert_eq!((answer, reading.unwrap().unwatched()), (Reply::Created, Duration::ZERO));
}

#[test]
fn small_steps_add_up_over_a_lease_and_not_beyond_it() {
    let mut master = Master::greeted();
    assert!(master.looked(MS));
    for _ in 0..20 {
        // 400 ms in 5 s: less than the bound in any window.
        master.pass(S);
        master.ahead += 80 * MS;
        assert_eq!(master.grant().0, Reply::Created);
    }
    for _ in 0..6 {
        master.pass(500 * MS);
        master.ahead += 100 * MS;
    }
    assert!(matches!(why(&master.grant().0), Some(Distrust::ClockStepped { .. })));
}

#[test]
fn a_slow_answer_costs_its_own_vote_and_no_other() {
    let mut master = Master::greeted();
    assert!(master.looked(MS));
    master.pass(5 * S);
    // The master executed the command at some instant of the round trip, so the offset may have
    // grown by the whole round trip.
    let (answer, _) = master.ask(Reply::Created, BOUND + 10 * MS);
    assert!(matches!(why(&answer), Some(Distrust::ClockUnclear { .. })), "{answer:?}");
    let text = answer.to_string();
    assert!(text.starts_with("distrusted: it answered too slowly"), "{text}");
    assert_eq!(master.bench.link.distrust(master.bench.now), None);
    for _ in 0..40 {
        assert_eq!(master.grant().0, Reply::Created);
        assert_eq!(master.ask(Reply::Created, BOUND - 10 * MS).0, Reply::Created);
        master.pass(100 * MS);
    }
}

#[test]
fn refusals_tell_the_clock_too_and_are_never_doubted() {
    let mut master = Master::greeted();
    assert!(master.looked(MS));
    let (first, before) = master.ask(Reply::Taken(Holder::NotAsked), MS);
    master.ahead += 2 * S;
    let (second, after) = master.ask(Reply::Taken(Holder::NotAsked), MS);
    assert_eq!([first, second], [Reply::Taken(Holder::NotAsked), Reply::Taken(Holder::NotAsked)]);
    assert!(after.unwrap().lead_at_least(before.unwrap()) > 2 * S - 5 * MS);
    assert!(matches!(why(&master.grant().0), Some(Distrust::ClockStepped { .. })));
}

#[test]
fn a_clock_that_is_set_back_is_trusted_and_its_cure_is_not() {
    let mut master = Master::greeted();
    assert!(master.looked(MS));
    master.pass(5 * S);
    master.ahead -= 2 * S;
    assert_eq!(master.grant().0, Reply::Created);
    master.ahead += 2 * S;
    assert!(matches!(why(&master.grant().0), Some(Distrust::ClockStepped { .. })));
}

#[test]
fn a_marker_that_changes_is_seen_by_the_look_at_the_clock() {
    let mut master = Master::greeted();
    assert!(master.looked(MS));
    master.bench.pass(2 * S);
    master.bench.look();
    master.answer(Reply::Marked { boot: None, probation: None });
    let (answer, _) = master.grant();
    assert_eq!(why(&answer), Some(&Distrust::Forgot));
}

#[test]
fn errors_and_garbage_tell_no_time() {
    let mut master = Master::greeted();
    assert!(master.looked(MS));
    let error = Reply::Unknown(Cause::Error(Arc::from("OOM")));
    assert_eq!(master.ask(error.clone(), MS), (error, None));
    master.bench.tell(LinkInput::Wake);
    let times = [u64::MAX, 0, 1];
    for micros in times {
        master.tags += 1;
        master.bench.set(u8::try_from(master.tags).unwrap(), master.tags);
        master.bench.look();
        master.bench.answer(1, Reply::Created.stamped(micros));
        if micros == u64::MAX {
            let told = master.bench.look();
            assert!(
                matches!(&told[..], [LinkEffect::Reply(_, Reply::Timed { answer, .. })]
                if why(answer).is_some()),
                "{told:?}"
            );
        }
    }
}
