//! Checks clients: their names, their counts, and whether their scripts are possible.

use std::time::Duration;

use super::{MOST_NODES, Run};
use crate::name::Name;
use crate::near::guess;
use crate::read::tree::Place;
use crate::{AccessKind, Client, Length, OwnGuard, Rounds, Step};

/// The most clients of a kind.
pub(super) const MOST: usize = 64;
/// The longest time that a script may take for certain. Scenarios are not soak tests.
const LONGEST: Duration = Duration::from_secs(600);

impl<'a> Run<'a> {
    pub(super) fn clients(&mut self) {
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
            let own = if client.count > MOST { Vec::new() } else { client.names() };
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
        if client.count == 0 || client.count > MOST {
            let message = format!("{} clients of a kind", client.count);
            self.wrong(&place.key("count"), message, format!("write 1 to {MOST}"));
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
        let works = client.script.iter().filter_map(|step| match step {
            Step::Work(length) => Some(length.0),
            _ => None,
        });
        let round = works.fold(Duration::ZERO, Duration::saturating_add);
        let total = match client.rounds {
            Some(Rounds::Times(times)) => (round + client.think.0).saturating_mul(times),
            Some(Rounds::For(length)) => length.0.max(round),
            None => round,
        };
        let total = total.saturating_add(client.start.0);
        if total > LONGEST {
            let total = Length(Duration::from_secs(total.as_secs()));
            let fix = "a run may take 10 minutes at most: shorten the work, the pauses or the loop";
            self.wrong(&place.key("id"), format!("`{id}` takes at least {total}"), fix);
        }
    }

    /// Checks the masters that the client knows.
    fn list(&mut self, place: &Place, client: &Client) {
        let Some(numbers) = &client.nodes else { return };
        let place = place.key("nodes");
        if numbers.is_empty() {
            let fix = "name some, such as `nodes = [1, 2, 3]`, or leave it out: all";
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
            let key = |client: &Client| if client.nodes.is_some() { "nodes" } else { "id" };
            let message = format!("{both} know different masters");
            let fix = "write the same `nodes` for both, or give each a process of its own";
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
        match step {
            Step::Acquire { wait, cancel, .. } => {
                self.whole(at, *wait);
                if cancel.is_some_and(|cancel| cancel.is_zero()) {
                    let fix = "write a time such as 10ms, or leave `cancel` out";
                    self.wrong(at, "the request is given up before it is made", fix);
                }
            }
            Step::Keep { most, .. } => {
                self.whole(at, *most);
                if most.is_zero() {
                    self.wrong(at, "the lease is kept for no time", "write a time such as 10s");
                }
            }
            _ => {}
        }
        let named: Vec<&Name> = step.acquires().chain(step.releases()).collect();
        let mut twice = (1..named.len()).filter(|index| named[..*index].contains(&named[*index]));
        if let Some(index) = twice.next() {
            let message = format!("`{}` is named twice", named[index]);
            self.wrong(&at.word(named[index]), message, "name each resource once");
        }
        let acquired: Vec<&str> =
            before.iter().flat_map(Step::acquires).map(Name::as_str).collect();
        let first = step.resource().filter(|_| !matches!(step, Step::Acquire { again: false, .. }));
        let mut about = first.into_iter().chain(step.releases().skip(1).map(Name::as_str));
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
                None => self.unfenced(at, register, *way),
            }
            let read = before.iter().filter_map(|step| match step {
                Step::Touch { register, way: AccessKind::Read, .. } => Some(register.as_str()),
                _ => None,
            });
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
    fn unfenced(&mut self, at: &Place, register: &Name, way: AccessKind) {
        let mut all = self.clients.iter().flat_map(|(_, client)| &client.script);
        let lease = all.find_map(|step| match step {
            Step::Touch { register: other, under, .. } if other == register => under.as_ref(),
            _ => None,
        });
        if let Some(lease) = lease {
            let message = format!("`{register}` is touched under fencing tokens elsewhere");
            let fix = format!(
                "write `{way} {register} under {lease}`, or touch another register: one that takes \
                 whatever comes without a token is not fenced"
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
