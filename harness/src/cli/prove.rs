//! `prove`: explores every state within bounds, either of the shipped machines or of the
//! fencing-token protocol. Prints what was explored and what was found.

use std::fmt::Write as _;
use std::time::Instant;

use clap::{Args, Subcommand};

use super::Code;
use super::words::{complain, say};
use crate::model_check::fencing::{self, Scheme};
use crate::model_check::machines::{self, MachineMutant, Scope};
use crate::model_check::{Counterexample, Explored};

/// The model to check.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum Target {
    /// The claims and links of the library, between clients and masters that are cut off (the
    /// default)
    Machines,
    /// Fencing tokens over independent masters: that they are unique and grow, without any clock,
    /// and how each wrong scheme fails
    Fencing,
}

/// The model to check, and the runs of it.
#[derive(Clone, Debug, Args)]
pub(super) struct ProveOptions {
    #[command(subcommand)]
    what: Option<Target>,
    /// Only the runs whose name contains this
    #[arg(long, global = true, value_name = "TEXT", default_value = "")]
    only: String,
}

pub(super) fn main(options: &ProveOptions) -> Code {
    match options.what.unwrap_or(Target::Machines) {
        Target::Machines => prove_machines(&options.only),
        Target::Fencing => prove_fencing(&options.only),
    }
}

fn prove_machines(only: &str) -> Code {
    let chosen: Vec<Scope> =
        Scope::ALL.into_iter().filter(|scope| scope.name.contains(only)).collect();
    if chosen.is_empty() {
        return no_such(only, &Scope::ALL.map(|scope| scope.name));
    }
    let mut sum = Sum::new();
    for scope in chosen {
        say(&format!("{}: {}", scope.name, scope.bounds()));
        let begin = Instant::now();
        let proof = machines::prove(scope, MachineMutant::None, MOST);
        sum.add(&proof.explored, begin);
        say(&format!("    kept back by the bounds: {}", proof.withheld));
    }
    sum.end()
}

fn prove_fencing(only: &str) -> Code {
    let scopes = fencing::Scope::ALL.map(|scope| scope.name);
    let wrong = Scheme::ALL.into_iter().filter(|scheme| *scheme != Scheme::Certified);
    let wrong: Vec<Scheme> = wrong.filter(|scheme| scheme.name().contains(only)).collect();
    if wrong.is_empty() && !scopes.iter().any(|name| name.contains(only)) {
        return no_such(only, &scopes);
    }
    let mut sum = Sum::new();
    for scope in fencing::Scope::ALL.into_iter().filter(|scope| scope.name.contains(only)) {
        say(&format!("{}: {}", scope.name, scope.bounds()));
        let begin = Instant::now();
        sum.add(&fencing::prove(scope, Scheme::Certified, MOST), begin);
    }
    for scheme in wrong {
        let scope = fencing::Scope::against(scheme);
        say(&format!("{}, which {}: {}", scheme.name(), scheme.about(), scope.bounds()));
        let explored = fencing::prove(scope, scheme, MOST);
        if let Some(counterexample) = &explored.broken {
            say(&story(counterexample));
        } else {
            sum.miss("    NOT REFUTED: this check has gone blind");
        }
    }
    sum.end()
}

fn no_such(only: &str, names: &[&str]) -> Code {
    complain(
        &format!("no run has `{only}` in its name"),
        &format!("there are: {}", names.join(", ")),
    );
    Code::Usage
}

/// The totals of all runs.
struct Sum {
    code: Code,
    start: Instant,
    states: usize,
    transitions: u64,
}

impl Sum {
    fn new() -> Self {
        Self { code: Code::AsExpected, start: Instant::now(), states: 0, transitions: 0 }
    }

    /// Reports the violation that a run found although it must not find any.
    fn add(&mut self, explored: &Explored, begin: Instant) {
        self.states += explored.states;
        self.transitions += explored.transitions;
        say(&told(explored, begin.elapsed().as_secs_f64()));
        if let Some(counterexample) = &explored.broken {
            say(&story(counterexample));
            self.code = Code::Differs;
        } else if !explored.complete && self.code == Code::AsExpected {
            self.code = Code::NotSeen;
        }
    }

    /// Reports that a run did not find a violation that it must find.
    fn miss(&mut self, line: &str) {
        say(line);
        self.code = Code::Differs;
    }

    fn end(self) -> Code {
        let seconds = self.start.elapsed().as_secs_f64();
        let peak = peak_memory().map_or_else(String::new, |mib| format!(", {mib} MiB at most"));
        say(&format!(
            "{} states, {} transitions, {seconds:.1} s{peak}. States are known by 128 bits of hash: \
             the chance that two were taken for one is below {:.0e}.",
            grouped(self.states as u64),
            grouped(self.transitions),
            chance_of_collision(self.states),
        ));
        if self.code == Code::NotSeen {
            complain("not all states were looked at", "the bounds are too wide for this program");
        }
        self.code
    }
}

/// The largest number of states of one run: about two gibibytes.
const MOST: usize = 40_000_000;

fn told(found: &Explored, seconds: f64) -> String {
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

fn story(of: &Counterexample) -> String {
    let mut text = format!("    broken: {} ({})", of.broken.rule, of.broken.why);
    for (number, line) in (1..).zip(&of.story) {
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
    let parts: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|chunk| std::str::from_utf8(chunk).ok())
        .collect();
    parts.join(" ")
}

/// The probability that two of `states` random hashes of 128 bits are equal.
fn chance_of_collision(states: usize) -> f64 {
    let states = states as f64;
    states * states / 2_f64.powi(129)
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
