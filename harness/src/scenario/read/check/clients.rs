//! Checks clients: their names, their counts, and whether their scripts are possible.

use std::time::Duration;

use super::{Found, MOST_NODES, Run};
use crate::name::Name;
use crate::scenario::near::guess;
use crate::scenario::read::tree::Place;
use crate::scenario::{AccessKind, Client, NodeList, OwnGuard, Rounds, Step};

/// The most clients of a kind.
pub(super) const MOST: usize = 64;
/// The longest time that a script may take for certain. Scenarios are not soak tests.
const LONGEST: Duration = Duration::from_secs(600);

impl<'a> Run<'a> {
    pub(super) fn clients(&mut self) {
        if self.clients.is_empty() {
            let mend = "add one: `[[client]]` with `id = \"c1\"` and `script = [\"acquire L\", \
                        \"work 1s\", \"release L\"]`";
            self.wrong(&Place::default().key("client"), "there is no client", mend);
        }
        let mut names: Vec<(Name, Place)> = Vec::new();
        for (index, (place, client)) in self.clients.clone().into_iter().enumerate() {
            self.client(&place, client);
            self.list(&place, client);
            self.own(&place, client);
            self.shares(index, &place, client);
            if client.count > MOST {
                continue;
            }
            for name in client.names() {
                if let Some((_, first)) = names.iter().find(|(known, _)| *known == name) {
                    self.found.push(Found {
                        place: place.key("id"),
                        message: format!("there are two clients `{name}`"),
                        mend: "give each a name of its own".to_owned(),
                        also: Some((first.clone(), "the first".to_owned())),
                    });
                    break;
                }
                names.push((name, place.key("id")));
            }
        }
    }

    fn client(&mut self, place: &Place, client: &'a Client) {
        self.called("client", &place.key("id"), &client.id);
        if let Some(process) = &client.process {
            self.called("process", &place.key("process"), process);
        }
        if client.count == 0 || client.count > MOST {
            let message = format!("{} clients of a kind", client.count);
            self.wrong(&place.key("count"), message, format!("write 1 to {MOST}"));
        }
        match client.rounds {
            Some(Rounds::Times(0)) => {
                self.wrong(
                    &place.key("loop"),
                    "no round at all",
                    "write 1 or more, or leave it out",
                );
            }
            Some(Rounds::For(length)) if length.is_zero() => {
                self.wrong(&place.key("loop"), "no time at all", "write a time such as \"3s\"");
            }
            None if !client.think.is_zero() => {
                let mend = "add `loop = 10` or `loop = \"3s\"`, or leave `think` out";
                let message = "a pause between rounds, and only one round";
                self.wrong(&place.key("think").itself(), message, mend);
            }
            _ => {}
        }
        if client.script.is_empty() {
            let mend = "write for instance `script = [\"acquire L\", \"work 1s\", \"release L\"]`";
            self.wrong(&place.key("script"), format!("`{}` does nothing", client.id), mend);
        }
        for (index, step) in client.script.iter().enumerate() {
            let at = place.key("script").index(index);
            self.step(&at, step, &client.script[..index], client);
        }
        self.time(place, client);
    }

    /// Checks the masters that the client knows.
    fn list(&mut self, place: &Place, client: &Client) {
        let Some(numbers) = &client.nodes else { return };
        let (place, all) = (place.key("nodes"), self.cluster.1.nodes);
        if numbers.is_empty() {
            let mend = "name some, such as `nodes = [1, 2, 3]`, or leave it out: all";
            self.wrong(&place, format!("`{}` knows no masters", client.id), mend);
        }
        if numbers.len() > MOST_NODES {
            let message = format!("`{}` has {} addresses of masters", client.id, numbers.len());
            self.wrong(&place, message, format!("write {MOST_NODES} at most"));
        }
        for (index, number) in numbers.iter().enumerate() {
            if *number == 0 || *number > all {
                let message = format!("there is no master {number}");
                let mend = format!("there are {all}, counted from 1: write 1 to {all}");
                self.wrong(&place.index(index), message, mend);
            }
        }
    }

