//! `model-check`: explores every state of the shipped machines within bounds. Prints what was
//! explored and what was found.

use std::fmt::Write as _;
use std::time::Instant;

use clap::Args;

use super::{complain, say};
use crate::report::Code;
use redquorum_model_check::machines::{self, Scope};
use redquorum_model_check::{Counterexample, Explored};
use redquorum_scenario::Mutant;

/// The largest number of states of one run.
const MOST: usize = 40_000_000;

/// The runs to make.
#[derive(Clone, Debug, Args)]
pub(super) struct ModelCheckOptions {
    /// Only the runs whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

pub(super) fn main(options: &ModelCheckOptions) -> Result<Code, Code> {
    let is_chosen = |name: &str| name.contains(&options.only);
    let mut sum = Sum::new();
    let names = Scope::ALL.map(|scope| scope.name);
    if !names.iter().any(|name| is_chosen(name)) {
        let wrong = format!("no run has `{}` in its name", options.only);
        return Err(complain(Code::Usage, &wrong, &format!("there are: {}", names.join(", "))));
    }
    for scope in Scope::ALL.into_iter().filter(|scope| is_chosen(scope.name)) {
        let mut withheld = None;
        sum.run(scope.name, &scope.bounds(), || {
            let report = machines::model_check(scope, Mutant::None, MOST);
            withheld = Some(report.withheld);
            report.explored
        })?;
        let withheld = withheld.expect("it has run");
        say(&format!("    kept back by the bounds: {withheld}"))?;
    }
    let [states, transitions] = sum.grouped();
    let all = format!("| all | | {states} | {transitions} |");
    let rows: Vec<&str> = sum.rows.iter().chain([&all]).map(String::as_str).collect();
    say(&format!(
        "\n| run | bounds, beside the order of everything | states | transitions |\n\
         |---|---|---|---|\n{}\n",
        rows.join("\n")
    ))?;
    sum.end()
}

/// The totals of all runs, and the row of each.
struct Sum {
    code: Code,
    start: Instant,
    states: usize,
    transitions: u64,
    rows: Vec<String>,
}

impl Sum {
    fn new() -> Self {
        let start = Instant::now();
        Self { code: Code::AsExpected, start, states: 0, transitions: 0, rows: Vec::new() }
    }

    /// Runs and reports a check, and the violation that it found although it must not find any.
    fn run(
        &mut self,
        name: &str,
        bounds: &str,
        check: impl FnOnce() -> Explored,
    ) -> Result<(), Code> {
        say(&format!("{name}: {bounds}"))?;
        let begin = Instant::now();
        let explored = check();
        self.states += explored.states;
        self.transitions += explored.transitions;
        let [states, transitions] = [explored.states as u64, explored.transitions].map(grouped);
        self.rows.push(format!("| {name} | {bounds} | {states} | {transitions} |"));
        say(&summary(&explored, begin.elapsed().as_secs_f64()))?;
        if let Some(counterexample) = &explored.broken {
            say(&counterexample_text(counterexample))?;
            self.code = Code::Differs;
        } else if !explored.complete && self.code == Code::AsExpected {
            self.code = Code::NotSeen;
        }
        Ok(())
    }

    fn grouped(&self) -> [String; 2] {
        [self.states as u64, self.transitions].map(grouped)
    }

    fn end(self) -> Result<Code, Code> {
        let seconds = self.start.elapsed().as_secs_f64();
        let peak = peak_memory().map_or_else(String::new, |mib| format!(", {mib} MiB at most"));
        let [states, transitions] = self.grouped();
        // The probability that two of these random hashes of 128 bits are equal.
        let collision = (self.states as f64).powi(2) / 2_f64.powi(129);
        say(&format!(
            "{states} states, {transitions} transitions, {seconds:.1} s{peak}. States are known by 128 bits of hash: \
             the chance that two were taken for one is below {collision:.0e}.",
        ))?;
        if self.code == Code::NotSeen {
            let fix = "the bounds are too wide for this program";
            complain(self.code, "not all states were looked at", fix);
        }
        Ok(self.code)
    }
}

fn summary(found: &Explored, seconds: f64) -> String {
    let result = match (&found.broken, found.complete) {
        (Some(_), _) => "BROKEN",
        (None, true) => "all rules hold",
        (None, false) => "no rule is broken so far, NOT ALL STATES WERE LOOKED AT",
    };
    format!(
        "    {} states, {} transitions, {} steps deep, {seconds:.1} s: {result}",
        grouped(found.states as u64),
        grouped(found.transitions),
        found.depth,
    )
}

fn counterexample_text(of: &Counterexample) -> String {
    let mut text = format!("    broken: {} ({})", of.broken.rule, of.broken.why);
    for (number, line) in (1..).zip(&of.steps) {
        let _ = write!(text, "\n    {number:3}. {line}");
    }
    text.push_str("\n    in the end");
    for line in &of.last {
        let _ = write!(text, "\n         {line}");
    }
    text
}

/// A number with separators between its thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let parts = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    parts.collect::<Vec<_>>().join(" ")
}

/// The peak memory of this process in MiB, if the system reports it.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_can_be_read() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1 234 567");
    }
}
