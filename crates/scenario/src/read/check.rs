//! Checks whether a scenario makes sense, beyond what the types ensure. The check covers every run:
//! the scenario itself, and each variant after it is applied. A problem that only a variant has is
//! reported at the variant.

use std::collections::BTreeMap;
use std::path::Path;

use super::tree::Place;
use crate::name::Name;
use crate::near::guess;
use crate::{Client, Cluster, Expect, Fault, Lock, Scenario, Step, Variant, is_name_char};

mod clients;
mod expect;
mod faults;
mod lock;

/// The most masters.
const MOST_NODES: usize = 9;

/// A part of a scenario that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) place: Place,
    pub(super) message: String,
    pub(super) fix: String,
    pub(super) also: Option<(Place, String)>,
}

/// The parts of a run, each with its place in the file.
struct Run<'a> {
    cluster: (Place, &'a Cluster),
    lock: (Place, &'a Lock),
    clients: Vec<(Place, &'a Client)>,
    faults: Vec<(Place, &'a Fault)>,
    expect: (Place, &'a Expect),
    found: Vec<Found>,
}

/// All parts that make no sense.
pub(super) fn check(file: &str, scenario: &Scenario) -> Vec<Found> {
    let mut base = Run::of(scenario);
    base.name(file, scenario);
    base.check();
    let mut found = base.found;
    for (index, variant) in scenario.variants.iter().enumerate() {
        let place = Place::default().key("variant").index(index);
        let mut run = Run::of(scenario);
        run.vary(&place, variant);
        if let Some(first) =
            scenario.variants[..index].iter().position(|other| other.name == variant.name)
        {
            let first = Place::default().key("variant").index(first).key("name");
            let message = format!("there are two variants `{}`", variant.name);
            let fix = "give each a name of its own";
            run.wrong_beside(&place.key("name"), message, fix, (first, "the first"));
        }
        run.check();
        for problem in run.found {
            if problem.place.is_within(&place) {
                found.push(problem);
            } else if !found.iter().any(|known| known.message == problem.message) {
                // The variant caused the problem, but the problem is elsewhere.
                let Found { place: elsewhere, message, fix, .. } = problem;
                let message = format!("in the variant `{}`: {message}", variant.name);
                let also = Some((elsewhere, "here".to_owned()));
                found.push(Found { place: place.key("name"), message, fix, also });
            }
        }
    }
    found
}

impl<'a> Run<'a> {
    fn of(scenario: &'a Scenario) -> Self {
        let root = Place::default();
        Self {
            cluster: (root.key("cluster"), &scenario.cluster),
            lock: (root.key("lock"), &scenario.lock),
            clients: listed(&root, "client", &scenario.clients),
            faults: listed(&root, "fault", &scenario.faults),
            expect: (root.key("expect"), &scenario.expect),
            found: Vec::new(),
        }
    }

    /// Applies a variant as `Scenario::runs` does, with places.
    fn vary(&mut self, place: &Place, variant: &'a Variant) {
        self.word("the variant's name", &place.key("name"), &variant.name);
        if let Some(cluster) = &variant.cluster {
            self.cluster = (place.key("cluster"), cluster);
        }
        if let Some(lock) = &variant.lock {
            self.lock = (place.key("lock"), lock);
        }
        for client in listed(place, "client", &variant.clients) {
            // A second client of the same name within the variant would silently replace the first.
            let same = |known: &&mut (Place, &Client)| known.1.id == client.1.id;
            match self.clients.iter_mut().find(same) {
                Some(known) if !known.0.is_within(place) => *known = client,
                _ => self.clients.push(client),
            }
        }
        if let Some(faults) = &variant.faults {
            self.faults = listed(place, "fault", faults);
        }
        self.expect = (place.key("expect"), &variant.expect);
        let Variant { cluster, lock, clients, faults, .. } = variant;
        if cluster.is_none() && lock.is_none() && clients.is_empty() && faults.is_none() {
            self.wrong(
                place,
                format!("the variant `{}` changes nothing", variant.name),
                "give it a `cluster`, a `lock`, clients or faults of its own, or remove it",
            );
        }
    }

    fn wrong(&mut self, place: &Place, message: impl Into<String>, fix: impl Into<String>) {
        let (message, fix) = (message.into(), fix.into());
        self.found.push(Found { place: place.clone(), message, fix, also: None });
    }

    /// A problem of two places.
    fn wrong_beside(&mut self, place: &Place, message: String, fix: &str, other: (Place, &str)) {
        self.wrong(place, message, fix);
        if let Some(found) = self.found.last_mut() {
            found.also = Some((other.0, other.1.to_owned()));
        }
    }

    /// Reports that a name is not among the known ones.
    fn unknown<'n>(
        &mut self,
        place: &Place,
        name: &str,
        known: impl IntoIterator<Item = &'n str>,
        message: String,
        fix: &str,
    ) {
        let guess = guess(name, known);
        let or = if guess.is_empty() { "" } else { "or " };
        self.wrong(place, message, format!("{guess}{or}{fix}"));
    }

    fn name(&mut self, file: &str, scenario: &Scenario) {
        let place = Place::default().key("name");
        let name = &scenario.name;
        self.word("the scenario's name", &place, name);
        let path = Path::new(file);
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let is_wrong = !self.found.is_empty();
        if path.extension().is_some_and(|end| end == "toml") && stem != name && !is_wrong {
            self.wrong(
                &place,
                format!("the scenario is called `{name}` and its file `{stem}`"),
                format!("write `name = \"{stem}\"`, or call the file {name}.toml"),
            );
        }
        for (key, text) in [("about", Some(&scenario.about)), ("source", scenario.source.as_ref())]
        {
            if text.is_some_and(|text| text.trim().is_empty()) {
                let fix = "say in one sentence what the scenario shows, or where it comes from";
                self.wrong(&Place::default().key(key), format!("`{key}` is empty"), fix);
            }
        }
    }

    fn word(&mut self, what: &str, place: &Place, name: &str) {
        if name.is_empty() || !name.chars().all(is_name_char) {
            let valid = |c: char| if is_name_char(c) { c } else { '-' };
            let better: String = name.to_lowercase().chars().map(valid).collect();
            let better = better.trim_matches('-');
            let fix = match better {
                "" => "use lower-case letters, digits and `-`".to_owned(),
                better => format!("use lower-case letters, digits and `-`: `{better}`"),
            };
            self.wrong(place, format!("{what} is `{name}`"), fix);
        }
    }

    fn check(&mut self) {
        self.cluster();
        self.options();
        self.clients();
        self.faults();
        self.expectation();
    }

    fn cluster(&mut self) {
        let (place, cluster) = &self.cluster;
        let message = match cluster.nodes {
            1..=MOST_NODES => return,
            0 => "there are no masters".to_owned(),
            many => format!("{many} masters are too many"),
        };
        let fix = format!("write 1 to {MOST_NODES}; 5 is usual");
        self.wrong(&place.key("nodes"), message, fix);
    }

    /// Every name of a client, and its index in the list of clients.
    fn names(&self) -> BTreeMap<Name, usize> {
        let all = self.clients.iter().enumerate();
        // Another check reports a count out of bounds. Here it must not fill the memory.
        let few = all.filter(|(_, (_, client))| client.count <= clients::MOST);
        few.flat_map(|(index, (_, client))| {
            client.names().into_iter().map(move |name| (name, index))
        })
        .collect()
    }

    /// Whether a client exists. If not, the problem is reported at this place.
    fn known(&mut self, place: &Place, name: &str) -> Option<usize> {
        let names = self.names();
        let found = names.get(name).copied();
        if found.is_none() {
            let several = self.clients.iter().find(|(_, client)| client.id == name);
            let fix = match several {
                Some((_, client)) => {
                    let last = format!("{name}{}", client.count);
                    format!("`{name}` stands for `{name}1` to `{last}`: name one of those")
                }
                None => {
                    let guess = guess(name, names.keys().map(Name::as_str));
                    let list: Vec<String> =
                        names.keys().take(8).map(|name| format!("`{name}`")).collect();
                    let more = if names.len() > list.len() { ", …" } else { "" };
                    format!("{guess}the clients are {}{more}", list.join(", "))
                }
            };
            self.wrong(place, format!("there is no client `{name}`"), fix);
        }
        found
    }

    fn script(&self, client: usize) -> &'a [Step] {
        &self.clients[client].1.script
    }

    /// Checks the number of a master.
    fn master(&mut self, place: &Place, number: usize) {
        let all = self.cluster.1.nodes;
        if number == 0 || number > all {
            let message = format!("there is no master {number}");
            let fix = format!("there are {all}, counted from 1: write 1 to {all}");
            self.wrong(place, message, fix);
        }
    }
}

fn listed<'a, T>(place: &Place, key: &str, list: &'a [T]) -> Vec<(Place, &'a T)> {
    let place = place.key(key);
    list.iter().enumerate().map(|(index, value)| (place.index(index), value)).collect()
}
