//! Doctor: looks at real masters and reports what would hurt a lock on them. `command.rs` has its
//! command line.
//!
//! ```text
//! node ─▶ visit: queries one master ─▶ server info: its replies ─▶ checks ─▶ findings
//! ```
//!
//! Only a visit opens connections and reads clocks, by its `line`. The evaluation of the replies is
//! pure. A visit leaves nothing behind but the scripts, which locks load anyway, and a boot marker
//! if that was requested.
//!
//! The doctor reads the wall clock, since it reports how far the masters' wall clocks are from it
//! and from each other.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use redquorum::connect::Node;
use redquorum_protocol::wire::Command;
use redquorum_protocol::{Guard, Quorum};
use serde::Serialize;
use server_info::{Info, Init, ServerInfo, Visit};
use tokio::time::{Instant, timeout_at};

use crate::line::{Line, Unreached, on_each, reply};

mod checks;
mod command;
mod page;
mod permissions;
mod questions;
mod server_info;

pub(crate) use command::{DoctorOptions, HELP, main};
pub(crate) use questions::identity;

/// The severity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// Limits the lock, which may be intended.
    Warn,
    /// The lock does not work, or an assumption of its promise does not hold or is about to break.
    Error,
}

impl Level {
    /// The name of the level.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// See the [module](self).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Finding {
    /// The severity.
    pub(crate) level: Level,
    /// The master that it concerns. `None` means all of them together.
    pub(crate) master: Option<String>,
    /// The name of the check, for programs.
    pub(crate) check: &'static str,
    /// The result, in one line.
    pub(crate) text: String,
    /// How to fix it, for every level but `Ok`.
    pub(crate) fix: Option<String>,
}

impl Finding {
    /// A check that passed.
    fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { level: Level::Ok, master: None, check, text: text.into(), fix: None }
    }

    /// A check that failed, and its fix.
    fn bad(
        level: Level,
        check: &'static str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { level, master: None, check, text: text.into(), fix: Some(fix.into()) }
    }

    /// A warning.
    fn warn(check: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::bad(Level::Warn, check, text, fix)
    }

    /// An error.
    fn error(check: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::bad(Level::Error, check, text, fix)
    }
}

/// Timeout of a visit: nothing else bounds the resolution of names.
const VISIT_TIMEOUT: Duration = Duration::from_secs(30);

/// How the lock uses the masters, and what to do to them.
#[derive(Clone, Debug)]
pub(crate) struct ExamineOptions {
    /// How long a round of the lock waits for a master.
    pub(crate) node_timeout: Duration,
    /// The guard of the lock, if it has one.
    pub(crate) guard: Option<Guard>,
    /// Which masters are a quorum.
    pub(crate) quorum: Quorum,
    /// The prefix of the lock's keys: permissions may be limited to it.
    pub(crate) prefix: Vec<u8>,
    /// Set the boot marker of masters that have none.
    pub(crate) init: bool,
}

/// The result. `doctor --json` prints this as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Diagnosis {
    schema: u32,
    /// The masters that were visited, in the given order.
    pub(crate) masters: Vec<Master>,
    /// The findings by master, the worst first. Findings that concern all masters come last.
    pub(crate) findings: Vec<Finding>,
}

/// A master in the result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Master {
    /// Its name in findings, which is that in the lock's reports. Not the URL, which may contain a
    /// password.
    pub(crate) name: String,
    /// Whether the master replied.
    pub(crate) reached: bool,
    /// Such as `redis 7.0.15`, if the server reports it.
    pub(crate) version: Option<String>,
}

/// Findings that differ only in their master.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    /// One of them.
    pub(crate) finding: &'a Finding,
    /// The numbers of the masters, from 1. Empty for a finding about all masters together.
    pub(crate) masters: Vec<usize>,
}

impl Group<'_> {
    fn is_of(&self, other: &Finding) -> bool {
        let Finding { level, master, check, text, fix } = self.finding;
        (level, check, text, fix) == (&other.level, &other.check, &other.text, &other.fix)
            && master.is_some() == other.master.is_some()
    }
}

