//! Fair: the check of processes that come in the order in which they asked.

use std::collections::VecDeque;
use std::time::Duration;

use super::talker::{Asked, Fault, Talker};
use super::{OPTIONS, Session, Verdict, cannot, said};
use crate::talk::{Answer, Can, Op, Options};

const RESOURCE: &str = "check-fair";
const PROCESSES: usize = 3;
/// Each process is served so often.
const ROUNDS: usize = 2;
/// Longer than all of it takes: no lease ends by itself, and nobody gives up.
const TTL_MS: u64 = 20_000;
/// How long it may take until one stands in line, before somebody asks who is to come behind it.
const APART: Duration = Duration::from_millis(250);
/// How long it may take until the next is served, with everything up.
const SOON: Duration = Duration::from_secs(2);

/// Each has a client that waits while another holds. Whoever gives back has one more that wants it: to hand
/// the lease on within the process is what it must not do.
pub(super) fn fair(session: &mut Session) -> Result<Verdict, Fault> {
    if !session.can(Can::Fair) || !session.can(Can::Wait) {
        return Ok(cannot("fair"));
    }
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        let mut process = session.another(&Options { fair: true, ..OPTIONS })?;
        process.first_line()?;
        processes.push(process);
    }
    let mut waiting: VecDeque<(usize, bool, Asked)> = VecDeque::new();
    for (number, process) in processes.iter_mut().enumerate() {
        waiting.push_back((number, false, ask(process, false)?));
        process.pass(APART)?;
    }
    for turn in 0..ROUNDS * PROCESSES {
        let Some((number, second, asked)) = waiting.pop_front() else { break };
        let process = &mut processes[number];
        let granted = process.is_answered(asked, SOON)?;
        if !granted || !process.answer(asked)?.0.ok {
            return Err(Fault::Wrong(format!(
                "{PROCESSES} processes that are told \"fair\":true want one resource, and turn {} is \
                 process {}'s, which has waited for longest; it was not granted within {SOON:?}: keep \
                 the order between processes, or leave `fair` out",
                turn + 1,
                number + 1
            )));
        }
        waiting.push_back((number, !second, ask(process, !second)?));
        process.pass(APART)?;
        let release = process.ask(client(second), Op::Release { resource: RESOURCE.into() })?;
        let (released, _): (Answer, _) = process.answer(release)?;
        if !released.ok {
            return Err(Fault::Wrong(format!("a release was answered {}", said(&released))));
        }
    }
    Ok(Verdict::Ok(format!("{PROCESSES} processes took {ROUNDS} turns each")))
}

fn ask(process: &mut Talker, second: bool) -> Result<Asked, Fault> {
    let resource = RESOURCE.into();
    let op = Op::Acquire { resource, ttl_ms: TTL_MS, wait_ms: TTL_MS, again: false };
    process.ask(client(second), op)
}

const fn client(second: bool) -> &'static str {
    if second { "c2" } else { "c1" }
}
