//! The command `redquorum`: the lock for every shell, and a tool for those who operate its masters.
//!
//! | module | what it is |
//! |---|---|
//! | `options` | the masters and options of the lock, from a file, the environment and the command line |
//! | `exec` | a command that runs while a lease lasts |
//! | `supervisor` | the process of that command: its signals, its terminal, its end |
//! | `holder` | who holds a resource |
//! | `break_lease` | takes a lease away from its holder |
//! | [`agent`] | leases for a program in any language, and for the fault injector |
//! | `doctor` | looks at your masters, and reports what would hurt a lock on them |
//! | `bench_masters` | how soon masters answer, how right their clocks are, and the options that follow |
//! | `masters` | takes masters through the steps of a move to another set |
//! | `line`, `look` | a connection to one master, and a reading of its clock |
//! | [`page`] | the base of all pages: those of `doctor`, and the reports of the fault injector |
//! | `codes` | the exit codes |

#![forbid(unsafe_code)]
#![cfg(unix)]

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use clap::{CommandFactory, Parser, Subcommand};

pub mod agent;
mod bench_masters;
mod break_lease;
mod codes;
mod doctor;
mod exec;
mod holder;
mod line;
mod look;
mod masters;
mod options;
pub mod page;
mod supervisor;

pub use codes::Code;

/// A lock over independent Redis masters, for every shell.
#[derive(Debug, Parser)]
#[command(name = "redquorum", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a command while a lease lasts
    ///
    /// Acquires the resource, runs the command, keeps the lease alive meanwhile, and gives it back.
    /// The command is stopped before the lease ends: SIGTERM to its process group when the lease
    /// can no longer be extended, SIGKILL a little later.
    #[command(after_help = exec::HELP)]
    Exec(Box<exec::ExecOptions>),
    /// Show who holds a resource
    ///
    /// Asks every master, and changes nothing. The answer is out of date when it is printed.
    #[command(after_help = holder::HELP)]
    Holder(Box<holder::HolderOptions>),
    /// Take a lease away from its holder
    ///
    /// Deletes the keys of exactly this holder, and says what it breaks.
    #[command(after_help = break_lease::HELP)]
    Break(Box<break_lease::BreakOptions>),
    /// Serve leases to programs in any language, by JSON lines
    ///
    /// Reads requests from standard input, or from the connections of a Unix socket. When the input
    /// or a connection ends, its leases are given back.
    #[command(after_help = agent::HELP)]
    Agent(Box<agent::AgentOptions>),
    /// Check real masters for problems that would harm a lock on them
    ///
    /// Checks whether they are reachable and are N independent masters, which data they forget, how
    /// soon they answer, their clocks, and their permissions. Each finding names a remedy.
    #[command(after_help = doctor::HELP)]
    Doctor(Box<doctor::DoctorOptions>),
    /// Measure how soon masters answer and how right their clocks are
    ///
    /// Prints the figures of each master, and the options of a lock that follow from them, each
    /// with its reason.
    #[command(after_help = bench_masters::HELP)]
    BenchMasters(Box<bench_masters::BenchOptions>),
    /// Move a lock to other masters while its clients run
    ///
    /// Shows the step of the move at which the masters are, and takes them to the next one. Without
    /// `plan` it changes their boot markers, which say whose clients may use them.
    #[command(after_help = masters::HELP)]
    Masters(Box<masters::MastersOptions>),
    /// Print the completions of a shell
    ///
    /// bash reads them from ~/.local/share/bash-completion/completions/redquorum.
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, in the format of `man`
    Man,
    #[command(hide = true)]
    Tied(exec::TiedOptions),
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    main_with(std::env::args_os())
}

/// Runs the program with these arguments, the first of which is its name.
pub fn main_with(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are regular output. A closed pipe is not an error.
            drop(error.print());
            return if error.use_stderr() { Code::USAGE } else { Code::SUCCESS }.into();
        }
    };
    let ended = match cli.command {
        Command::Exec(options) => exec::main(*options),
        Command::Break(options) => break_lease::main(*options),
        Command::Agent(options) => agent::serve(*options),
        Command::Holder(options) => holder::main(*options),
        Command::Doctor(options) => doctor::main(&options),
        Command::BenchMasters(options) => bench_masters::main(&options),
        Command::Masters(options) => masters::main(*options),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "redquorum", &mut text);
            say(&String::from_utf8_lossy(&text))
        }
        Command::Man => {
            let mut text = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut text).expect("it grows as needed");
            say(&String::from_utf8_lossy(&text))
        }
        Command::Tied(options) => exec::tied(options),
    };
    ended.unwrap_or_else(|code| code).into()
}

/// Prints a line, or several. A closed pipe ends the program without an error: whoever reads has
/// seen enough.
fn say(text: &str) -> Result<Code, Code> {
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Ok(()) => Ok(Code::SUCCESS),
        Err(why) if why.kind() == std::io::ErrorKind::BrokenPipe => Err(Code::SUCCESS),
        Err(why) => Err(complain(
            Code::SYSTEM,
            &format!("the output cannot be written: {why}"),
            "make room, or write it elsewhere",
        )),
    }
}

/// Prints a value as JSON, for programs and for people who read it.
fn say_json(value: &impl serde::Serialize) -> Result<Code, Code> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|why| complain(Code::INTERNAL, &format!("this is no JSON: {why}"), "report it"))?;
    say(&text)
}

/// What is said on standard error while a lease must be kept: whoever reads it may not go on
/// reading, and nothing waits for that.
static TOLD: OnceLock<mpsc::Sender<String>> = OnceLock::new();
static UNTOLD: AtomicUsize = AtomicUsize::new(0);

fn tell(text: String) {
    let sender = TOLD.get_or_init(|| {
        let (sender, texts) = mpsc::channel::<String>();
        std::thread::spawn(move || {
            for text in texts {
                // If standard error is closed or full, the text is dropped.
                drop(std::io::stderr().write_all(text.as_bytes()));
                UNTOLD.fetch_sub(1, Ordering::Relaxed);
            }
        });
        sender
    });
    UNTOLD.fetch_add(1, Ordering::Relaxed);
    drop(sender.send(text));
}

/// Waits for a moment until all was told.
fn told() {
    let until = Instant::now() + Duration::from_millis(100);
    while UNTOLD.load(Ordering::Relaxed) > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Prints an error and its remedy on standard error. Returns the exit code.
fn complain(code: Code, wrong: &str, fix: &str) -> Code {
    // If standard error is closed or full, the message is dropped: the exit code says the rest.
    drop(writeln!(std::io::stderr(), "redquorum: {wrong}\n  = help: {fix}"));
    code
}

/// Parses a time, such as `10s`.
fn time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write 10s, 250ms or 1h30m"))
}

/// Parses a number of permits.
fn permits(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MOST_PERMITS).contains(number));
    number.ok_or_else(|| format!("write a number from 1 to {MOST_PERMITS}"))
}

/// The most permits of a semaphore.
const MOST_PERMITS: usize = 100;

/// The runtime of a command: it does little at a time, and thousands may run on one machine.
fn runtime() -> Result<tokio::runtime::Runtime, Code> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|why| {
        let fix = "look at the limits of this process";
        complain(Code::SYSTEM, &format!("no runtime could be started: {why}"), fix)
    })
}
