//! What masters replied, and why requests and leases ended: for errors, logs and dashboards.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use redquorum_protocol::{Admitted, Cause, Distrust, Fingerprint, Holder, Loss, MastersId};
use redquorum_protocol::{NodeId, NodeSet, Quorum, Reply, Votes};

/// The replies of the masters in one round, successful or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    masters: Vec<MasterReport>,
    quorum: Quorum,
}

/// The reply of one master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MasterReport {
    /// Its position in the list of masters, counted from 1.
    pub number: usize,
    /// Its name, such as `db1:6379`.
    pub name: Arc<str>,
    /// The outcome there; `None` if the result was clear before the master replied.
    pub outcome: Option<MasterOutcome>,
    /// The time from the start of the round to the reply, or to the moment when the round gave the
    /// master up. Zero without a reply, and if the master was not asked.
    pub took: Duration,
    /// For the text.
    reply: Option<Reply>,
}

/// The outcome of a command at one master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MasterOutcome {
    /// The master granted, kept or deleted the key, as it was asked to.
    Done,
    /// There is no such key.
    Absent,
    /// The key belongs to another holder.
    Taken(Holder),
    /// The request has a position in the master's [fair](crate::Builder::fair) queue.
    Queued {
        /// How many waiters come first.
        ahead: u64,
        /// The holder of the resource on this master, if there is one.
        holder: Option<Holder>,
    },
    /// The master keeps no queue, or none for this client.
    NoQueue,
    /// The master takes writes: [`health`](crate::Redlock::health).
    Usable,
    /// The master was new, and has a boot marker now:
    /// [`initialize_masters`](crate::Redlock::initialize_masters).
    Initialized,
    /// The master had a boot marker before.
    AlreadyInitialized,
    /// Nothing is known: the command may have been executed or not.
    Unknown(Cause),
}

impl MasterOutcome {
    fn of(reply: &Reply) -> Self {
        match reply {
            Reply::Absent => Self::Absent,
            Reply::Taken(holder) => Self::Taken(*holder),
            Reply::Place { ahead, holder, .. } => Self::Queued { ahead: *ahead, holder: *holder },
            Reply::NoQueue => Self::NoQueue,
            Reply::Alive => Self::Usable,
            Reply::Initialized => Self::Initialized,
            Reply::Marked { .. } => Self::AlreadyInitialized,
            Reply::Unknown(cause) => Self::Unknown(cause.clone()),
            Reply::Stamped { reply, .. } | Reply::Timed { reply, .. } => Self::of(reply),
            _ => Self::Done,
        }
    }
}

impl Report {
    pub(crate) const EMPTY: Self = Self { masters: Vec::new(), quorum: Quorum::NONE };

    pub(crate) fn new(votes: &Votes, names: &[Arc<str>], quorum: Quorum) -> Self {
        let masters = NodeId::all(names.len()).zip(votes.votes()).map(|(node, vote)| {
            let (name, reply) = (names[node.index()].clone(), vote.reply.clone());
            let outcome = reply.as_ref().map(MasterOutcome::of);
            MasterReport { number: node.index() + 1, name, outcome, took: vote.took, reply }
        });
        Self { masters: masters.collect(), quorum }
    }

    /// Each master, in the order of the list.
    pub fn masters(&self) -> &[MasterReport] {
        &self.masters
    }

    /// The holder of the resource, from the first master that named one.
    pub fn holder(&self) -> Option<Holder> {
        self.masters.iter().find_map(|master| match master.outcome {
            Some(
                MasterOutcome::Taken(holder) | MasterOutcome::Queued { holder: Some(holder), .. },
            ) if !matches!(holder, Holder::NotAsked | Holder::Waiter) => Some(holder),
            _ => None,
        })
    }

    /// Whether any master was asked.
    pub(crate) fn says_anything(&self) -> bool {
        self.masters.iter().any(|master| master.outcome.is_some())
    }

