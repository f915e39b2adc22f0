//! A master whose clock gains at random, and a link that checks it with each request and by itself.
//!
//! If a grant counts, the clock has gained no more than the bound for as long as a lease can live.

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redquorum_protocol::wire::{Command, Greeting};
use redquorum_protocol::{
    Bounds, Drift, Guard, Link, LinkEffect, LinkInput, Reply, RunId, TOKEN_LEN, Time, Token,
    VoteRequest,
};

const MS: Duration = Duration::from_millis(1);
const BOUND: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
enum Act {
    Pass(u32),
    /// The clock gains: a step, or a rate that is too high.
    Gain(u32),
    /// A request: the time to the master, the time back, and the gain of the clock in between.
    VoteRequest(u32, u32, u32),
    Break,
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1..900_u32).prop_map(Act::Pass),
        1 => (900..6_000_u32).prop_map(Act::Pass),
        3 => (1..260_u32).prop_map(Act::Gain),
        6 => (0..60_u32, 0..60_u32, 0..20_u32).prop_map(|(there, back, gain)| Act::VoteRequest(there, back, gain)),
        1 => (0..900_u32, 0..900_u32).prop_map(|(there, back)| Act::VoteRequest(there, back, 0)),
        1 => Just(Act::Break),
    ]
}

struct World {
    guard: Guard,
    link: Link<u32>,
    now: Time,
    epoch: u64,
    tags: u32,
    /// The gains of the clock, and when they happened.
    gained: Vec<(Time, Duration)>,
    /// The number of grants that counted under a watched clock. `wrong` are those with a clock that
    /// had gained too much.
    counted: usize,
    wrong: usize,
}

impl World {
    fn new(looks: bool) -> Self {
        let guard = Guard::new(1_000 * MS, Drift::default(), 7).unwrap();
        let guard = if looks { guard.with_clock_bound(BOUND).unwrap() } else { guard };
        let mut out = Vec::new();
        let bounds = Bounds::for_node_timeout(3_600_000 * MS);
        let link = Link::start(bounds, &mut out).guarded_by(Some(guard));
        let now = Time::from_millis(1_000);
        let gained = vec![(Time::ZERO, Duration::ZERO)];
        let mut world = Self { guard, link, now, epoch: 0, tags: 0, gained, counted: 0, wrong: 0 };
        world.greet();
        world
    }

    fn run_id() -> RunId {
        RunId(Arc::from("a"))
    }

    fn marker(&self) -> Arc<str> {
        self.guard.marker(&Self::run_id(), false)
    }

    fn greet(&mut self) {
        self.epoch += 1;
        let greeting = Greeting {
            run_id: Some(Self::run_id()),
            boot: Some(self.marker()),
            ..Greeting::default()
        };
        self.tell(LinkInput::Connected { epoch: self.epoch, greeting });
    }

    /// Passes an input to the link, and replies to its checks at once.
    fn tell(&mut self, input: LinkInput<u32>) -> Vec<LinkEffect<u32>> {
        let mut out = Vec::new();
        self.link.handle(self.now, input, &mut out);
        if out.iter().any(|said| matches!(said, LinkEffect::Write(Command::Watch { .. }))) {
            let boot = Some(self.marker());
            let answer = Reply::Marked { boot, probation: None }.stamped(self.micros());
            self.link.handle(self.now, LinkInput::Answered { epoch: self.epoch, answer }, &mut out);
        }
        out
    }

    fn gained(&self, at: Time) -> Duration {
        self.gained.iter().rfind(|(since, _)| *since <= at).expect("since the start").1
    }

    fn gain(&mut self, ms: u32) {
        let gained = self.gained(self.now) + ms * MS;
        self.gained.push((self.now, gained));
    }

    fn micros(&self) -> u64 {
        let shows = Duration::from_nanos(self.now.as_nanos()) + self.gained(self.now);
        1_700_000_000_000_000 + u64::try_from(shows.as_micros()).unwrap()
    }

    fn pass(&mut self, ms: u32) {
        let end = self.now.plus(ms * MS);
        while self.link.next_wake() < end {
            self.now = self.link.next_wake().max(self.now);
            self.tell(LinkInput::Wake);
        }
        self.now = end;
    }

    fn ask(&mut self, there: u32, back: u32, gain: u32) {
        self.tags += 1;
        let mut token = [0; TOKEN_LEN];
        token[..4].copy_from_slice(&self.tags.to_be_bytes());
        let ask = VoteRequest::Set { token: Token::new(token), ttl_ms: 1_000, fence: None };
        let input = LinkInput::Send { key: Arc::from(&b"r"[..]), ask, tag: self.tags };
        let said = self.tell(input);
        if !said.iter().any(|said| matches!(said, LinkEffect::Write(_))) {
            return;
        }
        // No check is due before this is over, so none gets its reply out of order.
        self.now = self.now.plus(there * MS);
        self.gain(gain);
        let (executed, answer) = (self.now, Reply::Created.stamped(self.micros()));
        self.now = self.now.plus(back * MS);
        let said = self.tell(LinkInput::Answered { epoch: self.epoch, answer });
        let grants = said.iter().any(|said| match said {
            LinkEffect::Reply(_, Reply::Timed { reading, answer }) => {
                **answer == Reply::Created && reading.unwatched().is_zero()
            }
            LinkEffect::Reply(_, answer) => *answer == Reply::Created,
            _ => false,
        });
        if grants {
            self.counted += 1;
            let window = self.guard.window();
            let before = Time::ZERO.plus(self.now.since(Time::ZERO.plus(window)));
            let gained = self.gained(executed).saturating_sub(self.gained(before));
            self.wrong += usize::from(gained > BOUND);
        }
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Pass(ms) => self.pass(ms),
            Act::Gain(ms) => self.gain(ms),
            Act::VoteRequest(there, back, gain) => self.ask(there, back, gain),
            Act::Break => {
                let (epoch, why) = (self.epoch, Arc::from("closed"));
                self.tell(LinkInput::Closed { epoch, why, random: 0 });
                self.greet();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn no_grant_of_a_watched_master_counts_whose_clock_gained_more_than_the_bound(
        acts in vec(any_act(), 0..120),
    ) {
        let mut world = World::new(true);
        acts.iter().for_each(|act| world.act(act));
        prop_assert_eq!(world.wrong, 0);
    }
}

#[test]
fn a_steady_clock_is_trusted_and_one_that_steps_is_let_in_by_whom_does_not_look() {
    let mut steady = World::new(true);
    for _ in 0..50 {
        steady.act(&Act::Pass(100));
        steady.act(&Act::VoteRequest(5, 5, 0));
    }
    assert!(steady.counted >= 38, "{}", steady.counted);
    for (looks, wrong) in [(true, 0), (false, 1)] {
        let mut world = World::new(looks);
        world.act(&Act::Pass(3_000));
        world.act(&Act::Gain(201));
        world.act(&Act::VoteRequest(0, 0, 0));
        assert_eq!(world.wrong, wrong, "looks: {looks}");
    }
}
