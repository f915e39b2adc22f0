//! The command line: defines the commands, dispatches them, and returns their exit code.
//! `report.rs` prints the progress and results of a run.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::client_check::{self, USUAL_QUORUM};
use crate::report::{Code, EXIT_CODES};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use serde::Serialize;

mod model_check;
mod run;
mod scenarios;
mod search;
mod work;

pub use crate::real::ScenarioRunner;
pub use run::{BackendKind, RunOptions};
pub use scenarios::{Chosen, Selection};
use work::run_drawn;
pub use work::{Plan, run_all};

/// Breaks Redis masters as scenarios describe, and checks the behaviour of a lock on them.
///
/// Without a command it runs scenarios; without a path, those that come with the program.
#[derive(Debug, Parser)]
#[command(name = "redquorum-chaos", version, subcommand_precedence_over_arg = true)]
#[command(after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunOptions,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run scenarios (the default)
    #[command(after_help = EXIT_CODES)]
    Run(Box<RunOptions>),
    /// Show the scenarios and the expectation of each
    List(scenarios::ListOptions),
    /// Look for runs in which the lock violates its guarantees
    ///
    /// Runs random scenarios, in virtual time, on all cores. It uses only faults that the lock must
    /// survive, so that every violation is a bug.
    Search(Box<search::SearchOptions>),
    /// Check a recorded run again
    ///
    /// Runs no scenario: the history contains everything that the checkers need, including the
    /// scenario and its expectation. Exit codes are those of `run`.
    Check(run::CheckOptions),
    /// Write a new scenario to start from
    ///
    /// Writes scenarios/NAME.toml if that folder exists, else NAME.toml. The scenario can run as it
    /// is. An existing file is left alone.
    New {
        /// Its name: lower-case letters, digits and `-`
        name: String,
    },
    /// Explore every state that the library's machines can reach within stated bounds
    ///
    /// Explores every interleaving of messages, timers, drops and faults within the bounds, which
    /// are printed. Takes one to two minutes, and up to 5.4 GiB of memory. Exit code 0 if every
    /// rule holds in every state, 1 if one is broken (the shortest way there is printed), 2 if not
    /// all states could be explored.
    ModelCheck(model_check::ModelCheckOptions),
    /// Print the JSON Schema of scenario files
    Schema,
    /// Print the completions of a shell
    ///
    /// bash reads them from ~/.local/share/bash-completion/completions/redquorum-chaos.
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, in the format of `man`
    Man,
    /// Run a client of this project's lock, for the harness (uses JSON lines)
    ///
    /// `run` starts it if there is no --client. REDQUORUM_NODES has the masters' URLs, separated by
    /// commas, and REDQUORUM_OPTIONS the lock's options, as JSON.
    Client,
    /// Check whether a command conforms to the client protocol
    ///
    /// Starts three masters of its own and prints a line for each check: ok, wrong, or skipped.
    /// Exit code 0 if nothing is wrong, 1 if something is, 3 if there is no server to check it
    /// with.
    ClientCheck {
        /// How many masters must grant a lock: the check starts 2N - 1 masters. 1 checks the driver
        /// of a lock on a single server
        #[arg(long, value_name = "N", default_value_t = USUAL_QUORUM, value_parser = clap::value_parser!(u8).range(1..=5))]
        quorum: u8,
        /// The command, as for a shell, as `run --client` takes it
        #[arg(value_name = "CMD")]
        command: String,
    },
}

/// An option of `run` before another command is an error: no other command knows it.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let program = Cli::command();
    let own: Vec<clap::Id> = program.get_arguments().map(|own| own.get_id().clone()).collect();
    let matches = program.try_get_matches_from(arguments)?;
    let is_given =
        |id: &clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
    if let Some((command, _)) = matches.subcommand()
        && own.iter().any(is_given)
    {
        let message = format!("write `{command}` first: options and paths come behind the command");
        return Err(Cli::command().error(ErrorKind::ArgumentConflict, message));
    }
    Cli::from_arg_matches(&matches)
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    main_with(std::env::args_os())
}