    /// Whether the client knows the same masters as others of its process: they share a lock.
    fn shares(&mut self, index: usize, place: &Place, client: &Client) {
        let all = self.cluster.1.nodes;
        let known = |client: &Client| NodeList::of(client, all);
        let mut before = self.clients[..index].iter();
        let other = before.find(|(_, other)| other.process() == client.process());
        let Some((other_place, other)) = other.filter(|(_, other)| known(other) != known(client))
        else {
            return;
        };
        let named = if client.nodes.is_some() { "nodes" } else { "id" };
        let also = if other.nodes.is_some() { "nodes" } else { "id" };
        self.found.push(Found {
            place: place.key(named),
            message: format!(
                "`{}` and `{}` live in one process and know different masters",
                other.id, client.id
            ),
            mend: "write the same `nodes` for both, or give each a process of its own".to_owned(),
            also: Some((other_place.key(also), "the other".to_owned())),
        });
    }

    /// Checks the options that the client sets in place of the lock's.
    fn own(&mut self, place: &Place, client: &Client) {
        let (lock, at) = (self.lock.1.clone(), place.key("restart-guard"));
        if let Some(OwnGuard::UpTo(guard)) = client.guard {
            self.whole(&at, guard);
            if lock.guard.is_none() {
                let message = format!("`{}` has a guard, and the lock has none", client.id);
                let mend = "write `restart-guard = \"2s\"` under `[lock]`, and `restart-guard = false` for clients \
                            that have none: masters are marked for the lock's";
                self.wrong(&at, message, mend);
            }
            self.terms(&self.lock.0.clone(), lock.ttl.0, &at, Some(guard));
        }
        let mut others = self.clients.iter().map(|(_, other)| *other);
        let other = others.find(|other| other.process() == client.process());
        let same = |other: &Client| other.options(&lock) == client.options(&lock);
        if let Some(other) = other.filter(|other| !same(other)) {
            let message = format!(
                "`{}` and `{}` live in one process and have different locks",
                other.id, client.id
            );
            let mend = "write the same `restart-guard`, `fencing` and `fair` for both, or give each a process of \
                        its own";
            self.wrong(&place.key("id"), message, mend);
        }
    }

    fn called(&mut self, what: &str, place: &Place, name: &str) {
        let good = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
        if name == "all" {
            let mend = "`all` stands for all clients: give it another name, such as `c1`";
            self.wrong(place, format!("a {what} is called `all`"), mend);
        } else if name.is_empty() || !name.chars().all(good) {
            let mend = "use letters, digits and . _ : - only, as in `c1`";
            self.wrong(place, format!("`{name}` is no name for a {what}"), mend);
        }
    }

    fn step(&mut self, at: &Place, step: &Step, before: &[Step], client: &Client) {
        let (id, lock) = (&client.id, client.options(self.lock.1));
        if let Some(ttl) = step.ttl() {
            self.whole(at, crate::scenario::Length(ttl));
            let options = self.lock.0.clone();
            self.terms(&options, ttl, at, lock.guard);
        }
        match step {
            Step::Acquire { wait, cancel, .. } => {
                self.several(at, step.acquires());
                self.whole(at, *wait);
                if cancel.is_some_and(|cancel| cancel.is_zero()) {
                    let mend = "write a time such as 10ms, or leave `cancel` out";
                    self.wrong(at, "the request is given up before it is made", mend);
                }
            }
            Step::Keep { most, .. } => {
                self.whole(at, *most);
                if most.is_zero() {
                    self.wrong(at, "the lease is kept for no time", "write a time such as 10s");
                }
            }
            Step::Release { .. } => self.several(at, step.releases()),
            _ => {}
        }
        let acquired: Vec<&str> =
            before.iter().flat_map(Step::acquires).map(Name::as_str).collect();
        let first = step.resource().filter(|_| !matches!(step, Step::Acquire { again: false, .. }));
        let about = first.into_iter().chain(step.releases().skip(1).map(Name::as_str));
        if let Some(resource) = about.into_iter().find(|resource| !acquired.contains(resource)) {
            let guess = guess(resource, acquired.iter().copied());
            let or = if guess.is_empty() { "" } else { "or " };
            let mend = format!("{guess}{or}put `acquire {resource}` before it");
            let message = format!("`{id}` never acquired `{resource}` before this step");
            self.wrong(&at.word(resource), message, mend);
        }
        if let Step::Touch { register, way, under, .. } = step {
            let under = under.as_ref().map(|lease| (lease, lock.fencing));
            self.fenced(at, register, *way, under, before);
        }
        if let Step::Touch { register, way: AccessKind::Write, .. } = step {
            let read: Vec<&str> = before.iter().filter_map(read_by).collect();
            if !read.contains(&register.as_str()) {
                let guess = guess(register, read.iter().copied());
                let message = format!("`{id}` writes `{register}` and has not read it");
                let mend = format!(
                    "{guess}put `read {register}` before it: an update is built on what was read"
                );
                self.wrong(&at.word(register), message, mend);
            }
        }
    }

