//! One link, and a master that does anything to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use redquorum_protocol::wire::Command;
use redquorum_protocol::{
    Answer, Ask, Bounds, Cause, Holder, Key, Link, LinkEffect, LinkInput, RunId, Time, Token,
};

use crate::claim::*;
use crate::time::*;

#[derive(Clone, Debug)]
enum Act {
    /// A claim asks for a new token.
    Set,
    /// A living claim extends.
    Keep(usize, bool),
    /// A claim ends.
    Settle(usize),
    Probe,
    ShutDown,
    /// The try under way is greeted, or fails.
    Greet,
    Refuse,
    /// The open connection breaks; what was written may still arrive.
    Break,
    /// The master executes so many commands of a connection, old ones included.
    Execute(usize, usize),
    /// So many answers arrive.
    Deliver(usize),
    /// An answer that nobody waits for, on some connection.
    Stray(u64),
    /// An answer that is not Redis's.
    Garbage,
    /// The master's next commands are errors.
    Busy(usize),
    /// `SCRIPT FLUSH`
    Flush,
    /// Another process in the master's place, with its keys or without.
    Restart(bool),
    Pass(u32),
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => Just(Act::Set),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(at, repair)| Act::Keep(at, repair)),
        6 => any::<usize>().prop_map(Act::Settle),
        1 => Just(Act::Probe),
        1 => Just(Act::ShutDown),
        8 => Just(Act::Greet),
        1 => Just(Act::Refuse),
        3 => Just(Act::Break),
        8 => (any::<usize>(), 1..5_usize).prop_map(|(at, count)| Act::Execute(at, count)),
        8 => (1..5_usize).prop_map(Act::Deliver),
        1 => (0..9_u64).prop_map(Act::Stray),
        1 => Just(Act::Garbage),
        1 => (1..3_usize).prop_map(Act::Busy),
        1 => Just(Act::Flush),
        1 => any::<bool>().prop_map(Act::Restart),
        6 => prop_oneof![1..20_u32, 90..120_u32, Just(1_000_u32)].prop_map(Act::Pass),
    ]
}

/// The master's end of a connection.
#[derive(Default)]
struct Socket {
    run: u64,
    inbox: VecDeque<Command>,
    /// With the token whose debt the answer pays, if it does.
    answers: VecDeque<(Answer, Option<Token>)>,
    /// Killed, or its process ended.
    dropped: bool,
}

struct World {
    link: Link<u64>,
    now: Time,
    said: Vec<LinkEffect<u64>>,
    sockets: BTreeMap<u64, Socket>,
    dialled: Option<u64>,
    /// The master: its process, its keys by their token, whether it has the scripts.
    run: u64,
    keys: BTreeSet<Token>,
    scripts: bool,
    busy: usize,
    /// What the link must have in its ledger.
    ledger: BTreeSet<Token>,
    living: Vec<Token>,
    settled: BTreeSet<Token>,
    set: BTreeSet<Token>,
    /// Whoever waits for an answer of the open connection, in order.
    waiting: VecDeque<u64>,
    tags: u64,
    shut_down: bool,
}

fn key() -> Key {
    Arc::from(&b"r"[..])
}

impl World {
    fn new() -> Self {
        let mut said = Vec::new();
        let bounds = Bounds { unanswered: 12, ledger: 8, ..Bounds::for_node_timeout(50 * MS) };
        let link = Link::start(bounds, &mut said);
        let mut world = Self {
            link,
            said,
            now: Time::ZERO,
            sockets: BTreeMap::new(),
            dialled: None,
            run: 0,
            keys: BTreeSet::new(),
            scripts: true,
            busy: 0,
            ledger: BTreeSet::new(),
            living: Vec::new(),
            settled: BTreeSet::new(),
            set: BTreeSet::new(),
            waiting: VecDeque::new(),
            tags: 0,
            shut_down: false,
        };
        world.look(None);
        world
    }

    fn tell(&mut self, input: LinkInput<u64>, tag: Option<u64>) {
        self.link.handle(self.now, input, &mut self.said);
        self.look(tag);
    }

