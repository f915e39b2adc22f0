//! Checks whether a scenario makes sense, beyond what the types ensure. The check covers every run:
//! the scenario itself, and each variant after it is applied. A problem that only a variant has is
//! reported at the variant.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::{Place, guess};
use crate::name::Name;
use crate::{
    AccessKind, Acquires, Cause, Client, Cluster, Expect, Fault, LeaseEffect, Length, Lock,
    NodeList, OwnGuard, Rounds, Scenario, Step, Variant, is_name_char,
};
use redquorum_protocol::{
    BadOption, Drift, Guard, HolderName, LockConfig, MAX_HOLDER_NAME, MastersId,
};

mod faults;

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
        let few = all.filter(|(_, (_, client))| client.count <= MOST_CLIENTS);
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

/// Checks the lock's options as the library does, so that no scenario fails only when its clients
/// start.
impl Run<'_> {
    fn options(&mut self) {
        let (place, lock) = self.lock.clone();
        for (key, length) in [
            ("ttl", Some(lock.ttl)),
            ("lock-delay", Some(lock.lock_delay)),
            ("node-timeout", Some(lock.node_timeout)),
            ("drift", Some(lock.drift)),
            ("clock-guard", lock.clock_guard),
            ("restart-guard", lock.guard),
        ] {
            length.into_iter().for_each(|length| self.whole(&place.key(key), length));
        }
        if lock.guard.is_none() && !lock.initialized {
            let fix = "add `restart-guard = \"2s\"`, or leave `initialized` out";
            let at = place.key("initialized").itself();
            self.wrong(&at, "only a guard distrusts masters that are new", fix);
        }
        self.config(lock.ttl.0, &place.key("ttl"), lock.guard);
    }

    /// The harness passes options to clients in milliseconds.
    fn whole(&mut self, place: &Place, length: Length) {
        if !length.0.subsec_nanos().is_multiple_of(1_000_000) {
            let up = length.0 + Duration::from_millis(1);
            let up =
                Length(Duration::from_millis(u64::try_from(up.as_millis()).unwrap_or(u64::MAX)));
            self.wrong(
                place,
                format!("`{length}` is not a whole number of milliseconds"),
                format!("locks count in milliseconds: write for instance {up}"),
            );
        }
    }

    /// Whether the library accepts a TTL with the other options. A problem with the TTL is reported
    /// at its place, which may be in a script. A client may have a `restart-guard` of its own.
    fn config(&mut self, ttl: Duration, at: &Place, guard: Option<Length>) {
        let (options, lock) = &self.lock;
        let nodes = self.cluster.1.nodes.clamp(1, MOST_NODES);
        let drift = Drift { ppm: lock.drift_ppm, fixed: lock.drift.0 };
        let config = LockConfig::new(nodes, ttl, drift, lock.node_timeout.0)
            .and_then(|config| config.with_lock_delay(lock.lock_delay.0));
        // A client that opts out of the others' guard does not check clocks either.
        let looks = lock.clock_guard.filter(|_| guard.is_some() || lock.guard.is_none());
        let guarded = |config: LockConfig| {
            let Some(max_ttl) = guard else {
                return looks.map_or(Ok(config), |_| Err(BadOption::ClockBoundWithoutGuard));
            };
            let guard = Guard::new(max_ttl.0, drift, 0)?;
            let Some(bound) = looks else { return config.with_max_ttl(guard.max_ttl()) };
            let guard = guard.with_clock_bound(bound.0)?;
            config.with_max_ttl(guard.max_ttl())?.with_clock_bound(bound.0)
        };
        let Err(bad) = config.and_then(guarded) else { return };
        let place = match bad {
            BadOption::NodeTimeoutTooShort { .. } => options.key("node-timeout"),
            BadOption::DriftTooSmall { .. } => options.key("drift"),
            BadOption::ClockBound { .. } | BadOption::ClockBoundWithoutGuard => {
                options.key("clock-guard")
            }
            BadOption::LockDelayTooLong { .. } => options.key("lock-delay"),
            BadOption::TtlTooLong { ttl: long } if long != ttl => options.key("restart-guard"),
            _ => at.clone(),
        };
        if self.found.iter().any(|found| found.place == place) {
            return;
        }
        let text = bad.to_string();
        // Messages of the library name the fix after a semicolon or a colon.
        let cut = text.rfind("; ").or_else(|| text.rfind(": "));
        let (message, fix) =
            cut.map_or((text.as_str(), "choose another"), |cut| (&text[..cut], &text[cut + 2..]));
        self.wrong(&place, message, fix);
    }
}

