//! A link with a clock guard: when it checks a master's clock, and what it concludes.

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redquorum_protocol::wire::{Command, Greeting};
use redquorum_protocol::{
    Bounds, Cause, Distrust, Drift, Guard, Holder, LinkEffect, LinkInput, Reading, Reply, RunId,
    Time,
};

use super::bench::*;

const S: Duration = Duration::from_secs(1);
const BOUND: Duration = Duration::from_millis(500);
const TAKEN: Reply = Reply::Taken(Holder::NotAsked);

fn guard_for(max_ttl: Duration) -> Guard {
    Guard::new(max_ttl, Drift::default(), 7).unwrap()
}

fn guard() -> Guard {
    guard_for(3 * S).with_clock_bound(BOUND).unwrap()
}

struct Master {
    bench: Bench,
    guard: Guard,
    ahead: Duration,
    tags: u64,
    /// The current connection.
    epoch: u64,
    /// The boot marker of the master.
    boot: Arc<str>,
}

impl Master {
    /// A master that is trusted by its marker and has just connected.
    fn greeted() -> Self {
        let mut master = Self::greeted_with(guard());
        assert!(master.looked(MS));
        master
    }

    fn greeted_with(guard: Guard) -> Self {
        let mut bench = Bench::guarded(Bounds::for_node_timeout(3_600 * S), guard);
        bench.now = Time::from_millis(1_000);
        let boot = guard.marker(&RunId(Arc::from("a")), false);
        let mut master = Self { bench, guard, ahead: 1_000_000 * S, tags: 0, epoch: 0, boot };
        master.greet("a", false);
        master
    }

    fn greet(&mut self, run_id: &str, durable: bool) {
        self.epoch += 1;
        let boot = Some(self.boot.clone());
        self.bench.greet(self.epoch, Greeting { boot, durable, ..greeting(self.epoch, run_id) });
    }

    /// Ends the connection. The link dials the next one.
    fn hang_up(&mut self) {
        self.bench.close(self.epoch);
        if !self.bench.link.awaits(self.epoch + 1) {
            self.bench.pass(self.bench.link.next_wake().since(self.bench.now));
        }
        self.bench.look();
    }

    /// Restarts the master. It shows the marker of process "a", which synced every write, as the
    /// new process does.
    fn restart(&mut self, run_id: &str) {
        self.hang_up();
        self.boot = self.guard.marker(&RunId(Arc::from("a")), true);
        self.greet(run_id, true);
    }

    fn reply(&mut self, reply: Reply) {
        let since = Duration::from_nanos(self.bench.now.as_nanos()) + self.ahead;
        let micros = u64::try_from(since.as_micros()).unwrap();
        self.bench.reply(self.epoch, reply.stamped(micros));
    }

    /// Whether the link wrote a check of the clock. The reply comes `after` later.
    fn looked(&mut self, after: Duration) -> bool {
        match &self.bench.look()[..] {
            [] => return false,
            [LinkEffect::Write(Command::Watch { begin: None, ended: None, .. })] => {}
            other => panic!("{other:?}"),
        }
        self.bench.now = self.bench.now.plus(after);
        self.reply(Reply::Marked { boot: Some(self.boot.clone()), probation: None });
        true
    }

    /// Lets `time` pass. Replies to clock checks at once, and returns their number.
    fn pass(&mut self, time: Duration) -> usize {
        let end = self.bench.now.plus(time);
        let mut looks = 0;
        while self.bench.link.next_wake() <= end {
            self.bench.now = self.bench.link.next_wake().max(self.bench.now);
            self.bench.handle(LinkInput::Wake);
            looks += usize::from(self.looked(Duration::ZERO));
        }
        self.bench.now = end;
        looks
    }

    /// Requests a grant, to which the master replies with `outcomes` after this time. Returns the
    /// result that the link reports.
    fn ask(&mut self, outcomes: Reply, after: Duration) -> (Reply, Option<Reading>) {
        self.ask_while(outcomes, after, Duration::ZERO, Duration::ZERO)
    }

    /// The clock gains between the request and its execution, and the reply takes some time, too.
    fn ask_while(
        &mut self,
        outcomes: Reply,
        there: Duration,
        gain: Duration,
        back: Duration,
    ) -> (Reply, Option<Reading>) {
        self.tags += 1;
        self.bench.set(self.tags, self.tags);
        let mut effects = self.bench.look();
        if let [LinkEffect::Write(Command::Guarded { .. })] = &effects[..] {
            // The reply is stamped with the clock as it is at the execution, not on the way back.
            self.bench.now = self.bench.now.plus(there);
            self.ahead = self.ahead + gain - back;
            self.bench.now = self.bench.now.plus(back);
            self.reply(outcomes);
            self.ahead += back;
            effects = self.bench.look();
        }
        match effects.pop() {
            Some(LinkEffect::Reply(_, Reply::Timed { reading, reply })) => (*reply, Some(reading)),
            Some(LinkEffect::Reply(_, reply)) => (reply, None),
            other => panic!("{other:?}"),
        }
    }

