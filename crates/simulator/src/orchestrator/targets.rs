//! The masters and the processes that a fault hits, and the process of each client.

use std::collections::BTreeSet;

use redquorum_scenario::name::Name;
use redquorum_scenario::{Client, Clients, Fault, Nodes, Scenario};

/// The masters that a fault hits now. A role covers only masters that its client knows.
pub(super) fn nodes_of(
    fault: &Fault,
    scenario: &Scenario,
    granted: impl Fn(&str) -> Option<BTreeSet<usize>>,
) -> Result<Vec<usize>, String> {
    let role = match &fault.nodes {
        None => return Ok(Vec::new()),
        Some(Nodes::All) => return Ok((1..=scenario.cluster.nodes).collect()),
        Some(Nodes::Some(numbers)) => return Ok(numbers.clone()),
        Some(Nodes::Role(role)) => role,
    };
    let granted = granted(&role.client).unwrap_or_default();
    let wanted = role.first.unwrap_or(usize::MAX);
    let known = scenario.list_of(process_of(scenario, &role.client).unwrap_or(&role.client));
    let plays = |node: &usize| granted.contains(node) == role.granted;
    let found: Vec<usize> = known.masters().into_iter().filter(plays).take(wanted).collect();
    match role.first {
        Some(first) if found.len() < first => {
            Err(format!("{role}: there are only {} such masters", found.len()))
        }
        None if found.is_empty() => Err(format!("{role}: there is no such master")),
        _ => Ok(found),
    }
}

/// The processes that a fault hits.
pub fn processes_of(fault: &Fault, scenario: &Scenario) -> Vec<Name> {
    let Some(clients) = &fault.clients else { return Vec::new() };
    let hit = |process: &&Name| match clients {
        Clients::All => true,
        some => clients_of(scenario, process).iter().any(|client| some.has(client)),
    };
    scenario.processes().into_iter().filter(hit).cloned().collect()
}

/// The process of a client.
pub(super) fn process_of<'a>(scenario: &'a Scenario, client: &str) -> Option<&'a Name> {
    scenario.clients.iter().find(|known| known.id == client).map(Client::process)
}

/// The clients of a process.
pub(super) fn clients_of(scenario: &Scenario, process: &str) -> Vec<Name> {
    let all = scenario.clients.iter().filter(|client| client.process() == process);
    all.map(|client| client.id.clone()).collect()
}
