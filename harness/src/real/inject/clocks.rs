//! Faults of wall clocks, of masters and of clients. The checker must know the exact history of the
//! masters' clocks.

use redquorum_rig::ClockChange;

use super::Injector;
use redquorum_scenario::ClockFault;
use redquorum_scenario::history::Window;
use redquorum_scenario::wall::WallClock;
use redquorum_simulator::orchestrator::Input;

impl Injector {
    pub(super) fn set_clocks(
        &mut self,
        nodes: &[usize],
        fault: Option<&ClockFault>,
    ) -> Result<(), String> {
        let change = fault.map_or(ClockChange::Heal, change);
        for &node in nodes {
            let from = self.clock.now();
            let done = self.cluster.set_clock(node, change);
            let to = self.clock.now();
            let clock = self.clocks.get(&node).copied().unwrap_or(WallClock::REAL);
            let clock = clock.changed(to, fault);
            self.clocks.insert(node, clock);
            self.report(Input::Recorded(clock.event(node, Window { from, to })));
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

/// The change that a fault makes to a clock.
fn change(fault: &ClockFault) -> ClockChange {
    match fault {
        ClockFault::Step { by } => ClockChange::Step { nanos: by.nanos() },
        ClockFault::Rate { factor } => ClockChange::Rate(*factor),
        ClockFault::Strobe { by, every } => ClockChange::Strobe { by: by.0, every: every.0 },
    }
}
