//! Faults of the network as rules of the proxies, and gates. A gate holds a message back until its
//! fault has struck.

use std::sync::Arc;

use redquorum_rig::network::{self, Message, Rule};

use super::Injector;
use crate::mutex::unpoisoned;
use redquorum_scenario::name::Name;
use redquorum_scenario::{Class, MessageFault, Messages};

impl Injector {
    /// Closes a gate for a fault.
    pub(super) fn gate(&mut self, fault: usize, process: &Name, which: &Messages) {
        let clients = Some(vec![process.to_string()]);
        let rule = Rule { clients, ..self.rule(which, MessageFault::Hold) };
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

    /// Puts a fault of messages into force, for the links of all clients or of those that it hits.
    /// Returns whether it is one.
    pub(super) fn net(&mut self, fault: usize) -> bool {
        let struck = &self.scenario.faults[fault];
        let Some((which, effect)) = struck.kind.strikes_messages() else { return false };
        let rule = self.rule(&which, effect);
        let Some(there) = self.there.get_mut(&fault) else { return true };
        let names = || there.processes.iter().map(Name::to_string).collect();
        let clients = struck.clients.as_ref().map(|_| names());
        let rule = Rule { clients, nodes: Some(there.nodes.clone()), ..rule };
        there.rules.push(self.network.strike(rule));
        true
    }

    /// A rule of the proxies about these messages of all links.
    fn rule(&self, which: &Messages, effect: MessageFault) -> Rule {
        Rule {
            side: which.what,
            matches: self.matches(which.command),
            from: which.index.unwrap_or(1),
            count: which.count,
            ..Rule::all(effect)
        }
    }

    /// Matches requests of a class and their replies. `None` matches everything.
    fn matches(&self, class: Class) -> Option<Arc<network::Matches>> {
        if class == Class::Any {
            return None;
        }
        let scripts = Arc::clone(&self.scripts);
        Some(Arc::new(move |message: &Message<'_>| scripts.read(message.command).0 == class))
    }
}
