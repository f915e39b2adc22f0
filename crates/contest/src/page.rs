//! The report of a contest: one HTML file that needs no network and no JavaScript.
//!
//! Verdicts and coordinates (`plots.rs`) come from the program. The templates place them, and print
//! the figures of the contest by the filters below.

mod plots;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, UndefinedBehavior, context};

use crate::recommend::{
    Answer, Assessment, Decision, RunSummary, Situation, Verdict, Violations, recommend,
};
use crate::results::{Contest, Fault, Figures, Outcome, Run, Server, Workload};

/// Renders the report of a contest as one HTML file.
///
/// Text of the contest is escaped: an error message of a server cannot add markup.
///
/// # Errors
///
/// Returns the error of the template engine. The templates are part of the program, so that an
/// error is a defect of the program.
pub fn render(contest: &Contest) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    // A misspelled field is an error, not an empty cell.
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // The ending decides the escaping: `.html` is escaped, `.css` is not.
    environment.add_template("report.html", include_str!("page/report.html"))?;
    environment.add_template("plots.html", include_str!("page/plots.html"))?;
    environment.add_template("style.css", include_str!("page/style.css"))?;
    environment.add_filter("count", count);
    environment.add_filter("time", time);
    environment.add_filter("decimal", |number: f64| format!("{number:.1}"));

    let recommendation = recommend(contest);
    let assessments = &recommendation.assessments;
    let decisions = recommendation.decisions.iter().map(|it| decision(it, assessments));
    let (mut workload_notes, mut fault_notes) = (Vec::new(), Vec::new());
    let workloads = Workload::ALL
        .into_iter()
        .filter_map(|it| under_workload(it, contest, assessments, &mut workload_notes));
    let workloads: Vec<Value> = workloads.collect();
    let faults = assessments.iter().map(|it| {
        let cells = it.faults.iter().map(|(_, summary)| under_fault(summary, &mut fault_notes));
        (it.info.name.clone(), cells.collect::<Vec<_>>())
    });
    let faults: Vec<_> = faults.map(|(name, cells)| context! { name, cells }).collect();
    environment.get_template("report.html")?.render(context! {
        contest => Serde(contest),
        facts => facts(contest),
        decisions => decisions.collect::<Vec<_>>(),
        workloads,
        workload_notes,
        throughput => plots::throughput(contest, assessments),
        latency => plots::latency(contest, assessments),
        all_faults => Serde(Fault::ALL.map(|it| (it.name(), it.title()))),
        faults,
        fault_notes,
        results => contest.runs.iter().map(result).collect::<Vec<_>>(),
    })
}

/// A count with a thin space between groups of three digits.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let parts = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    parts.collect::<Vec<_>>().join("\u{202f}")
}

/// The range of some counts: one number if they are equal.
fn range(numbers: impl Iterator<Item = u64> + Clone) -> String {
    match (numbers.clone().min(), numbers.max()) {
        (Some(first), Some(last)) if first == last => count(first),
        (Some(first), Some(last)) => format!("{}–{}", count(first), count(last)),
        _ => String::new(),
    }
}

/// A time in milliseconds, in seconds from one second on.
fn time(ms: f64) -> String {
    if ms >= 1000.0 {
        format!("{:.1} s", ms / 1000.0)
    } else if ms >= 9.95 {
        format!("{ms:.0} ms")
    } else {
        format!("{ms:.1} ms")
    }
}

/// A long time in seconds, in minutes from two minutes on.
fn duration(seconds: f64) -> String {
    if seconds >= 120.0 { format!("{:.0} min", seconds / 60.0) } else { format!("{seconds:.0} s") }
}

fn facts(contest: &Contest) -> Value {
    let server = |Server { product, version, place }: &Server| {
        let name = format!("{product} {version}");
        [name.trim(), place].into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(", ")
    };
    let Contest { machine, started, seconds, runs, .. } = contest;
    let facts = [
        ("Database", server(&contest.database)),
        ("Redis masters", server(&contest.masters)),
        ("Machine", format!("{}, {} logical processors", machine.os, machine.processors)),
        ("Started", started.clone()),
        ("Runs", format!("{} in {}", count(runs.len() as u64), duration(*seconds))),
        ("redquorum", contest.version.clone()),
    ];
    Serde(facts).into()
}

/// A row of the decision table: if the condition holds, then use the strategy.
fn decision(decision: &Decision, assessments: &[Assessment]) -> Value {
    let Decision { situation, answer, evidence } = decision;
    let (mut strategy, mut missing) = (None, None);
    match answer {
        Answer::Use { strategy: name } => {
            strategy = assessments.iter().map(|it| &it.info).find(|it| it.name == *name);
        }
        Answer::NoStrategy => {}
        Answer::Incomplete { missing: runs } => {
            missing = Some(runs.iter().map(ToString::to_string).collect::<Vec<_>>());
        }
    }
    context! {
        condition => situation.title(),
        strategy => Serde(strategy),
        needs => strategy.map(|it| it.needs.title()),
        // No lock can be the answer, as opposed to none of those in the contest.
        no_lock_suffices => *situation == Situation::CannotCompareTokens,
        is_known => missing.is_none(),
        missing => missing.unwrap_or_default(),
        command => answer.command(),
        evidence => evidence.clone(),
    }
}

/// The verdict in a cell of a table: a symbol and words, so that no colour is needed. The class
/// colours the cell: `good`, `bad`, `slow` or `none`.
fn cell(class: &str, symbol: &str, text: impl Into<String>, detail: Option<String>) -> Value {
    context! { class, symbol, text => text.into(), detail, note => () }
}

