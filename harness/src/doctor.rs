//! Doctor: looks at real masters and reports what would hurt a lock on them. Called by
//! `cli/doctor.rs`.
//!
//! ```text
//! address ─▶ visit: queries one master ─▶ server info: its replies ─▶ checks ─▶ findings
//! ```
//!
//! Only a visit opens connections and reads clocks, by its `line`. The evaluation of the replies is
//! pure. A visit leaves nothing behind but the scripts, which locks load anyway, and a boot marker
//! if that was requested.
//!
//! The doctor reads the wall clock, since it reports how far the masters' wall clocks are from it
//! and from each other.

use std::cmp::Reverse;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redquorum_protocol::Guard;
use serde::Serialize;

mod address;
mod checks;
mod finding;
mod init;
mod line;
mod permissions;
mod server_info;
mod visit;

pub(crate) use address::Address;
pub(crate) use finding::{Finding, Level};
use server_info::{ServerInfo, Unreached};

/// Timeout of a visit: nothing else bounds the resolution of names.
const VISIT_TIMEOUT: Duration = Duration::from_secs(30);

/// How the lock uses the masters, and what to do to them.
#[derive(Clone, Debug)]
pub(crate) struct ExamineOptions {
    /// How long a round of the lock waits for a master.
    pub(crate) node_timeout: Duration,
    /// The guard of the lock, if it has one.
    pub(crate) guard: Option<Guard>,
    /// The prefix of the lock's keys: permissions may be limited to it.
    pub(crate) prefix: String,
    /// Set the boot marker of masters that have none.
    pub(crate) init: bool,
}

/// The result. `doctor --format json` prints this as JSON.
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
    /// Its name in findings. Not the URL, which may contain a password.
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
        let mut together = checks::of_all(all);
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
pub(crate) fn examine(addresses: &[Address], options: &ExamineOptions) -> Diagnosis {
    let (sender, results) = mpsc::channel();
    for (index, address) in addresses.iter().enumerate() {
        let (sender, address, options) = (sender.clone(), address.clone(), options.clone());
        // Not joined: a thread that hangs in a resolver would delay the other masters' findings.
        thread::spawn(move || drop(sender.send((index, visit::visit(&address, &options)))));
    }
    drop(sender);
    let mut visits: Vec<_> = addresses.iter().map(|_| None).collect();
    let until = Instant::now() + VISIT_TIMEOUT;
    while let Ok((index, visit)) =
        results.recv_timeout(until.saturating_duration_since(Instant::now()))
    {
        visits[index] = Some(visit);
    }
    let never =
        || Err(Unreached::Silent(format!("it could not be asked within {VISIT_TIMEOUT:?}")));
    let mut all: Vec<ServerInfo> = addresses
        .iter()
        .zip(visits)
        .map(|(address, visit)| ServerInfo {
            name: address.name.clone(),
            visit: visit.unwrap_or_else(never),
        })
        .collect();
    if let (true, Some(guard)) = (options.init, options.guard) {
        init::mark_all(addresses, &mut all, guard);
    }
    Diagnosis::of(&all, options)
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
