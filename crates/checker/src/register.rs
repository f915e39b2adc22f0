//! Registers: is an update lost when a client writes on top of a version that it read before? Each
//! access was applied at the very moment at which it was recorded, so this check is exact.
//!
//! Without fencing tokens, this is a property of its own. `fencing.rs` runs the check for accesses
//! with fencing tokens.

use crate::maps::Map;

use redquorum_scenario::history::{Event, Ns, Record, Window};
use redquorum_scenario::{AccessKind, Cause, Property};

use super::causes::Reason;
use super::exclusion::{self, Clash};
use super::time::Ms;
use super::{Case, Observed, Violation};

/// A report lists at most this many of the updates that a write discards: the last ones.
const LISTED: usize = 8;

#[derive(Clone, Copy)]
struct Write<'a> {
    client: &'a str,
    /// When the client read the version that the write is based on.
    read: Ns,
    /// When the client sent the write, and when it was applied.
    sent: Ns,
    at: Ns,
}

#[derive(Default)]
struct Register<'a> {
    version: Option<u64>,
    reads: Map<&'a str, Ns>,
    writes: Vec<Write<'a>>,
}

/// A write that discarded updates: its register, the version that it was based on, and the writes
/// in between.
struct Loss<'a> {
    register: &'a str,
    seen: u64,
    write: Write<'a>,
    lost: Vec<Write<'a>>,
}

/// Updates that are lost without fencing tokens.
pub(crate) fn check(case: &Case<'_>, clashes: &[Clash]) -> Vec<Violation> {
    losses(case, false).iter().map(|loss| unfenced(case, clashes, loss)).collect()
}

/// Updates that are lost under fencing tokens. `causes` are those of tokens that do not grow. If
/// there are none, the register itself is at fault.
pub(crate) fn fenced(case: &Case<'_>, causes: &[Cause]) -> Vec<Violation> {
    let finding = |loss: &Loss<'_>| {
        let causes = if causes.is_empty() { vec![Cause::Unknown] } else { causes.to_vec() };
        loss.violation(Property::FencedResource, causes)
    };
    losses(case, true).iter().map(finding).collect()
}

fn losses<'a>(case: &Case<'a>, fenced: bool) -> Vec<Loss<'a>> {
    let mut registers: Map<&str, Register<'_>> = Map::default();
    let mut found = Vec::new();
    for Record { ns, event } in case.world.records {
        let Event::Touched { client, register, way, seen, version, sent, fence, refused } = event
        else {
            continue;
        };
        if *refused || fence.is_some() != fenced {
            continue;
        }
        let state = registers.entry(register).or_default();
        let known = state.version.replace(*version);
        match way {
            AccessKind::Present => {}
            AccessKind::Read => {
                state.reads.insert(client, *ns);
            }
            AccessKind::Write => {
                // A client that never read has nothing to base its write on: there is no critical
                // section.
                let Some(read) = state.reads.get(client.as_str()).copied() else { continue };
                let sent = sent.unwrap_or(*ns).min(*ns);
                let write = Write { client, read, sent, at: *ns };
                let others = state.writes.iter().rev().take_while(|other| other.at >= read);
                let lost: Vec<Write<'_>> = others
                    .filter(|other| other.client != client.as_str())
                    .take(LISTED)
                    .copied()
                    .collect();
                if known.is_some_and(|known| known != *seen) && !lost.is_empty() {
                    found.push(Loss { register, seen: *seen, write, lost });
                }
                state.writes.push(write);
            }
        }
    }
    found
}

impl Loss<'_> {
    fn explanation(&self) -> Vec<String> {
        let Self { register, seen, write, lost } = self;
        let client = write.client;
        let mut lines =
            vec![format!("{client} read version {seen} of {register} at {}", Ms(write.read))];
        for other in lost.iter().rev() {
            lines.push(format!("{} wrote {register} at {}", other.client, Ms(other.at)));
        }
        lines.push(format!(
            "{client} wrote {register} at {} on top of version {seen}: what came between is lost",
            Ms(write.at)
        ));
        lines
    }

    fn violation(&self, property: Property, causes: Vec<Cause>) -> Violation {
        Violation::certain(property, causes, self.explanation(), self.write.read, self.write.at)
    }
}

