//! The colours and names in the drawing of a run.

use std::collections::BTreeMap;

use super::Run;
use redquorum_checker::Case;

/// The colour of each client, and the client of each token.
pub(super) struct Names<'a> {
    classes: BTreeMap<&'a str, &'static str>,
    tokens: BTreeMap<&'a str, &'a str>,
}

const CLASSES: [&str; 8] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"];

impl<'a> Names<'a> {
    pub(super) fn new(run: &'a Run<'_>, case: &Case<'a>) -> Self {
        let mut classes = BTreeMap::new();
        for (index, client) in run.history.header.scenario.clients.iter().enumerate() {
            let class = CLASSES[index % CLASSES.len()];
            classes.insert(client.id.as_str(), class);
            classes.entry(client.process().as_str()).or_insert(class);
        }
        let tokens = case.leases.iter().filter_map(|lease| Some((lease.token?, lease.client)));
        Self { classes, tokens: tokens.collect() }
    }

    /// The CSS class of a client, or of a process.
    pub(super) fn class(&self, name: &str) -> &'static str {
        self.classes.get(name).copied().unwrap_or("k7")
    }

    /// The client that was granted a token.
    pub(super) fn of_token(&self, token: &str) -> Option<&'a str> {
        self.tokens.get(token).copied()
    }
}