    /// Carries out what the link said, and checks it.
    fn look(&mut self, mut asking: Option<u64>) {
        for effect in std::mem::take(&mut self.said) {
            match effect {
                LinkEffect::Write(command) => {
                    self.check(&command);
                    let epoch = self.link.epoch().expect("written to an open connection");
                    self.sockets.get_mut(&epoch).expect("greeted").inbox.push_back(command);
                    self.waiting.extend(asking.take());
                }
                LinkEffect::Dial(epoch) => self.dialled = Some(epoch),
                LinkEffect::Close(epoch) => self.dialled = self.dialled.filter(|of| *of != epoch),
                LinkEffect::Tell(tag, _) if asking == Some(tag) => asking = None,
                LinkEffect::Tell(tag, _) => {
                    assert_eq!(self.waiting.pop_front(), Some(tag), "told out of order, or twice");
                }
                other => unreachable!("{other:?}"),
            }
        }
        assert_eq!(asking, None, "neither written nor refused");
        assert_eq!(self.link.owed() + self.link.claimed(), self.ledger.len(), "{:?}", self.ledger);
    }

    fn check(&mut self, command: &Command) {
        match command {
            Command::Set { token, .. } | Command::Keep { token, .. } => {
                assert!(!self.shut_down, "a vote after the shut-down");
                assert!(!self.settled.contains(token), "written behind its clean-up");
                if let Command::Set { .. } = command {
                    assert!(self.set.insert(*token), "a SET was sent again");
                }
                self.ledger.insert(*token);
            }
            Command::Delete { token, .. } => {
                assert!(self.settled.contains(token), "a living claim's key is deleted");
                self.ledger.insert(*token);
            }
            Command::Kill { client_id } => {
                let old = self.sockets.get(client_id);
                assert!(old.is_some_and(|old| old.run == self.run), "somebody else is killed");
                assert_ne!(Some(*client_id), self.link.epoch(), "it kills itself");
            }
            Command::Load(_) | Command::Ping => {}
        }
    }

    fn act(&mut self, act: &Act) {
        self.tags += 1;
        let tag = self.tags;
        match *act {
            Act::Set => {
                let token = token(tag);
                self.living.push(token);
                let ask = Ask::Set { token, ttl_ms: 1 };
                self.tell(LinkInput::Send { key: key(), ask, tag }, Some(tag));
            }
            Act::Keep(at, repair) if !self.living.is_empty() => {
                let token = self.living[at % self.living.len()];
                let ask = Ask::Keep { token, ttl_ms: 1, repair };
                self.tell(LinkInput::Send { key: key(), ask, tag }, Some(tag));
            }
            Act::Settle(at) if !self.living.is_empty() => {
                let token = self.living.swap_remove(at % self.living.len());
                self.settled.insert(token);
                self.tell(LinkInput::Settle { key: key(), token, tag }, Some(tag));
            }
            Act::Probe => self.tell(LinkInput::Probe(tag), Some(tag)),
            Act::ShutDown => {
                self.shut_down = true;
                self.tell(LinkInput::ShutDown, None);
            }
            Act::Greet => self.greet(),
            Act::Refuse => {
                if let Some(epoch) = self.dialled.take() {
                    self.close(epoch);
                }
            }
            Act::Break => {
                if let Some(epoch) = self.link.epoch() {
                    self.close(epoch);
                }
            }
            Act::Execute(at, count) if !self.sockets.is_empty() => {
                let epoch = *self.sockets.keys().nth(at % self.sockets.len()).expect("one");
                (0..count).for_each(|_| self.execute(epoch));
            }
            Act::Deliver(count) => (0..count).for_each(|_| self.deliver()),
            Act::Stray(epoch) if Some(epoch) != self.link.epoch() => {
                self.tell(LinkInput::Answered { epoch, answer: Answer::Absent }, None);
            }
            Act::Garbage => {
                if let Some(epoch) = self.link.epoch() {
                    let answer = Answer::Unknown(Cause::Garbage);
                    self.tell(LinkInput::Answered { epoch, answer }, None);
                }
            }
            Act::Busy(count) => self.busy = count,
            Act::Flush => self.scripts = false,
            Act::Restart(amnesia) => self.restart(amnesia),
            Act::Pass(ms) => {
                self.now = self.now.plus(MS * ms);
                self.tell(LinkInput::Wake, None);
            }
            Act::Keep(..) | Act::Settle(_) | Act::Execute(..) | Act::Stray(_) => {}
        }
    }

