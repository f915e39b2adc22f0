//! The command line: defines the commands, dispatches them, and returns their exit code.
//! `report.rs` prints the progress and results of a run.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

mod check;
mod choose;
mod code;
mod doctor;
mod list;
mod new;
mod options;
mod prove;
mod run;
mod search;
mod stage;
mod words;
mod work;

pub use choose::{Chosen, Selection};
pub use code::{Code, Tally};
pub use options::{Backend, Format, RunOptions};
pub use stage::ScenarioRunner;
pub(crate) use words::{colourful, shell_word};
pub use work::{Plan, run_all};

/// Breaks Redis masters as scenarios describe, and checks the behaviour of a lock on them.
///
/// Without a command it runs scenarios; without a path, those that come with the program.
#[derive(Debug, Parser)]
#[command(name = "redquorum-chaos", version, subcommand_precedence_over_arg = true)]
#[command(after_help = code::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunOptions,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run scenarios (the default)
    #[command(after_help = code::HELP)]
    Run(Box<RunOptions>),
    /// Show the scenarios and the expectation of each
    List(ListOptions),
    /// Look for runs in which the lock violates its guarantees
    ///
    /// Runs random scenarios, in virtual time, on all cores. It uses only faults that the lock must
    /// survive, so that every violation is a bug.
    Search(Box<search::SearchOptions>),
    /// Check a recorded run again
    ///
    /// Runs no scenario: the history contains everything that the checkers need, including the
    /// scenario and its expectation. Exit codes are those of `run`.
    Check(CheckOptions),
    /// Write a new scenario to start from
    ///
    /// Writes scenarios/NAME.toml if that folder exists, else NAME.toml. The scenario can run as it
    /// is. An existing file is left alone.
    New {
        /// Its name: lower-case letters, digits and `-`
        name: String,
    },
    /// Check real masters for problems that would harm a lock on them
    ///
    /// Checks whether they are reachable and are N independent masters, which data they forget, how
    /// soon they answer, their clocks, and their permissions. Each finding names a remedy.
    #[command(after_help = doctor::HELP)]
    Doctor(doctor::DoctorOptions),
    /// Explore every state that the library's machines can reach within stated bounds
    ///
    /// Explores every interleaving of messages, timers, drops and faults within the bounds, which
    /// are printed. Takes about a minute. Exit code 0 if every rule holds in every state, 1 if one
    /// is broken (the shortest way there is printed), 2 if not all states could be explored.
    Prove(prove::ProveOptions),
    /// Print the JSON Schema of scenario files
    Schema,
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
        /// The command, as for a shell, as `run --client` takes it
        #[arg(value_name = "CMD")]
        command: String,
    },
}

/// What to list.
#[derive(Debug, Args)]
pub(crate) struct ListOptions {
    #[command(flatten)]
    selection: Selection,
    /// How to print it
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: list::Shape,
}

/// The run to check.
#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// The recorded run: a `history.jsonl`
    #[arg(value_name = "HISTORY.jsonl")]
    history: std::path::PathBuf,
    /// Write its timeline to this file, as HTML
    #[arg(long, value_name = "FILE.html")]
    report: Option<std::path::PathBuf>,
    /// Write its timeline to this file, in the Trace Event format that Perfetto opens
    #[arg(long, value_name = "FILE.json")]
    trace: Option<std::path::PathBuf>,
    /// How to print the verdict
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: list::Shape,
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
            let code = if error.use_stderr() { Code::Usage } else { Code::AsExpected };
            drop(error.print());
            return code.into();
        }
    };
    match cli.command {
        None => run::main(&cli.run),
        Some(Command::Run(options)) => run::main(&options),
        Some(Command::Search(options)) => search::main(&options),
        Some(Command::List(options)) => list::main(&options),
        Some(Command::Check(options)) => check::main(&options),
        Some(Command::New { name }) => new::main(&name),
        Some(Command::Doctor(options)) => doctor::main(&options),
        Some(Command::Prove(options)) => prove::main(&options),
        Some(Command::Schema) => words::say_json(&crate::scenario::schema()),
        Some(Command::Client) => return crate::client::main(),
        Some(Command::ClientCheck { command }) => client_check(&command),
    }
    .into()
}

/// Checks a client command, and prints each result as soon as it is known.
fn client_check(command: &str) -> Code {
    match crate::client_check::check(command, &mut std::io::stdout()) {
        Ok(true) => Code::AsExpected,
        Ok(false) => Code::Differs,
        Err(why) => {
            words::complain(&why, "the masters of the check are redis-server processes");
            Code::Environment
        }
    }
}

/// The names of the commands, for suggestions after a misspelled one.
fn commands() -> Vec<String> {
    Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}
