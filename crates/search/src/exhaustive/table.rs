//! The tables of searches, in Markdown, as they stand in `docs/tables`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::classes::Class;
use super::defended::Row;
use super::tally::{Broken, Family, Tally};
use redquorum_scenario::units::plural;

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