    /// The number of distrusted masters, which may have forgotten leases that are alive: only with
    /// a [guard](crate::Builder::restart_guard).
    pub fn distrusted(&self) -> usize {
        self.unknown().filter(|cause| matches!(cause, Cause::Distrusted { .. })).count()
    }

    /// Whether a master has the marker of another set of masters. It prevents a quorum, whatever
    /// the other masters reply.
    pub(crate) fn is_of_other_masters(&self) -> bool {
        self.unknown().any(Cause::refuses)
    }

    fn unknown(&self) -> impl Iterator<Item = &Cause> {
        self.masters.iter().filter_map(|master| match &master.outcome {
            Some(MasterOutcome::Unknown(cause)) => Some(cause),
            _ => None,
        })
    }

    /// Why there was no quorum although enough masters answered, and what to do about it. `None` if
    /// too few answered.
    pub(crate) fn why_no_quorum(&self) -> Option<String> {
        if self.is_of_other_masters() {
            return Some(
                "other locks use some of these masters and not all of them, so that both could be \
                 granted: give all clients the same masters"
                    .into(),
            );
        }
        let codes: Vec<&str> = self.unknown().filter_map(error_code).collect();
        let known = self.known();
        let distrusted = self.whose(|cause| matches!(cause, Cause::Distrusted { .. }));
        if !distrusted.is_empty() && self.quorum.is_in(known.or(distrusted)) {
            return Some(self.why_distrusted(known));
        }
        let coded = self.whose(|cause| error_code(cause).is_some());
        if codes.is_empty() || !self.quorum.is_in(known.or(distrusted).or(coded)) {
            return None;
        }
        let mut each = codes.clone();
        each.sort_unstable();
        each.dedup();
        let fixes: Vec<&str> = each.iter().filter_map(|code| fix(code)).collect();
        let fixes = fixes.join("; ");
        let colon = if fixes.is_empty() { "" } else { ": " };
        Some(format!("masters answered but refuse writes ({}){colon}{fixes}", each.join(", ")))
    }

    /// The masters whose vote is known, or was not awaited.
    fn known(&self) -> NodeSet {
        self.quorum.all().without(self.whose(|_| true))
    }

    /// The masters whose vote is unknown for such a cause.
    fn whose(&self, is_such: impl Fn(&Cause) -> bool) -> NodeSet {
        NodeSet::which(&self.masters, |master| match &master.outcome {
            Some(MasterOutcome::Unknown(cause)) => is_such(cause),
            _ => false,
        })
    }

    /// The set of masters that has no quorum, of a lock that moves from one to another.
    pub(crate) fn set_without_quorum(&self) -> Option<&'static str> {
        let lacks = self.quorum.each().map(|set| !set.is_in(self.known()));
        match lacks {
            _ if self.quorum.moves().is_none() => None,
            [true, true] => Some("either set of masters"),
            [true, false] => Some("the masters that the lock moves from"),
            [false, true] => Some("the masters that the lock moves to"),
            [false, false] => None,
        }
    }

    /// Why masters are distrusted, if they are too many for a quorum, and what to do about it.
    /// `known` are the masters that voted.
    fn why_distrusted(&self, known: NodeSet) -> String {
        let reasons = || {
            self.unknown().filter_map(|cause| match cause {
                Cause::Distrusted { why, left } => Some((why, left.is_some())),
                _ => None,
            })
        };
        let passing = self.whose(|cause| matches!(cause, Cause::Distrusted { left: Some(_), .. }));
        if self.quorum.is_in(known.or(passing)) {
            let are_new = reasons().all(|(why, _)| *why == Distrust::Unmarked);
            let new = if are_new { ", or initialize masters that are new" } else { "" };
            return format!(
                "masters that may have forgotten leases, or ended them too early, are distrusted \
                 until none of those can be alive; wait{new}"
            );
        }
        let has = |of: fn(&Distrust) -> bool| reasons().any(|(why, passes)| !passes && of(why));
        let mut remedies = Vec::new();
        if has(|why| matches!(why, Distrust::OtherMaxTtl { .. })) {
            remedies.push("locks with another guard use them: give all clients the same guard");
        }
        if has(|why| matches!(why, Distrust::OtherClockBound { .. })) {
            remedies.push(
                "locks with another clock guard use them: give all clients the same clock guard",
            );
        }
        if has(|why| matches!(why, Distrust::OtherStep { .. })) {
            remedies.push(
                "the lock is moving to other masters, and this client is not of the step at which \
                 they are: see `redquorum masters plan`",
            );
        }
        if has(|why| *why == Distrust::Nameless) {
            remedies.push("INFO is forbidden there: allow +info");
        }
        if has(Distrust::passes) {
            remedies.push(
                "this client does not mark them, since it sees too few of its masters, or markers \
                 of other locks: give all clients the same masters and guard",
            );
        }
        format!("masters are distrusted, and waiting does not help: {}", remedies.join("; "))
    }

    /// The number of masters that did what was asked: granted, kept or deleted the key. It is
    /// zero in a report on health, which asks for none of these.
    pub fn in_favour(&self) -> usize {
        let done = |master: &&MasterReport| master.outcome == Some(MasterOutcome::Done);
        self.masters.iter().filter(done).count()
    }
}