    fn grant(&mut self) -> (Reply, Option<Reading>) {
        self.ask(Reply::Created, MS)
    }

    /// For how long the clock must still be watched.
    fn unwatched(&mut self) -> Duration {
        let (reply, reading) = self.grant();
        assert_eq!(reply, Reply::Created);
        reading.unwrap().unwatched()
    }

    fn is_stepped(&mut self) -> bool {
        matches!(why(&self.grant().0), Some(Distrust::ClockStepped { .. }))
    }
}

fn why(reply: &Reply) -> Option<&Distrust> {
    match reply {
        Reply::Unknown(Cause::Distrusted { why, .. }) => Some(why),
        _ => None,
    }
}

#[test]
fn a_trusted_master_is_looked_at_at_once_and_every_half_of_the_longest_lease() {
    let mut master = Master::greeted();
    assert_eq!(master.pass(15 * S), 10);
    assert_eq!(master.grant().0, Reply::Created);
    // A lock without a clock guard does not check the clock.
    assert!(!Master::greeted_with(guard_for(3 * S)).looked(MS));
}

#[test]
fn a_master_is_watched_once_its_first_reading_is_as_old_as_a_lease_can_be() {
    let mut master = Master::greeted();
    assert_eq!(master.unwatched(), guard().window() - MS);
    master.pass(3 * S);
    assert_eq!(master.unwatched(), guard().window() - 3 * S - 2 * MS);
    master.pass(S);
    assert_eq!(master.unwatched(), Duration::ZERO);
    // The watch outlives the end of a connection: the clock is the same one.
    master.hang_up();
    master.greet("a", false);
    assert!(master.looked(MS));
    assert_eq!(master.unwatched(), Duration::ZERO);
}

#[test]
fn the_clock_of_another_process_is_not_watched_yet() {
    let mut master = Master::greeted();
    master.pass(5 * S);
    // The new process is on another machine, whose clock is behind the old one.
    master.ahead -= 10 * S;
    master.restart("b");
    // Before this client checks the clock, another client acquires, and its key is lost: the clock
    // gains 9 s, and is still behind the old one.
    master.ahead += 9 * S;
    assert!(master.looked(MS));
    assert_eq!(master.unwatched(), guard().window() - MS, "for others to compare with");
    // From now on the watch takes as long as for any other master. The end of a connection does not
    // start it anew.
    master.pass(4 * S);
    master.restart("b");
    assert!(master.looked(MS));
    assert_eq!(master.unwatched(), Duration::ZERO);
}

#[test]
fn a_process_whose_clock_is_ahead_of_the_one_before_has_stepped() {
    let mut master = Master::greeted();
    master.pass(5 * S);
    // The new process has the keys of the old one, and expires them by its own clock.
    master.ahead += BOUND + 10 * MS;
    master.restart("b");
    assert!(master.looked(MS));
    assert!(master.is_stepped());
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
    master.pass(5 * S);
    // A check gets no reply, and two windows pass.
    master.bench.now = master.bench.now.plus(3 * guard().window());
    master.ahead += 10 * S;
    assert_eq!(master.unwatched(), guard().window(), "for others to compare with");
}

