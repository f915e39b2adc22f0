//! `doctor`: inspects real masters. Defines the options, the output and the exit code.

use std::time::Duration;

use clap::Args;
use redquorum_protocol::{Drift, Fingerprint, Guard, MAX_NODES};

use super::Code;
use super::list::Shape;
use super::words::{complain, say, say_json};
use crate::doctor::{Address, Diagnosis, ExamineOptions, Finding, Level, examine};

pub(super) const HELP: &str = "\
It acquires, extends and releases a lock of its own on each master, redquorum:doctor:…, and leaves
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
    fleet: Option<String>,
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
}

fn time(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("write a number with a unit, such as 100ms or 30s".to_owned()),
    }
}

pub(super) fn main(options: &DoctorOptions) -> Code {
    let (addresses, wish) = match wish(options) {
        Ok(both) => both,
        Err((wrong, mend)) => {
            complain(&wrong, mend);
            return Code::Usage;
        }
    };
    let diagnosis = examine(&addresses, &wish);
    let said = match options.format {
        Shape::Json => say_json(&diagnosis),
        Shape::Human => say(&told(&diagnosis)),
    };
    match said {
        Code::AsExpected if diagnosis.nothing_answered() => Code::Environment,
        Code::AsExpected if diagnosis.count(Level::Error) > 0 => Code::Differs,
        code => code,
    }
}

fn wish(options: &DoctorOptions) -> Result<(Vec<Address>, ExamineOptions), (String, &'static str)> {
    if options.urls.len() > MAX_NODES {
        let wrong = format!("{} masters are more than a lock takes", options.urls.len());
        return Err((wrong, "give at most 64"));
    }
    let addresses = Address::read_all(&options.urls)
        .map_err(|why| (why, "give each master as the lock is given it"))?;
    // The marker of a guard stores whole milliseconds.
    let guard = match options.max_ttl {
        Some(time) if time < Duration::from_millis(1) => {
            return Err((format!("--max-ttl {time:?} is too short"), "give at least 1ms"));
        }
        Some(time) => Some(
            Guard::new(time, Drift::default(), 0)
                .map_err(|error| (format!("--max-ttl: {error}"), "give at most 24h"))?,
        ),
        None => None,
    };
    let guard = match (guard, options.clock_guard) {
        (Some(guard), Some(bound)) => Some(guard.with_clock_bound(bound).map_err(|error| {
            (format!("--clock-guard: {error}"), "give at least 1ms and less than --max-ttl")
        })?),
        (guard, _) => guard,
    };
    let fleet = match &options.fleet {
        Some(name) => Fingerprint::of_name(name),
        None => Fingerprint::of_addresses(addresses.iter().map(|address| &address.spelled)),
    };
    let guard = guard.map(|guard| guard.over(fleet));
    let (node_timeout, prefix) = (options.node_timeout, options.prefix.clone());
    Ok((addresses, ExamineOptions { node_timeout, guard, prefix, init: options.init }))
}

/// The findings by master, then those that concern all masters, then a line with the counts.
fn told(diagnosis: &Diagnosis) -> String {
    let mut lines = Vec::new();
    let of = |name: Option<&String>| {
        let all = diagnosis.findings.iter().filter(move |finding| finding.master.as_ref() == name);
        all.flat_map(lines_of).collect::<Vec<String>>()
    };
    for master in &diagnosis.masters {
        let version = master.version.as_ref().map(|version| format!("  ({version})"));
        lines.push(format!("{}{}", master.name, version.unwrap_or_default()));
        lines.extend(of(Some(&master.name)));
    }
    lines.push("all masters".to_owned());
    lines.extend(of(None));
    let count = |level, one: &str, many: &str| match diagnosis.count(level) {
        1 => format!("1 {one}"),
        number => format!("{number} {many}"),
    };
    lines.push(format!(
        "{}: {}, {}, {} ok",
        match diagnosis.masters.len() {
            1 => "1 master".to_owned(),
            number => format!("{number} masters"),
        },
        count(Level::Error, "error", "errors"),
        count(Level::Warn, "warning", "warnings"),
        diagnosis.count(Level::Ok)
    ));
    lines.join("\n")
}

fn lines_of(finding: &Finding) -> Vec<String> {
    let Finding { level, check, text, mend, .. } = finding;
    let first = format!("  {:5}  {check:12}  {text}", level.name());
    let mend = mend.as_ref().map(|mend| format!("{:23}= help: {mend}", ""));
    [Some(first), mend].into_iter().flatten().collect()
}