/// The first word of an error, by which Redis distinguishes its errors.
fn error_code(cause: &Cause) -> Option<&str> {
    let Cause::Error(text) = cause else { return None };
    Some(text.split(' ').next().unwrap_or_default())
}

/// The advice for masters that reply with this error.
fn fix(code: &str) -> Option<&'static str> {
    Some(match code {
        "READONLY" | "MASTERDOWN" => "give the addresses of masters, not of replicas",
        "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN" | "TRYAGAIN" => {
            "give independent masters, not nodes of a cluster"
        }
        "OOM" => "raise their maxmemory or delete what fills it",
        "MISCONF" => "make room on their disks, so that they can save",
        "NOREPLICAS" => "bring their replicas back or lower min-replicas-to-write",
        "NOPERM" => {
            "allow the user the commands and keys that docs/wire.md lists, or give the prefix of its \
             keys by `Builder::prefix`"
        }
        "NOAUTH" => "give their password in the URL",
        "LOADING" => "wait until they have loaded their data",
        "BUSY" => "wait for the script that they run, or end it by SCRIPT KILL",
        _ => return None,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, master) in self.masters.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{master}")?;
        }
        Ok(())
    }
}

impl fmt::Display for MasterReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "master {} ({}): ", self.number, self.name)?;
        match &self.reply {
            // A command that was never sent took no time.
            Some(reply) if self.took.is_zero() => reply.fmt(f),
            Some(reply) => write!(f, "{reply} ({:.1?})", self.took),
            None => f.write_str("not awaited: the result was already clear"),
        }
    }
}

/// The rest that a shutdown could not finish in its time. The keys expire by themselves, at most
/// the TTL and the [lock delay](crate::Builder::lock_delay) after their master got them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfinished {
    /// Keys to delete that are not yet confirmed as deleted, counted per master.
    pub pending_cleanups: usize,
    /// Keys of leases that are still alive, counted per master.
    pub held: usize,
    /// How long the shutdown waited.
    pub waited: Duration,
}

impl Unfinished {
    /// What is left of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            pending_cleanups: self.pending_cleanups + other.pending_cleanups,
            held: self.held + other.held,
            waited: self.waited.max(other.waited),
        }
    }
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pending_cleanups, held, waited } = self;
        write!(
            f,
            "not everything was cleaned up within {waited:?}: {pending_cleanups} keys with a \
             pending clean-up, {held} keys of living leases; they expire within one ttl and the \
             lock delay"
        )
    }
}

impl std::error::Error for Unfinished {}
