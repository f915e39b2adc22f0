//! What one master's answer means, and the ballot that collects a round of them.

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

/// What one master's answer to one command means.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Answer {
    /// The key was not there and is now ours: a grant. A repair is one too.
    Created,
    /// The same with fencing, and this is the number of the grant.
    Granted {
        /// What the master's counter showed as it created the key.
        number: u64,
    },
    /// The key is still ours, and the master's counter stands at this number.
    Certified {
        /// At least the one that was asked for.
        number: u64,
    },
    /// The key was ours and still is, for at least the TTL asked for.
    Kept,
    /// The key was ours and is deleted.
    Deleted,
    /// The same, and so many connections listened for it. A link takes the number out of it.
    Freed {
        /// This one included, if it listens.
        listeners: u32,
    },
    /// A place in the master's line for the resource.
    Place {
        /// Who stands at a lower number comes first.
        number: u64,
        /// So many come first.
        ahead: u64,
        /// Who holds the resource on this master, if anybody does.
        holder: Option<Holder>,
    },
    /// It keeps no line, or none for this client.
    NoQueue,
    /// There is no such key.
    Absent,
    /// Somebody else's key stands there.
    Taken(Holder),
    /// The master takes writes (the answer to a probe).
    Alive,
    /// The master shows this marker, and this vigil, if it has any: see [`Guard`](crate::Guard). To a
    /// request for a grant it means that nothing was set.
    Marked {
        /// Its marker.
        boot: Option<Arc<str>>,
        /// Its vigil.
        vigil: Option<Arc<str>>,
    },
    /// The master had no marker, and has one now: it is trusted as a new one.
    Blessed,
    /// Nothing is known: the key may be there or not (R2).
    Unknown(Cause),
    /// What a script answered that tells the master's `TIME`, too. A link takes the answer out of it,
    /// or makes it [`Timed`](Answer::Timed).
    Stamped {
        /// Microseconds of the master's clock.
        micros: u64,
        /// What it answered.
        answer: Box<Answer>,
    },
    /// What a link tells of an answer whose time matters, since a guard looks at clocks.
    Timed {
        /// The master's clock.
        reading: Reading,
        /// What it answered.
        answer: Box<Answer>,
    },
}

/// Who holds a key that is not ours, as far as the master was asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Holder {
    /// A bare `SET NX` was refused; who holds the key comes back with the clean-up.
    NotAsked,
    /// Another lease.
    Lease {
        /// Its token.
        token: Token,
        /// Milliseconds until the key expires on this master.
        left_ms: u64,
    },
    /// A value that is no token of ours: another library or program uses this key.
    Foreign {
        /// Milliseconds until the key expires on this master.
        left_ms: u64,
    },
    /// A key without TTL: it will not go away by itself.
    NoExpiry,
    /// A key of another type (a list, a hash, …), with whatever TTL.
    WrongType,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("held by another"),
            Self::Lease { left_ms, token } => {
                write!(f, "held by token {token:?} for another {left_ms} ms")
            }
            Self::Foreign { left_ms } => {
                write!(f, "held by a value that is no lease, for another {left_ms} ms")
            }
            Self::NoExpiry => f.write_str(
                "held by a key without TTL, which never expires: delete it if nobody owns it",
            ),
            Self::WrongType => f.write_str(
                "the key is of another type, not a lock: delete it or choose another resource",
            ),
        }
    }
}

/// Why a master's vote is unknown.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// No answer within the node timeout.
    Silent,
    /// The connection broke before the answer came.
    Disconnected,
    /// Not sent: there is no connection to this master; the text says why, if it is known.
    Down(Arc<str>),
    /// Not sent: the master has left earlier commands unanswered for too long.
    Stalled,
    /// Not sent: too many commands are unanswered, or too much is owed.
    Overloaded,
    /// Not sent: the claim that this was for has been given up.
    GivenUp,
    /// Not sent: the lock was shut down.
    ShutDown,
    /// Nothing was set: the master may have forgotten leases that are still alive.
    Distrusted {
        /// Why it may.
        why: Distrust,
        /// How long yet, if it passes by itself.
        left: Option<Duration>,
    },
    /// The master had lost its scripts; they are being loaded again.
    NoScript,
    /// The answer is not one that Redis gives to this command.
    Garbage,
    /// The master answered with an error.
    Error(Arc<str>),
}

