//! `prove`: every state of the shipped machines, within bounds, looked at; what was looked at, and what
//! was found.

use std::fmt::Write as _;
use std::time::Instant;

use clap::{Args, Subcommand};

use super::Code;
use super::words::{complain, say};
use crate::prove::Counterexample;
use crate::prove::machines::{self, Blunder, Proof, Scope};

/// What to prove.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum What {
    /// The claims and links of the library, between clients and masters that are cut off (the default)
    Machines,
}

/// What to prove, and how much of it.
#[derive(Clone, Debug, Args)]
pub(super) struct ProveOptions {
    #[command(subcommand)]
    what: Option<What>,
    /// Only the runs whose name contains this
    #[arg(long, global = true, value_name = "TEXT", default_value = "")]
    only: String,
}

pub(super) fn main(options: &ProveOptions) -> Code {
    match options.what.unwrap_or(What::Machines) {
        What::Machines => prove_machines(&options.only),
    }
}

fn prove_machines(only: &str) -> Code {
    let (mut code, start) = (Code::AsExpected, Instant::now());
    let (mut states, mut transitions) = (0, 0);
    let chosen: Vec<Scope> =
        Scope::ALL.into_iter().filter(|scope| scope.name.contains(only)).collect();
    if chosen.is_empty() {
        let names = Scope::ALL.map(|scope| scope.name).join(", ");
        complain(&format!("no run has `{only}` in its name"), &format!("there are: {names}"));
        return Code::Usage;
    }
    for scope in chosen {
        say(&format!("{}: {}", scope.name, scope.bounds()));
        let begin = Instant::now();
        let proof = machines::prove(scope, Blunder::None, MOST);
        states += proof.explored.states;
        transitions += proof.explored.transitions;
        say(&told(&proof, begin.elapsed().as_secs_f64()));
        if let Some(counterexample) = &proof.explored.broken {
            say(&story(counterexample));
            code = Code::Differs;
        } else if !proof.explored.complete {
            code = Code::NotSeen;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let peak = peak_memory().map_or_else(String::new, |mib| format!(", {mib} MiB at most"));
    say(&format!(
        "{} states, {} transitions, {seconds:.1} s{peak}. States are known by 128 bits of hash: the \
         chance that two were taken for one is below {:.0e}.",
        grouped(states as u64),
        grouped(transitions),
        chance_of_collision(states),
    ));
    if code == Code::NotSeen {
        complain("not all states were looked at", "the bounds are too wide for this program");
    }
    code
}

/// Most states of one run: some two gibibytes.
const MOST: usize = 40_000_000;

fn told(proof: &Proof, seconds: f64) -> String {
    let found = &proof.explored;
    let result = match (&found.broken, found.complete) {
        (Some(_), _) => "BROKEN",
        (None, true) => "all rules hold",
        (None, false) => "no rule is broken so far, NOT ALL STATES WERE LOOKED AT",
    };
    format!(
        "    {} states, {} transitions, {} steps deep, {} ends, {seconds:.1} s: {result}\n    kept \
         back by the bounds: {}",
        grouped(found.states as u64),
        grouped(found.transitions),
        found.depth,
        grouped(found.ends as u64),
        proof.withheld,
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

/// A number with its thousands apart.
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

/// Of `states` random hashes of 128 bits.
fn chance_of_collision(states: usize) -> f64 {
    let states = states as f64;
    states * states / 2_f64.powi(129)
}

/// The most memory that this process had, in MiB, where the system says.
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
