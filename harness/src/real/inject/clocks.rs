//! Faults of wall clocks: those of masters, whose history the judge must know exactly, and those of
//! clients.

use redquorum_rig::ClockChange;

use super::Injector;
use crate::director::Input;
use crate::history::{Event, Ns, Window};
use crate::scenario::ClockHarm;
use crate::units::nanos;

/// What the wall clock of a master shows.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    since: Ns,
    ahead: Ns,
    rate: f64,
    strobe_by: Ns,
    strobe_every: Ns,
}

impl Shown {
    const REAL: Self = Self { since: 0, ahead: 0, rate: 1.0, strobe_by: 0, strobe_every: 0 };

    /// The same, counted from another instant.
    #[expect(clippy::cast_possible_truncation, reason = "a drift within a run is small")]
    #[expect(clippy::cast_precision_loss, reason = "a run lasts seconds, f64 has 104 days of ns")]
    fn from(self, now: Ns) -> Self {
        let drifted = now.saturating_sub(self.since) as f64 * (self.rate - 1.0);
        Self { since: now, ahead: self.ahead.saturating_add(drifted as Ns), ..self }
    }
}

impl Injector {
    pub(super) fn set_clocks(
        &mut self,
        nodes: &[usize],
        change: ClockChange,
        tell: &mut dyn FnMut(Input),
    ) -> Result<(), String> {
        for &node in nodes {
            let from = self.clock.now();
            let done = self.cluster.set_clock(node, change);
            let to = self.clock.now();
            let shown = self.clocks.get(&node).copied().unwrap_or(Shown::REAL).from(to);
            let shown = match change {
                ClockChange::Step { nanos } => {
                    Shown { ahead: shown.ahead.saturating_add(nanos), ..shown }
                }
                ClockChange::Rate(rate) => Shown { rate, ..shown },
                ClockChange::Strobe { by, every } => {
                    Shown { strobe_by: nanos(by), strobe_every: nanos(every), ..shown }
                }
                _ => Shown { since: to, ..Shown::REAL },
            };
            self.clocks.insert(node, shown);
            tell(Input::Recorded(Event::Clock {
                node,
                since: Window { from, to },
                ahead: shown.ahead,
                rate: shown.rate,
                strobe_by: shown.strobe_by,
                strobe_every: shown.strobe_every,
            }));
            done.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    pub(super) fn set_client_clocks(
        &self,
        fault: usize,
        change: ClockChange,
    ) -> Result<(), String> {
        for name in &self.there[&fault].processes {
            let clock = self.client_clocks.get(name);
            let clock = clock.ok_or_else(|| format!("process {name} has no clock of its own"))?;
            clock.change(change).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// What a fault does to a clock.
pub(super) fn change(harm: &ClockHarm) -> ClockChange {
    match harm {
        ClockHarm::Step { by, .. } => ClockChange::Step { nanos: by.nanos() },
        ClockHarm::Rate { factor, .. } => ClockChange::Rate(*factor),
        ClockHarm::Strobe { by, every, .. } => ClockChange::Strobe { by: by.0, every: every.0 },
    }
}
