//! Fair: the check of the fair queue, in which processes get the resource in the order of their
//! requests.

use std::collections::VecDeque;
use std::time::Duration;

use super::peer::{Fault, Peer, PendingRequest};
use super::{CheckResult, OPTIONS, Session, fine};
use redquorum_scenario::client_protocol::{Op, Options};

const RESOURCE: &str = "check-fair";
const PROCESSES: usize = 3;
/// How often each process gets the resource.
const ROUNDS: usize = 2;
/// Longer than the whole check: no lease expires, and no request times out.
const TTL_MS: u64 = 20_000;
/// The time for a request to enter the fair queue before the next process sends its own.
const APART: Duration = Duration::from_millis(250);
/// How long the next grant may take while all masters run.
const SOON: Duration = Duration::from_secs(2);

/// Each process has a client that waits while another process holds the resource. A process that
/// releases has a second client that wants the resource by then. It must not hand the lease over
/// within the process.
pub(super) fn fair(session: &mut Session) -> CheckResult {
    let options = Options { fair: true, ..OPTIONS };
    let mut processes = Vec::new();
    let mut waiting: VecDeque<(usize, bool, PendingRequest)> = VecDeque::new();
    for _ in 0..PROCESSES {
        let process = Peer::start(&session.command, &session.keys.urls(), &options);
        let mut process = process.map_err(Fault::Environment)?;
        process.first_line()?;
        processes.push(process);
    }
    for (number, process) in processes.iter_mut().enumerate() {
        waiting.push_back((number, false, ask(process, false)?));
        process.pass(APART)?;
    }
    for turn in 1..=ROUNDS * PROCESSES {
        let Some((number, second, asked)) = waiting.pop_front() else { break };
        let process = &mut processes[number];
        ensure!(
            process.is_answered(asked, SOON)? && process.reply(asked)?.0.ok,
            "{PROCESSES} processes with the option \"fair\":true want one resource, and turn \
             {turn} is process {}'s, which has waited for longest; it was not granted within \
             {SOON:?}: keep the order between processes, or leave `fair` out",
            number + 1
        );
        waiting.push_back((number, !second, ask(process, !second)?));
        process.pass(APART)?;
        let release = process.ask(client(second), Op::Release { resource: RESOURCE.into() })?;
        let (released, _) = process.reply(release)?;
        ensure!(released.ok, "a release was answered {released}");
    }
    fine(format!("{PROCESSES} processes took {ROUNDS} turns each"))
}

fn ask(process: &mut Peer, second: bool) -> Result<PendingRequest, Fault> {
    let resource = RESOURCE.into();
    let op = Op::Acquire { resource, ttl_ms: TTL_MS, wait_ms: TTL_MS, again: false };
    process.ask(client(second), op)
}

const fn client(second: bool) -> &'static str {
    if second { "c2" } else { "c1" }
}
