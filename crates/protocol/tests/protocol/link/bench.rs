//! A link under test: the time, its inputs, and its effects.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::{Command, Greeting};
use redquorum_protocol::{
    Bounds, Cause, Guard, Key, Link, LinkEffect, LinkInput, Reply, RunId, Time, VoteRequest, WakeUp,
};

pub(crate) use crate::support::{MS, token};

pub(crate) type TestEffect = LinkEffect<u64>;

/// The number of the process.
pub(crate) const INBOX: u64 = 7;

/// A link, the time, and the effects since the last `look`.
pub(crate) struct Bench {
    pub(crate) link: Link<u64>,
    pub(crate) now: Time,
    pub(crate) effects: Vec<TestEffect>,
}

impl Bench {
    pub(crate) fn dialling() -> Self {
        Self::with(Bounds::for_node_timeout(50 * MS))
    }

    /// A link with these bounds, except that it does not probe an idle connection.
    pub(crate) fn with(bounds: Bounds) -> Self {
        Self::exactly(Bounds { idle: Duration::MAX, ..bounds })
    }

    pub(crate) fn exactly(bounds: Bounds) -> Self {
        let mut effects = Vec::new();
        let link = Link::start(bounds, &mut effects).woken_at(INBOX);
        Self { link, now: Time::from_millis(1_000), effects }
    }

    /// A link with a guard, which is not connected yet.
    pub(crate) fn guarded(bounds: Bounds, guard: Guard) -> Self {
        let mut bench = Self::with(bounds);
        bench.look();
        Self { link: bench.link.guarded_by(Some(guard)), ..bench }
    }

    pub(crate) fn connected() -> Self {
        let mut bench = Self::dialling();
        bench.connect(1);
        bench.look();
        bench
    }

    pub(crate) fn handle(&mut self, input: LinkInput<u64>) {
        self.link.handle(self.now, input, &mut self.effects);
    }

    /// Connects to run "a". The client id is the number of the connection plus 100.
    pub(crate) fn connect(&mut self, epoch: u64) {
        self.connect_to(epoch, "a");
    }

    pub(crate) fn connect_to(&mut self, epoch: u64, run: &str) {
        self.greet(epoch, greeting(epoch, run));
    }

    pub(crate) fn greet(&mut self, epoch: u64, greeting: Greeting) {
        self.handle(LinkInput::Connected { epoch, greeting });
    }

    pub(crate) fn close(&mut self, epoch: u64) {
        self.handle(LinkInput::Closed { epoch, why: Arc::from("refused"), random: 0 });
    }

    /// Connects again after a connection that ended. Returns what follows.
    pub(crate) fn reconnect(&mut self, epoch: u64) -> Vec<TestEffect> {
        self.pass(1_000 * MS);
        self.look();
        self.connect(epoch);
        self.look()
    }

    /// How many keys are wanted, and how many clean-ups are pending.
    pub(crate) fn ledger(&self) -> (usize, usize) {
        (self.link.claimed(), self.link.pending_cleanups())
    }

    pub(crate) fn set(&mut self, number: u64, tag: u64) {
        let request =
            VoteRequest::Set { token: token(number), ttl_ms: 1_000, fair: false, fence: None };
        self.handle(LinkInput::Send { key: key(), request, tag });
    }

    pub(crate) fn keep(&mut self, number: u64, tag: u64) {
        self.extend(number, tag, false);
    }

    pub(crate) fn repair(&mut self, number: u64, tag: u64) {
        self.extend(number, tag, true);
    }

    fn extend(&mut self, number: u64, tag: u64, repair: bool) {
        let request =
            VoteRequest::Keep { token: token(number), ttl_ms: 1_000, repair, fence: None };
        self.handle(LinkInput::Send { key: key(), request, tag });
    }

    pub(crate) fn clean_up(&mut self, number: u64, tag: u64) {
        let (token, wake_up) = (token(number), WakeUp::None);
        self.handle(LinkInput::CleanUp { key: key(), token, wake_up, leave: None, tag });
    }

    pub(crate) fn reply(&mut self, epoch: u64, reply: Reply) {
        self.handle(LinkInput::Replied { epoch, reply });
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        self.handle(LinkInput::Wake);
    }

    pub(crate) fn look(&mut self) -> Vec<TestEffect> {
        std::mem::take(&mut self.effects)
    }
}

pub(crate) fn greeting(epoch: u64, run: &str) -> Greeting {
    let run_id = Some(RunId(Arc::from(run)));
    Greeting { client_id: Some(100 + epoch), run_id, ..Greeting::default() }
}

pub(crate) fn key() -> Key {
    Arc::from(&b"r"[..])
}

pub(crate) fn write_set(number: u64) -> TestEffect {
    LinkEffect::Write(Command::Set {
        key: key(),
        token: token(number),
        ttl_ms: 1_000,
        fair: false,
        fence: None,
    })
}

/// The clean-up of a lease, which wakes the first waiter.
pub(crate) fn write_call(number: u64) -> TestEffect {
    write_clean_up(number, WakeUp::First)
}

pub(crate) fn write_delete(number: u64) -> TestEffect {
    write_clean_up(number, WakeUp::None)
}

fn write_clean_up(number: u64, wake_up: WakeUp) -> TestEffect {
    LinkEffect::Write(Command::Delete { key: key(), token: token(number), wake_up, leave: None })
}

pub(crate) fn write_kill(client_id: u64) -> TestEffect {
    LinkEffect::Write(Command::Kill { client_id })
}

pub(crate) fn unknown(tag: u64, cause: Cause) -> TestEffect {
    LinkEffect::Reply(tag, Reply::Unknown(cause))
}