impl Cause {
    /// Whether it refuses a whole attempt, and not only counts as unknown: the masters of this lock are
    /// not those of others that use one of them, so that its quorums need not meet theirs.
    pub const fn refuses(&self) -> bool {
        matches!(self, Self::Distrusted { why: Distrust::OtherFleet { .. }, .. })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str("no answer within the node timeout"),
            Self::Disconnected => f.write_str("the connection broke before the answer"),
            Self::Down(why) => write!(f, "not connected: {why}"),
            Self::Stalled => f.write_str("not asked: it leaves earlier commands unanswered"),
            Self::Overloaded => f.write_str("not asked: too many commands are unanswered"),
            Self::GivenUp => f.write_str("not asked: the claim was given up"),
            Self::ShutDown => f.write_str("not asked: the lock was shut down"),
            Self::Distrusted { why, left: Some(left) } if !left.is_zero() => {
                write!(f, "distrusted for another {:.1}s: {why}", left.as_secs_f64())
            }
            Self::Distrusted { why, .. } => write!(f, "distrusted: {why}"),
            Self::NoScript => f.write_str("its scripts were flushed and are being loaded again"),
            Self::Garbage => f.write_str("an answer that is not Redis's"),
            Self::Error(text) => write!(f, "error: {text}"),
        }
    }
}

impl Answer {
    /// Whether the key was not there and is now ours.
    pub const fn creates(&self) -> bool {
        matches!(self, Self::Created | Self::Granted { .. })
    }

    /// With the master's clock, as some scripts answer; an error tells no time.
    #[must_use]
    pub fn stamped(self, micros: u64) -> Self {
        match self {
            Self::Unknown(_) => self,
            answer => Self::Stamped { micros, answer: Box::new(answer) },
        }
    }

    /// What was answered, without any time.
    #[must_use]
    pub fn plain(self) -> Self {
        match self {
            Self::Stamped { answer, .. } | Self::Timed { answer, .. } => answer.plain(),
            answer => answer,
        }
    }

    /// What was answered, and the reading of the master's clock, if there is one.
    pub(crate) fn read(self) -> (Self, Option<Reading>) {
        match self {
            Self::Timed { reading, answer } => (answer.plain(), Some(reading)),
            answer => (answer.plain(), None),
        }
    }
}

impl fmt::Display for Answer {
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
            Self::Blessed => f.write_str("marked: trusted from now on"),
            Self::Unknown(cause) => fmt::Display::fmt(cause, f),
            Self::Stamped { answer, .. } | Self::Timed { answer, .. } => {
                fmt::Display::fmt(answer, f)
            }
        }
    }
}

/// What one master said in one round, and how long it took.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Vote {
    /// Its answer; `None` while it is awaited.
    pub answer: Option<Answer>,
    /// From the start of the round to the answer.
    pub took: Duration,
}

/// One round of votes: one per master, the first answer counts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ballot {
    opened: Time,
    votes: Vec<Vote>,
}

impl Ballot {
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

    /// Writes down what `node` said. Returns whether it was awaited: a second answer of the
    /// same master in the same round changes nothing.
    pub fn record(&mut self, now: Time, node: NodeId, answer: Answer) -> bool {
        let vote = &mut self.votes[node.index()];
        let awaited = vote.answer.is_none();
        if awaited {
            *vote = Vote { answer: Some(answer), took: now.since(self.opened) };
        }
        awaited
    }

    /// Takes a grant for unknown, since its master is distrusted.
    pub(crate) fn distrust(&mut self, node: NodeId, cause: Cause) {
        self.votes[node.index()].answer = Some(Answer::Unknown(cause));
    }

    /// Adds what the clean-up of a refused attempt found out about the holder.
    pub fn explain(&mut self, node: NodeId, holder: Holder) {
        if let Some(Answer::Taken(known)) = &mut self.votes[node.index()].answer {
            *known = holder;
        }
    }

    /// Takes every vote that is still awaited for silence.
    pub fn close(&mut self, now: Time) {
        for vote in self.votes.iter_mut().filter(|vote| vote.answer.is_none()) {
            *vote =
                Vote { answer: Some(Answer::Unknown(Cause::Silent)), took: now.since(self.opened) };
        }
    }

    /// The masters whose answer is known and is `what`.
    pub fn which(&self, what: impl Fn(&Answer) -> bool) -> NodeSet {
        NodeId::all(self.votes.len())
            .filter(|node| self.votes[node.index()].answer.as_ref().is_some_and(&what))
            .collect()
    }

    /// The masters whose answer is awaited.
    pub fn awaited(&self) -> NodeSet {
        NodeId::all(self.votes.len())
            .filter(|node| self.votes[node.index()].answer.is_none())
            .collect()
    }

    /// All votes, in the order of the masters.
    pub fn votes(&self) -> &[Vote] {
        &self.votes
    }
}

/// What the masters decided, from those for it, those still awaited that could be, and the quorum.
///
/// This is R3 in both directions, right for even N too: a master that refused, does not know
/// or may not vote is neither `for_it` nor `awaited`.
pub fn verdict(for_it: usize, awaited: usize, quorum: usize) -> Option<bool> {
    if for_it >= quorum {
        Some(true)
    } else if for_it + awaited < quorum {
        Some(false)
    } else {
        None
    }
}
