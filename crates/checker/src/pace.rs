//! The clocks by which clients measure their leases, at the rates that faults gave them. Clients
//! take their stamps from these clocks. The checker therefore converts the stamps to run time
//! before any check.

use std::borrow::Cow;

use crate::maps::Map;
use redquorum_scenario::history::{Event, History, Ns};
use redquorum_scenario::name::Name;
use redquorum_scenario::{ClientFault, FaultKind};

use super::time;

/// A rate, and the reading of the clock when the rate began.
#[derive(Clone, Copy)]
struct Pace {
    since: Ns,
    shown: Ns,
    rate: f64,
}

impl Pace {
    /// A clock that no fault has changed.
    const RIGHT: Self = Self { since: 0, shown: 0, rate: 1.0 };

    #[expect(clippy::cast_precision_loss, reason = "runs are far shorter than 2^53 ns")]
    fn shows(&self, at: Ns) -> Ns {
        #[expect(clippy::float_cmp, reason = "exactly 1 is the common case, and then it is exact")]
        if self.rate == 1.0 {
            return self.shown.saturating_add(at.saturating_sub(self.since));
        }
        let passed = at.saturating_sub(self.since) as f64 * self.rate;
        self.shown.saturating_add(time::of_float(passed))
    }

    /// The inverse of `shows`: when the clock has a given reading.
    fn reaches(&self, shown: Ns) -> Ns {
        Self { since: self.shown, shown: self.since, rate: 1.0 / self.rate }.shows(shown)
    }
}

/// The clocks of all processes whose rate a fault changed.
pub struct Paces<'a> {
    of: Map<&'a str, Vec<Pace>>,
}

impl<'a> Paces<'a> {
    pub fn of(history: &'a History) -> Self {
        let mut all = Self { of: Map::default() };
        let mut struck: Map<usize, &[Name]> = Map::default();
        for record in &history.records {
            match &record.event {
                Event::Struck { fault, processes, at, failed: None, .. } => {
                    let struck_by = history.header.scenario.fault(*fault);
                    let kind = struck_by.map(|fault| &fault.kind);
                    let Some(&FaultKind::Client(ClientFault::Rate { factor })) = kind else {
                        continue;
                    };
                    // An invalid rate counts as the right rate.
                    let is_rate = factor.is_finite() && factor > 0.0;
                    let rate = if is_rate { factor } else { 1.0 };
                    struck.insert(*fault, processes);
                    processes.iter().for_each(|process| all.set(process, at.from, rate));
                }
                Event::Healed { fault, at, failed: None } => {
                    let hit = struck.get(fault).copied().unwrap_or_default();
                    hit.iter().for_each(|process| all.set(process, at.from, 1.0));
                }
                _ => {}
            }
        }
        all
    }

    fn set(&mut self, process: &'a str, since: Ns, rate: f64) {
        let paces = self.of.entry(process).or_insert_with(|| vec![Pace::RIGHT]);
        let before = paces[paces.len() - 1];
        let since = since.max(before.since);
        paces.push(Pace { since, shown: before.shows(since), rate });
    }

    /// The reading of a process's clock at an instant.
    fn shows(&self, process: &str, at: Ns) -> Ns {
        let Some(paces) = self.of.get(process) else { return at };
        let next = paces.partition_point(|pace| pace.since <= at).max(1);
        paces[next - 1].shows(at)
    }

    /// When a process's clock has a given reading.
    fn reaches(&self, process: &str, shown: Ns) -> Ns {
        let Some(paces) = self.of.get(process) else { return shown };
        let next = paces.partition_point(|pace| pace.shown <= shown).max(1);
        paces[next - 1].reaches(shown)
    }

    /// Whether a fault changed the rate of a process's clock.
    pub fn is_changed(&self, process: &str) -> bool {
        self.of.contains_key(process)
    }

    /// How much a process's clock fell behind run time between two instants.
    pub fn lost(&self, process: &str, from: Ns, to: Ns) -> Ns {
        let shown = self.shows(process, to).saturating_sub(self.shows(process, from));
        to.saturating_sub(from).saturating_sub(shown)
    }

    /// The history, with all stamps converted to run time.
    pub fn in_run_time(&self, history: &'a History) -> Cow<'a, History> {
        if self.of.is_empty() {
            return Cow::Borrowed(history);
        }
        let scenario = &history.header.scenario;
        let process = |client: &str| {
            let known = scenario.clients.iter().find(|known| known.id == client);
            known.map_or_else(|| client.to_owned(), |known| known.process().to_string())
        };
        let mut right = history.clone();
        for record in &mut right.records {
            match &mut record.event {
                Event::Replied { client, reply } => {
                    let process = process(client);
                    let stamps = reply.stamps().flatten();
                    stamps.for_each(|stamp| *stamp = self.reaches(&process, *stamp));
                }
                Event::Lost { client, at: stamp, .. }
                | Event::Extended { client, deadline: stamp, .. } => {
                    *stamp = self.reaches(&process(client), *stamp);
                }
                Event::Unpolled { client, from, to, .. } => {
                    let process = process(client);
                    [from, to].into_iter().for_each(|at| *at = self.reaches(&process, *at));
                }
                _ => {}
            }
        }
        Cow::Owned(right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MS;

    #[test]
    fn a_reading_is_found_again_over_all_rates_of_the_clock() {
        let mut all = Paces { of: Map::default() };
        all.set("c1", 100 * MS, 0.5);
        all.set("c1", 300 * MS, 1.0);
        all.set("c1", 400 * MS, 2.0);
        let shown = [(0, 0), (100, 100), (200, 150), (300, 200), (350, 250), (500, 500)];
        for (at, shown) in shown {
            assert_eq!(all.shows("c1", at * MS), shown * MS, "{at}");
            assert_eq!(all.reaches("c1", shown * MS), at * MS, "{shown}");
        }
        assert_eq!(all.lost("c1", 50 * MS, 250 * MS), 75 * MS);
        assert_eq!(all.lost("c1", 300 * MS, 500 * MS), -100 * MS);
        assert_eq!((all.shows("c2", 7), all.lost("c2", 0, MS)), (7, 0));
    }
}
