//! Stamps: can the times that clients report be true? A client that reads another clock, or reports
//! another unit, would move its leases away from all rivals, and everything would look safe.

use crate::history::{Event, Ns};

use super::Case;
use super::time::{MS, Ms};

/// Two readings of the same clock may appear in the wrong order by up to this much.
const SKEW: Ns = MS;

/// A line for each process whose stamps cannot be true.
pub(crate) fn check(case: &Case<'_>) -> Vec<String> {
    let mut reported = Vec::new();
    let mut lines = Vec::new();
    let mut report = |process, line| {
        if !reported.contains(&process) {
            reported.push(process);
            lines.push(line);
        }
    };
    for request in &case.requests {
        let Some(reply) = request.reply else { continue };
        let stamps = [reply.from, reply.at].into_iter().flatten();
        let (earliest, latest) =
            (request.asked.saturating_sub(SKEW), reply.ns.saturating_add(SKEW));
        let mut before = earliest;
        for stamp in stamps {
            if stamp < before || stamp > latest {
                report(
                    request.process,
                    format!(
                        "process {}: its answer to {}, asked at {} and given at {}, is stamped {}: \
                         stamps are nanoseconds of CLOCK_MONOTONIC",
                        request.process,
                        request.op,
                        Ms(request.asked),
                        Ms(reply.ns),
                        Ms(stamp)
                    ),
                );
            }
            before = before.max(stamp);
        }
    }
    for record in case.world.records {
        if let Event::Lost { client, at, .. } = &record.event
            && *at > record.ns.saturating_add(SKEW)
        {
            let process = case.world.process(client);
            let line = format!(
                "process {process}: its loss, reported at {}, is stamped {}: stamps are \
                 nanoseconds of CLOCK_MONOTONIC",
                Ms(record.ns),
                Ms(*at)
            );
            report(process, line);
        }
    }
    lines
}
