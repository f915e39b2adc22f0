//! The living rules, and their effect on a message. `connection.rs` calls it for every arrival, and
//! `lane.rs` to see whether waiting data still has to wait.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::rule::{End, Message, MessageFault, Rule, RuleId, Side};

/// The reason that holds a message back while its rule lives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Gate {
    Hold,
    Until(Instant),
    Rate(u32),
}

/// The delivery of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    Pass,
    Drop(RuleId),
    HalfOpen(RuleId, End),
    Reset(RuleId),
}

impl Delivery {
    /// The rule that decided it.
    pub(super) fn rule(self) -> Option<RuleId> {
        match self {
            Self::Pass => None,
            Self::Drop(rule) | Self::HalfOpen(rule, _) | Self::Reset(rule) => Some(rule),
        }
    }
}

/// The joint decision of all rules about a message.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) delivery: Delivery,
    pub(super) gates: Vec<(RuleId, Gate)>,
    pub(super) duplicate: bool,
    /// The rules that struck it, the oldest first.
    pub(super) struck: Vec<RuleId>,
}

/// The client and the master of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link<'a> {
    pub(super) client: &'a str,
    pub(super) node: usize,
}

struct Living {
    rule: Rule,
    seen: u64,
    hits: u64,
}

/// The living rules, by age.
#[derive(Default)]
pub(super) struct Table {
    rules: BTreeMap<RuleId, Living>,
    last: u64,
}

impl Table {
    pub(super) fn strike(&mut self, rule: Rule) -> RuleId {
        self.last += 1;
        let id = RuleId(self.last);
        self.rules.insert(id, Living { rule, seen: 0, hits: 0 });
        id
    }

    pub(super) fn heal(&mut self, id: RuleId) {
        self.rules.remove(&id);
    }

    pub(super) fn lives(&self, id: RuleId) -> bool {
        self.rules.contains_key(&id)
    }

    /// The effect on a message that arrived just now.
    pub(super) fn on_message(&mut self, message: &Message<'_>, now: Instant) -> Verdict {
        let link = Link { client: message.client, node: message.node };
        self.effect(link, message.side, now, |living| {
            living.rule.matches.as_ref().is_none_or(|matches| matches(message)) && living.counts()
        })
    }

    /// The effect on an arrival that is no message: an end, or bytes that are not RESP.
    pub(super) fn on_bytes(&mut self, link: Link<'_>, side: Side, now: Instant) -> Verdict {
        self.effect(link, side, now, |living| living.rule.is_about_everything())
    }

    fn effect(
        &mut self,
        link: Link<'_>,
        side: Side,
        now: Instant,
        strikes: impl Fn(&mut Living) -> bool,
    ) -> Verdict {
        let mut verdict = Verdict::pass();
        for (&id, living) in &mut self.rules {
            if living.concerns(link, side) && strikes(living) {
                verdict.add(id, living.rule.fault, now);
                if verdict.delivery != Delivery::Pass {
                    break;
                }
            }
        }
        verdict.settled()
    }

    /// Whether no connection to the master can be made, and whether an attempt is lost.
    pub(super) fn on_connect(&self, link: Link<'_>) -> Option<(RuleId, MessageFault)> {
        let about = |living: &Living| living.rule.is_about_everything() && living.rule.is_on(link);
        let of = |fault| {
            let mut rules = self.rules.iter();
            let found = rules.find(|(_, living)| about(living) && living.rule.fault == fault);
            found.map(|(&id, _)| (id, fault))
        };
        of(MessageFault::Drop).or_else(|| of(MessageFault::Hold))
    }
}

impl Living {
    fn concerns(&self, link: Link<'_>, side: Side) -> bool {
        (self.rule.side == Side::Both || self.rule.side == side)
            && self.rule.is_on(link)
            && self.rule.strikes_messages(side)
    }

    /// Counts a matching message, and returns whether the rule strikes it.
    fn counts(&mut self) -> bool {
        self.seen += 1;
        let strikes =
            self.seen >= self.rule.from && self.rule.count.is_none_or(|count| self.hits < count);
        self.hits += u64::from(strikes);
        strikes
    }
}

impl Rule {
    /// Whether it strikes the open connections of this link at once, and then never again.
    pub(super) fn strikes_connections(&self, link: Link<'_>) -> bool {
        matches!(self.fault, MessageFault::HalfOpen(_) | MessageFault::Reset)
            && self.matches.is_none()
            && self.is_on(link)
    }

    fn strikes_messages(&self, side: Side) -> bool {
        match self.fault {
            MessageFault::HalfOpen(_) | MessageFault::Reset => self.matches.is_some(),
            MessageFault::Duplicate => side == Side::Requests,
            MessageFault::Drop
            | MessageFault::Hold
            | MessageFault::Delay(_)
            | MessageFault::Trickle(_) => true,
        }
    }

    fn is_about_everything(&self) -> bool {
        self.matches.is_none() && self.from <= 1 && self.count.is_none()
    }

    fn is_on(&self, link: Link<'_>) -> bool {
        let Self { clients, nodes, .. } = self;
        clients.as_ref().is_none_or(|clients| clients.iter().any(|client| client == link.client))
            && nodes.as_ref().is_none_or(|nodes| nodes.contains(&link.node))
    }
}

impl Verdict {
    pub(super) fn pass() -> Self {
        Self { delivery: Delivery::Pass, gates: Vec::new(), duplicate: false, struck: Vec::new() }
    }

    fn add(&mut self, id: RuleId, fault: MessageFault, now: Instant) {
        self.struck.push(id);
        match fault {
            MessageFault::Drop => self.delivery = Delivery::Drop(id),
            MessageFault::HalfOpen(end) => self.delivery = Delivery::HalfOpen(id, end),
            MessageFault::Reset => self.delivery = Delivery::Reset(id),
            MessageFault::Hold | MessageFault::Trickle(0) => self.gates.push((id, Gate::Hold)),
            MessageFault::Trickle(rate) => self.gates.push((id, Gate::Rate(rate))),
            MessageFault::Delay(delay) => {
                // Two delays on one way: each starts where the one before ended.
                let start = self.gates.iter().filter_map(|(_, gate)| match gate {
                    Gate::Until(until) => Some(*until),
                    Gate::Hold | Gate::Rate(_) => None,
                });
                let start = start.max().unwrap_or(now);
                let far = now + Duration::from_secs(365 * 24 * 3600);
                self.gates.push((id, Gate::Until(start.checked_add(delay).unwrap_or(far))));
            }
            MessageFault::Duplicate => self.duplicate = true,
        }
    }

    /// A message that is held is not delayed in addition.
    fn settled(mut self) -> Self {
        if self.gates.iter().any(|(_, gate)| *gate == Gate::Hold) {
            self.gates.retain(|(_, gate)| !matches!(gate, Gate::Until(_)));
        }
        self
    }
}
