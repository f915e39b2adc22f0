//! The intermediate results of the checkers: when each client believed that it held, when a quorum
//! of masters really had its token, which master had which token, and when each fault was in force.
//! Reports draw them, so a picture and its verdict cannot disagree.

use crate::client_protocol::FailureReason;
use crate::history::{History, Ns, Window};
use crate::scenario::FaultKind;

use super::Case;
use super::exclusion::believed;
use super::keys::Presence;
use super::leases::{Ending, Lease};
use super::pace::Paces;
use super::time::{MS, Ms, Span};

/// The intermediate results of [`judge`](super::judge), for drawing. All times are run times, even
/// where a client stamped with a clock that ran fast or slow.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// The requests to clients, in their order.
    pub requests: Vec<RequestSpan>,
    /// The leases, in the order in which they were granted.
    pub leases: Vec<LeaseSpan>,
    /// The tokens that masters had, or may have had.
    pub keys: Vec<KeySpan>,
    /// The faults, in the order in which they struck.
    pub faults: Vec<FaultSpan>,
}

/// A request to a client, and its reply.
#[derive(Clone, Debug)]
pub struct RequestSpan {
    /// The client.
    pub client: String,
    /// `acquire`, `extend`, `release`, ….
    pub op: String,
    /// The resource, if it names one.
    pub resource: Option<String>,
    /// From the request to the reply; without a reply, to the end of time.
    pub span: Window,
    /// Whether it succeeded. None: no reply came.
    pub ok: Option<bool>,
    /// Why the request failed.
    pub why: Option<FailureReason>,
    /// The indices of the request and of its reply among the records.
    pub records: (usize, Option<usize>),
}

/// A lease.
#[derive(Clone, Debug)]
pub struct LeaseSpan {
    /// The client that holds it.
    pub client: String,
    /// The resource.
    pub resource: String,
    /// Its token, where it is known.
    pub token: Option<String>,
    /// Its fencing token.
    pub fence: Option<u64>,
    /// When the client certainly believed that it held. There is more than one span if it extended
    /// the lease after its end.
    pub believed: Vec<Window>,
    /// When a quorum of masters certainly had the token.
    pub certain: Vec<Window>,
    /// When a quorum of masters may have had the token.
    pub supported: Vec<Window>,
    /// When the client believed that it held, and certainly no quorum had the token.
    pub gaps: Vec<Window>,
    /// The masters that granted it, for certain.
    pub masters: Vec<usize>,
    /// The last deadline.
    pub deadline: Ns,
    /// The event that ended the belief: `deadline`, `release`, `loss`, `death` or `new grant`.
    pub ending: &'static str,
    /// The belief as a sentence, as in the report text of violations.
    pub sentence: String,
    /// The index of the granting reply among the records.
    pub record: usize,
}

/// A token on a master.
#[derive(Clone, Debug)]
pub struct KeySpan {
    /// The master, from 1.
    pub node: usize,
    /// The resource, where it is known.
    pub resource: Option<String>,
    /// The token.
    pub token: String,
    /// The process that set it.
    pub process: String,
    /// When it was certainly there. Empty if it may not have been there at all.
    pub certain: Window,
    /// When it may have been there.
    pub possible: Window,
    /// Why it disappeared: a fault, a deletion, or the end of its TTL.
    pub end: String,
}

/// A fault that struck.
#[derive(Clone, Debug)]
pub struct FaultSpan {
    /// Its number in the scenario, from 1.
    pub fault: usize,
    /// The effect of the fault.
    pub fault_kind: FaultKind,
    /// From when to when it may have been in force; without an end, to the end of time.
    pub span: Window,
    /// The masters that it hit.
    pub nodes: Vec<usize>,
    /// The processes that it hit; empty for a fault of masters.
    pub processes: Vec<String>,
    /// Whether it failed to strike.
    pub failed: bool,
}

/// Computes the data that reports draw.
pub fn timeline(history: &History) -> Timeline {
    let paces = Paces::of(history);
    let history = paces.in_run_time(history);
    let case = Case::of(&history, paces);
    Timeline {
        requests: requests(&case),
        leases: case.leases.iter().map(|lease| lease_span(&case, lease)).collect(),
        keys: keys(&case),
        faults: faults(&case),
    }
}

