//! The options of the command line, and the exit codes.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::{
    database::Choice,
    results::{Fault, Workload},
    strategy::Kind,
};

/// Compares ways to keep many users from signing up for the last places at once.
///
/// Each strategy signs applicants up in a real database; lost updates and oversold places are
/// counted by a query of their own after each run.
#[derive(Debug, Parser)]
#[command(name = "redquorum-contest", version, after_help = EXIT_CODES)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    /// auto, sqlite, mariadb (a private server), container, or mysql://USER:PASSWORD@HOST:PORT.
    ///
    /// A name in the URL is the database to create; it must not exist.
    #[arg(long, value_name = "DATABASE", default_value = "auto")]
    pub(crate) database: Choice,

    /// URLs of Redis masters; else private processes or masters in memory.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub(crate) masters: Option<Vec<String>>,

    /// Only these strategies.
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub(crate) strategy: Vec<Kind>,

    /// Only these workloads.
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub(crate) workload: Vec<Workload>,

    /// Only these faults, or none. Without it: all, or none if workloads are chosen.
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    #[arg(value_parser = fault)]
    pub(crate) fault: Vec<Option<Fault>>,

    /// Milliseconds that are added to each round trip to MariaDB and to Redis.
    #[arg(long, value_name = "MS", num_args = 1.., value_delimiter = ',', default_value = "0")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) network_ms: Vec<u32>,

    /// How often each run is made.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,

    /// How long each run of throughput and spread takes.
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,

    /// Only correctness and the pause past the TTL.
    #[arg(long, conflicts_with_all = ["workload", "fault"])]
    pub(crate) quick: bool,

    /// Keeps the database to look at it afterwards; a private server runs until Ctrl-C.
    #[arg(long)]
    pub(crate) keep: bool,

    /// Where contest.json goes.
    #[arg(long, value_name = "DIR", default_value = "target/contest")]
    pub(crate) out: PathBuf,

    /// Lists strategies, workloads and faults, and ends.
    #[arg(long)]
    pub(crate) list: bool,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// One applicant, in a process of its own.
    #[command(hide = true)]
    Applicant { socket: PathBuf },
}

const EXIT_CODES: &str = "\
Exit codes:
    0  every run was as expected
    1  a correct strategy lost updates or oversold places, or a run failed
    2  a wrong strategy or a fault was not caught
    3  the database, the masters or the results directory cannot be used
   64  wrong usage
   70  an error of the contest itself
  130  interrupted; contest.json is partial";

pub(crate) mod code {
    pub(crate) const WRONG: u8 = 1;
    pub(crate) const NOT_CAUGHT: u8 = 2;
    pub(crate) const ENVIRONMENT: u8 = 3;
    pub(crate) const USAGE: u8 = 64;
    pub(crate) const INTERNAL: u8 = 70;
    pub(crate) const INTERRUPTED: u8 = 130;
}

fn fault(name: &str) -> Result<Option<Fault>, String> {
    if name == "none" { Ok(None) } else { name.parse().map(Some) }
}

impl Options {
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let chosen = |kind: &Kind| self.strategy.is_empty() || self.strategy.contains(kind);
        Kind::ALL.into_iter().filter(chosen).collect()
    }

    /// The chosen workloads. A choice of faults alone chooses no workload: faults have their own.
    pub(crate) fn workloads(&self) -> Vec<Workload> {
        if self.quick {
            return vec![Workload::Rush, Workload::LastPlace];
        }
        let all = self.workload.is_empty() && self.fault.iter().all(Option::is_none);
        Workload::ALL.into_iter().filter(|one| all || self.workload.contains(one)).collect()
    }

    pub(crate) fn faults(&self) -> Vec<Fault> {
        if self.quick {
            return vec![Fault::PausePastTtl];
        }
        if self.fault.is_empty() && !self.workload.is_empty() {
            return Vec::new();
        }
        let chosen = |fault: &Fault| self.fault.is_empty() || self.fault.contains(&Some(*fault));
        Fault::ALL.into_iter().filter(chosen).collect()
    }
}
