//! The living rules, and their effect on a message. `connection.rs` calls it for every arrival, and
//! `lane.rs` to see whether waiting data still has to wait.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::rule::{Message, MessageFault, Rule, RuleId, Side};

/// The reason that holds a message back while its rule lives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Gate {
    Hold,
    Until(Instant),
    Rate(u32),
}

/// The joint decision of all rules about a message.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The rule by which it is dropped or the connection is reset, and that fault.
    pub(super) end: Option<(RuleId, MessageFault)>,
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
        let mut verdict = Verdict::default();
        for (&id, living) in &mut self.rules {
            if living.rule.concerns(link, side) && strikes(living) {
                verdict.add(id, living.rule.fault, now);
                if verdict.end.is_some() {
                    break;
                }
            }
        }
        // A message that is held is not delayed in addition.
        if verdict.gates.iter().any(|(_, gate)| *gate == Gate::Hold) {
            verdict.gates.retain(|(_, gate)| !matches!(gate, Gate::Until(_)));
        }
        verdict
    }

    /// Whether no connection to the master can be made, and whether an attempt is lost.
    pub(super) fn on_connect(&self, link: Link<'_>) -> Option<(RuleId, MessageFault)> {
        [MessageFault::Drop, MessageFault::Hold].into_iter().find_map(|fault| {
            let (id, _) = self.rules.iter().find(|(_, Living { rule, .. })| {
                rule.is_about_everything() && rule.is_on(link) && rule.fault == fault
            })?;
            Some((*id, fault))
        })
    }
}

impl Living {
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

    fn concerns(&self, link: Link<'_>, side: Side) -> bool {
        let strikes_messages = match self.fault {
            MessageFault::HalfOpen(_) | MessageFault::Reset => self.matches.is_some(),
            MessageFault::Duplicate => side == Side::Request,
            _ => true,
        };
        strikes_messages && (self.side == Side::Both || self.side == side) && self.is_on(link)
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
    fn add(&mut self, id: RuleId, fault: MessageFault, now: Instant) {
        self.struck.push(id);
        let gate = match fault {
            MessageFault::Drop | MessageFault::HalfOpen(_) | MessageFault::Reset => {
                self.end = Some((id, fault));
                return;
            }
            MessageFault::Duplicate => {
                self.duplicate = true;
                return;
            }
            MessageFault::Hold | MessageFault::Trickle(0) => Gate::Hold,
            MessageFault::Trickle(rate) => Gate::Rate(rate),
            MessageFault::Delay(delay) => {
                // Two delays on one way: each starts where the one before ended.
                let start = self.gates.iter().filter_map(|(_, gate)| match gate {
                    Gate::Until(until) => Some(*until),
                    Gate::Hold | Gate::Rate(_) => None,
                });
                let start = start.max().unwrap_or(now);
                let far = now + Duration::from_secs(365 * 24 * 3600);
                Gate::Until(start.checked_add(delay).unwrap_or(far))
            }
        };
        self.gates.push((id, gate));
    }
}
