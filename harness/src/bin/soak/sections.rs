//! What clients report, and the violations in it: [`Sections`] checks their requests and critical
//! sections, and [`Figures`] sums their counts.
//!
//! Requests and critical sections are checked in the order of their times, although the messages of
//! several processes come in any order. They need little memory: an event is dropped once no event
//! that is still to come can be earlier.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::parent::{NODE_TIMEOUT, TTL};
use redquorum_checker::{FreeWaits, Overlaps, set_aside};
use redquorum_scenario::history::{Ns, Window};
use redquorum_scenario::units::nanos;
use serde::{Deserialize, Serialize};

/// A section, by its process and a number. Its request has the same.
pub(crate) type Id = (u32, u64);

/// What happens to a request.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    Asks,
    /// Nobody polls it until this instant.
    Unpolled(Ns),
    Leaves,
    Begins,
    Ends,
    /// Its process is dead, or stands still until it is killed.
    Gone,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Sections {
    pub(crate) ended: u64,
    pub(crate) overlaps: u64,
    /// The longest time for which a request waited for a free resource.
    pub(crate) longest_wait: Ns,
    /// The stamp of the last message of each process that runs.
    latest: BTreeMap<u32, Ns>,
    /// The sections that have not ended: their starts.
    open: BTreeMap<Id, Ns>,
    /// The resource of each request and section.
    resource_of: BTreeMap<Id, String>,
    /// The ended sections that are not checked yet, in the order of their starts.
    waiting: BTreeMap<(Ns, Id), (String, Ns)>,
    /// The steps that are not checked yet, in their order.
    steps: BTreeMap<(Ns, u64), (Id, String, Step)>,
    count: u64,
    resources: BTreeMap<String, (Overlaps<Id>, FreeWaits<Id>)>,
    /// Until when requests that are not polled may be in the way of each resource.
    unpolled: BTreeMap<String, Ns>,
    /// The processes that stand still, and since when.
    stopped: BTreeMap<u32, Ns>,
    /// When each process last released each resource: it may not have reached a master.
    released: BTreeMap<(u32, String), Ns>,
}

impl Sections {
    /// A process starts, or sends a message. Its messages come in the order of their stamps.
    pub(crate) fn receive(&mut self, process: u32, at: Ns) {
        self.latest.insert(process, at);
        self.check();
    }

    /// A request begins.
    pub(crate) fn ask(&mut self, id: Id, resource: String, at: Ns) {
        self.resource_of.insert(id, resource);
        self.step(id, at, Step::Asks);
    }

    /// The next step of a request or a section.
    pub(crate) fn step(&mut self, id: Id, at: Ns, step: Step) {
        let Some(resource) = self.resource_of.get(&id).cloned() else { return };
        self.note(id, at, &resource, step);
        // The message of a process that stands still by now.
        if let Some(stopped) = self.stopped.get(&id.0) {
            self.note(id, *stopped, &resource, Step::Gone);
        }
        match step {
            Step::Begins => _ = self.open.insert(id, at),
            Step::Leaves => _ = self.resource_of.remove(&id),
            Step::Asks | Step::Unpolled(_) | Step::Ends | Step::Gone => {}
        }
    }

    fn note(&mut self, id: Id, at: Ns, resource: &str, step: Step) {
        self.steps.insert((at, self.count), (id, resource.to_owned(), step));
        self.count += 1;
    }

    /// A section ends now: its client held the resource until an instant, for certain.
    pub(crate) fn end(&mut self, id: Id, at: Ns, held_until: Ns) {
        self.step(id, at, Step::Ends);
        let resource = self.resource_of.remove(&id);
        if let (Some(from), Some(resource)) = (self.open.remove(&id), resource) {
            self.ended += 1;
            self.released.insert((id.0, resource.clone()), at);
            self.waiting.insert((from, id), (resource, held_until));
        }
    }