/// The most clients of a kind.
const MOST_CLIENTS: usize = 64;
/// The longest time that a script may take for certain. Scenarios are not soak tests.
const LONGEST_SCRIPT: Duration = Duration::from_secs(600);

impl<'a> Run<'a> {
    fn clients(&mut self) {
        if self.clients.is_empty() {
            let fix = "add one: `[[client]]` with `id = \"c1\"` and `script = [\"acquire L\", \
                        \"work 1s\", \"release L\"]`";
            self.wrong(&Place::default().key("client"), "there is no client", fix);
        }
        let mut names: Vec<(Name, Place)> = Vec::new();
        for (index, (place, client)) in self.clients.clone().into_iter().enumerate() {
            self.client(&place, client);
            self.list(&place, client);
            self.own_guard(&place, client);
            self.of_one_process(index, &place, client);
            let own = if client.count > MOST_CLIENTS { Vec::new() } else { client.names() };
            let mut shown = client.process.iter().chain(&own);
            if self.lock.1.names && shown.any(|name| HolderName::new(name).is_err()) {
                let message = format!("`{}` is too long for a lease to show", client.process());
                let fix = format!("use at most {MAX_HOLDER_NAME} bytes, or leave out `names`");
                self.wrong(&place.key("id"), message, fix);
            }
            for name in own {
                if let Some((_, first)) = names.iter().find(|(known, _)| *known == name) {
                    let (message, first) =
                        (format!("there are two clients `{name}`"), first.clone());
                    let fix = "give each a name of its own";
                    self.wrong_beside(&place.key("id"), message, fix, (first, "the first"));
                    break;
                }
                names.push((name, place.key("id")));
            }
        }
    }

    fn client(&mut self, place: &Place, client: &'a Client) {
        let id = &client.id;
        self.called("client", &place.key("id"), id);
        if let Some(process) = &client.process {
            self.called("process", &place.key("process"), process);
        }
        if client.count == 0 || client.count > MOST_CLIENTS {
            let message = format!("{} clients of a kind", client.count);
            self.wrong(&place.key("count"), message, format!("write 1 to {MOST_CLIENTS}"));
        }
        let at = place.key("loop");
        match client.rounds {
            Some(Rounds::Times(0)) => {
                self.wrong(&at, "no round at all", "write 1 or more, or leave it out");
            }
            Some(Rounds::For(length)) if length.is_zero() => {
                self.wrong(&at, "no time at all", "write a time such as \"3s\"");
            }
            None if !client.think.is_zero() => {
                let fix = "add `loop = 10` or `loop = \"3s\"`, or leave `think` out";
                let message = "a pause between rounds, and only one round";
                self.wrong(&place.key("think").itself(), message, fix);
            }
            _ => {}
        }
        if client.script.is_empty() {
            let fix = "write for instance `script = [\"acquire L\", \"work 1s\", \"release L\"]`";
            self.wrong(&place.key("script"), format!("`{id}` does nothing"), fix);
        }
        for (index, step) in client.script.iter().enumerate() {
            let at = place.key("script").index(index);
            self.step(&at, step, &client.script[..index], client);
        }
        let works = client.script.iter().map(Step::work);
        let round = works.fold(Duration::ZERO, Duration::saturating_add);
        let total = match client.rounds {
            Some(Rounds::Times(times)) => (round + client.think.0).saturating_mul(times),
            Some(Rounds::For(length)) => length.0.max(round),
            None => round,
        };
        let total = total.saturating_add(client.start.0);
        if total > LONGEST_SCRIPT {
            let total = Length(Duration::from_secs(total.as_secs()));
            let fix = "a run may take 10 minutes at most: shorten the work, the pauses or the loop";
            self.wrong(&place.key("id"), format!("`{id}` takes at least {total}"), fix);
        }
    }

