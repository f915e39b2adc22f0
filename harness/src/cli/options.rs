//! The options of `run`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Selection;
use crate::real::Choice;

/// What to run, on what, and what to make of it.
#[derive(Clone, Debug, Default, Args)]
pub struct RunOptions {
    /// Which scenarios.
    #[command(flatten)]
    pub selection: Selection,
    /// What runs the masters
    #[arg(long, value_enum, default_value_t, value_name = "BACKEND")]
    pub backend: Backend,
    /// Where all chance of the simulation comes from; grows by one with each of --repeat. Real masters
    /// and clients do not follow it, and it is only kept with their results. Default: a random one
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// How many scenarios run at once. The masters of all share this machine, and what is late
    /// there is late in the record: more than one only on an idle machine with many cores
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// Run each twice and compare the two, byte by byte; only with --backend sim
    #[arg(long)]
    pub check_determinism: bool,
    /// Where report.html, result.json, junit.xml and the histories go. Default: target/chaos in a Cargo
    /// project, else chaos-out
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Stop at the first run that does not come out as expected
    #[arg(long)]
    pub fail_fast: bool,
    /// The clients: a command, as for a shell, that speaks the client protocol (`client-check`
    /// tries it). Default: this project's lock
    #[arg(long, value_name = "CMD")]
    pub client: Option<String>,
    /// The image of the masters; only with containers
    #[arg(long, value_name = "NAME")]
    pub image: Option<String>,
    /// How to print it; github adds annotations and a summary of the job
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
    /// Run everything so many times, each with the next seed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Leave the n-th fault out, counted from 1: shows that a scenario would notice (exit code 2
    /// is then the good answer)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub without_fault: Option<u32>,
}

/// What runs the masters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// Containers where an engine answers and they are built in, else processes where there is a
    /// server, else the simulation.
    #[default]
    Auto,
    /// The simulation, in virtual time: the same seed gives the same results, to the byte.
    Sim,
    /// `redis-server` processes.
    Process,
    /// Containers.
    Container,
    /// Each that is at hand, and a comparison of their verdicts.
    All,
}

/// How to print what happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
    /// For people, with annotations for GitHub.
    Github,
}

impl From<Backend> for Choice {
    fn from(backend: Backend) -> Self {
        match backend {
            Backend::Auto | Backend::All => Self::Auto,
            Backend::Sim => Self::Sim,
            Backend::Process => Self::Process,
            Backend::Container => Self::Container,
        }
    }
}
