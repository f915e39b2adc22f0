//! Groups schedules by those of their faults that are outside the assumptions of a lock without
//! defences, to compare the same schedules with its defences and without them.

use std::collections::BTreeSet;
use std::fmt;

use super::assumptions::is_assumed;
use super::base_scenarios::BaseScenario;
use super::classes::Class;
use redquorum_scenario::history::{Event, History};
use redquorum_scenario::{ClockFault, Fault, FaultKind};

/// The faults of a schedule that are outside the assumptions of a lock without defences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    /// Nothing.
    Nothing,
    /// No fault, but clients know different masters.
    NodeLists,
    /// Only faults that cause this class.
    Of(Class),
    /// Only clocks that are set back.
    ClockBack,
    /// Faults of several of these groups.
    Several,
}

impl Row {
    pub(super) fn of(base: &BaseScenario, faults: &[Fault]) -> Self {
        let outside = faults.iter().filter(|fault| !is_assumed(base, fault));
        let rows: BTreeSet<Self> = outside.filter_map(Self::of_fault).collect();
        match (rows.len(), rows.first()) {
            (0, _) if base.parted => Self::NodeLists,
            // Two rates of one clock add up.
            (0, _) => Self::Nothing,
            (1, Some(row)) => *row,
            _ => Self::Several,
        }
    }

    /// The group of a fault that is outside; none if it fits no group.
    fn of_fault(fault: &Fault) -> Option<Self> {
        if matches!(&fault.kind, FaultKind::Clock(ClockFault::Step { by }) if by.back) {
            return Some(Self::ClockBack);
        }
        let name = fault.kind.name();
        let is = |class: &Class| class.forgets() && class.faults().contains(&name);
        Class::ALL.into_iter().find(is).map(Self::Of)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::NodeLists => Class::NodeLists.about(),
            Self::Of(class) => class.about(),
            Self::ClockBack => "clock set back",
            Self::Several => "several of these",
        })
    }
}

/// Whether every fault of a schedule struck. Otherwise the schedule does not show their effect.
pub(super) fn all_struck(base: &BaseScenario, history: &History) -> bool {
    let own = base.scenario.faults.len();
    let struck = |fault: usize| {
        history.records.iter().any(|record| {
            matches!(&record.event, Event::Struck { fault: of, failed: None, .. } if *of == fault)
        })
    };
    (own + 1..=history.header.scenario.faults.len()).all(struck)
}
