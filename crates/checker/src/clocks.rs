//! The wall clocks of the masters, as the harness set them: when does a key expire that is set now?
//! Masters expire keys by their wall clock, at an absolute time, to the millisecond.
//!
//! If the reading of a clock is not known exactly, the functions compute both bounds.
//!
//! And the clocks by which clients measure their leases, at the rates that faults gave them.
//! Clients take their stamps from these clocks. The checker therefore converts the stamps to run
//! time before any check.

use std::borrow::Cow;

use super::case::World;
use super::maps::{Map, sorted};
use super::time::{self, MS};
use redquorum_scenario::history::{Event, History, Ns, Window};
use redquorum_scenario::name::Name;
use redquorum_scenario::{Cause, ClientFault, FaultKind};

/// A master removes an expired key within this time, even if no client asks for it: it checks ten
/// times a second. Setting the clock back after that does not revive the key.
const LOOKED: Ns = 1_000 * MS;

#[derive(Clone, Copy)]
struct Setting {
    since: Window,
    ahead: Ns,
    rate: f64,
    strobe_by: Ns,
}

const RIGHT: Setting = Setting { since: Window::at(Ns::MIN), ahead: 0, rate: 1.0, strobe_by: 0 };

impl Setting {
    /// How much the rate has added between two instants.
    fn gained(&self, since: Ns, now: Ns) -> Ns {
        #[expect(clippy::float_cmp, reason = "exactly 1 is the common case, and then it is exact")]
        if self.rate == 1.0 {
            return 0;
        }
        let passed = now.saturating_sub(since).max(0);
        #[expect(clippy::cast_precision_loss, reason = "runs are far shorter than 2^53 ns")]
        time::of_float(passed as f64 * (self.rate - 1.0))
    }

    /// The least (or most) that the clock may show.
    fn shows(&self, now: Ns, most: bool) -> Ns {
        let gains = [self.gained(self.since.from, now), self.gained(self.since.to, now)];
        let (gain, jump) = if most {
            (gains[0].max(gains[1]), self.strobe_by.max(0))
        } else {
            (gains[0].min(gains[1]), self.strobe_by.min(0))
        };
        now.saturating_add(self.ahead).saturating_add(gain).saturating_add(jump)
    }

    /// The first instant within a span at which the clock shows at least `goal`.
    fn reaches(&self, goal: Ns, within: Window, most: bool) -> Option<Ns> {
        let reached = |now| self.shows(now, most) >= goal;
        if reached(within.from) {
            return Some(within.from);
        }
        if !reached(within.to) {
            return None;
        }
        // A clock at the right rate needs exactly the missing time. For other rates, bisect.
        let missing = goal.saturating_sub(self.shows(within.from, most));
        let guess = within.from.saturating_add(missing).min(within.to);
        if reached(guess) && !reached(guess.saturating_sub(1)) {
            return Some(guess);
        }
        // The clock never runs backwards between two settings.
        let (mut before, mut after) = (within.from, within.to);
        while after.saturating_sub(before) > 1 {
            let middle = before.midpoint(after);
            if reached(middle) {
                after = middle;
            } else {
                before = middle;
            }
        }
        Some(after)
    }
}

/// How much a clock gained, and the cause.
pub struct Gain {
    /// The whole gain, at most.
    pub all: Ns,
    pub cause: Cause,
    pub since: Window,
    /// The part of the gain that is due to this cause.
    pub by: Ns,
    /// The rate of the clock, if that is the cause.
    pub rate: f64,
}

pub struct Clocks {
    of: Map<usize, Vec<Setting>>,
}

impl Clocks {
    pub fn of(world: &World<'_>) -> Self {
        let mut of: Map<usize, Vec<Setting>> = Map::default();
        for record in world.records {
            if let Event::Clock { node, since, ahead, rate, strobe_by, .. } = record.event {
                // An invalid rate counts as a clock that stands still.
                let rate = if rate.is_finite() { rate.max(0.0) } else { 0.0 };
                let settings = of.entry(node).or_insert_with(|| vec![RIGHT]);
                let mut since = since.tidy();
                // The later record is the later setting.
                let before = settings[settings.len() - 1].since;
                since.from = since.from.max(before.from);
                since.to = since.to.max(before.to);
                settings.push(Setting { since, ahead, rate, strobe_by });
            }
        }
        Self { of }
    }

    /// The expiry of a key that got this TTL within this window: the earliest time at which it may
    /// be gone, and the time at which it is certainly gone.
    pub fn expiry(&self, node: usize, set: Window, ttl: Ns) -> Window {
        let Some(settings) = self.of.get(&node) else {
            return Window {
                from: set.from.saturating_add(ttl).saturating_sub(MS),
                to: set.to.saturating_add(ttl).saturating_add(MS),
            };
        };
        let least = self.shows(node, set, false).saturating_add(ttl).saturating_sub(MS);
        let most = self.shows(node, set, true).saturating_add(ttl).saturating_add(MS);
        Window {
            from: earliest(settings, set.from, least),
            to: latest(settings, set.from, most).max(set.to),
        }
    }

    /// The least (or most) that a clock may have shown within a window.
    fn shows(&self, node: usize, when: Window, most: bool) -> Ns {
        let settings = self.of.get(&node).map_or(&[RIGHT][..], Vec::as_slice);
        let shown = possible(settings)
            .filter(|(_, span)| span.from <= when.to && when.from <= span.to)
            .map(|(setting, span)| {
                let at = if most { when.to.min(span.to) } else { when.from.max(span.from) };
                setting.shows(at, most)
            });
        let shown = if most { shown.max() } else { shown.min() };
        shown.unwrap_or(if most { when.to } else { when.from })
    }

