//! Watch: what a waiting acquire knows about the keys of other holders.

use alloc::vec::Vec;
use core::time::Duration;

use crate::quorum::{NodeId, NodeSet};
use crate::time::Time;
use crate::token::Token;
use crate::vote::{Holder, Reply};

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Watch {
    known: Vec<Known>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Known {
    /// Nothing: the resource may be free there.
    Nothing,
    Free,
    /// Another holder has the key, until this time at the latest, unless it extends.
    Held(Time, Option<Token>),
}

impl Watch {
    pub(super) fn open(&mut self, nodes: usize) {
        self.known.clear();
        self.known.resize(nodes, Known::Nothing);
    }

    pub(super) fn close(&mut self) {
        self.known.clear();
    }

    /// Records a master's reply to a compare-and-delete, or to a request for a position.
    pub(super) fn looked(&mut self, now: Time, node: NodeId, reply: &Reply) {
        let until = |left_ms| now.plus(Duration::from_millis(left_ms));
        let Some(known) = self.known.get_mut(node.index()) else { return };
        *known = match reply {
            Reply::Deleted | Reply::Absent => Known::Free,
            Reply::Taken(holder) => match *holder {
                Holder::Lease { token, left_ms } => Known::Held(until(left_ms), Some(token)),
                Holder::Foreign { left_ms } => Known::Held(until(left_ms), None),
                Holder::NoExpiry | Holder::WrongType => Known::Held(Time::NEVER, None),
                Holder::NotAsked | Holder::Waiter => Known::Nothing,
            },
            Reply::Place { holder: None, .. } => Known::Free,
            Reply::Place { holder: Some(holder), .. } => {
                return self.looked(now, node, &Reply::Taken(*holder));
            }
            _ => Known::Nothing,
        };
    }

    pub(super) fn freed(&mut self, node: NodeId) {
        if let Some(known) = self.known.get_mut(node.index()) {
            *known = Known::Free;
        }
    }

    pub(super) fn free(&self) -> NodeSet {
        let is_free = |node: &NodeId| self.known[node.index()] == Known::Free;
        NodeId::all(self.known.len()).filter(is_free).collect()
    }

    /// The earliest time at which a quorum can be free, unless the holder gives the resource back:
    /// when the key expires on the last of the first `quorum` masters. A master of which nothing is
    /// known counts as free.
    ///
    /// The result is zero if no holder can have a quorum. The keys then belong to attempts that
    /// fail, and those wake no waiter.
    pub(super) fn earliest(&self, quorum: usize) -> Time {
        if !self.is_held(quorum) {
            return Time::ZERO;
        }
        let until = |known: &Known| match known {
            Known::Nothing | Known::Free => Time::ZERO,
            Known::Held(until, _) => *until,
        };
        let mut until: Vec<Time> = self.known.iter().map(until).collect();
        until.sort_unstable();
        until.get(quorum - 1).copied().unwrap_or(Time::NEVER)
    }

    /// Whether a quorum may show one and the same holder.
    fn is_held(&self, quorum: usize) -> bool {
        let unknown = self.known.iter().filter(|known| **known == Known::Nothing).count();
        let by = |known: &Known| match known {
            Known::Held(_, holder) => self.shown(*holder),
            Known::Nothing | Known::Free => 0,
        };
        self.known.iter().map(by).any(|shown| shown > 0 && shown + unknown >= quorum)
    }

    /// Whether only this master shows its holder: most likely, its key is left over from a lease
    /// that is over.
    pub(super) fn is_alone(&self, node: NodeId) -> bool {
        let known = self.known.get(node.index());
        matches!(known, Some(Known::Held(_, holder)) if self.shown(*holder) == 1)
    }

    /// How many masters show this holder. A master names only one of its shared holders, and each
    /// of them may have a quorum: they count as one.
    fn shown(&self, holder: Option<Token>) -> usize {
        let shares = |token: Option<Token>| token.is_some_and(|token| token.is_shared());
        let same = |other| other == holder || shares(other) && shares(holder);
        self.known.iter().filter(|known| matches!(known, Known::Held(_, it) if same(*it))).count()
    }
}