    /// A process dies, or stands still from now on: its keys expire. Those of a resource that it
    /// has just released may not be deleted.
    pub(crate) fn stop(&mut self, process: u32, at: Ns) {
        self.stopped.insert(process, at);
        let own = self.resource_of.range((process, 0)..=(process, u64::MAX));
        for (id, resource) in own.map(|(id, of)| (*id, of.clone())).collect::<Vec<_>>() {
            self.note(id, at, &resource, Step::Gone);
        }
        let all = (process, String::new())..(process + 1, String::new());
        let recent = self.released.range(all).filter(|(_, released)| **released + nanos(TTL) > at);
        for resource in recent.map(|((_, resource), _)| resource.clone()).collect::<Vec<_>>() {
            self.note((process, 0), at, &resource, Step::Gone);
        }
    }

    /// A process has ended. It held its open sections until its last message, for certain.
    pub(crate) fn gone(&mut self, process: u32, at: Ns) {
        // The keys of a process that stood still have expired since.
        if !self.stopped.contains_key(&process) {
            self.stop(process, at);
        }
        let last = self.latest.remove(&process).unwrap_or(Ns::MIN);
        let own = self.resource_of.range((process, 0)..=(process, u64::MAX));
        for id in own.map(|(id, _)| *id).collect::<Vec<_>>() {
            match self.open.contains_key(&id) {
                true => self.end(id, at, last),
                false => _ = self.resource_of.remove(&id),
            }
        }
        self.stopped.remove(&process);
        self.released.retain(|(of, _), _| *of != process);
        self.check();
    }

    /// Checks the sections and the steps that began before any that is open or still to come.
    fn check(&mut self) {
        let next = self.latest.values().copied().min().unwrap_or(Ns::MAX);
        let first = self.open.values().copied().min().unwrap_or(Ns::MAX).min(next);
        while let Some(entry) = self.waiting.first_entry()
            && entry.key().0 < first
        {
            let ((from, id), (resource, to)) = entry.remove_entry();
            let (overlaps, _) = self.resources.entry(resource).or_default();
            self.overlaps += u64::from(overlaps.add(id, Window { from, to }, false).is_some());
        }
        while let Some(entry) = self.steps.first_entry()
            && entry.key().0 < next
        {
            let ((at, _), (id, resource, step)) = entry.remove_entry();
            let (_, waits) = self.resources.entry(resource.clone()).or_default();
            let waited = match step {
                Step::Asks => {
                    waits.asks(id, at);
                    0
                }
                Step::Unpolled(until) => {
                    let waited = waits.leaves(id, at);
                    // Each of several tasks of a process may have its turn in vain.
                    let longest = set_aside(nanos(NODE_TIMEOUT), nanos(TTL));
                    let blocked = self.unpolled.entry(resource).or_insert(at);
                    *blocked = at.max(*blocked) + longest.min(until - at);
                    waits.blocked_until(*blocked);
                    waits.asks(id, until);
                    waited
                }
                Step::Leaves => waits.leaves(id, at),
                Step::Begins => waits.granted(id, at),
                Step::Ends => {
                    waits.ends(id, at);
                    0
                }
                Step::Gone => {
                    let waited = waits.leaves(id, at);
                    waits.ends(id, at);
                    waits.blocked_until(at.saturating_add(nanos(TTL + TTL / 10)));
                    waited
                }
            };
            self.longest_wait = self.longest_wait.max(waited);
        }
    }
}

/// What a client process reports every second: counts since its start.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Line {
    /// Acquires that their callers dropped.
    pub(crate) given_up: u64,
    /// Acquires that their callers did not poll for a while.
    pub(crate) unpolled: u64,
    /// Forks, and those whose children did not behave as they should.
    pub(crate) forks: u64,
    pub(crate) bad_forks: u64,
    pub(crate) acquired: u64,
    pub(crate) taken: u64,
    pub(crate) no_quorum: u64,
    pub(crate) lost: u64,
    /// The library's own statistics. Anything left when no client has work is a leak.
    pub(crate) waiting: u64,
    pub(crate) subscriptions: u64,
    pub(crate) pending_cleanups: u64,
    /// Resident memory in kilobytes.
    pub(crate) resident: u64,
    /// Whether this is the last line of the process. `tasks` and `unfinished` count its remaining
    /// tasks and its unfinished shutdowns.
    pub(crate) last: bool,
    pub(crate) tasks: u64,
    pub(crate) unfinished: u64,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) sections: Sections,
    pub(crate) master_kills: u64,
    pub(crate) client_kills: u64,
    /// How often masters were paused, or lost their connections or scripts.
    pub(crate) disturbances: u64,
    pub(crate) demotions: u64,
    pub(crate) vanished: u64,
    /// Connections that proxies closed because of their age.
    pub(crate) recycled: u64,
    /// How long a request may wait for a free resource.
    pub(crate) may_wait: Ns,
    /// Processes that were asked to end, and those of them that did not.
    pub(crate) processes: u64,
    pub(crate) hung: u64,
    /// What is left on the masters.
    pub(crate) keys: Vec<String>,
    pub(crate) channels: Vec<String>,
    lines: BTreeMap<u32, Line>,
    /// The memory of each process over time.
    resident: BTreeMap<u32, Vec<(Duration, u64)>>,
    most_waiting: u64,
    most_subscriptions: u64,
}

