//! The tables of searches, in Markdown, as they stand in `docs/tables`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use super::base_scenarios::{BaseScenario, Symmetry, vocabulary};
use super::tally::{Broken, Class, Family, Tally, is_assumed};
use redquorum_scenario::history::{Event, History};
use redquorum_scenario::units::plural;
use redquorum_scenario::{ClockFault, Fault, FaultKind, FaultTime};

/// The table of smallest schedules: for each class of failures and each number of masters, the
/// least number of faults, and how many masters they touch.
pub fn table(searches: &[(usize, &Tally)]) -> String {
    let mut text = "| failure | first lease granted by |".to_owned();
    for (nodes, _) in searches {
        let _ = write!(text, " N = {nodes} |");
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---|".repeat(searches.len()));
    text.push('\n');
    for class in Class::ALL.iter().copied() {
        if !class.forgets() {
            let _ = write!(text, "| {} | any |", class.about());
            for (_, tally) in searches {
                let both = [true, false].map(|bare| tally.smallest(class, bare));
                let least = both.into_iter().flatten().map(|found| found.faults).min();
                let _ = write!(
                    text,
                    " {} |",
                    least.map_or("–".to_owned(), |faults| plural(faults, "fault"))
                );
            }
            text.push('\n');
            continue;
        }
        for bare in [true, false] {
            if searches.iter().all(|(_, tally)| tally.smallest(class, bare).is_none()) {
                continue;
            }
            let by = if bare { "a bare quorum" } else { "all" };
            let _ = write!(text, "| {} | {by} |", class.about());
            for (nodes, tally) in searches {
                let _ = write!(text, " {} |", cell(*nodes, tally, class, bare));
            }
            text.push('\n');
        }
    }
    text
}

/// The table of what each family of faults violated: with fencing tokens, and without. Families
/// that violated nothing share one row.
pub fn protection(tally: &Tally) -> String {
    let mut text =
        "| faults | schedules | two held at once | an update lost | the same under fencing \
                    tokens |\n|---|---|---|---|---|\n"
            .to_owned();
    let mut row = |name: &str, of: Broken| {
        let Broken { schedules, exclusion, unfenced, fenced } = of;
        let _ = writeln!(text, "| {name} | {schedules} | {exclusion} | {unfenced} | {fenced} |");
    };
    let mut harmless = Broken::default();
    for (family, of) in &tally.families {
        if of.exclusion + of.unfenced + of.fenced == 0 {
            harmless.append(*of);
            continue;
        }
        match family {
            Family::None => row("none", *of),
            Family::NodeLists => row("none, but clients with different masters", *of),
            Family::One(name) => row(&format!("`{name}`"), *of),
            Family::Many { forgets: true } => row("several, and counters may be lost", *of),
            Family::Many { forgets: false } => row("several, and no counter is lost", *of),
        }
    }
    row("all others, or none", harmless);
    text
}

/// The table of two searches, without the lock's defences and with them.
pub fn defences(without: &Tally, with: &Tally) -> String {
    let mut text = "| outside the assumptions | schedules | two held at once | defended | an \
                    update lost | defended | under fencing tokens | defended \
                    |\n|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    let rows: BTreeSet<Row> = without.rows.keys().chain(with.rows.keys()).copied().collect();
    for row in rows {
        let of = |tally: &Tally| tally.rows.get(&row).copied().unwrap_or_default();
        let (one, two): (Broken, Broken) = (of(without), of(with));
        let _ = writeln!(
            text,
            "| {row} | {} / {} | {} | {} | {} | {} | {} | {} |",
            one.schedules,
            two.schedules,
            one.exclusion,
            two.exclusion,
            one.unfenced,
            two.unfenced,
            one.fenced,
            two.fenced
        );
    }
    text
}

/// `1 fault, 3 = 5 + 3 − 5`: shows whether the number of masters equals m + q − N.
fn cell(nodes: usize, tally: &Tally, class: Class, bare: bool) -> String {
    let Some(found) = tally.smallest(class, bare) else {
        // With one master, a bare quorum is all masters.
        return if bare && nodes == 1 { "as all".to_owned() } else { "–".to_owned() };
    };
    let quorum = redquorum_protocol::quorum(nodes);
    let granted = if bare { quorum } else { nodes };
    let margin = granted + quorum - nodes;
    let sign = if margin == found.masters { '=' } else { '≠' };
    let (faults, masters) = (plural(found.faults, "fault"), found.masters);
    format!("{faults}, {masters} {sign} {granted} + {quorum} − {nodes}")
}

/// The places at which a kind of fault can strike, and its targets.
#[derive(Default)]
struct FaultPlaces {
    places: BTreeSet<String>,
    targets: BTreeSet<String>,
    lasts: BTreeSet<String>,
    faults: usize,
}

/// A base scenario and its vocabulary.
pub fn listing(base: &BaseScenario) -> String {
    let faults = vocabulary(base, Symmetry::Folded);
    let scenario = &base.scenario;
    let mut text = format!("{}: {} faults. {}\n", scenario.name, faults.len(), scenario.about);
    for client in &scenario.clients {
        let steps: Vec<String> = client.script.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "  {} from {}: {}", client.id, client.start, steps.join(", "));
    }
    let mut places: Vec<String> = Vec::new();
    let mut kinds: BTreeMap<&'static str, FaultPlaces> = BTreeMap::new();
    for fault in &faults {
        let place = place(fault);
        if !places.contains(&place) {
            places.push(place.clone());
        }
        let kind = kinds.entry(fault.kind.name()).or_default();
        kind.places.insert(place);
        kind.targets.insert(targets(fault));
        kind.lasts.insert(fault.lasts.map_or("to the end".to_owned(), |lasts| lasts.to_string()));
        kind.faults += 1;
    }
    let _ = writeln!(text, "  places: {}", places.join("; "));
    for (name, FaultPlaces { places, targets, lasts, faults }) in kinds {
        let list = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(" | ");
        let (count, targets, lasts) = (places.len(), list(targets), list(lasts));
        let _ = writeln!(text, "  {name}: {faults}, at {count} places, on {targets}, for {lasts}");
    }
    text
}

fn place(fault: &Fault) -> String {
    match &fault.when {
        FaultTime::At(at) => format!("at {at}"),
        FaultTime::After(moment) => format!("after {moment}"),
        FaultTime::Before(moment) => format!("before {moment}"),
    }
}

fn targets(fault: &Fault) -> String {
    let text = |json: Result<String, _>| json.unwrap_or_default().replace('"', "");
    let nodes = fault.nodes.as_ref().map(|nodes| text(serde_json::to_string(nodes)));
    let clients = fault.clients.as_ref().map(|clients| text(serde_json::to_string(clients)));
    [clients, nodes].into_iter().flatten().collect::<Vec<_>>().join("–")
}

/// The faults of a schedule that are outside the assumptions of a lock without defences. Schedules
/// are grouped by it, to compare the same ones with the defences and without them.
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
