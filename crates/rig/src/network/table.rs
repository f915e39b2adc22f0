//! The living rules, and their effect on a message. `connection.rs` calls it for every arrival, and
//! `lane.rs` to see whether waiting data still has to wait.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redquorum_redis_model::network::MessageRules;

use super::rule::{Matches, Message, MessageFault, Rule, RuleId, Side};

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
pub(super) type Link<'a> = (&'a str, usize);

/// The living rules, by age.
#[derive(Default)]
pub(super) struct Table {
    rules: MessageRules<String, Arc<Matches>>,
    last: u64,
}

impl Table {
    pub(super) fn strike(&mut self, rule: Rule) -> RuleId {
        self.last += 1;
        self.rules.insert(self.last, rule, 0);
        RuleId(self.last)
    }

    pub(super) fn heal(&mut self, id: RuleId) {
        self.rules.remove(id.0);
    }

    pub(super) fn lives(&self, id: RuleId) -> bool {
        self.rules.contains(id.0)
    }

    /// The effect on a message that arrived just now.
    pub(super) fn on_message(&mut self, message: &Message<'_>, now: Instant) -> Verdict {
        let link = (message.client, message.node);
        Verdict::of(self.rules.strike(link, message.side, |matches| matches(message)), now)
    }

    /// The effect on an arrival that is no message: an end, or bytes that are not RESP.
    pub(super) fn on_bytes(&self, link: Link<'_>, side: Side, now: Instant) -> Verdict {
        Verdict::of(self.rules.strike_connection(link, side), now)
    }

    /// Whether no connection to the master can be made, and whether an attempt is lost.
    pub(super) fn on_connect(&self, link: Link<'_>) -> Option<(RuleId, MessageFault)> {
        [MessageFault::Drop, MessageFault::Hold].into_iter().find_map(|fault| {
            let mut rules = self.rules.strike_connection(link, Side::Both);
            rules.find(|(_, rule)| rule.fault == fault).map(|(id, _)| (RuleId(id), fault))
        })
    }
}

impl Verdict {
    fn of<'a>(rules: impl Iterator<Item = (u64, &'a Rule)>, now: Instant) -> Self {
        let mut verdict = Self::default();
        for (id, rule) in rules {
            verdict.add(RuleId(id), rule.fault, now);
            if verdict.end.is_some() {
                break;
            }
        }
        // A message that is held is not delayed in addition.
        if verdict.gates.iter().any(|(_, gate)| *gate == Gate::Hold) {
            verdict.gates.retain(|(_, gate)| !matches!(gate, Gate::Until(_)));
        }
        verdict
    }

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
