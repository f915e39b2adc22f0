//! The text output: one line for each run, and details below a run that needs attention.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::out::label;
use super::{Ended, Entry, Session, Tally, timeline, totals};
use redquorum_checker::{Observed, Outcome, Verdict, Violation};
use redquorum_scenario::history::History;
use redquorum_scenario::{Expect, Property, Wanted};

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const GREY: &str = "\x1b[90m";
const PLAIN: &str = "\x1b[0m";

/// The header before the first run; the seed comes first.
pub(super) fn begin(session: &Session, folder: &Path) -> String {
    let Session { seed, backend, masters, client, runs, .. } = session;
    let runs = if *runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
    let client = match client {
        Some(client) => format!("client   {client}"),
        None => lock(session),
    };
    format!(
        "seed     {seed}\n{client}\nbackend  {backend} — {masters}\nresults  {}, {runs}\n",
        folder.display()
    )
}

/// The lock under test. Clients of other locks announce it only when they run.
pub(super) fn lock(session: &Session) -> String {
    format!("lock     {}", session.lock.as_deref().unwrap_or_default())
}

pub(super) fn entry(entry: &Entry, session: &Session, colour: bool) -> String {
    let widest = session.widest;
    let (sign, paint) = match &entry.ended {
        Ended::Checked(verdict) => match verdict.outcome {
            Outcome::AsExpected => ('✓', GREEN),
            Outcome::Differs => ('✗', RED),
            Outcome::NotSeen | Outcome::Inconclusive => ('?', YELLOW),
            Outcome::Skipped => ('-', GREY),
        },
        Ended::Skipped(_) => ('-', GREY),
        Ended::Environment(_) | Ended::Internal(_) => ('!', RED),
    };
    let (on, off) = if colour { (paint, PLAIN) } else { ("", "") };
    let took = seconds(entry.took);
    let seen = observed(entry);
    let word = entry.word();
    let name = &entry.name;
    let backend =
        if session.backend == "all" { format!("  {:9}", entry.backend) } else { String::new() };
    let mut text = format!("{on}{sign} {word:12}{off}{backend}  {name:widest$}  {took:>7}  {seen}");
    for repeated in &entry.repeated {
        _ = write!(text, "\n    {repeated}");
    }
    let violated = matches!(&entry.ended, Ended::Checked(verdict) if !verdict.findings.is_empty());
    if !entry.is_good() || (session.explain && violated) {
        text.push('\n');
        text += &details(entry, colour);
    } else if matches!(&entry.ended, Ended::Checked(_)) {
        // What a run missed, and may.
        entry.differences().iter().for_each(|line| _ = write!(text, "\n    {line}"));
    }
    text.trim_end().to_owned()
}

/// `12/188, 40 s left`. The time left is that of the runs so far; below ten seconds it is of no
/// use.
pub(super) fn progress(done: usize, all: usize, took: Duration) -> String {
    let so_far = u32::try_from(done).unwrap_or(u32::MAX);
    let left = u32::try_from(all.saturating_sub(done)).unwrap_or(u32::MAX);
    let left = took.checked_div(so_far).map_or(0, |each| each.saturating_mul(left).as_secs());
    let left = match left {
        0..10 => String::new(),
        10..120 => format!(", {left} s left"),
        _ => format!(", {} min left", left.div_ceil(60)),
    };
    format!("{}/{all}{left}", done + 1)
}

/// The observed violations, in brief.
pub(super) fn observed(entry: &Entry) -> String {
    match &entry.ended {
        Ended::Checked(verdict) => brief(&entry.expect, verdict),
        Ended::Skipped(why) | Ended::Environment(why) | Ended::Internal(why) => {
            why.lines().next().unwrap_or_default().to_owned()
        }
    }
}

fn brief(expect: &Expect, verdict: &Verdict) -> String {
    let properties = |seen: Observed| {
        let of = verdict.observed.iter().filter(move |(_, what)| **what == seen);
        of.map(|(property, _)| property.name()).collect::<Vec<_>>().join(", ")
    };
    let (violated, open) = (properties(Observed::Violated), properties(Observed::Inconclusive));
    let mut parts = Vec::new();
    if !violated.is_empty() {
        let causes: Vec<&str> = verdict.because.iter().copied().map(label).collect();
        let causes =
            if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
        parts.push(format!("{violated} violated{causes}"));
        let known = verdict.findings.iter().flat_map(|finding| {
            finding.causes.iter().filter_map(|cause| expect.known(finding.property, *cause))
        });
        let reasons: BTreeSet<&str> = known.map(|known| known.reason.as_str()).collect();
        parts.extend(reasons.into_iter().map(|reason| format!("known: {reason}")));
    }
    if !open.is_empty() {
        parts.push(format!("{open} not certain"));
    }
    if parts.is_empty() {
        parts.push("safe".to_owned());
    }
    match verdict.outcome {
        Outcome::AsExpected if expect.any_violation() => parts.push("as expected".to_owned()),
        Outcome::AsExpected => {}
        _ => {
            let missing = Property::ALL.into_iter().filter(|property| {
                expect.of(*property) == Wanted::Violated
                    && verdict.observed.get(property) != Some(&Observed::Violated)
            });
            let missing: Vec<&str> = missing.map(Property::name).collect();
            if !missing.is_empty() {
                parts.push(format!("expected: {} violated", missing.join(", ")));
            }
        }
    }
    parts.join(", ")
}

