//! A link under test: the time, its inputs, and its effects.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::{Command, Greeting};
use redquorum_protocol::{
    Bounds, Cause, Key, Link, LinkEffect, LinkInput, Reply, RunId, TOKEN_LEN, Time, Token,
    VoteRequest, WakeUp,
};

pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) type Said = LinkEffect<u32>;

/// The number of the process.
pub(crate) const INBOX: u64 = 7;

/// A link, the time, and the effects since the last `look`.
pub(crate) struct Bench {
    pub(crate) link: Link<u32>,
    pub(crate) now: Time,
    pub(crate) said: Vec<Said>,
}

impl Bench {
    pub(crate) fn dialling() -> Self {
        Self::with(Bounds::for_node_timeout(50 * MS))
    }

    pub(crate) fn with(bounds: Bounds) -> Self {
        let mut said = Vec::new();
        let link = Link::start(bounds, &mut said).woken_at(INBOX);
        Self { link, now: Time::from_millis(1_000), said }
    }

    pub(crate) fn connected() -> Self {
        let mut bench = Self::dialling();
        bench.connect(1);
        bench.look();
        bench
    }

    pub(crate) fn tell(&mut self, input: LinkInput<u32>) {
        self.link.handle(self.now, input, &mut self.said);
    }

    /// Connects to run "a". The client id is the number of the connection plus 100.
    pub(crate) fn connect(&mut self, epoch: u64) {
        self.connect_to(epoch, "a");
    }

    pub(crate) fn connect_to(&mut self, epoch: u64, run: &str) {
        self.greet(epoch, greeting(epoch, run));
    }

    pub(crate) fn greet(&mut self, epoch: u64, greeting: Greeting) {
        self.tell(LinkInput::Connected { epoch, greeting });
    }

    pub(crate) fn close(&mut self, epoch: u64) {
        self.tell(LinkInput::Closed { epoch, why: Arc::from("refused"), random: 0 });
    }

    pub(crate) fn set(&mut self, number: u8, tag: u32) {
        let ask = VoteRequest::Set { token: token(number), ttl_ms: 1_000, fence: None };
        self.tell(LinkInput::Send { key: key(), ask, tag });
    }

    pub(crate) fn keep(&mut self, number: u8, tag: u32) {
        let ask =
            VoteRequest::Keep { token: token(number), ttl_ms: 1_000, repair: true, fence: None };
        self.tell(LinkInput::Send { key: key(), ask, tag });
    }

    pub(crate) fn settle(&mut self, number: u8, tag: u32) {
        let (token, call) = (token(number), WakeUp::None);
        self.tell(LinkInput::CleanUp { key: key(), token, call, leave: None, tag });
    }

    pub(crate) fn answer(&mut self, epoch: u64, answer: Reply) {
        self.tell(LinkInput::Answered { epoch, answer });
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        self.tell(LinkInput::Wake);
    }

    pub(crate) fn look(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.said)
    }
}

pub(crate) fn greeting(epoch: u64, run: &str) -> Greeting {
    let run_id = Some(RunId(Arc::from(run)));
    Greeting { client_id: Some(100 + epoch), run_id, ..Greeting::default() }
}

pub(crate) fn key() -> Key {
    Arc::from(&b"r"[..])
}

pub(crate) fn token(number: u8) -> Token {
    Token::new([number; TOKEN_LEN])
}

pub(crate) fn write_set(number: u8) -> Said {
    LinkEffect::Write(Command::Set { key: key(), token: token(number), ttl_ms: 1_000, fence: None })
}

/// The clean-up of a lease, which wakes the first waiter.
pub(crate) fn write_call(number: u8) -> Said {
    write_clean_up(number, WakeUp::First)
}

pub(crate) fn write_delete(number: u8) -> Said {
    write_clean_up(number, WakeUp::None)
}

fn write_clean_up(number: u8, call: WakeUp) -> Said {
    LinkEffect::Write(Command::Delete { key: key(), token: token(number), call, leave: None })
}

pub(crate) fn write_kill(client_id: u64) -> Said {
    LinkEffect::Write(Command::Kill { client_id })
}

pub(crate) fn unknown(tag: u32, cause: Cause) -> Said {
    LinkEffect::Reply(tag, Reply::Unknown(cause))
}
