//! The rules about messages that are in force, the gates of faults among them, and the messages
//! that have passed. The rules only decide about the messages that they are shown. `wires.rs` acts
//! on the decisions.

use std::time::Duration;

use crate::orchestrator::Counts;
use redquorum_redis_model::network::{MessageRule, MessageRules};
use redquorum_scenario::{Class, MessageFault, Messages, Side};

/// A rule about the links of processes, by number, and of masters, counted from 0.
pub(super) type Rule = MessageRule<usize, Matches>;

/// The messages of a rule that is not about all that passes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matches {
    class: Class,
    /// The fault whose gate the rule is. A gate waits for a message, so it must let connections
    /// open.
    gate: Option<usize>,
}

/// A rule about these messages of all links.
pub(super) fn rule(which: &Messages, fault: MessageFault, gate: Option<usize>) -> Rule {
    let class = which.command;
    Rule {
        side: which.what,
        matches: (class != Class::Any || gate.is_some()).then_some(Matches { class, gate }),
        from: which.index.unwrap_or(1),
        count: which.count,
        ..Rule::all(fault)
    }
}

/// All rules. Gates are older than the others.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    all: MessageRules<usize, Matches>,
    last: u64,
    /// Messages that have passed the gates, for a gate that is added during a run.
    passed: Option<Box<Passed>>,
}

/// The number of messages of each kind that passed, and the first `most` of each kind, in the order
/// in which they passed.
#[derive(Clone, Debug)]
struct Passed {
    most: u32,
    counts: Counts<Kind>,
    first: Vec<(Kind, u32)>,
}

impl Passed {
    fn pass(&mut self, kind: Kind) {
        let number = self.counts.add(kind);
        if number <= self.most && kind.2 != Class::Any {
            self.first.push((kind, number));
        }
    }
}

/// A kind of message: its process, direction and class.
type Kind = (usize, Side, Class);

/// Numbers below this one are those of gates: the numbers of their faults.
const GATES: u64 = 1 << 16;

/// The rules' decision about a message.
#[derive(Clone, Debug, Default)]
pub(super) struct Delivery {
    /// Extra delay of the message.
    pub(super) delay: Duration,
    /// Limit of the transfer rate, in bytes per second.
    pub(super) trickle: Option<u32>,
    pub(super) duplicate: bool,
    /// The rule that decides about this message and all that follow it.
    pub(super) struck: Option<(u64, MessageFault)>,
    /// The fault at whose gate the message waits.
    pub(super) gate: Option<usize>,
}

impl Rules {
    pub(super) fn strike(&mut self, rule: Rule) -> u64 {
        self.last += 1;
        self.all.insert(GATES + self.last, rule, 0);
        GATES + self.last
    }

    /// Closes the gate of a fault for a process.
    pub(super) fn gate(&mut self, fault: usize, actor: usize, which: &Messages) {
        let kind = (actor, which.what, which.command);
        let seen = self.passed.as_ref().map_or(0, |passed| passed.counts.of(&kind).into());
        let rule = rule(which, MessageFault::Hold, Some(fault));
        self.all.insert(fault as u64, Rule { clients: Some(vec![actor]), ..rule }, seen);
    }

    /// Counts messages from now on, and notes the first `most` of each kind. `None` ends the
    /// counting.
    pub(super) fn count(&mut self, most: Option<u32>) {
        let passed = |most| Passed { most, counts: Counts::default(), first: Vec::new() };
        self.passed = most.map(|most| Box::new(passed(most)));
    }

    /// The messages before which a gate could have closed, in order.
    pub(super) fn first(&self) -> &[(Kind, u32)] {
        self.passed.as_ref().map_or(&[], |passed| &passed.first)
    }

    pub(super) fn heal(&mut self, id: u64) -> Option<Rule> {
        self.all.remove(id)
    }

    /// The rule that is the gate of a fault.
    pub(super) fn gate_of(&self, fault: usize) -> Option<u64> {
        Some(fault as u64).filter(|gate| self.all.contains(*gate))
    }

    /// The rule that keeps a new connection, or with a side the close of its end, from the other
    /// end. The flag tells whether the rule only holds it back.
    pub(super) fn keeps(&self, actor: usize, node: usize, side: Side) -> Option<(u64, bool)> {
        self.all.strike_connection((&actor, node), side).find_map(|(id, rule)| match rule.fault {
            MessageFault::Drop => Some((id, false)),
            MessageFault::Hold => Some((id, true)),
            _ => None,
        })
    }

    /// Shows a message to the rules and returns their decision. A message that is held is hidden
    /// from younger rules, because it leaves with the heal of the one that holds it.
    pub(super) fn apply(
        &mut self,
        actor: usize,
        node: usize,
        side: Side,
        class: Class,
    ) -> Delivery {
        let mut delivery = Delivery::default();
        let matches = |it: &Matches| it.class == Class::Any || it.class == class;
        for (id, rule) in self.all.strike((&actor, node), side, matches) {
            match rule.fault {
                MessageFault::Delay(by) => delivery.delay += by,
                MessageFault::Trickle(bytes) => {
                    delivery.trickle =
                        Some(delivery.trickle.map_or(bytes, |least| least.min(bytes)));
                }
                MessageFault::Duplicate => delivery.duplicate = true,
                fault => {
                    delivery.struck = Some((id, fault));
                    delivery.gate = rule.matches.and_then(|it| it.gate);
                    break;
                }
            }
        }
        if let (Some(passed), None) = (&mut self.passed, delivery.gate) {
            passed.pass((actor, side, class));
        }
        delivery
    }
}
