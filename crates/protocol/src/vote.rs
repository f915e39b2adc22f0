//! The meaning of one master's reply, and the votes, which collect the replies of a round.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::guard::Distrust;
use crate::quorum::{NodeId, NodeSet};
use crate::reading::Reading;
use crate::time::Time;
use crate::token::Token;

/// The meaning of one master's reply to one command.
#[expect(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Reply {
    /// The key was absent and is now ours: a grant. A repair is a grant, too.
    Created,
    /// The key was absent and is now ours, and the grant raised the master's counter to this
    /// number.
    Granted { number: u64 },
    /// The key is still ours, and the master's counter stands at this number, which is at least the
    /// one that was asked for.
    Certified { number: u64 },
    /// The key was ours and still is, for at least the requested TTL.
    Kept,
    /// The key was ours and is deleted.
    Deleted,
    /// The key was ours and is deleted, and the master counted the waiters in the queue, without
    /// the one that leaves it with this command. A link takes the number out.
    Freed {
        /// How many waiters are in the queue.
        waiters: u32,
        /// Whether the master forbids the queue, or the message to a waiter.
        denied: bool,
    },
    /// A position in the master's queue for the resource: a lower number comes first. `ahead`
    /// waiters come first, and there may be a holder on this master.
    Place { number: u64, ahead: u64, holder: Option<Holder> },
    /// The master keeps no queue, or none for this client.
    NoQueue,
    /// There is no such key.
    Absent,
    /// The key belongs to another holder.
    Taken(Holder),
    /// The master takes writes (the reply to a probe).
    Alive,
    /// The master's boot marker and probation key, if it has them: see [`Guard`](crate::Guard). As
    /// a reply to a request for a grant, it means that nothing was set.
    Marked { boot: Option<Arc<str>>, probation: Option<Arc<str>> },
    /// The master had no boot marker, and has one now: it is trusted as a new master.
    Initialized,
    /// Nothing is known: the key may be there or not (R2).
    Unknown(Cause),
    /// The reply of a script that also reports the master's `TIME`. A link unwraps the reply, or
    /// turns it into [`Timed`](Reply::Timed).
    Stamped { micros: u64, reply: Box<Reply> },
    /// A reply with a reading of the master's clock, for a guard that compares clocks.
    Timed { reading: Reading, reply: Box<Reply> },
}

/// The holder of a key that is not ours, as far as the master was asked.
#[expect(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Holder {
    /// A bare `SET NX` was refused; the clean-up reports the holder.
    NotAsked,
    /// A waiter in the master's queue, which comes first. The resource may be held as well.
    Waiter,
    /// Another lease, whose key expires on this master after `left_ms`.
    Lease { token: Token, left_ms: u64 },
    /// A value that is no token of ours: another library or program uses this key.
    Foreign { left_ms: u64 },
    /// A key without TTL, which never expires.
    NoExpiry,
    /// A key of another type (a list, a hash, …), with any TTL.
    WrongType,
}

impl Holder {
    /// The name of the client that holds the lease, if it has one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Lease { token, .. } => token.name(),
            _ => None,
        }
    }

    /// Whether it is a shared lease, which others may hold, too.
    pub const fn is_shared(&self) -> bool {
        matches!(self, Self::Lease { token, .. } if token.is_shared())
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("held by another"),
            Self::Waiter => f.write_str("refused, since a waiter comes first"),
            Self::Lease { left_ms, token } => {
                let [how, others] = if token.is_shared() {
                    ["shared", ", and others for less,"]
                } else {
                    ["held", ""]
                };
                write!(f, "{how} by ")?;
                if let Some(name) = token.name() {
                    write!(f, "{name:?}, ")?;
                }
                write!(f, "token {token:?}{others} for another {left_ms} ms")
            }
            Self::Foreign { left_ms } => {
                write!(f, "held by a value that is no lease, for another {left_ms} ms")
            }
            Self::NoExpiry => f.write_str(
                "held by a key without TTL, which never expires: delete it if it has no owner",
            ),
            Self::WrongType => f.write_str(
                "the key is of another type, not a lock: delete it or choose another resource",
            ),
        }
    }
}

