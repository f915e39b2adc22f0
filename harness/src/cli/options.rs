//! The options of `run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::Selection;
pub use crate::real::Backend;
use crate::report::Format;

/// The scenarios to run, the backend, and the output.
#[derive(Clone, Debug, Default, Args)]
pub struct RunOptions {
    /// The scenarios to run.
    #[command(flatten)]
    pub selection: Selection,
    /// What runs the masters
    #[arg(long, value_enum, default_value_t, value_name = "BACKEND")]
    pub backend: Backend,
    /// The seed of all random choices of the simulation; grows by one with each of --repeat. Real
    /// masters and clients do not follow it; it is only recorded with their results. Default: a
    /// random one
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// How many scenarios run at once. Their masters share this machine, and delays show in the
    /// record: use more than one only on an idle machine with many cores
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// Run each scenario twice and compare the two results, byte by byte; only with --backend sim
    /// or library
    #[arg(long)]
    pub check_determinism: bool,
    /// Where report.html, result.json, junit.xml and the histories go. Default: target/chaos in a
    /// Cargo project, else chaos-out
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Stop at the first run that does not come out as expected
    #[arg(long)]
    pub fail_fast: bool,
    /// The clients: a command, as for a shell, that conforms to the client protocol (`client-check`
    /// checks it). Default: this project's lock
    #[arg(long, value_name = "CMD")]
    pub client: Option<String>,
    /// How long the clients of a run may take until they are ready: fifty interpreters on two
    /// cores need more than the default, 10s
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub ready_timeout: Option<Duration>,
    /// How many masters must grant a lock: clients know only the first 2N - 1 masters. 1 checks a
    /// lock of a single server by its own promise. Leaves out scenarios whose clients have lists
    /// of masters of their own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub quorum: Option<u8>,
    /// The image of the masters; only with containers
    #[arg(long, value_name = "NAME")]
    pub image: Option<String>,
    /// How to print it; github adds annotations and a summary of the job
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
    /// Run everything this many times, each with the next seed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Leave the n-th fault out, counted from 1: shows that the scenario would detect its absence
    /// (exit code 2 is then the good result)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub without_fault: Option<u32>,
    /// Run again whenever one of these files changes, or one is added to these folders, until
    /// Ctrl-C
    #[arg(long, requires = "paths")]
    pub watch: bool,
    /// Print the reasons and the timeline of expected violations too
    #[arg(long)]
    pub explain: bool,
}
