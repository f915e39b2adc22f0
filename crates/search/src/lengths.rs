//! Visits all the times of a scenario, wherever they stand, to round or to scale them.

use redquorum_scenario::{FaultTime, Length, OwnGuard, Rounds, Scenario};

/// The purpose of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// How long a round waits, and the deduction for drift. These are properties of the network and
    /// of clocks, which do not scale with the rest.
    Option,
    /// Anything else.
    Plan,
}

/// Passes each time to `see`, always in the same order.
pub(super) fn each(scenario: &mut Scenario, see: &mut dyn FnMut(Use, &mut Length)) {
    see(Use::Plan, &mut scenario.lock.ttl);
    see(Use::Option, &mut scenario.lock.node_timeout);
    see(Use::Option, &mut scenario.lock.drift);
    scenario.lock.guard.iter_mut().for_each(|guard| see(Use::Plan, guard));
    let mut plan = |length: &mut Length| see(Use::Plan, length);
    for client in &mut scenario.clients {
        if let Some(OwnGuard::UpTo(guard)) = &mut client.guard {
            plan(guard);
        }
        plan(&mut client.start);
        plan(&mut client.think);
        if let Some(Rounds::For(length)) = &mut client.rounds {
            plan(length);
        }
        for step in &mut client.script {
            step.lengths_mut().into_iter().for_each(&mut plan);
        }
    }
    for fault in &mut scenario.faults {
        match &mut fault.when {
            FaultTime::At(at) => plan(at),
            FaultTime::After(moment) => plan(&mut moment.plus),
            FaultTime::Before(_) => {}
        }
        if let Some(lasts) = &mut fault.lasts {
            plan(lasts);
        }
        fault.kind.lengths_mut().into_iter().for_each(&mut plan);
    }
}

/// The number of times.
pub(super) fn count(scenario: &mut Scenario) -> usize {
    let mut count = 0;
    each(scenario, &mut |_, _| count += 1);
    count
}

/// The scenario with one of its times changed; none if the time already has that value.
pub(super) fn changed(
    scenario: &Scenario,
    index: usize,
    change: impl Fn(Use, u64) -> Option<u64>,
) -> Option<Scenario> {
    let mut other = scenario.clone();
    let (mut place, mut done) = (0, false);
    each(&mut other, &mut |what, length| {
        if place == index {
            let ms = millis(*length);
            if let Some(new) = change(what, ms).filter(|new| *new != ms) {
                *length = of_millis(new);
                done = true;
            }
        }
        place += 1;
    });
    done.then_some(other)
}

pub(super) fn millis(length: Length) -> u64 {
    u64::try_from(length.0.as_millis()).unwrap_or(u64::MAX)
}

pub(super) const fn of_millis(ms: u64) -> Length {
    Length(std::time::Duration::from_millis(ms))
}
