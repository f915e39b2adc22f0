//! Report: what each master said, for errors, logs and dashboards.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::{Answer, Ballot, Cause, Holder, NodeId};

/// What each master said in one round, successful or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    masters: Vec<MasterReport>,
}

/// What one master said.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MasterReport {
    /// Its number in the order in which the masters were given, counted from 1.
    pub number: usize,
    /// Its name, such as `db1:6379`.
    pub name: Arc<str>,
    /// What it said; `None` if the verdict stood before it said anything.
    pub answer: Option<Answer>,
    /// From the start of the round to its answer, or to the moment it was given up; zero without
    /// an answer, and where it was not asked.
    pub took: Duration,
}

impl Report {
    pub(crate) fn new(ballot: &Ballot, names: &[Arc<str>]) -> Self {
        let masters = NodeId::all(names.len()).zip(ballot.votes()).map(|(node, vote)| {
            let (name, answer) = (names[node.index()].clone(), vote.answer.clone());
            MasterReport { number: node.index() + 1, name, answer, took: vote.took }
        });
        Self { masters: masters.collect() }
    }

    /// Each master, in order.
    pub fn masters(&self) -> &[MasterReport] {
        &self.masters
    }

    /// Who holds the resource, by the first master that told.
    pub fn holder(&self) -> Option<Holder> {
        self.masters.iter().find_map(|master| match master.answer {
            Some(Answer::Taken(holder) | Answer::Place { holder: Some(holder), .. })
                if holder != Holder::NotAsked =>
            {
                Some(holder)
            }
            _ => None,
        })
    }

    /// Whether any master was asked.
    pub(crate) fn says_anything(&self) -> bool {
        self.masters.iter().any(|master| master.answer.is_some())
    }

    /// How many masters are distrusted, since they may have forgotten leases that are alive: only with a
    /// [guard](crate::Builder::guard).
    pub fn distrusted(&self) -> usize {
        let is = |master: &&MasterReport| {
            matches!(master.answer, Some(Answer::Unknown(Cause::Distrusted { .. })))
        };
        self.masters.iter().filter(is).count()
    }

    /// How many masters granted, kept or deleted the key, as they were asked to. (None in a report
    /// on health, where nothing was asked for.)
    pub fn in_favour(&self) -> usize {
        let yes = |master: &&MasterReport| {
            matches!(
                master.answer,
                Some(
                    Answer::Created
                        | Answer::Granted { .. }
                        | Answer::Certified { .. }
                        | Answer::Kept
                        | Answer::Deleted
                )
            )
        };
        self.masters.iter().filter(yes).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, master) in self.masters.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{master}")?;
        }
        Ok(())
    }
}

impl fmt::Display for MasterReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "master {} ({}): ", self.number, self.name)?;
        match &self.answer {
            // What was never sent took no time.
            Some(answer) if self.took.is_zero() => answer.fmt(f),
            Some(answer) => write!(f, "{answer} ({:.1?})", self.took),
            None => f.write_str("not awaited: the verdict stood"),
        }
    }
}