/// The cell of a verdict without figures. Cells with the same reason share a footnote.
fn without_figures(verdict: Verdict, notes: &mut Vec<String>) -> Value {
    let (reason, symbol, text) = match verdict {
        Verdict::NotOffered(reason) => (reason, "–", "not offered"),
        Verdict::Failed(error) => (error, "!", "not completed"),
        _ => return cell("none", "?", "not run", None),
    };
    if !notes.contains(&reason) {
        notes.push(reason.clone());
    }
    let note = notes.iter().position(|note| *note == reason).map(|index| index + 1);
    context! { class => "none", symbol, text, detail => (), note }
}

/// Of how many runs the worst is shown, if there are several.
fn share(summary: &RunSummary) -> Option<String> {
    let RunSummary { wrong, measured, .. } = summary;
    (*measured > 1).then(|| format!("in {wrong} of {measured} runs"))
}

/// The table of a workload without a fault, if there are such runs.
fn under_workload(
    workload: Workload,
    contest: &Contest,
    assessments: &[Assessment],
    notes: &mut Vec<String>,
) -> Option<Value> {
    let summaries = assessments.iter().filter_map(|it| {
        let (_, summary) = it.workloads.iter().find(|(name, _)| *name == workload)?;
        Some((&it.info.name, summary))
    });
    let counts = summaries.clone().map(|(_, it)| it.measured as u64);
    let runs = range(counts.filter(|count| *count > 0));
    let rows = summaries.map(|(strategy, summary)| {
        let verdict = match summary.verdict() {
            Verdict::Correct => cell("good", "✓", "correct", None),
            Verdict::Wrong(_) => cell("bad", "✗", "wrong", share(summary)),
            other => without_figures(other, notes),
        };
        let of_row = |run: &&Run| run.strategy == *strategy && run.is_of(workload);
        let figures = contest.runs.iter().filter(of_row).filter_map(|run| run.outcome.figures());
        let figures = figures.collect::<Vec<_>>();
        let figures = Serde(largest(workload, &figures, summary.violations));
        context! { strategy => strategy.clone(), verdict, figures }
    });
    let (name, title) = (workload.name(), workload.title());
    let rows = if runs.is_empty() { return None } else { rows.collect::<Vec<_>>() };
    let runs = if runs == "1" { "1 run".to_owned() } else { format!("{runs} runs") };
    Some(context! { name, title, runs, rows })
}

/// Signed up, oversold, lost updates, deadlocks, retries, each with its class: `bad`, `zero`, or
/// nothing. Empty without figures.
fn largest(
    workload: Workload,
    all: &[&Figures],
    violations: Violations,
) -> Vec<(String, &'static str)> {
    if all.is_empty() {
        return Vec::new();
    }
    let largest = |of: fn(&Figures) -> u64| all.iter().map(|it| of(it)).max().unwrap_or(0);
    let figure = |number, class| (count(number), if number == 0 { "zero" } else { class });
    let rows = all.iter().map(|it| it.rows);
    let signed_up = match workload {
        Workload::Rush | Workload::LastPlace => range(rows),
        // Runs with different latencies have nothing in common that a range could show.
        Workload::Throughput | Workload::Spread => count(rows.sum()),
    };
    let is_wrong = violations.unsold > 0 || violations.oversold > 0;
    vec![
        (signed_up, if is_wrong { "bad" } else { "" }),
        figure(violations.oversold, "bad"),
        figure(violations.lost_updates, "bad"),
        figure(largest(|it| it.deadlocks), ""),
        figure(largest(|it| it.retries), ""),
    ]
}

fn under_fault(summary: &RunSummary, notes: &mut Vec<String>) -> Value {
    let stall = summary.stall_ms().map(|ms| format!("stalled for {}", time(ms)));
    match (summary.verdict(), stall) {
        (Verdict::Correct, None) => {
            let runs = (summary.measured > 1).then(|| format!("{} runs", summary.measured));
            cell("good", "✓", "correct", runs)
        }
        // Correct data, but applicants waited or were turned away.
        (Verdict::Correct, Some(stall)) => cell("slow", "◷", stall, Some("correct".to_owned())),
        (Verdict::Wrong(violations), stall) => {
            let mut parts = violations.parts().into_iter();
            let worst = parts.next().unwrap_or_default();
            let detail: Vec<_> = parts.chain(stall).chain(share(summary)).collect();
            let detail = (!detail.is_empty()).then(|| detail.join(", "));
            let (class, symbol) =
                if violations.corrupts() { ("bad", "✗") } else { ("slow", "◷") };
            cell(class, symbol, worst, detail)
        }
        (other, _) => without_figures(other, notes),
    }
}

/// The result of a run, or the reason why it has none.
fn result(run: &Run) -> Value {
    let (class, symbol, text) = match &run.outcome {
        Outcome::Measured(figures) => {
            let violations = Violations::of(run.workload, figures);
            if violations.is_none() {
                ("good", "✓", "correct".to_owned())
            } else {
                ("bad", "✗", violations.describe())
            }
        }
        Outcome::NotOffered { reason } => ("none", "–", format!("not offered: {reason}")),
        Outcome::Failed { error } => ("bad", "!", format!("not completed: {error}")),
    };
    cell(class, symbol, text, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_units() {
        assert_eq!(count(7), "7");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(range([50, 50].into_iter()), "50");
        assert_eq!(range([17, 9, 14].into_iter()), "9–17");
        assert_eq!(time(0.42), "0.4 ms");
        assert_eq!(time(42.4), "42 ms");
        assert_eq!(time(3_050.0), "3.0 s");
        assert_eq!(duration(75.0), "75 s");
        assert_eq!(duration(2_471.0), "41 min");
    }
}