/// Runs the program with these arguments, the first of which is its name.
pub fn main_with(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are regular output. A closed pipe is not an error.
            drop(error.print());
            let code = if error.use_stderr() { Code::Usage } else { Code::AsExpected };
            return code.into();
        }
    };
    let ended = match cli.command {
        None => run::main(&cli.run),
        Some(Command::Run(options)) => run::main(&options),
        Some(Command::Search(options)) => search::main(&options),
        Some(Command::List(options)) => scenarios::list(&options),
        Some(Command::Check(options)) => run::check(&options),
        Some(Command::New { name }) => scenarios::new(&name),
        Some(Command::ModelCheck(options)) => model_check::main(&options),
        Some(Command::Schema) => say_json(&redquorum_scenario::schema()),
        Some(Command::Completions { shell }) => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "redquorum-chaos", &mut text);
            say(String::from_utf8_lossy(&text).trim_end())
        }
        Some(Command::Man) => {
            let mut text = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut text).expect("it grows as needed");
            say(String::from_utf8_lossy(&text).trim_end())
        }
        Some(Command::Client) => return crate::client::main().into(),
        Some(Command::ClientCheck { quorum, command }) => {
            client_check(&command, quorum, &mut io::stdout())
                .map(|well| if well { Code::AsExpected } else { Code::Differs })
        }
    };
    ended.unwrap_or_else(|code| code).into()
}

/// Checks a client command, and writes each result as soon as it is known. Returns whether all is
/// well.
fn client_check(command: &str, quorum: u8, out: &mut dyn Write) -> Result<bool, Code> {
    client_check::check(command, quorum, out).map_err(|why| {
        complain(Code::Environment, &why, "the masters of the check are redis-server processes")
    })
}

/// The names of the commands, for suggestions after a misspelled one.
fn commands() -> Vec<String> {
    Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

/// How to print a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// As readable text.
    #[default]
    Human,
    /// As JSON.
    Json,
}

/// Prints an error and its remedy on standard error. Returns the exit code.
fn complain(code: Code, wrong: &str, fix: &str) -> Code {
    // If standard error is closed, the message is dropped.
    drop(writeln!(io::stderr(), "error: {wrong}\n  = help: {fix}"));
    code
}

/// Prints why something cannot be written, if it cannot.
fn unwritten<T>(written: io::Result<T>, what: &str, path: &Path, fix: &str) -> Result<T, Code> {
    written.map_err(|error| {
        let wrong = format!("{what} cannot be written to {}: {error}", path.display());
        complain(Code::Environment, &wrong, fix)
    })
}

/// Prints a line. A closed pipe is not an error.
fn say(text: &str) -> Result<Code, Code> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let wrong = format!("standard output cannot be written: {error}");
            Err(complain(Code::Environment, &wrong, "look where it leads"))
        }
        _ => Ok(Code::AsExpected),
    }
}

/// Prints a value as JSON.
fn say_json(value: &impl Serialize) -> Result<Code, Code> {
    let text = serde_json::to_string_pretty(value).map_err(|error| {
        complain(Code::Internal, &format!("this is no JSON: {error}"), "please report it")
    })?;
    say(&text)
}

/// Reads the time of an option, which is not zero.
fn time(text: &str) -> Result<Duration, &'static str> {
    match humantime::parse_duration(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("write a number with a unit, such as 100ms, 90s or 10m"),
    }
}

/// A seed that is short enough to type, and that every JSON reader keeps exactly.
fn new_seed() -> u64 {
    u64::from(rand::random::<u32>())
}

/// The folder for results without an option for it: in Cargo's target folder if there is a Cargo
/// project, else in the current folder.
fn usual_folder() -> PathBuf {
    let project = Path::new("target").is_dir() || Path::new("Cargo.toml").is_file();
    PathBuf::from(if project { "target/chaos" } else { "chaos-out" })
}

/// This program, in commands for the user to repeat. In a Cargo project the alias works.
fn program() -> &'static str {
    if std::env::var_os("CARGO").is_some() { "cargo chaos" } else { "redquorum-chaos" }
}