    fn greet(&mut self) {
        let Some(epoch) = self.dialled.take() else { return };
        self.scripts = true; // the greeting loads them
        self.sockets.insert(epoch, Socket { run: self.run, ..Socket::default() });
        let run_id = Some(RunId(Arc::from(self.run.to_string())));
        self.tell(LinkInput::Connected { epoch, client_id: Some(epoch), run_id }, None);
    }

    fn close(&mut self, epoch: u64) {
        self.tell(LinkInput::Closed { epoch, why: Arc::from("closed"), random: epoch }, None);
    }

    fn restart(&mut self, amnesia: bool) {
        self.run += 1;
        self.scripts = false;
        if amnesia {
            self.keys.clear();
        }
        for socket in self.sockets.values_mut() {
            socket.dropped = true;
            socket.inbox.clear();
        }
        if let Some(epoch) = self.link.epoch() {
            self.close(epoch);
        }
    }

    fn execute(&mut self, epoch: u64) {
        let Some(socket) = self.sockets.get_mut(&epoch) else { return };
        let Some(command) = socket.inbox.pop_front() else { return };
        let scripted = matches!(command, Command::Keep { .. } | Command::Delete { .. });
        let answer = if self.busy > 0 && !matches!(command, Command::Kill { .. }) {
            self.busy -= 1;
            Answer::Unknown(Cause::Error(Arc::from("BUSY")))
        } else if scripted && !self.scripts {
            Answer::Unknown(Cause::NoScript)
        } else {
            match command {
                Command::Set { token, .. } if self.keys.insert(token) => Answer::Created,
                Command::Set { .. } => Answer::Taken(Holder::NotAsked),
                Command::Keep { token, .. } if self.keys.contains(&token) => Answer::Kept,
                Command::Keep { token, repair: true, .. } => {
                    self.keys.insert(token);
                    Answer::Created
                }
                Command::Delete { token, .. } if self.keys.remove(&token) => Answer::Deleted,
                Command::Keep { .. } | Command::Delete { .. } => Answer::Absent,
                Command::Kill { client_id } => {
                    let killed = self.sockets.get_mut(&client_id).expect("checked when written");
                    killed.dropped = true;
                    killed.inbox.clear();
                    Answer::Alive
                }
                Command::Load(_) => {
                    self.scripts = true;
                    Answer::Alive
                }
                Command::Ping => Answer::Alive,
            }
        };
        let paid = match (&command, &answer) {
            (Command::Delete { token, .. }, Answer::Deleted | Answer::Absent) => Some(*token),
            _ => None,
        };
        self.sockets.get_mut(&epoch).expect("as above").answers.push_back((answer, paid));
    }

    fn deliver(&mut self) {
        let Some(epoch) = self.link.epoch() else { return };
        let socket = self.sockets.get_mut(&epoch).expect("greeted");
        let Some((answer, paid)) = socket.answers.pop_front() else { return };
        if let Some(token) = paid {
            self.ledger.remove(&token);
        }
        self.tell(LinkInput::Answered { epoch, answer }, None);
    }

