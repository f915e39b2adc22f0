//! Doctor: looks at real masters, and says what about them will hurt a lock. Called by `cli/doctor.rs`.
//!
//! ```text
//! address ─▶ visit: asks one master ─▶ said: what it said ─▶ checks ─▶ findings
//! ```
//!
//! Only `visit` opens connections and reads clocks; what is made of the answers is pure. A visit leaves nothing behind but the scripts, which locks load anyway, and, if
//! it was asked to, a marker.
//!
//! This is the one place of the harness that reads the wall clock: how far those of masters are apart
//! is what it is asked.

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
mod said;
mod visit;

pub(crate) use address::Address;
pub(crate) use finding::{Finding, Level};
use said::{Said, Unreached};

/// The longest visit: names that do not resolve have no other bound.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the masters are to be used, and what to do to them.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// How long a round of the lock waits for a master.
    pub(crate) node_timeout: Duration,
    /// The guard of the lock, if it has one.
    pub(crate) guard: Option<Guard>,
    /// The prefix of its keys: permissions may be cut to it.
    pub(crate) prefix: String,
    /// Mark masters that have no marker.
    pub(crate) init: bool,
}

/// What came of it. As JSON this is what `doctor --format json` prints.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Diagnosis {
    schema: u32,
    /// Those that were asked, in their order.
    pub(crate) masters: Vec<Master>,
    /// What was found, by master; what concerns all of them last. The worst first.
    pub(crate) findings: Vec<Finding>,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Master {
    /// What it is called in findings: no URL, which may hold a password.
    pub(crate) name: String,
    /// Whether it could be asked.
    pub(crate) reached: bool,
    /// Such as `redis 7.0.15`, if it says so.
    pub(crate) version: Option<String>,
}

impl Diagnosis {
    /// How many findings are of a level.
    pub(crate) fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    /// Whether none of the masters gave any answer.
    pub(crate) fn nothing_answered(&self) -> bool {
        let silent = |master: &Master| {
            let mut own = self.findings.iter();
            own.any(|found| {
                found.check == "reachable" && found.master.as_ref() == Some(&master.name)
            })
        };
        self.masters.iter().all(|master| !master.reached && silent(master))
    }

    fn of(all: &[Said], wish: &Wish) -> Self {
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
            version: said.info().and_then(said::Info::version),
        });
        Self { schema: 1, masters: masters.collect(), findings }
    }
}

/// Asks all masters at the same time, and says what is wrong with them.
pub(crate) fn examine(addresses: &[Address], wish: &Wish) -> Diagnosis {
    let (told, hear) = mpsc::channel();
    for (index, address) in addresses.iter().enumerate() {
        let (told, address, wish) = (told.clone(), address.clone(), wish.clone());
        // Not joined: one that hangs in a resolver would keep the others' findings.
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
    let all: Vec<Said> = addresses
        .iter()
        .zip(visits)
        .map(|(address, visit)| Said {
            name: address.name.clone(),
            visit: visit.unwrap_or_else(never),
        })
        .collect();
    Diagnosis::of(&all, wish)
}