    /// Checks the masters that the client knows.
    fn list(&mut self, place: &Place, client: &Client) {
        for (key, numbers) in [("nodes", &client.nodes), ("moving-to", &client.moving_to)] {
            let Some(numbers) = numbers else { continue };
            let place = place.key(key);
            if numbers.is_empty() {
                let fix = match key {
                    "nodes" => "name some, such as `nodes = [1, 2, 3]`, or leave it out: all",
                    _ => "name some, such as `moving-to = [3, 4, 5]`, or leave it out",
                };
                self.wrong(&place, format!("`{}` knows no masters", client.id), fix);
            }
            if numbers.len() > MOST_NODES {
                let message = format!("`{}` has {} addresses of masters", client.id, numbers.len());
                self.wrong(&place, message, format!("write {MOST_NODES} at most"));
            }
            for (index, number) in numbers.iter().enumerate() {
                self.master(&place.index(index), *number);
            }
        }
        self.moves(place, client);
    }

    /// Checks the two lists of a client that moves. All clients of a scenario make one move, which
    /// `node.admit` takes the masters through.
    fn moves(&mut self, place: &Place, client: &Client) {
        let all = self.cluster.1.nodes;
        let list = client.list(all);
        let Some((from, to)) = list.moves() else { return };
        let place = place.key("moving-to");
        let once = |list: &[usize]| (1..list.len()).all(|at| !list[..at].contains(&list[at]));
        let addresses = list.addresses();
        if !once(&addresses) || !once(&to) {
            let message = format!("`{}` moves, and lists a master twice", client.id);
            self.wrong(&place, message, "name each master once in each list");
        } else if from == addresses.len() && to.len() == from {
            let message = format!("`{}` moves to the masters that it has", client.id);
            self.wrong(&place, message, "name other masters, or leave it out");
        }
        let others = self.clients.iter().map(|(_, other)| other.list(all).masters_id());
        let others = others.filter(|other| matches!(other, MastersId::Moving { .. }));
        if others.into_iter().any(|other| other != list.masters_id()) {
            let fix = "give all clients that move the same `nodes` and `moving-to`";
            self.wrong(&place, "two clients make different moves", fix);
        }
    }

    /// Checks the guard that the client has in place of the lock's.
    fn own_guard(&mut self, place: &Place, client: &Client) {
        let Some(OwnGuard::UpTo(guard)) = client.guard else { return };
        let at = place.key("restart-guard");
        self.whole(&at, guard);
        if self.lock.1.guard.is_none() {
            let message = format!("`{}` has a guard, and the lock has none", client.id);
            let fix = "write `restart-guard = \"2s\"` under `[lock]`, and `restart-guard = false` \
                        for clients that have none: masters are marked for the lock's";
            self.wrong(&at, message, fix);
        }
        self.config(self.lock.1.ttl.0, &at, Some(guard));
    }

    /// Whether the client has the same masters and lock as others of its process, which share them.
    fn of_one_process(&mut self, index: usize, place: &Place, client: &Client) {
        let mut before = self.clients[..index].iter();
        let other = before.find(|(_, other)| other.process() == client.process());
        let Some((other_place, other)) = other else { return };
        let (all, lock) = (self.cluster.1.nodes, self.lock.1);
        let both = format!("`{}` and `{}` live in one process and", other.id, client.id);
        let (masters_differ, locks_differ) =
            (other.list(all) != client.list(all), other.options(lock) != client.options(lock));
        if masters_differ {
            let key = |client: &Client| match (&client.nodes, &client.moving_to) {
                (Some(_), _) => "nodes",
                (None, Some(_)) => "moving-to",
                (None, None) => "id",
            };
            let message = format!("{both} know different masters");
            let fix = "write the same `nodes` and `moving-to` for both, or give each a process of its own";
            let other = (other_place.key(key(other)), "the other");
            self.wrong_beside(&place.key(key(client)), message, fix, other);
        }
        if locks_differ {
            let fix = "write the same `restart-guard`, `fencing` and `fair` for both, or give each \
                        a process of its own";
            self.wrong(&place.key("id"), format!("{both} have different locks"), fix);
        }
    }

    fn called(&mut self, what: &str, place: &Place, name: &str) {
        let good = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
        if name == "all" {
            let fix = "`all` stands for all clients: give it another name, such as `c1`";
            self.wrong(place, format!("a {what} is called `all`"), fix);
        } else if name.is_empty() || !name.chars().all(good) {
            let fix = "use letters, digits and . _ : - only, as in `c1`";
            self.wrong(place, format!("`{name}` is no name for a {what}"), fix);
        }
    }

