//! Decides whether this client may mark a master: whether it may declare that the master counts
//! for the locks of its set and its guard.
//!
//! A link that has watched its master for a whole quarantine knows that the master forgets nothing.
//! It does not know to which locks the master belongs: a master that lost its data has no marker,
//! and any client could write its own. A client with a wrong list of masters, or another guard,
//! would then exclude all correct clients. Only the client sees all masters of its list, so it
//! decides here. `docs/safety.md` has the reasons.

use alloc::format;
use alloc::sync::Arc;

use super::{ClaimMachine, Client, ReplyTo};
use crate::guard::Distrust;
use crate::link::{Link, LinkState};
use crate::quorum::{NodeId, NodeSet, Quorum};
use crate::vote::Cause;

impl<C: ClaimMachine> Client<C> {
    /// Tells a link whether it may mark its master, before an input at which it may do so.
    pub(super) fn permit_marking(&mut self, node: NodeId) {
        if self.links[node.index()].is_watching() {
            let permitted = may_mark(&self.links, self.config.quorum);
            self.links[node.index()].permit_marking(permitted);
        }
    }

    /// Why the client marks no master as new, although its caller says that it is new: another
    /// master of the list shows that these masters, or some, belong to other locks.
    pub(super) fn refuses_to_initialize(&self) -> Option<Cause> {
        let foreign = |link: &Link<ReplyTo>| foreign(link) != Foreign::None;
        let number = self.links.iter().position(foreign)? + 1;
        let text = format!(
            "not marked, since master {number} has the marker of other locks: correct that first"
        );
        Some(Cause::Error(Arc::from(text)))
    }
}

/// To which other locks the marker of a master belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Foreign {
    /// To none, as far as is known.
    None,
    /// To locks over the same masters, with another guard, or at another step of a move.
    OtherOptions,
    /// To locks over other masters.
    OtherMasters,
}

fn foreign<T>(link: &Link<T>) -> Foreign {
    match link.shown() {
        Some(Err(Distrust::OtherMasters { .. })) => Foreign::OtherMasters,
        Some(Err(
            Distrust::OtherMaxTtl { .. }
            | Distrust::OtherClockBound { .. }
            | Distrust::OtherStep { .. },
        )) => Foreign::OtherOptions,
        _ => Foreign::None,
    }
}

/// Whether a client with these links may mark a master that it has watched for long enough:
///
/// * It is connected to a quorum of its masters, and their markers are its own or missing. A client
///   with a wrong list does not find such a quorum beside a working set, and neither does one that
///   is cut off from most masters.
/// * No master shows the marker of locks over other masters.
/// * If one shows the marker of locks with another guard, or of another step of a move, a quorum
///   shows this client's own marker. The others have the same masters, so they do not have a quorum
///   as well.
fn may_mark<T>(links: &[Link<T>], quorum: Quorum) -> bool {
    let which = |counts: fn(&Link<T>) -> bool| NodeSet::which(links, counts);
    let own = which(|link| matches!(link.shown(), Some(Ok(()))));
    let open_to_us = which(|link| {
        link.state() == LinkState::Up
            && foreign(link) == Foreign::None
            && !matches!(link.shown(), None | Some(Err(Distrust::Unwatched(_))))
    });
    let shows = |which| links.iter().any(|link| foreign(link) == which);
    debug_assert_eq!(links.len(), quorum.nodes());
    quorum.is_in(open_to_us)
        && !shows(Foreign::OtherMasters)
        && (!shows(Foreign::OtherOptions) || quorum.is_in(own))
}
