//! The unfenced resource: is an update lost in a register that clients read, and then write on top
//! of what they read? Every touch was applied the very moment it was recorded, so this is exact.

use crate::judge::maps::Map;

use crate::history::{Event, Ns, Record};
use crate::scenario::{Cause, Layer, Way};

use super::exclusion::Clash;
use super::time::{Ms, Span};
use super::{Case, Finding, Seen};

/// So many of the updates that a write costs are told: the last ones.
const TOLD: usize = 8;

/// A write.
#[derive(Clone, Copy)]
struct Write<'a> {
    client: &'a str,
    /// When its client read what it is based on.
    read: Ns,
    at: Ns,
}

#[derive(Default)]
struct Register<'a> {
    version: Option<u64>,
    reads: Map<&'a str, Ns>,
    writes: Vec<Write<'a>>,
}

pub(super) fn check(case: &Case<'_>, clashes: &[Clash]) -> Vec<Finding> {
    let mut registers: Map<&str, Register<'_>> = Map::default();
    let mut findings = Vec::new();
    for Record { ns, event } in case.world.records {
        let Event::Touched { client, register, way, seen, version } = event else { continue };
        let state = registers.entry(register).or_default();
        let known = state.version.replace(*version);
        match way {
            Way::Read => {
                state.reads.insert(client, *ns);
            }
            Way::Write => {
                // Who never read has nothing to base its write on: there is no section.
                let Some(read) = state.reads.get(client.as_str()).copied() else { continue };
                let write = Write { client, read, at: *ns };
                let others = state.writes.iter().rev().take_while(|other| other.at >= read);
                let lost: Vec<Write<'_>> = others
                    .filter(|other| other.client != client.as_str())
                    .take(TOLD)
                    .copied()
                    .collect();
                if known.is_some_and(|known| known != *seen) && !lost.is_empty() {
                    findings.push(told(case, clashes, register, *seen, write, &lost));
                }
                state.writes.push(write);
            }
        }
    }
    findings
}

fn told(
    case: &Case<'_>,
    clashes: &[Clash],
    register: &str,
    seen: u64,
    write: Write<'_>,
    lost: &[Write<'_>],
) -> Finding {
    let client = write.client;
    let mut story =
        vec![format!("{client} read version {seen} of {register} at {}", Ms(write.read))];
    for other in lost.iter().rev() {
        story.push(format!("{} wrote {register} at {}", other.client, Ms(other.at)));
    }
    story.push(format!(
        "{client} wrote {register} at {} on top of version {seen}: what came between is lost",
        Ms(write.at)
    ));
    let mut causes = Vec::new();
    let section = Span::new(write.read, write.at.saturating_add(1));
    for clash in clashes.iter().filter(|clash| clash.finding.seen == Seen::Violated) {
        let names = clash.leases.map(|lease| case.leases[lease].client);
        let ours = names.contains(&client) && lost.iter().any(|one| names.contains(&one.client));
        if ours && clash.both.touches(section) {
            causes.extend(&clash.finding.causes);
        }
    }
    if causes.is_empty() {
        for one in lost.iter().rev().chain([&write]) {
            if let Some((cause, line)) = outside(case, *one) {
                causes.push(cause);
                story.push(line);
            }
        }
    }
    if causes.is_empty() {
        causes.push(Cause::Unknown);
        story.push("nothing on record says why both could write".to_owned());
    }
    causes.sort_unstable();
    causes.dedup();
    Finding {
        layer: Layer::UnfencedResource,
        seen: Seen::Violated,
        story,
        causes,
        from: write.read,
        to: write.at,
    }
}

/// Why a client wrote when it did not count on a lease any more.
fn outside(case: &Case<'_>, write: Write<'_>) -> Option<(Cause, String)> {
    let Write { client, read, at } = write;
    let mut own = case.leases.iter().filter(|lease| lease.client == client);
    let lease = own.rfind(|lease| lease.start.from <= read)?;
    let end = lease.span().to;
    if at < end {
        return None;
    }
    let looked = case.last_look(client, read, at);
    let paused = case.faults.pauses(lease.process).find(|pause| {
        let span = pause.span();
        span.touches(Span::new(looked, at)) && span.from <= end && end <= span.to
    });
    let after = Ms(at.saturating_sub(end));
    Some(match paused {
        Some(pause) => (
            Cause::ClientPause,
            format!(
                "{client} wrote {after} after the end of its lease: it was paused from {} to {} \
                 ({}), and had last looked at {}",
                Ms(pause.span().from),
                Ms(pause.span().to.min(at)),
                pause.name(),
                Ms(looked)
            ),
        ),
        None => (
            Cause::LateWrite,
            format!(
                "{client} wrote {after} after the end of its lease, awake: it had last looked at {}",
                Ms(looked)
            ),
        ),
    })
}