/// Why a master's vote is unknown.
#[expect(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// No reply within the node timeout.
    Silent,
    /// The connection broke before the reply came.
    Disconnected,
    /// Not sent: there is no connection to this master. The text is the reason, if it is known.
    Down(Arc<str>),
    /// Not sent: the master has left earlier commands unanswered for too long.
    Stalled,
    /// Not sent: too many commands are unanswered, or too many clean-ups are pending.
    Overloaded,
    /// Not sent: the claim of this command was given up.
    GivenUp,
    /// Not sent: the lock was shut down.
    ShutDown,
    /// Not sent: the driver of this master has ended, with the runtime that the lock was built in.
    RuntimeEnded,
    /// Nothing was set: the master may have forgotten leases that are still alive. `left` is for
    /// how much longer, if the distrust ends by itself.
    Distrusted { why: Distrust, left: Option<Duration> },
    /// The master lost its scripts; they are being loaded again.
    NoScript,
    /// Redis does not give this reply to this command.
    Garbage,
    /// The master replied with an error.
    Error(Arc<str>),
}

impl Cause {
    /// Whether it refuses a whole attempt, instead of counting as unknown. That is so if clients
    /// with another set of masters use one of these masters: the quorums of the two sets need not
    /// meet.
    pub const fn refuses(&self) -> bool {
        matches!(self, Self::Distrusted { why: Distrust::OtherMasters { .. }, .. })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str("no reply within the node timeout"),
            Self::Disconnected => f.write_str("the connection broke before the reply"),
            Self::Down(why) => write!(f, "not connected: {why}"),
            Self::Stalled => f.write_str("not asked: it leaves earlier commands unanswered"),
            Self::Overloaded => f.write_str(
                "not asked: too many commands are unanswered, or too many clean-ups are pending",
            ),
            Self::GivenUp => f.write_str("not asked: the claim was given up"),
            Self::ShutDown => f.write_str("not asked: the lock was shut down"),
            Self::RuntimeEnded => {
                f.write_str("not asked: the runtime that the lock was built in has ended")
            }
            Self::Distrusted { why, left: Some(left) } if !left.is_zero() => {
                write!(f, "distrusted for another {:.1}s: {why}", left.as_secs_f64())
            }
            Self::Distrusted { why, .. } => write!(f, "distrusted: {why}"),
            Self::NoScript => f.write_str("its scripts were flushed and are being loaded again"),
            Self::Garbage => f.write_str("a reply that is not Redis's"),
            Self::Error(text) => write!(f, "error: {text}"),
        }
    }
}

impl Reply {
    /// Whether the key was absent and is now ours.
    pub const fn creates(&self) -> bool {
        matches!(self, Self::Created | Self::Granted { .. })
    }

    /// Adds the master's clock, as some scripts report it. An error has no clock.
    #[must_use]
    pub fn stamped(self, micros: u64) -> Self {
        match self {
            Self::Unknown(_) => self,
            reply => Self::Stamped { micros, reply: Box::new(reply) },
        }
    }

    /// The reply without any clock.
    #[must_use]
    pub fn plain(self) -> Self {
        match self {
            Self::Stamped { reply, .. } | Self::Timed { reply, .. } => reply.plain(),
            reply => reply,
        }
    }