#[test]
fn a_step_beyond_the_bound_is_distrusted_for_a_window_from_when_it_was_seen() {
    let mut master = Master::greeted();
    master.pass(10 * S);
    master.ahead += BOUND + 10 * MS;
    let (reply, reading) = master.grant();
    let by = BOUND + 8 * MS;
    assert!(
        matches!(why(&reply), Some(Distrust::ClockStepped { by: of }) if *of >= by),
        "{reply:?}"
    );
    assert!(reading.is_some(), "others are compared with it all the same");
    assert_eq!(master.bench.link.claimed(), 1, "its key is there, and owed its clean-up");
    // The link sends it no acquires, but checks its clock and keeps its leases.
    let (reply, reading) = master.grant();
    assert!(matches!(why(&reply), Some(Distrust::ClockStepped { .. })) && reading.is_none());
    let left = |cause: Option<Cause>| match cause {
        Some(Cause::Distrusted { left, .. }) => left,
        other => panic!("{other:?}"),
    };
    assert_eq!(left(master.bench.link.distrust(master.bench.now)), Some(guard().window()));
    master.bench.keep(1, 77);
    assert!(matches!(master.bench.look()[..], [LinkEffect::Write(Command::Keep { .. })]));
    master.bench.reply(1, Reply::Kept);
    assert_eq!(master.bench.look(), [LinkEffect::Reply(77, Reply::Kept)]);
    // It may have dropped another client's key, so it must not create one again.
    master.bench.repair(2, 78);
    assert!(matches!(master.bench.look()[..], [LinkEffect::Reply(78, Reply::Unknown(_))]));
    assert!(master.pass(3 * S) >= 2);
    assert!(master.bench.link.distrust(master.bench.now).is_some());
    master.pass(100 * MS);
    assert_eq!(master.bench.link.distrust(master.bench.now), None);
    assert_eq!(master.unwatched(), Duration::ZERO);
}

/// The step came after the last look. A repair that finds the key may have created it, too: its
/// reply was lost.
#[test]
fn a_repair_on_a_master_that_stepped_does_not_count() {
    for reply in [Reply::Created, Reply::Kept] {
        let mut master = Master::greeted();
        master.pass(10 * S);
        master.bench.repair(1, 5);
        master.bench.look();
        master.reply(reply.clone());
        let replied = master.bench.look();
        let [LinkEffect::Reply(5, timed)] = &replied[..] else { panic!("{replied:?}") };
        assert_eq!(timed.clone().plain(), reply);
        master.ahead += BOUND + 10 * MS;
        master.bench.repair(1, 6);
        master.bench.look();
        master.reply(reply);
        let replied = master.bench.look();
        let [LinkEffect::Reply(6, timed), ..] = &replied[..] else { panic!("{replied:?}") };
        let reply = timed.clone().plain();
        assert!(matches!(why(&reply), Some(Distrust::ClockStepped { .. })), "{reply:?}");
    }
}

#[test]
fn a_slow_answer_costs_its_own_vote_and_no_other() {
    let mut master = Master::greeted();
    master.pass(5 * S);
    // The master executed the command at some instant of the round trip, so the offset may have
    // grown by the whole round trip.
    let (reply, _) = master.ask(Reply::Created, BOUND + 10 * MS);
    assert!(matches!(why(&reply), Some(Distrust::ClockUnclear { .. })), "{reply:?}");
    let text = reply.to_string();
    assert!(text.starts_with("distrusted: it answered too slowly"), "{text}");
    assert_eq!(master.bench.link.distrust(master.bench.now), None);
    // Had the master executed it at once and replied late, no later reading would be clear.
    assert_eq!(
        master.ask_while(Reply::Created, Duration::ZERO, Duration::ZERO, BOUND + 10 * MS).0,
        Reply::Created
    );
    for _ in 0..40 {
        assert_eq!(master.grant().0, Reply::Created);
        assert_eq!(master.ask(Reply::Created, BOUND - 10 * MS).0, Reply::Created);
        master.pass(100 * MS);
    }
}

#[test]
fn refusals_carry_the_clock_too_and_are_never_distrusted() {
    let mut master = Master::greeted();
    let (first, before) = master.ask(TAKEN, MS);
    master.ahead += 2 * S;
    let (second, after) = master.ask(TAKEN, MS);
    assert_eq!([first, second], [TAKEN, TAKEN]);
    assert!(after.unwrap().lead_at_least(before.unwrap()) > 2 * S - 5 * MS);
    assert!(master.is_stepped());
}

#[test]
fn a_clock_that_is_set_back_is_trusted_and_its_correction_is_not() {
    let mut master = Master::greeted();
    master.pass(5 * S);
    master.ahead -= 2 * S;
    assert_eq!(master.grant().0, Reply::Created);
    master.ahead += 2 * S;
    assert!(master.is_stepped());
}

#[derive(Clone, Debug)]
enum Act {
    Pass(u32),
    /// The clock gains: a step, or a rate that is too high.
    Gain(u32),
    /// A request: the time to the master, the time back, and the gain of the clock in between.
    Request(u32, u32, u32),
    Break,
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1..900_u32).prop_map(Act::Pass),
        1 => (900..6_000_u32).prop_map(Act::Pass),
        3 => (1..260_u32).prop_map(Act::Gain),
        6 => (0..60_u32, 0..60_u32, 0..20_u32)
            .prop_map(|(there, back, gain)| Act::Request(there, back, gain)),
        1 => (0..900_u32, 0..900_u32).prop_map(|(there, back)| Act::Request(there, back, 0)),
        1 => Just(Act::Break),
    ]
}

