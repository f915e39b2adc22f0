//! `search`: looks for runs in which the lock violates its guarantees. Defines the options and the
//! exit code. `chance.rs` runs random scenarios, `exhaustive.rs` all schedules of a few faults,
//! `finds.rs` writes a file for each find, `output.rs` formats the output.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::run::listen;
use super::words::{Shape, time, unwritten, usual_folder};
use crate::report::{Code, Out};
use redquorum_scenario::Mutant;

mod chance;
mod exhaustive;
mod finds;
mod output;

/// Each of this many seeds is short enough to type.
const SEEDS: u64 = u32::MAX as u64;

/// The client processes of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Through {
    /// The shipped machines, or mutants of them.
    #[default]
    Machines,
    /// The library itself, in virtual time. The callers of some requests drop their futures, or do
    /// not poll them for a while.
    Library,
}

/// What to search, where, and for how long.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct SearchOptions {
    /// How many masters. Default: 1 to 5, by chance; with --faults 5
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=9))]
    nodes: Option<u8>,
    /// Instead of random scenarios run all schedules of up to this many faults, on a few base
    /// scenarios
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u8).range(0..=9),
        conflicts_with_all = ["runs", "seed", "outside", "require_coverage"])]
    faults: Option<u8>,
    /// With --faults: run the same schedules once more with the lock's defences switched on, and
    /// print a table of the differences. The files are of violations that the defences do not
    /// prevent
    #[arg(long, requires = "faults")]
    defended: bool,
    /// For how long, such as 90s or 10m. Default: 60s; with --faults until
    /// all is done
    #[arg(long = "for", value_name = "TIME", value_parser = time, conflicts_with = "runs")]
    time: Option<Duration>,
    /// How many runs, instead of a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// The number of the first run. The same seed and number of runs give the same result, on any
    /// number of threads. Default: a random one
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Use all faults, including those that no lock can survive: shows how the lock fails, and
    /// counts as wrong only a failure that no fault explains
    #[arg(long)]
    outside: bool,
    /// Use a mutant of the clients, to see whether and how soon the search detects it
    #[arg(long, value_name = "NAME", default_value_t = Mutant::None, hide_default_value = true)]
    mutant: Mutant,
    /// What the client processes are. A find of the library is written as its history, which
    /// `check` checks again and draws
    #[arg(long, value_enum, value_name = "CLIENTS", default_value_t, hide_default_value = true,
        conflicts_with_all = ["faults", "mutant"])]
    through: Through,
    /// How many threads. Default: all cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// The folder for the scenario files of finds, which go to `found` in it. Default: target/chaos
    /// in a Cargo project, else chaos-out
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How to print it
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Shape,
    /// Exit with 2 if the search never reached a situation that it should reach
    #[arg(long)]
    require_coverage: bool,
}

const HELP: &str = "\
Each kind of violation is shrunk to what it takes and written as a scenario file, which `run` repeats.

Exit codes:
  0    no violation; with --outside: no violation without a cause
  1    something went wrong
  2    with --require-coverage: a situation never occurred
  3    the environment: nowhere to write
  64   the command line is wrong
  70   a fault of this program
  130  interrupted; what was found until then is printed and written";

impl SearchOptions {
    fn jobs(&self) -> usize {
        let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.jobs.map_or_else(cores, usize::from)
    }

    fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| rand::random::<u64>() % SEEDS)
    }
}

pub(super) fn main(options: &SearchOptions) -> Result<Code, Code> {
    listen();
    let folder = options.out.clone().unwrap_or_else(usual_folder).join("found");
    let out = Out::create(&folder);
    let out = unwritten(out, "finds", &folder, "name another folder with --out")?;
    match options.faults {
        Some(faults) => exhaustive::main(options, usize::from(faults), &out),
        None => chance::main(options, &out),
    }
}
