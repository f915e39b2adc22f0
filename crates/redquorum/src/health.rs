//! Health: which masters reply now, and which of them would grant a lease.

use std::fmt;

use redquorum_protocol::{Cause, Claim, Client, Context, NodeId, Reply, Votes};

use crate::error::FORKED;
use crate::report::Report;
use crate::shared::LockState;

/// Whether a lease is available now, and the reply of each master. Made by
/// [`Redlock::health`](crate::Redlock::health).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The number of masters that replied, whatever the reply.
    pub alive: usize,
    /// The number of those that take writes and, with a [guard](crate::Builder::restart_guard), are
    /// trusted.
    pub usable: usize,
    /// The number of usable masters that a lease needs at least.
    pub quorum: usize,
    has_quorum: bool,
    /// The outcome at each master: [`Usable`](crate::report::MasterOutcome::Usable), or
    /// [`Unknown`](crate::report::MasterOutcome::Unknown) with the reason.
    pub report: Report,
}

impl Health {
    /// Whether a lease of a free resource is available: a quorum of masters is usable, of each set
    /// of a lock that [moves](crate::Builder::moving_to), and no
    /// master has the marker of locks over
    /// [another set of masters](crate::report::Distrust::OtherMasters).
    pub fn has_quorum(&self) -> bool {
        self.has_quorum && !self.report.is_of_other_masters()
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { alive, usable, quorum, report, .. } = self;
        let masters = report.masters().len();
        write!(f, "{usable} of {masters} masters usable, {alive} alive, {quorum} needed: ")?;
        if !self.has_quorum()
            && let Some(why) = report.why_no_quorum()
        {
            write!(f, "{why}; ")?;
        }
        report.fmt(f)
    }
}

pub(crate) async fn probe(lock_state: &LockState) -> Health {
    let votes = ask(lock_state, Client::probe).await;
    let alive = votes.which(|reply| *reply == Reply::Alive);
    let (usable, quorum) = (alive.len(), lock_state.config.quorum());
    let refusing = votes
        .which(|reply| matches!(reply, Reply::Unknown(Cause::Error(_) | Cause::Distrusted { .. })));
    let report = lock_state.report(&votes);
    Health {
        alive: usable + refusing.len(),
        usable,
        quorum: quorum.size(),
        has_quorum: quorum.is_in(alive),
        report,
    }
}

/// Asks every master in one round trip; ends after at most one node timeout.
pub(crate) async fn ask(
    lock_state: &LockState,
    question: impl Fn(&mut Client, NodeId, u64, &mut Context<'_, Claim>),
) -> Votes {
    let start = lock_state.clock.now();
    let nodes = lock_state.config.nodes();
    let mut votes = Votes::open(nodes, start);
    if lock_state.shared.is_forked() {
        for node in NodeId::all(nodes) {
            votes.record(start, node, Reply::Unknown(Cause::Down(FORKED.into())));
        }
        return votes;
    }
    let replies = lock_state.shared.ask(question);
    let end = lock_state.clock.timer(start.plus(lock_state.config.node_timeout()));
    let answered = async {
        for (node, reply) in NodeId::all(nodes).zip(replies) {
            if let Ok(Ok(reply)) = tokio::time::timeout_at(end, reply).await {
                votes.record(lock_state.clock.now(), node, reply);
            }
        }
    };
    let _ = lock_state.shared.unless_forked(answered).await;
    votes.close(lock_state.clock.now());
    votes
}
