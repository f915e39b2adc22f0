//! Faults of the network: rules about messages, like those of `redquorum_rig::network` for real
//! sockets. The rules only decide about the messages that they are shown. `wires.rs` acts on the
//! decisions.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::orchestrator::Counts;
use redquorum_scenario::{Class, MessageFault, Messages, Side};

/// A rule that is in force.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// The processes whose links it affects, by number. `None` means all.
    pub(super) actors: Option<Vec<usize>>,
    /// The masters that it affects, counted from 0. `None` means all.
    pub(super) nodes: Option<Vec<usize>>,
    pub(super) side: Side,
    pub(super) class: Class,
    /// The first matching message that it affects, counted from 1.
    pub(super) from: u64,
    pub(super) count: Option<u64>,
    pub(super) effect: MessageFault,
    /// The fault whose gate this rule is.
    pub(super) gate: Option<usize>,
    /// How many messages have matched.
    pub(super) seen: u64,
}

impl Rule {
    /// A rule about these messages of all links.
    pub(super) fn of(which: &Messages, effect: MessageFault) -> Self {
        Self {
            actors: None,
            nodes: None,
            side: which.what,
            class: which.command,
            from: which.index.unwrap_or(1),
            count: which.count,
            effect,
            gate: None,
            seen: 0,
        }
    }

    pub(super) fn is_about(&self, actor: usize, node: usize) -> bool {
        let among =
            |all: &Option<Vec<usize>>, one| all.as_ref().is_none_or(|all| all.contains(&one));
        among(&self.actors, actor) && among(&self.nodes, node)
    }

    /// Whether the rule affects all traffic, including the opening and closing of connections. A
    /// gate does not: it waits for a message, so it must let connections open.
    const fn is_blanket(&self) -> bool {
        self.gate.is_none()
            && matches!(self.class, Class::Any)
            && self.from <= 1
            && self.count.is_none()
    }

    /// Whether the rule affects messages of this direction.
    pub(super) fn is_on(&self, side: Side) -> bool {
        self.side == Side::Both || self.side == side
    }

    /// Whether the rule delays messages.
    pub(super) const fn slows(&self) -> bool {
        matches!(self.effect, MessageFault::Delay(_) | MessageFault::Trickle(_))
    }

    /// Whether the rule prevents new connections while it is in force.
    const fn keeps_apart(&self) -> bool {
        self.is_blanket() && matches!(self.effect, MessageFault::Drop | MessageFault::Hold)
    }

    /// Whether the rule acts once, on the connections that are open when the fault strikes.
    pub(super) const fn strikes_connections(&self) -> bool {
        self.is_blanket() && matches!(self.effect, MessageFault::Reset | MessageFault::HalfOpen(_))
    }
}

/// All rules, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    all: BTreeMap<u64, Rule>,
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

/// Ids below this one are for gates, which come before all other rules.
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
        self.all.insert(GATES + self.last, rule);
        GATES + self.last
    }

    /// Closes the gate of a fault for a process. Gates are ordered by their faults.
    pub(super) fn gate(&mut self, fault: usize, actor: usize, which: &Messages) {
        let kind = (actor, which.what, which.command);
        let seen = self.passed.as_ref().map_or(0, |passed| passed.counts.of(&kind).into());
        let (actors, gate) = (Some(vec![actor]), Some(fault));
        let rule = Rule { actors, gate, seen, ..Rule::of(which, MessageFault::Hold) };
        self.all.insert(fault as u64, rule);
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
        self.all.remove(&id)
    }

    /// The rule that is the gate of a fault.
    pub(super) fn gate_of(&self, fault: usize) -> Option<u64> {
        self.all.iter().find(|(_, rule)| rule.gate == Some(fault)).map(|(id, _)| *id)
    }

    /// The rule that prevents a process from connecting to a master, if there is one.
    pub(super) fn apart(&self, actor: usize, node: usize) -> Option<u64> {
        let mut all = self.all.iter();
        all.find(|(_, rule)| rule.keeps_apart() && rule.is_about(actor, node)).map(|(id, _)| *id)
    }

    /// The rule that hides the close of one end from the other side, if there is one. The flag
    /// tells whether the rule only holds the close back.
    pub(super) fn keeps_end(&self, actor: usize, node: usize, side: Side) -> Option<(u64, bool)> {
        let mut all = self.all.iter();
        let keeps =
            |rule: &Rule| rule.keeps_apart() && rule.is_about(actor, node) && rule.is_on(side);
        let (id, rule) = all.find(|(_, rule)| keeps(rule))?;
        Some((*id, rule.effect == MessageFault::Hold))
    }

    /// Shows a message to the rules and returns their decision.
    pub(super) fn apply(
        &mut self,
        actor: usize,
        node: usize,
        side: Side,
        class: Class,
    ) -> Delivery {
        let mut delivery = Delivery::default();
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
            match rule.effect {
                MessageFault::Delay(by) => delivery.delay += by,
                MessageFault::Trickle(bytes) => {
                    delivery.trickle =
                        Some(delivery.trickle.map_or(bytes, |least| least.min(bytes)));
                }
                MessageFault::Duplicate => delivery.duplicate |= side == Side::Request,
                effect => {
                    delivery.struck = Some((*id, effect));
                    delivery.gate = rule.gate;
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