    fn step(&mut self, at: &Place, step: &Step, before: &[Step], client: &Client) {
        let (id, lock) = (&client.id, client.options(self.lock.1));
        if let Some(ttl) = step.ttl() {
            self.whole(at, Length(ttl));
            self.config(ttl, at, lock.guard);
        }
        self.whole(at, Length(step.wait()));
        if step.cancel().is_some_and(|cancel| cancel.is_zero()) {
            let fix = "write a time such as 10ms, or leave `cancel` out";
            self.wrong(at, "the request is given up before it is made", fix);
        }
        if let Step::Keep { most, .. } = step {
            self.whole(at, *most);
            if most.is_zero() {
                self.wrong(at, "the lease is kept for no time", "write a time such as 10s");
            }
        }
        if step.is_shared() && lock.fencing {
            let fix = if client.fencing.is_some() {
                "leave out the client's `fencing = true`, or `shared`"
            } else {
                "write `fencing = false` for this client, or leave `shared` out"
            };
            self.wrong(&at.word("shared"), "a shared lease has no fencing token", fix);
        }
        let named: Vec<&Name> = step.acquires().chain(step.releases()).collect();
        let mut twice = (1..named.len()).filter(|index| named[..*index].contains(&named[*index]));
        if let Some(index) = twice.next() {
            let message = format!("`{}` is named twice", named[index]);
            self.wrong(&at.word(named[index]), message, "name each resource once");
        }
        let acquired: Vec<&str> =
            before.iter().flat_map(Step::acquires).map(Name::as_str).collect();
        let of_permit = |resource: &Name| {
            before.iter().any(|step| step.is_permit() && step.acquires().any(|it| it == resource))
        };
        if step.is_again() && step.acquires().any(of_permit) {
            let message = "a permit has no owner that could acquire it again";
            self.wrong(at, message, "ask for another permit: `acquire S permits 2`");
        }
        let is_new = step.effect() == LeaseEffect::Acquires && !step.is_again();
        let mut about = step.resources().filter(|_| !is_new).map(Name::as_str);
        if let Some(resource) = about.find(|resource| !acquired.contains(resource)) {
            let message = format!("`{id}` never acquired `{resource}` before this step");
            let fix = format!("put `acquire {resource}` before it");
            self.unknown(&at.word(resource), resource, acquired, message, &fix);
        }
        if let Step::Touch { register, way, under, .. } = step {
            match under {
                Some(lease) => {
                    self.fenced(at, (register, *way), lease, lock.fencing, before);
                }
                None => self.unfenced(at, register, *way, before.iter().any(Step::is_shared)),
            }
            let touched = before.iter().filter_map(Step::touches);
            let read = touched.filter(|(_, way)| *way == AccessKind::Read);
            let read = read.map(|(register, _)| register.as_str());
            if *way == AccessKind::Write && !read.clone().any(|read| register == read) {
                let guess = guess(register, read);
                let message = format!("`{id}` writes `{register}` and has not read it");
                let fix = format!(
                    "{guess}put `read {register}` before it: an update is built on what was read"
                );
                self.wrong(&at.word(register), message, fix);
            }
        }
    }

    /// Whether all clients touch a register without a token.
    fn unfenced(&mut self, at: &Place, register: &Name, way: AccessKind, shared: bool) {
        let mut all = self.clients.iter().flat_map(|(_, client)| &client.script);
        let lease = all.find_map(|step| match step {
            Step::Touch { register: other, under, .. } if other == register => under.as_ref(),
            _ => None,
        });
        // A client with a shared lease has no token, and loses no update by reading.
        if let Some(lease) = lease.filter(|_| !shared || way != AccessKind::Read) {
            let message = format!("`{register}` is touched under fencing tokens elsewhere");
            let exclusive = if shared { "leave `shared` out and " } else { "" };
            let fix = format!(
                "{exclusive}write `{way} {register} under {lease}`, or touch another register: one \
                 that takes whatever comes without a token is not fenced"
            );
            self.wrong(&at.word(register), message, fix);
        }
    }

    /// Whether a register is touched under a token that exists and was presented.
    fn fenced(
        &mut self,
        at: &Place,
        (register, way): (&Name, AccessKind),
        lease: &Name,
        fencing: bool,
        before: &[Step],
    ) {
        if !fencing {
            let fix = if self.lock.1.fencing {
                "leave out the client's `fencing = false`"
            } else {
                "write `fencing = true` in `[lock]`"
            };
            self.wrong(&at.word("under"), "leases have no fencing tokens here", fix);
        }
        let presents = |step: &Step| match step {
            Step::Touch {
                register: other, way: AccessKind::Present, under: Some(under), ..
            } => other == register && under == lease,
            _ => false,
        };
        if way != AccessKind::Present && !before.iter().any(presents) {
            let message = format!("the token of `{lease}` was not presented to `{register}`");
            let fix = format!("put `present {register} under {lease}` before it");
            self.wrong(at, message, fix);
        }
    }
}