/// A master whose clock gains at random, and a link that checks it with each request and by itself.
struct Gaining {
    master: Master,
    /// How far ahead the clock was from each of these times on.
    ahead: Vec<(Time, Duration)>,
    /// The number of grants that counted under a watched clock. `wrong` are those with a clock that
    /// had gained more than the bound for as long as a lease can live.
    counted: usize,
    wrong: usize,
}

impl Gaining {
    const BOUND: Duration = Duration::from_millis(200);

    fn new(looks: bool) -> Self {
        let plain = guard_for(S);
        let guard = if looks { plain.with_clock_bound(Self::BOUND).unwrap() } else { plain };
        let mut master = Master::greeted_with(guard);
        assert_eq!(master.looked(Duration::ZERO), looks);
        let ahead = vec![(Time::ZERO, master.ahead)];
        Self { master, ahead, counted: 0, wrong: 0 }
    }

    fn ahead(&self, at: Time) -> Duration {
        self.ahead.iter().rfind(|(since, _)| *since <= at).expect("since the start").1
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Pass(ms) => _ = self.master.pass(ms * MS),
            Act::Gain(ms) => {
                self.master.ahead += ms * MS;
                self.ahead.push((self.master.bench.now, self.master.ahead));
            }
            Act::Request(there, back, gain) => self.ask(there * MS, back * MS, gain * MS),
            Act::Break => {
                self.master.hang_up();
                self.master.greet("a", false);
                self.master.looked(Duration::ZERO);
            }
        }
    }

    fn ask(&mut self, there: Duration, back: Duration, gain: Duration) {
        let executed = self.master.bench.now.plus(there);
        let reply = self.master.ask_while(Reply::Created, there, gain, back);
        self.ahead.push((executed, self.master.ahead));
        let (Reply::Created, reading) = reply else { return };
        if reading.is_none_or(|reading| reading.unwatched().is_zero()) {
            self.counted += 1;
            let window = self.master.guard.window();
            let before = Time::ZERO.plus(self.master.bench.now.since(Time::ZERO.plus(window)));
            let gained = self.ahead(executed) - self.ahead(before);
            self.wrong += usize::from(gained > Self::BOUND);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn no_grant_of_a_watched_master_counts_whose_clock_gained_more_than_the_bound(
        acts in vec(any_act(), 0..120),
    ) {
        let mut gaining = Gaining::new(true);
        acts.iter().for_each(|act| gaining.act(act));
        prop_assert_eq!(gaining.wrong, 0);
    }
}

#[test]
fn a_steady_clock_is_trusted_and_a_step_is_let_in_by_a_link_that_does_not_look() {
    let mut steady = Gaining::new(true);
    for _ in 0..50 {
        steady.act(&Act::Pass(100));
        steady.act(&Act::Request(5, 5, 0));
    }
    assert!(steady.counted >= 38, "{}", steady.counted);
    for (looks, wrong) in [(true, 0), (false, 1)] {
        let mut gaining = Gaining::new(looks);
        gaining.act(&Act::Pass(3_000));
        gaining.act(&Act::Gain(201));
        gaining.act(&Act::Request(0, 0, 0));
        assert_eq!(gaining.wrong, wrong, "looks: {looks}");
    }
}

#[test]
fn errors_and_garbage_carry_no_clock() {
    let mut master = Master::greeted();
    let error = Reply::Unknown(Cause::Error(Arc::from("OOM")));
    assert_eq!(master.ask(error.clone(), MS), (error, None));
    master.bench.handle(LinkInput::Wake);
    let times = [u64::MAX, 0, 1];
    for micros in times {
        master.tags += 1;
        master.bench.set(master.tags, master.tags);
        master.bench.look();
        master.bench.reply(1, Reply::Created.stamped(micros));
        if micros == u64::MAX {
            let effects = master.bench.look();
            assert!(
                matches!(&effects[..], [LinkEffect::Reply(_, Reply::Timed { reply, .. })]
                if why(reply).is_some()),
                "{effects:?}"
            );
        }
    }
}

#[test]
fn a_look_that_was_answered_too_slowly_is_repeated_soon() {
    for (answered, next) in [(MS, 1_500 * MS), (BOUND, S)] {
        let mut master = Master::greeted();
        master.bench.pass(master.bench.link.next_wake().since(master.bench.now));
        assert!(master.looked(answered));
        assert_eq!(master.bench.link.next_wake(), master.bench.now.plus(next), "{answered:?}");
    }
}
