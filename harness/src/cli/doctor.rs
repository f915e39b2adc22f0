//! `doctor`: inspects real masters. Defines the options, the output and the exit code.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use redquorum_protocol::{Drift, Fingerprint, Guard, MAX_NODES};

use super::{Shape, complain, say, say_json, time, unwritten};
use crate::doctor::{Address, Diagnosis, ExamineOptions, Finding, Level, examine};
use crate::report::{self, Code};
use redquorum_checker::named as masters;

pub(super) const HELP: &str = "\
It acquires, extends and releases a lock of its own on each master, redquorum-doctor:…, and leaves
nothing behind. No password is printed.

Exit codes:
  0    no error (there may be warnings)
  1    an error
  3    none of the masters could be reached
  64   the command line is wrong
  70   a fault of this program";

/// The masters, and the options of the lock that will use them.
#[derive(Debug, Args)]
pub(super) struct DoctorOptions {
    /// The masters, as the lock is given them: redis://[[user]:password@]host[:port][/database]
    #[arg(value_name = "URL", required = true)]
    urls: Vec<String>,
    /// How long the lock waits for a master
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "100ms")]
    node_timeout: Duration,
    /// The longest TTL of a lock with a guard: markers are compared with it
    #[arg(long, value_name = "TIME", value_parser = time)]
    max_ttl: Option<Duration>,
    /// The clock guard of a lock that has one: markers are compared with it
    #[arg(long, value_name = "TIME", value_parser = time, requires = "max_ttl")]
    clock_guard: Option<Duration>,
    /// The name of the set of masters, if the lock gets one by `masters_id`. Otherwise its
    /// addresses, as given here, are the name
    #[arg(long, value_name = "NAME", requires = "max_ttl")]
    masters_id: Option<String>,
    /// The prefix of the lock's keys, if permissions are limited to it
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    prefix: String,
    /// Mark masters that have no marker, so that a lock with a guard trusts them at once
    ///
    /// This asserts that no lease is alive that any of them has granted and does not remember. It
    /// is true of masters that are new, and false of masters that have just lost their data. An
    /// existing marker is left as it is.
    #[arg(long, requires = "max_ttl")]
    init: bool,
    /// How to print it
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Shape,
    /// Write the findings to this file too, as a page in the style of report.html
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
}

pub(super) fn main(options: &DoctorOptions) -> Result<Code, Code> {
    let (addresses, examined) =
        lock(options).map_err(|(wrong, fix)| complain(Code::Usage, &wrong, fix))?;
    let diagnosis = examine(&addresses, &examined);
    match options.format {
        Shape::Json => say_json(&diagnosis)?,
        Shape::Human => say(&text(&diagnosis))?,
    };
    if let Some(page) = &options.html {
        let written = report::render_diagnosis(&diagnosis).and_then(|text| fs::write(page, text));
        unwritten(written, "the page", page, "make room, or name another file with --html")?;
    }
    Ok(if diagnosis.nothing_answered() {
        Code::Environment
    } else if diagnosis.count(Level::Error) > 0 {
        Code::Differs
    } else {
        Code::AsExpected
    })
}

/// The masters and the lock on them, or what is wrong and its remedy.
fn lock(options: &DoctorOptions) -> Result<(Vec<Address>, ExamineOptions), (String, &'static str)> {
    if options.urls.len() > MAX_NODES {
        let wrong = format!("{} masters are more than a lock takes", options.urls.len());
        return Err((wrong, "give at most 64"));
    }
    let addresses = Address::read_all(&options.urls)
        .map_err(|why| (why, "give each master as the lock is given it"))?;
    let masters_id = match &options.masters_id {
        Some(name) => Fingerprint::of_name(name),
        None => Fingerprint::of_addresses(addresses.iter().map(|address| &address.spelled)),
    };
    let mut guard = None;
    if let Some(max_ttl) = options.max_ttl {
        // The marker of a guard stores whole milliseconds.
        if max_ttl < Duration::from_millis(1) {
            return Err((format!("--max-ttl {max_ttl:?} is too short"), "give at least 1ms"));
        }
        let mut own = Guard::new(max_ttl, Drift::default(), 0)
            .map_err(|error| (format!("--max-ttl: {error}"), "give at most 24h"))?;
        if let Some(bound) = options.clock_guard {
            own = own.with_clock_bound(bound).map_err(|error| {
                let fix = "give at least 1ms and less than --max-ttl";
                (format!("--clock-guard: {error}"), fix)
            })?;
        }
        guard = Some(own.over(masters_id));
    }
    let (node_timeout, prefix) = (options.node_timeout, options.prefix.clone());
    Ok((addresses, ExamineOptions { node_timeout, guard, prefix, init: options.init }))
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
            some => format!("{}: ", masters(some)),
        };
        lines.push(format!("  {:5}  {check:12}  {masters}{text}", level.name()));
        lines.extend(fix.as_ref().map(|fix| format!("{:23}= help: {fix}", "")));
    }
    lines.push(diagnosis.verdict());
    lines.join("\n")
}
