//! Faults of the network: rules about messages, as `redquorum_rig::network` has them for real sockets.
//! Here they are only told of messages and say what becomes of them; `wires.rs` does it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::scenario::{Class, End, Side};

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    Drop,
    Hold,
    Delay(Duration),
    Duplicate,
    Trickle(u32),
    HalfOpen(End),
    Reset,
}

/// A rule that was struck.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// The processes whose links it is about, by number; none: all.
    pub(super) actors: Option<Vec<usize>>,
    /// The masters, counted from 0; none: all.
    pub(super) nodes: Option<Vec<usize>>,
    pub(super) side: Side,
    pub(super) class: Class,
    /// The first message that is struck, counted from 1.
    pub(super) from: u64,
    pub(super) count: Option<u64>,
    pub(super) harm: Harm,
    /// The fault whose gate it is.
    pub(super) gate: Option<usize>,
    /// How many messages matched.
    pub(super) seen: u64,
}

impl Rule {
    pub(super) const fn all(harm: Harm) -> Self {
        Self {
            actors: None,
            nodes: None,
            side: Side::Both,
            class: Class::Any,
            from: 1,
            count: None,
            harm,
            gate: None,
            seen: 0,
        }
    }

    pub(super) fn is_about(&self, actor: usize, node: usize) -> bool {
        let among =
            |all: &Option<Vec<usize>>, one| all.as_ref().is_none_or(|all| all.contains(&one));
        among(&self.actors, actor) && among(&self.nodes, node)
    }

    /// Whether it is about all that passes: also ends of connections and the making of them. A gate
    /// waits for a message, and so must let connections be made.
    pub(super) const fn is_blanket(&self) -> bool {
        self.gate.is_none()
            && matches!(self.class, Class::Any)
            && self.from <= 1
            && self.count.is_none()
    }

    /// Whether it is about messages of this direction.
    pub(super) fn is_on(&self, side: Side) -> bool {
        self.side == Side::Both || self.side == side
    }

    /// Whether messages are later by it than they would be.
    pub(super) const fn slows(&self) -> bool {
        matches!(self.harm, Harm::Delay(_) | Harm::Trickle(_))
    }

    /// Whether no connection is made while it lives.
    pub(super) const fn keeps_apart(&self) -> bool {
        self.is_blanket() && matches!(self.harm, Harm::Drop | Harm::Hold)
    }

    /// Whether it strikes once, when it is struck: the open connections.
    pub(super) const fn strikes_connections(&self) -> bool {
        self.is_blanket() && matches!(self.harm, Harm::Reset | Harm::HalfOpen(_))
    }
}

/// All rules, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    all: BTreeMap<u64, Rule>,
    last: u64,
}

/// What the rules say of a message.
#[derive(Clone, Debug, Default)]
pub(super) struct Fate {
    /// Later than it would come otherwise.
    pub(super) delay: Duration,
    /// Not faster than so many bytes a second.
    pub(super) trickle: Option<u32>,
    pub(super) duplicate: bool,
    /// The rule that decides over it and all behind it.
    pub(super) struck: Option<(u64, Harm)>,
    /// The fault whose gate it waits at.
    pub(super) gate: Option<usize>,
}

impl Rules {
    pub(super) fn strike(&mut self, rule: Rule) -> u64 {
        self.last += 1;
        self.all.insert(self.last, rule);
        self.last
    }

    pub(super) fn heal(&mut self, id: u64) -> Option<Rule> {
        self.all.remove(&id)
    }

    /// The rule that is the gate of a fault.
    pub(super) fn gate_of(&self, fault: usize) -> Option<u64> {
        self.all.iter().find(|(_, rule)| rule.gate == Some(fault)).map(|(id, _)| *id)
    }

    /// The rule that keeps a process from connecting to a master, if one does.
    pub(super) fn apart(&self, actor: usize, node: usize) -> Option<u64> {
        let mut all = self.all.iter();
        all.find(|(_, rule)| rule.keeps_apart() && rule.is_about(actor, node)).map(|(id, _)| *id)
    }

    /// Whether the end of a connection gets through.
    pub(super) fn swallow_ends(&self, actor: usize, node: usize, side: Side) -> bool {
        self.all
            .values()
            .any(|rule| rule.keeps_apart() && rule.is_about(actor, node) && rule.is_on(side))
    }

    /// Tells the rules of a message.
    pub(super) fn judge(&mut self, actor: usize, node: usize, side: Side, class: Class) -> Fate {
        let mut fate = Fate::default();
        for (id, rule) in &mut self.all {
            let matches = rule.is_about(actor, node)
                && rule.is_on(side)
                && (rule.class == Class::Any || rule.class == class);
            if !matches || rule.strikes_connections() {
                continue;
            }
            rule.seen += 1;
            let first = rule.from.max(1);
            let beyond = rule.count.is_some_and(|count| rule.seen >= first.saturating_add(count));
            if rule.seen < first || beyond {
                continue;
            }
            match rule.harm {
                Harm::Delay(by) => fate.delay += by,
                Harm::Trickle(bytes) => {
                    fate.trickle = Some(fate.trickle.map_or(bytes, |least| least.min(bytes)));
                }
                Harm::Duplicate => fate.duplicate |= side == Side::Request,
                harm => {
                    fate.struck = Some((*id, harm));
                    fate.gate = rule.gate;
                    break;
                }
            }
        }
        fate
    }
}
