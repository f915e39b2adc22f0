//! Faults of the network as rules of the proxies, and gates. A gate holds a message back until its
//! fault has struck.

use std::sync::Arc;

use redquorum_rig::network::{self, Message, Rule};

use super::Injector;
use crate::mutex::unpoisoned;
use crate::name::Name;
use crate::scenario::{Class, End, LinkSelector, NetworkFault, Side};

impl Injector {
    /// Closes a gate for a fault.
    pub(super) fn gate(
        &mut self,
        fault: usize,
        process: &Name,
        side: Side,
        class: Class,
        number: u64,
    ) {
        let rule = Rule {
            clients: Some(vec![process.to_string()]),
            side: wire_side(side),
            matches: self.matches(class),
            from: number,
            ..Rule::all(network::MessageFault::Hold)
        };
        // The lock covers both steps. Otherwise the network could report a message at a gate that
        // is not known yet.
        let mut gates = unpoisoned(&self.gates);
        gates.insert(self.network.strike(rule), fault);
    }

    /// Opens the gate of a fault.
    pub(super) fn open(&mut self, fault: usize) {
        let mut gates = unpoisoned(&self.gates);
        let rule = gates.iter().find(|(_, gated)| **gated == fault).map(|(rule, _)| *rule);
        if let Some(rule) = rule {
            gates.remove(&rule);
            drop(gates);
            self.network.heal(rule);
        }
    }

    /// Puts a rule into force, for the links of all clients or of those that the fault affects.
    pub(super) fn net(&mut self, fault: usize, rule: Rule, of_clients: bool) {
        let Some(there) = self.there.get_mut(&fault) else { return };
        let clients = of_clients.then(|| there.processes.iter().map(Name::to_string).collect());
        let rule = Rule { clients, nodes: Some(there.nodes.clone()), ..rule };
        there.rules.push(self.network.strike(rule));
    }

    pub(super) fn rule(&self, net: &NetworkFault) -> Rule {
        let chosen = |which: &LinkSelector, fault_kind| Rule {
            side: wire_side(which.what),
            matches: self.matches(which.command),
            from: which.index.unwrap_or(1),
            count: which.count,
            ..Rule::all(fault_kind)
        };
        match net {
            NetworkFault::Cut(which) => {
                let which = LinkSelector { what: Side::Both, command: Class::Any, ..which.clone() };
                chosen(&which, network::MessageFault::Drop)
            }
            NetworkFault::Drop(which) => chosen(which, network::MessageFault::Drop),
            NetworkFault::Hold(which) => chosen(which, network::MessageFault::Hold),
            NetworkFault::Duplicate(which) => {
                let which = LinkSelector { what: Side::Request, ..which.clone() };
                chosen(&which, network::MessageFault::Duplicate)
            }
            NetworkFault::Reset(which) => chosen(which, network::MessageFault::Reset),
            NetworkFault::Delay { what, by, .. } => {
                Rule { side: wire_side(*what), ..Rule::all(network::MessageFault::Delay(by.0)) }
            }
            NetworkFault::Trickle { what, bytes, .. } => {
                Rule { side: wire_side(*what), ..Rule::all(network::MessageFault::Trickle(*bytes)) }
            }
            NetworkFault::HalfOpen { end, .. } => {
                Rule::all(network::MessageFault::HalfOpen(match end {
                    End::Client => network::End::Client,
                    End::Master => network::End::Master,
                }))
            }
        }
    }

    /// Matches requests of a class and their replies. `None` matches everything.
    fn matches(&self, class: Class) -> Option<Arc<network::Matches>> {
        if class == Class::Any {
            return None;
        }
        let scripts = Arc::clone(&self.scripts);
        Some(Arc::new(move |message: &Message<'_>| scripts.class(message.command) == class))
    }
}

const fn wire_side(side: Side) -> network::Side {
    match side {
        Side::Request => network::Side::Requests,
        Side::Reply => network::Side::Replies,
        Side::Both => network::Side::Both,
    }
}