/// Growth in kilobytes that the allocator may cause.
const ALLOWANCE: u64 = 8 * 1024;

impl Figures {
    pub(crate) fn new(may_wait: Ns) -> Self {
        Self { may_wait, ..Self::default() }
    }

    pub(crate) fn receive(&mut self, process: u32, at: Duration, line: Line) {
        self.most_waiting = self.most_waiting.max(line.waiting);
        self.most_subscriptions = self.most_subscriptions.max(line.subscriptions);
        if !line.last {
            self.resident.entry(process).or_default().push((at, line.resident));
        }
        self.lines.insert(process, line);
    }

    fn sum(&self, of: impl Fn(&Line) -> u64) -> u64 {
        self.lines.values().map(of).sum()
    }

    fn last(&self, of: impl Fn(&Line) -> u64) -> u64 {
        self.lines.values().filter(|line| line.last).map(of).sum()
    }

    /// A progress line.
    pub(crate) fn line(&self) -> String {
        format!(
            "{} critical sections, {} overlaps, {} masters and {} clients killed, {} leases lost",
            self.sections.ended,
            self.sections.overlaps,
            self.master_kills,
            self.client_kills,
            self.sum(|line| line.lost)
        )
    }

    /// The memory of the process that lived longest: the medians of its first and its last third.
    fn thirds(&self) -> Option<(u64, u64)> {
        thirds(self.resident.values().max_by_key(|samples| samples.len())?)
    }

    pub(crate) fn table(&self) -> String {
        let mut table = String::new();
        let (first, last) = self.thirds().unwrap_or_default();
        for (what, number) in [
            ("critical sections", self.sections.ended),
            ("overlaps", self.sections.overlaps),
            ("leases granted", self.sum(|line| line.acquired)),
            ("longest wait for a free resource, ms", millis(self.sections.longest_wait)),
            ("acquires given up", self.sum(|line| line.given_up)),
            ("acquires not polled for a while", self.sum(|line| line.unpolled)),
            ("forks", self.sum(|line| line.forks)),
            ("acquires that found it taken to the end", self.sum(|line| line.taken)),
            ("acquires without a quorum", self.sum(|line| line.no_quorum)),
            ("leases lost", self.sum(|line| line.lost)),
            ("masters killed", self.master_kills),
            ("client processes killed", self.client_kills),
            ("masters paused, or without connections", self.disturbances),
            ("masters demoted and promoted", self.demotions),
            ("client processes that vanished", self.vanished),
            ("connections recycled", self.recycled),
            ("most resources waited for in a process", self.most_waiting),
            ("most subscriptions of a process", self.most_subscriptions),
            ("left: keys", self.keys.len() as u64),
            ("left: channels", self.channels.len() as u64),
            ("left: waiting", self.last(|line| line.waiting)),
            ("left: subscriptions", self.last(|line| line.subscriptions)),
            ("left: clean-ups", self.last(|line| line.pending_cleanups)),
            ("left: tasks", self.last(|line| line.tasks)),
            ("memory in the first third, KiB", first),
            ("memory in the last third, KiB", last),
        ] {
            // A write to a `String` never fails.
            let _ = writeln!(table, "{what:<42}{number:>10}");
        }
        table
    }

