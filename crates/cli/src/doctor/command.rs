//! The command `doctor`: its options, its output and its exit code.

use std::fs;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use redquorum_scenario::numbered;

use super::{Diagnosis, ExamineOptions, Finding, Level, examine, page};
use crate::codes::Code;
use crate::options::{LockOptions, plan};
use crate::{complain, runtime, say, say_json};

pub(crate) const HELP: &str = "\
It acquires, extends and releases a lock of its own on each master, redquorum-doctor:…, and leaves
nothing behind. No password is printed.

Exit codes:
  0    no error (there may be warnings)
  1    an error
  64   the command line or an option is wrong
  69   none of the masters could be reached
  70   a fault of this program
  71   the output or the page cannot be written";

/// What to do, and the lock that will use the masters.
#[derive(Debug, Args)]
pub(crate) struct DoctorOptions {
    /// Mark masters that have no marker, so that a lock with a guard trusts them at once
    ///
    /// This asserts that no lease is alive that any of them has granted and does not remember. It
    /// is true of masters that are new, and false of masters that have just lost their data. An
    /// existing marker is left as it is. It needs the guard of the lock, by --restart-guard.
    #[arg(long)]
    init: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write the findings to this file too, as a page
    #[arg(long, value_name = "FILE.html", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
    /// The shard whose masters to look at, if the resources are spread over several
    #[arg(long, value_name = "NAME")]
    shard: Option<String>,
    #[command(flatten)]
    lock: LockOptions,
}

pub(crate) fn main(options: &DoctorOptions) -> Result<Code, Code> {
    let plan = plan(&options.lock.builder()?, options.shard.as_deref())?;
    if options.init && plan.guard.is_none() {
        let fix = "add --restart-guard with the longest TTL and lock delay of any client, such as \
                   --restart-guard 30s: the marker names it";
        return Err(complain(Code::USAGE, "--init marks masters for a lock with a guard", fix));
    }
    let examined = ExamineOptions {
        node_timeout: plan.node_timeout,
        guard: plan.guard,
        quorum: plan.quorum,
        prefix: plan.prefix,
        init: options.init,
    };
    let runtime = runtime()?;
    let diagnosis = runtime.block_on(examine(&plan.nodes, &examined));
    // A node may leave a thread that hangs in a resolver.
    runtime.shutdown_background();
    if options.json {
        say_json(&diagnosis)?;
    } else {
        say(&text(&diagnosis))?;
    }
    if let Some(path) = &options.html {
        let page = page::render(&diagnosis).map_err(|why| {
            complain(Code::INTERNAL, &format!("the page cannot be made: {why}"), "report it")
        })?;
        fs::write(path, page).map_err(|why| {
            let wrong = format!("the page cannot be written to {}: {why}", path.display());
            complain(Code::SYSTEM, &wrong, "make room, or name another file with --html")
        })?;
    }
    Ok(if diagnosis.nothing_answered() {
        Code::UNAVAILABLE
    } else if diagnosis.count(Level::Error) > 0 {
        Code::NO
    } else {
        Code::SUCCESS
    })
}

/// The masters, their findings, and a line with the verdict.
fn text(diagnosis: &Diagnosis) -> String {
    let mut lines = Vec::new();
    for (index, master) in diagnosis.masters.iter().enumerate() {
        let version = master.version.as_ref().map(|version| format!("  ({version})"));
        let version = version.unwrap_or_default();
        lines.push(format!("master {}  {}{version}", index + 1, master.name));
    }
    for group in diagnosis.groups() {
        let Finding { level, check, text, fix, .. } = group.finding;
        let masters = match group.masters.as_slice() {
            [] => String::new(),
            all if all.len() == diagnosis.masters.len() && all.len() > 1 => {
                "each master: ".to_owned()
            }
            some => format!("{}: ", numbered(some)),
        };
        lines.push(format!("  {:5}  {check:12}  {masters}{text}", level.name()));
        lines.extend(fix.as_ref().map(|fix| format!("{:23}= help: {fix}", "")));
    }
    lines.push(diagnosis.verdict());
    lines.join("\n")
}