const fn window(span: Span) -> Window {
    Window { from: span.from, to: span.to }
}

fn windows(spans: &[Span]) -> Vec<Window> {
    spans.iter().copied().map(window).collect()
}

fn requests(case: &Case<'_>) -> Vec<RequestSpan> {
    let spans = case.requests.iter().map(|request| RequestSpan {
        client: request.client.to_owned(),
        op: request.op.to_owned(),
        resource: request.resource.map(str::to_owned),
        span: Window { from: request.asked, to: request.answered() },
        ok: request.answer.map(|answer| answer.ok),
        why: request.answer.and_then(|answer| answer.why),
        records: (request.record, request.answer.map(|answer| answer.record)),
    });
    spans.collect()
}

fn lease_span(case: &Case<'_>, lease: &Lease<'_>) -> LeaseSpan {
    let inner: Vec<Span> = lease.holds.iter().map(|hold| hold.inner).collect();
    let granted = lease.votes(&case.keys).filter(|key| key.granted && key.sure);
    let mut masters: Vec<usize> = granted.map(|key| key.node).collect();
    masters.sort_unstable();
    masters.dedup();
    LeaseSpan {
        client: lease.client.to_owned(),
        resource: lease.resource.to_owned(),
        token: lease.token.map(str::to_owned),
        fence: lease.answer.fence,
        believed: windows(&inner),
        certain: windows(&case.surely_supported(lease)),
        supported: windows(&case.supported(lease)),
        gaps: windows(case.hollow(lease)),
        masters,
        deadline: lease.deadline.to,
        ending: match lease.ending {
            Ending::Deadline => "deadline",
            Ending::Release => "release",
            Ending::Lost => "loss",
            Ending::Death => "death",
            Ending::Replaced => "new grant",
        },
        sentence: believed(lease),
        record: lease.answer.record,
    }
}

fn keys(case: &Case<'_>) -> Vec<KeySpan> {
    let spans = case.keys.all.iter().map(|key| {
        let until = key.possible.to;
        let certain = if key.sure { key.certain } else { Span::new(until, until) };
        KeySpan {
            node: key.node,
            resource: key.resource.map(str::to_owned),
            token: key.token.to_owned(),
            process: key.process.to_owned(),
            certain: window(certain),
            possible: window(key.possible),
            end: end_of(case, key),
        }
    });
    spans.collect()
}

/// Why a token disappeared from a master.
fn end_of(case: &Case<'_>, key: &Presence<'_>) -> String {
    let until = key.possible.to;
    if let Some(deleted) = key.deleted.filter(|deleted| deleted.sure) {
        return format!("deleted by {}", deleted.process);
    }
    // A fault that leaves the key alone does not set its end.
    if let Some(loss) = key.life.lost.filter(|loss| loss.at.to == until) {
        return format!("lost by {}", case.faults.name(loss.fault));
    }
    let gain = case.clocks.gain(key.node, key.life.set.from, until).map_or(0, |gain| gain.all);
    match key.life.ttl {
        None => "it has no TTL".to_owned(),
        Some(_) if gain > MS => {
            format!("expired early: the master's clock had gained {}", Ms(gain))
        }
        Some(ttl) => format!("expired after its TTL of {}", Ms(ttl)),
    }
}

fn faults(case: &Case<'_>) -> Vec<FaultSpan> {
    let strikes = case.faults.strikes().iter().map(|strike| {
        let of_clients = strike.fault_kind.clients().is_some();
        let processes = case.world.scenario.processes().into_iter();
        let hit = processes.filter(|process| of_clients && strike.hits_process(process));
        let nodes = 1..=case.world.n;
        FaultSpan {
            fault: strike.fault,
            fault_kind: strike.fault_kind.clone(),
            span: window(strike.span()),
            nodes: nodes.filter(|node| strike.hits_node(*node)).collect(),
            processes: hit.map(|process| process.to_string()).collect(),
            failed: strike.failed,
        }
    });
    strikes.collect()
}
