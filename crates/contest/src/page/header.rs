//! The head of the page: what ran where.

use serde::Serialize;

use super::format::{count, duration};
use crate::results::{Contest, Server};

/// What ran where.
#[derive(Debug, Serialize)]
pub(super) struct Header {
    /// Why the contest ended early.
    stopped: Option<String>,
    command: String,
    version: String,
    facts: Vec<Fact>,
}

#[derive(Debug, Serialize)]
struct Fact {
    label: &'static str,
    value: String,
}

impl Header {
    pub(super) fn new(contest: &Contest) -> Self {
        let Contest { machine, started, seconds, runs, .. } = contest;
        let facts = vec![
            Fact { label: "Database", value: server(&contest.database) },
            Fact { label: "Redis masters", value: server(&contest.masters) },
            Fact {
                label: "Machine",
                value: format!("{}, {} logical processors", machine.os, machine.processors),
            },
            Fact { label: "Started", value: started.clone() },
            Fact {
                label: "Runs",
                value: format!("{} in {}", count(runs.len() as u64), duration(*seconds)),
            },
            Fact { label: "redquorum", value: contest.version.clone() },
        ];
        Self {
            stopped: contest.stopped.clone(),
            command: contest.command.clone(),
            version: contest.version.clone(),
            facts,
        }
    }
}

fn server(Server { product, version, place }: &Server) -> String {
    [format!("{product} {version}").trim(), place]
        .into_iter()
        .filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}