    /// Whether each resource is named once.
    fn several<'n>(&mut self, at: &Place, names: impl Iterator<Item = &'n Name>) {
        let mut seen: Vec<&Name> = Vec::new();
        for name in names {
            if seen.contains(&name) {
                let message = format!("`{name}` is named twice");
                self.wrong(&at.word(name), message, "name each resource once");
                return;
            }
            seen.push(name);
        }
    }

    /// Whether a register is touched under tokens that exist, by all clients, and only after the
    /// tokens were presented.
    fn fenced(
        &mut self,
        at: &Place,
        register: &Name,
        way: AccessKind,
        under: Option<(&Name, bool)>,
        before: &[Step],
    ) {
        let Some((lease, fencing)) = under else {
            let scripts = self.clients.iter().flat_map(|(_, client)| &client.script);
            let mut others = scripts.filter_map(|step| match step {
                Step::Touch { register: other, under, .. } if other == register => under.as_ref(),
                _ => None,
            });
            if let Some(lease) = others.next() {
                let message = format!("`{register}` is touched under fencing tokens elsewhere");
                let mend = format!(
                    "write `{way} {register} under {lease}`, or touch another register: one that \
                     takes whatever comes without a token is not fenced"
                );
                self.wrong(&at.word(register), message, mend);
            }
            return;
        };
        if !fencing {
            let mend = if self.lock.1.fencing {
                "leave out the client's `fencing = false`"
            } else {
                "write `fencing = true` in `[lock]`"
            };
            self.wrong(&at.word("under"), "leases have no fencing tokens here", mend);
        }
        let presents = |step: &Step| matches!(step, Step::Touch { register: other, way: AccessKind::Present, under: Some(other_lease), .. } if other == register && other_lease == lease);
        if way != AccessKind::Present && !before.iter().any(presents) {
            let message = format!("the token of `{lease}` was not presented to `{register}`");
            let mend = format!("put `present {register} under {lease}` before it");
            self.wrong(at, message, mend);
        }
    }

    fn time(&mut self, place: &Place, client: &Client) {
        let least = Self::least(client);
        let total = match client.rounds {
            Some(Rounds::Times(times)) => (least + client.think.0).saturating_mul(times),
            Some(Rounds::For(length)) => length.0.max(least),
            None => least,
        };
        let total = total.saturating_add(client.start.0);
        if total > LONGEST {
            let message = format!(
                "`{}` takes at least {}",
                client.id,
                crate::scenario::Length(Duration::from_secs(total.as_secs()))
            );
            let mend =
                "a run may take 10 minutes at most: shorten the work, the pauses or the loop";
            self.wrong(&place.key("id"), message, mend);
        }
    }
}

fn read_by(step: &Step) -> Option<&str> {
    match step {
        Step::Touch { register, way: AccessKind::Read, .. } => Some(register),
        _ => None,
    }
}