fn unfenced(case: &Case<'_>, clashes: &[Clash], loss: &Loss<'_>) -> Violation {
    let Loss { write, lost, .. } = loss;
    let (write, client) = (*write, write.client);
    let mut causes = Vec::new();
    let section = Window::new(write.read, write.at.saturating_add(1));
    for clash in clashes.iter().filter(|clash| clash.finding.seen == Observed::Violated) {
        let names = clash.leases.map(|lease| case.leases[lease].client);
        let ours = names.contains(&client) && lost.iter().any(|one| names.contains(&one.client));
        if ours && clash.both.touches(section) {
            causes.extend(&clash.finding.causes);
        }
    }
    if causes.is_empty() {
        let between = |one: &Write<'_>| exclusion::between(case, [one.client, client], section);
        causes.extend(lost.iter().flat_map(between));
    }
    if !causes.is_empty() {
        return loss.violation(Property::UnfencedResource, causes);
    }
    let writes = lost.iter().rev().chain([&write]);
    let mut reasons: Vec<Reason> = writes.filter_map(|one| outside(case, *one)).collect();
    if reasons.is_empty() {
        reasons.push((Cause::Unknown, "nothing on record says why both could write".to_owned()));
    }
    let lines = loss.explanation();
    Violation::explained(Property::UnfencedResource, lines, reasons, write.read, write.at)
}

/// Why a client wrote when it no longer counted on a lease.
fn outside(case: &Case<'_>, write: Write<'_>) -> Option<Reason> {
    let Write { client, read, sent, at } = write;
    let mut own = case.leases.iter().filter(|lease| lease.client == client);
    let lease = own.rfind(|lease| lease.start.from <= read)?;
    let end = lease.span().to;
    if at < end {
        return None;
    }
    let after = Ms(at.saturating_sub(end));
    if sent < end {
        return Some(delayed(case, write, end));
    }
    let looked = case.last_look(client, read, sent);
    let paused = case.faults.pauses(lease.process).find(|pause| {
        let span = pause.span();
        span.touches(Window::new(looked, sent)) && span.from <= end && end <= span.to
    });
    let (cause, how) = match paused {
        Some(pause) => {
            let (from, to) = (Ms(pause.span().from), Ms(pause.span().to.min(at)));
            let how = format!(": it was paused from {from} to {to} ({}), and", pause.name());
            (Cause::ClientPause, how)
        }
        None => (Cause::LateWrite, ", awake: it".to_owned()),
    };
    let looked = Ms(looked);
    let line = format!(
        "{client} wrote {after} after the end of its lease{how} had last looked at its deadline at \
         {looked}"
    );
    Some((cause, line))
}

/// A write that was sent in time, and was still on its way when the lease ended.
fn delayed(case: &Case<'_>, write: Write<'_>, end: Ns) -> Reason {
    let Write { client, sent, at, .. } = write;
    let mut faults = case.faults.on_the_way(client, AccessKind::Write);
    let fault =
        faults.find(|fault| fault.span().touches(Window::new(sent, sent.saturating_add(1))));
    let Some(fault) = fault else {
        let line = format!("nothing on record says why a write of {client} took until {}", Ms(at));
        return (Cause::Unknown, line);
    };
    let (sent, came, late) = (Ms(sent), Ms(at), Ms(at.saturating_sub(end)));
    let line = format!(
        "{client} sent that write at {sent}, in time, and it came at {came}, {late} after the end \
         of its lease ({})",
        fault.name()
    );
    (Cause::ResourceDelay, line)
}