    /// How much a clock may have gained at some time since an instant, with the main cause; none:
    /// the clock was never set.
    pub fn gain(&self, node: usize, from: Ns, to: Ns) -> Option<Gain> {
        let settings = self.of.get(&node)?;
        // A setting at the last instant counts.
        let to = to.saturating_add(1);
        let at_first = self.shows(node, Window::at(from), false).saturating_sub(from);
        // Between two settings the clock gains or loses steadily, so the most is at one of the
        // ends.
        let ahead = possible(settings)
            .filter_map(|(setting, span)| {
                span.meet(Window::new(from, to)).map(|both| (setting, both))
            })
            .flat_map(|(setting, both)| {
                [both.from, both.to].map(|at| setting.shows(at, true).saturating_sub(at))
            });
        let all = ahead.max().unwrap_or(at_first).saturating_sub(at_first);
        let mut best = Gain { all, cause: Cause::Unknown, since: RIGHT.since, by: 0, rate: 1.0 };
        let mut consider = |cause, by: Ns, setting: &Setting| {
            if by > best.by {
                best = Gain { all, cause, since: setting.since, by, rate: setting.rate };
            }
        };
        for (index, setting) in settings.iter().enumerate() {
            let until = settings.get(index + 1).map_or(Ns::MAX, |next| next.since.to);
            let Some(span) = Window::new(setting.since.from, until).meet(Window::new(from, to))
            else {
                continue;
            };
            consider(Cause::ClockStrobe, setting.strobe_by.saturating_abs(), setting);
            consider(Cause::ClockRate, setting.gained(span.from, span.to), setting);
            if index > 0 && setting.since.to >= from {
                let at = setting.since.to;
                // Without the strobes on either side: they are considered on their own.
                let plain = |of: &Setting| Setting { strobe_by: 0, ..*of }.shows(at, false);
                let jump = plain(setting).saturating_sub(plain(&settings[index - 1]));
                consider(Cause::ClockStep, jump, setting);
            }
        }
        Some(best)
    }
}

/// Every setting, with the time in which it may be in force.
fn possible(settings: &[Setting]) -> impl Iterator<Item = (&Setting, Window)> {
    settings.iter().enumerate().map(|(index, setting)| {
        let to = settings.get(index + 1).map_or(Ns::MAX, |next| next.since.to);
        (setting, Window::new(setting.since.from, to))
    })
}

/// When the first of all possible clocks shows `goal`.
fn earliest(settings: &[Setting], from: Ns, goal: Ns) -> Ns {
    possible(settings)
        .filter(|(_, span)| span.to >= from)
        .filter_map(|(setting, span)| {
            setting.reaches(goal, Window::new(span.from.max(from), span.to), true)
        })
        .min()
        .unwrap_or(Ns::MAX)
}

/// When every possible clock shows `goal`, for long enough that the master has checked.
fn latest(settings: &[Setting], from: Ns, goal: Ns) -> Ns {
    let edges = settings.iter().flat_map(|setting| [setting.since.from, setting.since.to]);
    let edges = edges.filter(|edge| *edge > from).chain([from, Ns::MAX]);
    let mut since = None;
    for pair in sorted(edges).windows(2) {
        let piece = Window::new(pair[0], pair[1]);
        let mut all = possible(settings)
            .filter(|(_, span)| span.meet(piece).is_some())
            .map(|(setting, _)| setting.reaches(goal, piece, false));
        // All clocks must get there: the last one decides.
        let reached = all.try_fold(piece.from, |last, at| Some(last.max(at?)));
        match (reached, since) {
            (Some(at), Some(_)) if at == piece.from => {}
            (Some(at), _) => since = Some(at),
            (None, _) => since = None,
        }
        if let Some(at) = since
            && piece.to.saturating_sub(at) >= LOOKED
        {
            return at;
        }
    }
    since.unwrap_or(Ns::MAX)
}

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
    use super::super::time::MS;
    use super::*;

    #[test]
    fn the_first_instant_of_a_reading_is_found_at_any_rate() {
        let edges = [Ns::MIN, -MS, 0, 1, 5 * MS, Ns::MAX - 1, Ns::MAX];
        let (mut found, mut never) = (0, 0);
        for (ahead, rate) in
            edges.into_iter().flat_map(|ahead| [0.0, 0.5, 1.0, 2.0].map(|r| (ahead, r)))
        {
            let since = Window::new(0, MS);
            let setting = Setting { since, ahead, rate, strobe_by: MS };
            for (goal, most) in edges.into_iter().flat_map(|goal| [false, true].map(|m| (goal, m)))
            {
                for within in [Window::new(0, Ns::MAX), Window::new(3, 9 * MS), Window::new(7, 7)] {
                    match setting.reaches(goal, within, most) {
                        Some(at) => {
                            assert!(within.from <= at && at <= within.to);
                            assert!(setting.shows(at, most) >= goal);
                            assert!(at == within.from || setting.shows(at - 1, most) < goal);
                            found += 1;
                        }
                        None => {
                            assert!(setting.shows(within.to, most) < goal);
                            never += 1;
                        }
                    }
                }
            }
        }
        assert!(found > 300 && never > 100, "{found} {never}");
    }

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
