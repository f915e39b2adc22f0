//! Figures: the sum of what the clients report, and the violations in it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use redquorum_scenario::history::Ns;

use crate::sections::Sections;

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