/// Why a run needs attention, what happened, and how to repeat it.
pub(super) fn details(entry: &Entry, colour: bool) -> String {
    let mut text = String::new();
    // If there is no verdict, the line of the run already contains the first line.
    let skipped = usize::from(!matches!(entry.ended, Ended::Checked(_)));
    for line in entry.differences().iter().flat_map(|why| why.lines()).skip(skipped) {
        _ = writeln!(text, "    {line}");
    }
    if let Ended::Checked(verdict) = &entry.ended {
        text += &violations(&verdict.findings);
        if let Some(history) = entry.read_history() {
            text += &drawing(&history, verdict);
        }
    }
    for (process, lines) in entry.errors() {
        _ = writeln!(text, "    standard error of {process} ends with");
        lines.iter().for_each(|line| _ = writeln!(text, "      {line}"));
    }
    let (on, off) = if colour { (GREY, PLAIN) } else { ("", "") };
    if let Some(history) = &entry.history {
        _ = writeln!(text, "    {on}history{off}  {}", history.display());
    }
    _ = writeln!(text, "    {on}again{off}    {}", entry.again);
    text
}

/// How many violations of one property with the same causes are printed in full.
const PRINTED: usize = 3;

fn violations(findings: &[Violation]) -> String {
    let mut text = String::new();
    let mut seen: BTreeMap<_, usize> = BTreeMap::new();
    for finding in findings {
        let kind = (finding.property, finding.seen == Observed::Violated, &finding.causes);
        let count = seen.entry(kind).or_default();
        *count += 1;
        if *count > PRINTED {
            continue;
        }
        let what = match finding.seen {
            Observed::Violated => "violated",
            Observed::Inconclusive => "not certain",
            Observed::Safe => "safe",
            Observed::NotUsed => "not used",
        };
        let causes: Vec<&str> = finding.causes.iter().copied().map(label).collect();
        let because = if causes.is_empty() {
            String::new()
        } else {
            format!(", because of {}", causes.join(", "))
        };
        _ = writeln!(text, "      {} {what}{because}", finding.property);
        for line in &finding.explanation {
            _ = writeln!(text, "        {line}");
        }
    }
    for ((property, ..), count) in seen.into_iter().filter(|(_, count)| *count > PRINTED) {
        _ = writeln!(text, "      {property}: {} more of the same cause", count - PRINTED);
    }
    text
}

/// The timeline, indented.
fn drawing(history: &History, verdict: &Verdict) -> String {
    let rows = timeline::rows(history, verdict);
    rows.iter().map(|row| format!("      {row}\n")).collect()
}

/// A single verdict, as `check` prints it.
pub(crate) fn verdict(history: &History, verdict: &Verdict) -> String {
    let scenario = &history.header.scenario;
    let mut text = format!(
        "{}: {}, {}\n",
        scenario.name,
        verdict.outcome.name(),
        brief(&scenario.expect, verdict)
    );
    for line in &verdict.differences {
        _ = writeln!(text, "    {line}");
    }
    text += &violations(&verdict.findings);
    if verdict.outcome != Outcome::AsExpected || !verdict.findings.is_empty() {
        text += &drawing(history, verdict);
    }
    text.trim_end().to_owned()
}

/// The totals of all runs.
pub(super) fn summary(
    entries: &[Entry],
    tally: &Tally,
    session: &Session,
    took: Duration,
) -> String {
    let runs = session.runs;
    let counts = [
        (tally.as_expected, "as expected", "as expected"),
        (tally.differs, "differs", "differ"),
        (tally.not_seen, "not seen", "not seen"),
        (tally.inconclusive, "inconclusive", "inconclusive"),
        (tally.environment, "failed by the environment", "failed by the environment"),
        (tally.internal, "failed by this program", "failed by this program"),
        (tally.skipped, "skipped", "skipped"),
    ];
    let counts = counts.iter().filter(|(count, ..)| *count > 0);
    let counts = counts
        .map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }));
    let counts: Vec<String> = counts.collect();
    let counts = if counts.is_empty() { "nothing was run".to_owned() } else { counts.join(", ") };
    // The output of runs in virtual time contains nothing that differs from one execution to the
    // next.
    let took = if matches!(session.backend.as_str(), "sim" | "library") {
        let all: Duration = entries.iter().map(|entry| entry.took).sum();
        format!("{} of virtual time", seconds(all))
    } else {
        seconds(took)
    };
    let mut text = String::new();
    if !entries.is_empty() {
        _ = write!(text, "\n{}", totals::totals(entries));
    }
    _ = write!(text, "\n{counts}; {took}");
    let mut skipped: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for entry in entries {
        if let Ended::Skipped(why) = &entry.ended {
            let names = skipped.entry(why).or_default();
            if !names.contains(&entry.name.as_str()) {
                names.push(&entry.name);
            }
        }
    }
    for (why, names) in skipped {
        _ = write!(text, "\n  skipped: {why} ({})", names.join(", "));
    }
    text += &totals::matrix(entries);
    let left = runs.saturating_sub(entries.len());
    if tally.interrupted {
        _ = write!(text, "\n  interrupted: {left} not run to their end");
    } else if left > 0 {
        _ = write!(text, "\n  stopped at the first that is not as expected: {left} not run");
    }
    text
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_runs_so_far() {
        let of = |done, seconds| progress(done, 100, Duration::from_secs(seconds));
        assert_eq!(of(0, 50), "1/100");
        assert_eq!(of(50, 9), "51/100");
        assert_eq!(of(50, 90), "51/100, 90 s left");
        assert_eq!(of(10, 60), "11/100, 9 min left");
        assert_eq!(of(100, 60), "101/100");
    }
}