impl Diagnosis {
    /// The number of findings of a level.
    pub(crate) fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    /// The findings, those that differ only in their master as one: errors first, and the findings
    /// of one check next to each other.
    pub(crate) fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        let mut checks = Vec::new();
        for finding in &self.findings {
            if !checks.contains(&finding.check) {
                checks.push(finding.check);
            }
            let master = finding.master.as_ref();
            let number = self.masters.iter().position(|known| Some(&known.name) == master);
            let number = number.map(|index| index + 1);
            match groups.iter_mut().find(|group| group.is_of(finding)) {
                Some(group) => group.masters.extend(number),
                None => groups.push(Group { finding, masters: number.into_iter().collect() }),
            }
        }
        groups.sort_by_key(|Group { finding, masters }| {
            let check = checks.iter().position(|check| *check == finding.check);
            (Reverse(finding.level), masters.is_empty(), check)
        });
        groups
    }

    /// What a lock can expect of the masters, and the number of findings of each level.
    pub(crate) fn verdict(&self) -> String {
        let count = |level, one: &str, many: &str| match self.count(level) {
            1 => format!("1 {one}"),
            count => format!("{count} {many}"),
        };
        let masters = match self.masters.len() {
            1 => "1 master".to_owned(),
            count => format!("{count} masters"),
        };
        let works = match self.count(Level::Error) {
            0 => "",
            _ => ": a lock on them does not work, or its promise does not hold",
        };
        format!(
            "{masters}: {}, {}, {} ok{works}",
            count(Level::Error, "error", "errors"),
            count(Level::Warn, "warning", "warnings"),
            self.count(Level::Ok)
        )
    }

    /// Whether no master replied.
    pub(crate) fn nothing_answered(&self) -> bool {
        let silent = |master: &Master| {
            let mut own = self.findings.iter();
            own.any(|found| {
                found.check == "reachable" && found.master.as_ref() == Some(&master.name)
            })
        };
        self.masters.iter().all(|master| !master.reached && silent(master))
    }

    fn of(all: &[ServerInfo], options: &ExamineOptions) -> Self {
        let mut findings = Vec::new();
        for server in all {
            let mut own = checks::of_master(server, options);
            for finding in &mut own {
                finding.master = Some(server.name.clone());
            }
            own.sort_by_key(|finding| Reverse(finding.level));
            findings.extend(own);
        }
        let mut together = checks::of_all(all, options.quorum);
        together.sort_by_key(|finding| Reverse(finding.level));
        findings.extend(together);
        let masters = all.iter().map(|server| Master {
            name: server.name.clone(),
            reached: server.visit.is_ok(),
            version: server.info().and_then(server_info::Info::version),
        });
        Self { schema: 1, masters: masters.collect(), findings }
    }
}

/// Visits all masters at the same time and returns the findings.
pub(crate) async fn examine(nodes: &[Arc<dyn Node>], options: &ExamineOptions) -> Diagnosis {
    let until = Instant::now() + VISIT_TIMEOUT;
    let visits = on_each(nodes, |node| {
        let options = options.clone();
        async move { timeout_at(until, visit(&node, &options)).await }
    });
    let silent = || Unreached::Silent(format!("it could not be asked within {VISIT_TIMEOUT:?}"));
    let visits = visits.await.into_iter().map(|visit| visit.unwrap_or_else(|_| Err(silent())));
    let mut all: Vec<ServerInfo> = nodes
        .iter()
        .zip(visits)
        .map(|(node, visit)| ServerInfo { name: node.name(), visit })
        .collect();
    if let (true, Some(guard)) = (options.init, options.guard) {
        mark_all(nodes, &mut all, guard).await;
    }
    Diagnosis::of(&all, options)
}