/// Checks expectations: their clients exist, their causes are possible, and they do not contradict
/// each other.
impl Run<'_> {
    fn expectation(&mut self) {
        let (place, expect) = self.expect.clone();
        if !expect.because.is_empty() && !expect.any_violation() {
            let fix = "add what is violated, such as `mutual-exclusion = \"violated\"`, or leave \
                        `because` out";
            let because = place.key("because").itself();
            self.wrong(&because, "a cause, and no violation is expected", fix);
        }
        for (index, cause) in expect.because.iter().enumerate() {
            let at = place.key("because").index(index);
            if expect.because[..index].contains(cause) {
                self.wrong(&at, format!("`{cause}` is there twice"), "name it once");
            }
            self.cause(&at, *cause);
        }
        for (index, known) in expect.known.iter().enumerate() {
            if let Some((message, fix)) = known.problem(expect) {
                self.wrong(&place.key("known").index(index), message, fix);
            }
        }
        let granted = |name: &str| {
            let wanted = expect.acquires.get(name);
            wanted.is_none_or(|it| matches!(it, Acquires::Granted | Acquires::AllGranted))
        };
        let at = |table: &str, name: &str| place.key(table).key(name).itself();

        for (name, acquires) in &expect.acquires {
            let at = at("acquires", name);
            let client = self.acquires(&at, name);
            let lock = self.lock.1;
            let own = client.map(|client| self.clients[client].1.options(lock));
            let is_guarded = own.map_or(lock.guard.is_some(), |own| own.guard.is_some());
            if *acquires == Acquires::Distrusted && !is_guarded {
                let message =
                    format!("`{name}` is to distrust a master, and its lock has no guard");
                let fix = if lock.guard.is_none() {
                    "add `restart-guard = \"2s\"` under `[lock]`, or expect `refused`"
                } else {
                    "leave out its `restart-guard = false`, or expect `refused`"
                };
                self.wrong(&at, message, fix);
            }
        }
        for (name, margin) in &expect.margin {
            let at = at("margin", name);
            if !granted(name) {
                let message = format!("`{name}` is to be refused and to have a margin");
                self.wrong(&at, message, "leave one of the two out");
            }
            let all = self.cluster.1.nodes;
            let client = self.known(&at, name);
            let list = client.map_or_else(
                || NodeList::all(all),
                |client| {
                    self.has_acquire(&at, client, name);
                    self.clients[client].1.list(all)
                },
            );
            let quorum = list.quorum();
            if *margin > quorum {
                let masters = list.masters().len();
                let fix = format!(
                    "with {masters} masters that all grant it is {quorum}: write that or less"
                );
                let at = place.key("margin").key(name.as_str());
                self.wrong(&at, format!("no grant has a margin of {margin}"), fix);
            }
        }
        for (name, within) in &expect.within {
            let at = at("within", name);
            self.acquires(&at, name);
            if !granted(name) {
                let message = format!("`{name}` is to be refused and to be granted soon");
                self.wrong(&at, message, "leave one of the two out");
            } else if within.is_zero() {
                let message = format!("`{name}` is to be granted in no time");
                self.wrong(&at, message, "write a time such as 1s, longer than its round trips");
            }
        }
        for (name, kept) in &expect.kept {
            let at = at("kept", name);
            self.acquires(&at, name);
            if !granted(name) {
                let message = format!("`{name}` is to be refused and to keep its leases");
                self.wrong(&at, message, "leave one of the two out");
            } else if kept.is_zero() {
                let message = format!("`{name}` is to keep its leases for no time");
                self.wrong(&at, message, "write a time such as 2s, longer than the TTL");
            }
        }
        for (name, most) in &expect.commands {
            let at = at("commands", name);
            self.acquires(&at, name);
            if *most == 0 {
                let message = format!("`{name}` is to acquire without a command");
                self.wrong(&at, message, "write how many its process may send at most");
            }
        }
        for name in expect.overtaken.keys() {
            self.overtaken(&at("overtaken", name), name);
        }
    }

    fn cause(&mut self, at: &Place, cause: Cause) {
        let faults = causing(cause);
        let mut all = self.faults.iter().map(|(_, fault)| fault.kind.name());
        if !faults.is_empty() && !all.any(|name| faults.contains(&name)) {
            let message = format!("no fault here can be the cause `{cause}`");
            let fix = format!("add a fault such as `{}`, or name another cause", faults[0]);
            self.wrong(at, message, fix);
        }
        if cause == Cause::NodeLists && !self.lists_are_wrong() {
            let message = "any two quorums of what the clients know have a master in common";
            let fix = "give two clients `nodes` that differ enough, or name another cause";
            self.wrong(at, message, fix);
        }
        if cause == Cause::MaxTtl && !self.guards_differ() {
            let message = "all clients that have a guard have the same";
            let fix = "give one a `restart-guard` of its own, or name another cause";
            self.wrong(at, message, fix);
        }
        let mut steps = self.clients.iter().flat_map(|(_, client)| &client.script);
        if cause == Cause::SharedWrite && !steps.any(Step::is_shared) {
            let fix = "write `acquire L shared` where a client is to write beside others, or name \
                        another cause";
            self.wrong(at, "no client acquires a shared lease", fix);
        }
    }

    /// A client, or the first of a kind, which must acquire something.
    fn acquires(&mut self, at: &Place, name: &str) -> Option<usize> {
        let client = self.of_kind(at, name)?;
        self.has_acquire(at, client, name);
        Some(client)
    }

    /// A client, or all clients of a kind.
    fn of_kind(&mut self, at: &Place, name: &str) -> Option<usize> {
        let kind = self.clients.iter().position(|(_, client)| client.id == name);
        kind.or_else(|| self.known(at, name))
    }

    fn has_acquire(&mut self, at: &Place, client: usize, name: &str) {
        if self.script(client).iter().flat_map(Step::acquires).next().is_none() {
            let fix = "add an `acquire` to its script, or leave it out here";
            self.wrong(at, format!("`{name}` acquires nothing"), fix);
        }
    }

    fn overtaken(&mut self, at: &Place, name: &str) {
        let Some(client) = self.of_kind(at, name) else { return };
        let waits = |step: &Step| !step.wait().is_zero();
        let process = self.clients[client].1.process();
        if !self.script(client).iter().any(waits) {
            let message = format!("`{name}` waits for nothing, and no client can overtake it");
            let fix = "add an `acquire L wait 5s` to its script, or leave it out here";
            self.wrong(at, message, fix);
        } else if self.clients.iter().all(|(_, it)| it.process() == process && it.count == 1) {
            let message = format!("there is no process beside that of `{name}`");
            let fix = "add a client that can overtake it, or leave it out here";
            self.wrong(at, message, fix);
        }
    }

    /// Whether the quorums of any two clients can have no master in common, or a client cannot
    /// reach a quorum.
    fn lists_are_wrong(&self) -> bool {
        let all = self.cluster.1.nodes;
        let lists: Vec<NodeList> =
            self.clients.iter().map(|(_, client)| client.list(all)).collect();
        let parts = |one: &NodeList| lists.iter().any(|other| one.can_part_from(other));
        lists.iter().any(|one| parts(one) || one.masters().len() < one.quorum())
    }

    /// Whether two clients have guards with different TTLs, or a client's guard differs from the
    /// one that initialized the masters at the start.
    fn guards_differ(&self) -> bool {
        let lock = self.lock.1;
        let guards = self.clients.iter().filter_map(|own| own.1.options(lock).guard);
        let guards: Vec<_> = guards.chain(lock.guard.filter(|_| lock.initialized)).collect();
        guards.windows(2).any(|two| two[0] != two[1])
    }
}

/// The faults that can be a cause. Empty if no fault is the cause.
fn causing(cause: Cause) -> Vec<&'static str> {
    match cause {
        Cause::ClockStep => vec!["clock.step", "clock.strobe"],
        Cause::NodeRestart => vec!["node.restart", "node.kill", "node.stop"],
        Cause::ClientPause => vec!["client.pause", "client.suspend"],
        Cause::NodeLists
        | Cause::MaxTtl
        | Cause::LateWrite
        | Cause::SharedWrite
        | Cause::Bug
        | Cause::Unknown => vec![],
        fault => vec![fault.name()],
    }
}
