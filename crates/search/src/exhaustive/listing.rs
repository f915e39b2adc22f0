//! A listing of the search space: the base scenarios, and for each of them the faults that a
//! schedule can have.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::base_scenarios::BaseScenario;
use super::vocabulary::{Symmetry, vocabulary};
use redquorum_scenario::{Fault, FaultTime};

/// The places at which a kind of fault can strike, and its targets.
#[derive(Default)]
struct FaultPlaces {
    places: BTreeSet<String>,
    targets: BTreeSet<String>,
    lasts: BTreeSet<String>,
    faults: usize,
}

/// A base scenario and its vocabulary.
pub fn listing(base: &BaseScenario) -> String {
    let faults = vocabulary(base, Symmetry::Folded);
    let scenario = &base.scenario;
    let mut text = format!("{}: {} faults. {}\n", scenario.name, faults.len(), scenario.about);
    for client in &scenario.clients {
        let steps: Vec<String> = client.script.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "  {} from {}: {}", client.id, client.start, steps.join(", "));
    }
    let mut places: Vec<String> = Vec::new();
    let mut kinds: BTreeMap<&'static str, FaultPlaces> = BTreeMap::new();
    for fault in &faults {
        let place = place(fault);
        if !places.contains(&place) {
            places.push(place.clone());
        }
        let kind = kinds.entry(fault.kind.name()).or_default();
        kind.places.insert(place);
        kind.targets.insert(targets(fault));
        kind.lasts.insert(fault.lasts.map_or("to the end".to_owned(), |lasts| lasts.to_string()));
        kind.faults += 1;
    }
    let _ = writeln!(text, "  places: {}", places.join("; "));
    for (name, FaultPlaces { places, targets, lasts, faults }) in kinds {
        let list = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(" | ");
        let (count, targets, lasts) = (places.len(), list(targets), list(lasts));
        let _ = writeln!(text, "  {name}: {faults}, at {count} places, on {targets}, for {lasts}");
    }
    text
}

fn place(fault: &Fault) -> String {
    match &fault.when {
        FaultTime::At(at) => format!("at {at}"),
        FaultTime::After(moment) => format!("after {moment}"),
        FaultTime::Before(moment) => format!("before {moment}"),
    }
}

fn targets(fault: &Fault) -> String {
    let text = |json: Result<String, _>| json.unwrap_or_default().replace('"', "");
    let nodes = fault.nodes.as_ref().map(|nodes| text(serde_json::to_string(nodes)));
    let clients = fault.clients.as_ref().map(|clients| text(serde_json::to_string(clients)));
    [clients, nodes].into_iter().flatten().collect::<Vec<_>>().join("–")
}