    /// All violations.
    pub(crate) fn findings(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut must_be = |so: bool, otherwise: String| {
            if !so {
                found.push(otherwise);
            }
        };
        let last = |of: fn(&Line) -> u64| self.last(of);
        let overlaps = self.sections.overlaps;
        must_be(overlaps == 0, format!("{overlaps} critical sections overlapped"));
        let waited = self.sections.longest_wait;
        must_be(
            waited <= self.may_wait,
            format!("a request waited {} ms for a free resource", millis(waited)),
        );
        let bad_forks = self.sum(|line| line.bad_forks);
        must_be(bad_forks == 0, format!("{bad_forks} forked children did not behave"));
        must_be(self.sections.ended > 0, "no client was granted anything".to_owned());
        must_be(self.keys.is_empty(), format!("keys are left: {:?}", head(&self.keys)));
        must_be(self.channels.is_empty(), format!("channels are left: {:?}", head(&self.channels)));
        must_be(last(|line| line.waiting) == 0, "queues of waiters are left".to_owned());
        must_be(last(|line| line.subscriptions) == 0, "links are still subscribed".to_owned());
        must_be(last(|line| line.pending_cleanups) == 0, "clean-ups are still pending".to_owned());
        must_be(last(|line| line.tasks) == 0, "tasks of the library are left".to_owned());
        must_be(last(|line| line.unfinished) == 0, "a shutdown did not finish".to_owned());
        must_be(self.hung == 0, format!("{} client processes did not end", self.hung));
        let ended = self.lines.values().filter(|line| line.last).count() as u64;
        must_be(
            ended == self.processes,
            format!("only {ended} of {} processes reported what is left", self.processes),
        );
        let grows = |(first, last): (u64, u64)| last > first + first / 5 + ALLOWANCE;
        must_be(
            !self.thirds().is_some_and(grows),
            format!("the memory of a client grows: {:?} KiB", self.thirds()),
        );
        found
    }
}

fn millis(ns: Ns) -> u64 {
    u64::try_from(ns / 1_000_000).unwrap_or(0)
}

fn head(all: &[String]) -> &[String] {
    &all[..all.len().min(5)]
}

fn thirds(samples: &[(Duration, u64)]) -> Option<(u64, u64)> {
    let third = samples.len() / 3;
    let median = |part: &[(Duration, u64)]| {
        let mut sizes: Vec<u64> = part.iter().map(|(_, size)| *size).collect();
        sizes.sort_unstable();
        sizes.get(sizes.len() / 2).copied()
    };
    Some((median(&samples[..third])?, median(&samples[samples.len() - third..])?))
}