    /// The reply, and the reading of the master's clock, if there is one.
    pub(crate) fn read(self) -> (Self, Option<Reading>) {
        match self {
            Self::Timed { reading, reply } => (reply.plain(), Some(reading)),
            reply => (reply.plain(), None),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created => f.write_str("granted"),
            Self::Granted { number } => write!(f, "granted as number {number}"),
            Self::Certified { number } => write!(f, "still ours, at number {number}"),
            Self::Kept => f.write_str("still ours"),
            Self::Deleted | Self::Freed { .. } => f.write_str("deleted"),
            Self::Place { ahead, holder: Some(holder), .. } => {
                write!(f, "{holder}, and {ahead} in line before us")
            }
            Self::Place { ahead, .. } => write!(f, "free, with {ahead} in line before us"),
            Self::NoQueue => f.write_str("it keeps no queue"),
            Self::Absent => f.write_str("no such key"),
            Self::Taken(holder) => fmt::Display::fmt(holder, f),
            Self::Alive => f.write_str("usable"),
            Self::Marked { boot: Some(boot), .. } => write!(f, "has a marker: {boot}"),
            Self::Marked { .. } => f.write_str("has no marker"),
            Self::Initialized => f.write_str("marked: trusted from now on"),
            Self::Unknown(cause) => fmt::Display::fmt(cause, f),
            Self::Stamped { reply, .. } | Self::Timed { reply, .. } => fmt::Display::fmt(reply, f),
        }
    }
}

/// The reply of one master in one round, and how long it took.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Vote {
    /// The reply; `None` while it is awaited.
    pub reply: Option<Reply>,
    /// The time from the start of the round to the reply.
    pub took: Duration,
}

/// One round of votes: one vote for each master, and the first reply counts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Votes {
    opened: Time,
    votes: Vec<Vote>,
}

impl Votes {
    /// A round among `nodes` masters that starts `now`.
    pub fn open(nodes: usize, now: Time) -> Self {
        let mut votes = Vec::with_capacity(nodes);
        votes.resize_with(nodes, Vote::default);
        Self { opened: now, votes }
    }

    /// When the round was opened, before anything of it was sent.
    pub const fn opened(&self) -> Time {
        self.opened
    }

    /// Records the reply of `node`. Returns whether it was awaited: a second reply of the same
    /// master in the same round changes nothing.
    pub fn record(&mut self, now: Time, node: NodeId, reply: Reply) -> bool {
        let vote = &mut self.votes[node.index()];
        let awaited = vote.reply.is_none();
        if awaited {
            *vote = Vote { reply: Some(reply), took: now.since(self.opened) };
        }
        awaited
    }

    /// Counts a grant as unknown, because its master is distrusted.
    pub(crate) fn distrust(&mut self, node: NodeId, cause: Cause) {
        debug_assert!(
            self.votes[node.index()].reply.as_ref().is_some_and(Reply::creates),
            "R2: only a grant is taken back"
        );
        self.votes[node.index()].reply = Some(Reply::Unknown(cause));
    }

    /// Adds the holder that the clean-up of a refused attempt reported. Beside those who share the
    /// resource, the waiter that comes first explains more.
    pub fn explain(&mut self, node: NodeId, holder: Holder) {
        if let Some(Reply::Taken(known)) = &mut self.votes[node.index()].reply
            && !(*known == Holder::Waiter && holder.is_shared())
        {
            *known = holder;
        }
    }

    /// Counts every vote that is still awaited as silence.
    pub fn close(&mut self, now: Time) {
        for vote in self.votes.iter_mut().filter(|vote| vote.reply.is_none()) {
            *vote =
                Vote { reply: Some(Reply::Unknown(Cause::Silent)), took: now.since(self.opened) };
        }
    }

    /// The masters whose reply is known and satisfies `what`.
    pub fn which(&self, what: impl Fn(&Reply) -> bool) -> NodeSet {
        NodeSet::which(&self.votes, |vote| vote.reply.as_ref().is_some_and(&what))
    }

    /// The masters whose reply is awaited.
    pub fn awaited(&self) -> NodeSet {
        NodeSet::which(&self.votes, |vote| vote.reply.is_none())
    }

    /// All votes, in the order of the masters.
    pub fn votes(&self) -> &[Vote] {
        &self.votes
    }
}