/// Visits a master: sends it all requests, over one line, and opens others to test them.
async fn visit(node: &Arc<dyn Node>, options: &ExamineOptions) -> Result<Visit, Unreached> {
    let mut line = Line::open(node).await?;
    let start = std::time::Instant::now();
    let info = reply(questions::info(&mut line).await)?;
    let settings = reply(questions::settings(&mut line).await)?;
    let first = reply(questions::look(&mut line, start).await)?;
    let pings = reply(questions::pings(&mut line).await)?;
    let second = reply(questions::look(&mut line, start).await)?;
    let clock = first.and_then(|first| Ok([first, second?]));
    let marker = reply(questions::marker(&mut line).await)?;
    let is_master = info.as_ref().map_or(true, Info::is_master);
    let mut visit = Visit { info, settings, pings, clock, marker, init: None, trials: Vec::new() };
    if is_master {
        visit.trials = permissions::attempt(&mut line, &visit, &options.prefix).await?;
    }
    Ok(visit)
}

/// Marks each master that has no marker, or none of them, like the library's `initialize_masters`.
///
/// Nothing is written before all masters were looked at. A marker that belongs to other locks shows
/// that the list is wrong, or the guard: then none is marked. Otherwise the masters that are marked
/// would refuse the clients that use them now.
async fn mark_all(nodes: &[Arc<dyn Node>], all: &mut [ServerInfo], guard: Guard) {
    let obstacle = checks::obstacle_to_init(all, guard);
    for (node, server) in nodes.iter().zip(all) {
        let Ok(visit) = &mut server.visit else { continue };
        let done = match &obstacle {
            Some(why) if visit.marker == Ok(None) => Ok(Init::Withheld(why.clone())),
            _ => mark(node, guard, visit).await,
        };
        match done {
            Ok(init) => visit.init = Some(init),
            Err(why) => server.visit = Err(why),
        }
    }
}

/// Sets the boot marker of a master. Writes nothing if the marker's key holds anything.
async fn mark(node: &Arc<dyn Node>, guard: Guard, visit: &mut Visit) -> Result<Init, Unreached> {
    let impossible = |why: &str| Ok(Init::Impossible(why.to_owned()));
    match (&visit.info, &visit.marker) {
        (Err(text), _) | (_, Err(text)) => return impossible(text),
        (Ok(info), _) if !Info::is_master(info) => return impossible("it is not a master"),
        (_, Ok(Some(_))) => return Ok(Init::Had),
        (Ok(_), Ok(None)) => {}
    }
    let Some(run_id) = visit.run_id() else { return impossible("its INFO has no run_id") };
    let mut line = Line::open(node).await?;
    let command = Command::Initialize { marker: guard.marker(&run_id, visit.durable()) };
    let done = match reply(line.run(&command).await)? {
        Ok(value) if value.is_ok() => Init::Marked,
        Ok(_) => Init::Had,
        Err(text) => Init::Impossible(text),
    };
    visit.marker = reply(questions::marker(&mut line).await)?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_that_masters_share_are_one_group_and_errors_come_first() {
        let master = |name: &str| Master { name: name.to_owned(), reached: true, version: None };
        let mut findings = Vec::new();
        let mut found = |master: &str, finding: Finding| {
            let master = (!master.is_empty()).then(|| master.to_owned());
            findings.push(Finding { master, ..finding });
        };
        for (name, took) in [("a", "1 ms"), ("b", "1 ms"), ("c", "2 ms")] {
            found(name, Finding::ok("latency", took));
            found(name, Finding::ok("role", "it is a master"));
        }
        found("c", Finding::error("eviction", "it evicts", "change it"));
        found("", Finding::ok("role", "it is a master"));
        let masters = ["a", "b", "c"].map(master).to_vec();
        let diagnosis = Diagnosis { schema: 1, masters, findings };
        let groups = diagnosis.groups();
        let groups: Vec<(&str, &[usize])> =
            groups.iter().map(|group| (&*group.finding.text, &*group.masters)).collect();
        assert_eq!(
            groups,
            [
                ("it evicts", &[3][..]),
                ("1 ms", &[1, 2]),
                ("2 ms", &[3]),
                ("it is a master", &[1, 2, 3]),
                ("it is a master", &[]),
            ]
        );
        let verdict = diagnosis.verdict();
        assert!(verdict.starts_with("3 masters: 1 error, 0 warnings, 7 ok: a lock"), "{verdict}");
    }
}