    /// From now on the master answers all that it is asked; every claim ends.
    fn heal(&mut self) {
        self.busy = 0;
        while !self.living.is_empty() {
            self.act(&Act::Settle(0));
        }
        for _ in 0..100 {
            self.greet();
            if let Some(epoch) = self.link.epoch() {
                while self.link.epoch() == Some(epoch) && self.link.unanswered() > 0 {
                    self.execute(epoch);
                    self.deliver();
                }
            }
            if self.link.owed() == 0 {
                break;
            }
            self.now = self.link.next_wake().max(self.now);
            self.tell(LinkInput::Wake, None);
        }
        // And only now does the master find what old connections had left in its sockets.
        let epochs: Vec<u64> = self.sockets.keys().copied().collect();
        for epoch in epochs {
            (0..1_000).for_each(|_| self.execute(epoch));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_schedule_leaves_a_debt_unpaid_or_a_key_behind_once_the_master_answers_again(
        acts in vec(any_act(), 0..150),
    ) {
        let mut world = World::new();
        acts.iter().for_each(|act| world.act(act));
        world.heal();
        prop_assert_eq!(world.link.owed(), 0);
        prop_assert_eq!(world.link.claimed(), 0);
        prop_assert_eq!(world.keys.len(), 0, "{:?}", world.keys);
    }
}

#[test]
fn the_world_of_the_link_is_no_dull_one() {
    // Were there no kill, the check above would see it: a key that is made after it was paid for.
    let mut world = World::new();
    world.act(&Act::Greet);
    world.act(&Act::Set);
    world.act(&Act::Break);
    world.act(&Act::Settle(0));
    world.act(&Act::Greet);
    let kills = |command: &Command| matches!(command, Command::Kill { .. });
    world.sockets.get_mut(&2).unwrap().inbox.retain(|command| !kills(command));
    (0..9).for_each(|_| world.execute(2));
    assert_eq!(world.keys.len(), 0);
    world.execute(1);
    assert_eq!(world.keys.len(), 1, "a zombie");
}

fn any_link_input() -> impl Strategy<Value = LinkInput<u8>> {
    let epoch = || 0..4_u64;
    let ask = (0..4_u64, any::<bool>(), any::<bool>()).prop_map(|(number, set, repair)| {
        let (token, ttl_ms) = (token(number), 1_000);
        if set { Ask::Set { token, ttl_ms } } else { Ask::Keep { token, ttl_ms, repair } }
    });
    prop_oneof![
        4 => ask.prop_map(|ask| LinkInput::Send { key: key(), ask, tag: 0 }),
        4 => (0..4_u64).prop_map(|number| LinkInput::Settle { key: key(), token: token(number), tag: 0 }),
        1 => Just(LinkInput::Probe(0)),
        4 => (epoch(), any::<Option<u64>>(), any::<bool>()).prop_map(|(epoch, client_id, run)| {
            LinkInput::Connected { epoch, client_id, run_id: run.then(|| RunId(Arc::from("a"))) }
        }),
        4 => (epoch(), any::<u64>()).prop_map(|(epoch, random)| {
            LinkInput::Closed { epoch, why: Arc::from("why"), random }
        }),
        8 => (epoch(), prop_oneof![3 => any_answer(), 1 => Just(Answer::Unknown(Cause::NoScript))])
            .prop_map(|(epoch, answer)| LinkInput::Answered { epoch, answer }),
        4 => Just(LinkInput::Wake),
        1 => Just(LinkInput::ShutDown),
    ]
}

fn any_bounds() -> impl Strategy<Value = Bounds> {
    let times = (any_duration(), any_duration(), any_duration());
    (times, 0..5_usize, 0..5_000_usize, 0..5_usize).prop_map(
        |((stall, min, max), unanswered, bytes, ledger)| Bounds {
            stall,
            unanswered,
            unanswered_bytes: bytes,
            ledger,
            ledger_bytes: bytes,
            retry_min: min,
            retry_max: max,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_link_that_is_told_anything_at_any_time_does_not_panic(
        bounds in any_bounds(), inputs in vec((any_time(), any_link_input()), 0..80),
    ) {
        let mut said = Vec::new();
        let mut link = Link::start(bounds, &mut said);
        for (now, input) in inputs {
            link.handle(now, input, &mut said);
            link.next_wake();
            prop_assert_eq!(link.oldest().is_some(), link.unanswered() > 0);
        }
    }
}