/// Resident memory of this process in kilobytes. 0 if the system does not report it.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many sections of one resource overlap. Each is from and until these times, in a process
    /// of its own. They report their ends in this order. A process without an end is killed.
    fn overlaps(sections: &[(Ns, Option<Ns>)]) -> u64 {
        let mut all = Sections::default();
        let ids = || (0..).zip(sections);
        ids().for_each(|(process, _)| all.receive(process, 0));
        for (process, (from, _)) in ids() {
            all.ask((process, 1), "r".to_owned(), 0);
            all.step((process, 1), *from, Step::Begins);
        }
        for (process, (from, to)) in ids() {
            all.receive(process, to.unwrap_or(*from + 5));
            match to {
                Some(to) => all.end((process, 1), *to, *to),
                None => all.gone(process, *from + 6),
            }
        }
        ids().for_each(|(process, _)| all.gone(process, 60));
        assert!(all.open.is_empty() && all.waiting.is_empty() && all.steps.is_empty());
        assert!(all.resource_of.is_empty());
        assert_eq!(all.ended, sections.len() as u64);
        all.overlaps
    }

    #[test]
    fn sections_overlap_whatever_the_order_in_which_they_are_reported() {
        for (sections, expected) in [
            (&[(10, Some(20)), (20, Some(30))][..], 0),
            (&[(20, Some(30)), (10, Some(20))], 0),
            (&[(10, Some(21)), (20, Some(30))], 1),
            (&[(20, Some(30)), (10, Some(21))], 1),
            (&[(30, Some(40)), (10, Some(50)), (20, Some(25))], 2),
            // A killed process held until its last message.
            (&[(10, None), (14, Some(20))], 1),
            (&[(10, None), (15, Some(20))], 0),
        ] {
            assert_eq!(overlaps(sections), expected, "{sections:?}");
        }
    }

    const S: Ns = 1_000_000_000;

    /// The longest wait for a free resource, in seconds. Process 1 asks at 10 s and has it from 30
    /// s on. Process 2 holds it before, until 12 s, and then does this.
    fn waits(then: impl Fn(&mut Sections)) -> Ns {
        let mut all = Sections::default();
        (1..=2).for_each(|process| all.receive(process, 0));
        all.ask((1, 1), "r".to_owned(), 10 * S);
        all.step((1, 1), 30 * S, Step::Begins);
        all.receive(1, 31 * S);
        all.ask((2, 1), "r".to_owned(), 0);
        all.step((2, 1), S, Step::Begins);
        all.end((2, 1), 12 * S, 12 * S);
        then(&mut all);
        all.receive(2, 40 * S);
        all.receive(1, 41 * S);
        all.longest_wait / S
    }

    #[test]
    fn a_request_waits_only_while_nothing_is_in_the_way() {
        assert_eq!(waits(|_| ()), 18);
        // Its release may not have reached the masters: its keys expire.
        assert_eq!(waits(|all| all.gone(2, 13 * S)), 13);
        assert_eq!(waits(|all| all.stop(2, 16 * S)), 18);
        // It asks again, and does not poll its request.
        let unpolled = |until: Ns| {
            waits(move |all| {
                all.ask((2, 2), "r".to_owned(), 13 * S);
                all.step((2, 2), 14 * S, Step::Unpolled(until * S));
                all.step((2, 2), until * S, Step::Leaves);
            })
        };
        assert_eq!((unpolled(15), unpolled(29)), (15, 12));
    }

    /// A run in which all is well.
    fn well() -> Figures {
        let mut figures = Figures { processes: 1, ..Figures::default() };
        for second in 0..30 {
            let line = Line { resident: 20_000, ..Line::default() };
            figures.receive(1, Duration::from_secs(second), line);
        }
        figures.sections.ended = 30;
        let line = Line { last: true, ..Line::default() };
        figures.receive(1, Duration::from_secs(30), line);
        figures
    }

    /// One finding each, so without the fault there is none.
    #[test]
    fn each_thing_that_must_not_be_is_found() {
        type Spoil = fn(&mut Figures);
        let spoilt: [(&str, Spoil); 12] = [
            ("overlapped", |it| it.sections.overlaps = 1),
            ("free resource", |it| it.sections.longest_wait = 1_000_000),
            ("children", |it| last(it, Line { bad_forks: 1, ..Line::default() })),
            ("keys are left", |it| it.keys.push("k".to_owned())),
            ("channels are left", |it| it.channels.push("c".to_owned())),
            ("did not end", |it| it.hung = 1),
            ("only 1 of 2", |it| it.processes = 2),
            ("queues", |it| last(it, Line { waiting: 1, ..Line::default() })),
            ("still subscribed", |it| last(it, Line { subscriptions: 1, ..Line::default() })),
            ("still pending", |it| last(it, Line { pending_cleanups: 1, ..Line::default() })),
            ("tasks", |it| last(it, Line { tasks: 1, ..Line::default() })),
            ("shutdown", |it| last(it, Line { unfinished: 1, ..Line::default() })),
        ];
        for (word, spoil) in spoilt {
            let mut figures = well();
            spoil(&mut figures);
            let found = figures.findings();
            assert!(found.len() == 1 && found[0].contains(word), "{word}: {found:?}");
        }
    }

    fn last(figures: &mut Figures, line: Line) {
        figures.receive(1, Duration::from_secs(31), Line { last: true, ..line });
    }

    #[test]
    fn memory_that_grows_is_found() {
        let mut figures = well();
        for second in 0..60 {
            let line = Line { resident: 20_000 + 500 * second, ..Line::default() };
            figures.receive(2, Duration::from_secs(second), line);
        }
        let found = figures.findings();
        assert!(found.len() == 1 && found[0].contains("grows"), "{found:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_knows_its_memory() {
        assert!(resident() > 500);
    }
}
