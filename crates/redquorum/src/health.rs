//! Health: whether the masters answer now.

use std::fmt;

use redquorum_protocol::{Answer, Ballot, LinkInput};
use tokio::sync::oneshot;

use crate::fleet::Fleet;
use crate::report::Report;
use crate::tag::Tag;

/// Whether the masters of a lock answer now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// How many masters answered.
    pub alive: usize,
    /// How many are needed.
    pub quorum: usize,
    /// What each of them said.
    pub report: Report,
}

impl Health {
    /// Whether enough masters answered to acquire a lease.
    pub const fn has_quorum(&self) -> bool {
        self.alive >= self.quorum
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let masters = self.report.masters().len();
        write!(
            f,
            "{} of {masters} masters alive, {} needed: {}",
            self.alive, self.quorum, self.report
        )
    }
}

pub(crate) async fn probe(fleet: &Fleet) -> Health {
    let ballot = ask(fleet, LinkInput::Probe).await;
    let alive = ballot.which(|answer| *answer == Answer::Alive).len();
    Health { alive, quorum: fleet.terms.quorum(), report: Report::new(&ballot, &fleet.names) }
}

/// Asks every master in one round trip; ends after one node timeout at the latest.
pub(crate) async fn ask(fleet: &Fleet, question: fn(Tag) -> LinkInput<Tag>) -> Ballot {
    let start = fleet.clock.now();
    let mut ballot = Ballot::open(fleet.terms.nodes(), start);
    let mut asked = Vec::with_capacity(fleet.links.len());
    for link in &fleet.links {
        let (asker, answer) = oneshot::channel();
        let entered = link.enter(question(Tag::Probe(asker)), false);
        if entered.flush {
            link.flush();
        }
        if let Some((tag, answer)) = entered.told {
            tag.tell(link.node, answer);
        }
        asked.push((link.node, answer));
    }
    let end = fleet.clock.timer(start.plus(fleet.terms.node_timeout()));
    for (node, answer) in asked {
        if let Ok(Ok(answer)) = tokio::time::timeout_at(end, answer).await {
            ballot.record(fleet.clock.now(), node, answer);
        }
    }
    ballot.close(fleet.clock.now());
    ballot
}
