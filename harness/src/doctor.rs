//! Doctor: looks at real masters and reports what would hurt a lock on them. Called by
//! `cli/doctor.rs`.
//!
//! ```text
//! address ─▶ visit: queries one master ─▶ said: its replies ─▶ checks ─▶ findings
//! ```
//!
//! Only `visit` opens connections and reads clocks. The evaluation of the replies is pure. A visit
//! leaves nothing behind but the scripts, which locks load anyway, and a boot marker if that was
//! requested.
//!
//! The doctor reads the wall clock, since it reports how far the masters' wall clocks are from it
//! and from each other.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redquorum_protocol::Guard;
use serde::Serialize;

mod address;
mod checks;
mod finding;
mod init;
mod permissions;
mod server_info;
mod visit;

pub(crate) use address::Address;
pub(crate) use finding::{Finding, Level};
use server_info::{ServerInfo, Unreached};

/// Timeout of a visit: nothing else bounds the resolution of names.
const PATIENCE: Duration = Duration::from_secs(30);

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

impl Diagnosis {
    /// The number of findings of a level.
    pub(crate) fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
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

    fn of(all: &[ServerInfo], wish: &ExamineOptions) -> Self {
        let mut findings = Vec::new();
        for said in all {
            let mut own = checks::of_master(said, wish);
            for finding in &mut own {
                finding.master = Some(said.name.clone());
            }
            own.sort_by_key(|finding| std::cmp::Reverse(finding.level));
            findings.extend(own);
        }
        let mut together = checks::of_all(all);
        together.sort_by_key(|finding| std::cmp::Reverse(finding.level));
        findings.extend(together);
        let masters = all.iter().map(|said| Master {
            name: said.name.clone(),
            reached: said.visit.is_ok(),
            version: said.info().and_then(server_info::Info::version),
        });
        Self { schema: 1, masters: masters.collect(), findings }
    }
}

/// Visits all masters at the same time and returns the findings.
pub(crate) fn examine(addresses: &[Address], wish: &ExamineOptions) -> Diagnosis {
    let (told, hear) = mpsc::channel();
    for (index, address) in addresses.iter().enumerate() {
        let (told, address, wish) = (told.clone(), address.clone(), wish.clone());
        // Not joined: a thread that hangs in a resolver would delay the other masters' findings.
        thread::spawn(move || drop(told.send((index, visit::visit(&address, &wish)))));
    }
    drop(told);
    let mut visits: Vec<_> = addresses.iter().map(|_| None).collect();
    let until = Instant::now() + PATIENCE;
    while let Ok((index, visit)) =
        hear.recv_timeout(until.saturating_duration_since(Instant::now()))
    {
        visits[index] = Some(visit);
    }
    let never = || Err(Unreached::Silent(format!("it could not be asked within {PATIENCE:?}")));
    let all: Vec<ServerInfo> = addresses
        .iter()
        .zip(visits)
        .map(|(address, visit)| ServerInfo {
            name: address.name.clone(),
            visit: visit.unwrap_or_else(never),
        })
        .collect();
    Diagnosis::of(&all, wish)
}
