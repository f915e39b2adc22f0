//! Watch: what a waiting acquire knows about the keys of other holders.

use alloc::vec::Vec;
use core::time::Duration;

use crate::quorum::{NodeId, NodeSet, Quorum};
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
        self.which(|known| *known == Known::Free)
    }

    fn which(&self, what: impl Fn(&Known) -> bool) -> NodeSet {
        NodeSet::which(&self.known, what)
    }

    /// The earliest time at which a quorum can be free, unless the holder gives the resource back:
    /// when the key expires on the last master of the first quorum. A master of which nothing is
    /// known counts as free.
    ///
    /// The result is zero if no holder can have a quorum. The keys then belong to attempts that
    /// fail, and those wake no waiter.
    pub(super) fn earliest(&self, quorum: Quorum) -> Time {
        if !self.is_held(quorum) {
            return Time::ZERO;
        }
        let until = |known: &Known| match known {
            Known::Nothing | Known::Free => Time::ZERO,
            Known::Held(until, _) => *until,
        };
        quorum.least(|node| self.known.get(node.index()).map(until)).unwrap_or(Time::NEVER)
    }

    /// Whether a quorum may show one and the same holder.
    fn is_held(&self, quorum: Quorum) -> bool {
        let unknown = self.which(|known| *known == Known::Nothing);
        self.known.iter().any(|known| match known {
            Known::Held(_, holder) => quorum.may_be_a_rivals(self.showing(*holder).or(unknown)),
            Known::Nothing | Known::Free => false,
        })
    }

    /// Whether only this master shows its holder: most likely, its key is left over from a lease
    /// that is over.
    pub(super) fn is_alone(&self, node: NodeId) -> bool {
        let known = self.known.get(node.index());
        matches!(known, Some(Known::Held(_, holder)) if self.showing(*holder).len() == 1)
    }

    /// The masters that show this holder. A master names only one of its shared holders, and each
    /// of them may have a quorum: they count as one.
    fn showing(&self, holder: Option<Token>) -> NodeSet {
        let shares = |token: Option<Token>| token.is_some_and(|token| token.is_shared());
        let same = |other| other == holder || shares(other) && shares(holder);
        self.which(|known| matches!(known, Known::Held(_, it) if same(*it)))
    }
}
