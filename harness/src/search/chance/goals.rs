//! The situations that a search must reach; otherwise it has shown little. Locks go wrong in these
//! situations, whether or not this one does. The search detects them in the history, as the
//! checkers see it.

use crate::checker::{DISTRUSTED, Verdict};
use crate::client_protocol::FailureReason;
use crate::history::{Act, Event, History, Ns, Outcome, Phase};
use crate::name::Name;
use crate::scenario::{FaultKind, NodeFault, Persistence, Scenario};

mod again;
mod goal;
mod several;
mod waits;

pub use goal::Goal;

/// The goals that a run reached, in no order, each once.
pub(super) fn reached(history: &History, verdict: &Verdict) -> Vec<Goal> {
    let mut seen = RunView {
        scenario: &history.header.scenario,
        requests: Vec::new(),
        granted: Vec::new(),
        forgot: Vec::new(),
        goals: Vec::new(),
    };
    let scenario = seen.scenario;
    let nodes = i64::try_from(scenario.cluster.nodes).unwrap_or(i64::MAX);
    let bare = 2 * i64::try_from(scenario.cluster.quorum()).unwrap_or(i64::MAX) - nodes;
    // For a lock that knows all masters.
    let own_lists = scenario.clients.iter().any(|client| client.nodes.is_some());
    if nodes > 2 && !own_lists && verdict.measures.margins.contains(&bare) {
        seen.reach(Goal::BareQuorum);
    }
    if verdict.measures.hollow_ns > 0 {
        seen.reach(Goal::HollowHold);
    }
    if verdict.measures.hand_over_ns.is_some() {
        seen.reach(Goal::HandOver);
    }
    seen.answers(history);
    seen.deaths(history);
    let attempts = seen.commands(history);
    let several = several::reached(&seen, &attempts);
    let waits = waits::reached(&seen, history);
    for goal in again::reached(history).into_iter().chain(several).chain(waits) {
        seen.reach(goal);
    }
    seen.goals
}

/// A request, from its start to its end.
struct Request<'a> {
    id: u64,
    client: &'a str,
    op: &'a str,
    resource: Option<&'a str>,
    /// The other resources of the same request.
    with: &'a [Name],
    asked: Ns,
    answered: Ns,
    /// The latest end of the lease that it returned.
    deadline: Option<Ns>,
    /// The value of the lease that it returned.
    token: Option<&'a Name>,
    cancelled: bool,
}

/// The result of all SETs of a token.
struct Attempt<'a> {
    process: &'a Name,
    token: &'a Name,
    key: &'a Name,
    from: Ns,
    to: Ns,
    granted: usize,
    refused: usize,
    /// The number of masters in a quorum.
    quorum: usize,
}

struct RunView<'a> {
    scenario: &'a Scenario,
    requests: Vec<Request<'a>>,
    /// The tokens of leases with a fencing token.
    granted: Vec<&'a Name>,
    /// The masters that may have forgotten, and when.
    forgot: Vec<(usize, Ns)>,
    goals: Vec<Goal>,
}

impl<'a> RunView<'a> {
    fn reach(&mut self, goal: Goal) {
        if !self.goals.contains(&goal) {
            self.goals.push(goal);
        }
    }

    /// The requests, and the results in their replies.
    fn answers(&mut self, history: &'a History) {
        for record in &history.records {
            let ns = record.ns;
            match &record.event {
                Event::Asked { client, id, op, resource, with, .. } => {
                    self.requests.push(Request {
                        id: *id,
                        client,
                        op,
                        resource: resource.as_deref(),
                        with,
                        asked: ns,
                        answered: Ns::MAX,
                        deadline: None,
                        token: None,
                        cancelled: false,
                    });
                }
                Event::Answered { id, ok, why, deadline, token, fence, text, .. } => {
                    self.granted.extend(token.as_ref().filter(|_| fence.is_some()));
                    if !ok && text.as_ref().is_some_and(|text| text.contains(DISTRUSTED)) {
                        self.reach(Goal::Distrusted);
                    }
                    let asked = self.requests.iter_mut().rev().find(|request| request.id == *id);
                    let Some(request) = asked else { continue };
                    request.answered = ns;
                    request.deadline = deadline.filter(|_| *ok);
                    request.token = token.as_ref().filter(|_| *ok);
                    request.cancelled = *why == Some(FailureReason::Cancelled);
                    let goal = match (request.op, why) {
                        ("extend", Some(FailureReason::Lost)) => Goal::ExtendAfterLoss,
                        ("step", Some(FailureReason::Lost)) => Goal::StoppedInTime,
                        ("acquire", Some(FailureReason::Cancelled)) => Goal::GivenUp,
                        ("acquire", Some(FailureReason::Late)) => Goal::Late,
                        ("acquire", Some(FailureReason::NoQuorum)) => Goal::NoQuorum,
                        _ => continue,
                    };
                    self.reach(goal);
                }
                Event::Lost { client, .. } => {
                    let extends = self.requests.iter().any(|request| {
                        request.op == "extend"
                            && request.client == client.as_str()
                            && request.answered == Ns::MAX
                    });
                    if extends {
                        self.reach(Goal::LossInExtend);
                    }
                }
                Event::Extended { .. } => self.reach(Goal::Watchdog),
                Event::Touched { refused: true, .. } => self.reach(Goal::FencedOff),
                _ => {}
            }
        }
    }

    /// Clients and masters that died.
    fn deaths(&mut self, history: &'a History) {
        let mut dead: Vec<usize> = Vec::new();
        for record in &history.records {
            match &record.event {
                Event::Struck { fault_kind, processes, at, failed: None, .. }
                    if fault_kind.kills_clients() =>
                {
                    let orphan = self.requests.iter().any(|request| {
                        let process = self.process(request.client);
                        processes.iter().any(|gone| gone.as_str() == process)
                            && request.op == "acquire"
                            && request.answered <= at.from
                            && request.deadline.is_some_and(|deadline| deadline > at.to)
                            && !self.is_released(request, at.from)
                    });
                    if orphan {
                        self.reach(Goal::Orphan);
                    }
                }
                Event::Struck { fault, fault_kind, nodes, at, failed: None, .. } => {
                    if self.forgets(fault_kind) {
                        self.forgot.extend(nodes.iter().map(|node| (*node, at.to)));
                    }
                    if matches!(**fault_kind, FaultKind::Node(_))
                        && !["node.slow", "node.lag"].contains(&fault_kind.name())
                    {
                        dead.push(*fault);
                    }
                }
                Event::Cured { fault, failed: None, .. } if dead.contains(fault) => {
                    self.reach(Goal::MasterBack);
                }
                Event::Phase { phase: Phase::Heal } => return,
                _ => {}
            }
        }
    }

    /// Whether a guard distrusts the masters that this fault hits.
    fn forgets(&self, fault_kind: &FaultKind) -> bool {
        let durable = self.scenario.cluster.persistence == Persistence::AofAlways;
        fault_kind.starts_again() && !durable
            || matches!(
                fault_kind,
                FaultKind::Node(NodeFault::Flush { .. } | NodeFault::Failover { .. })
            )
    }

    fn process(&self, client: &str) -> &'a str {
        let known = self.scenario.clients.iter().find(|known| known.id == client);
        known.map_or("", |client| client.process().as_str())
    }

    fn is_released(&self, acquire: &Request<'_>, by: Ns) -> bool {
        self.requests.iter().any(|request| {
            request.op == "release"
                && request.client == acquire.client
                && request.resource == acquire.resource
                && (acquire.asked..=by).contains(&request.asked)
        })
    }

    /// Whether a process has a request under way at this time.
    fn is_asking(&self, process: &str, key: &str, at: Ns) -> bool {
        self.requests.iter().any(|request| {
            request.op == "acquire"
                && request.resource.is_some_and(|resource| key.ends_with(resource))
                && request.asked <= at
                && at <= request.answered
                && self.process(request.client) == process
        })
    }

    /// The commands on the masters. Returns the attempts.
    fn commands(&mut self, history: &'a History) -> Vec<Attempt<'a>> {
        let mut attempts: Vec<Attempt<'a>> = Vec::new();
        // Where each token was set: token, master, connection.
        let mut set: Vec<(&Name, usize, u64)> = Vec::new();
        for record in &history.records {
            let Event::Command { process, node, connection, act, sent, delivered, result, .. } =
                &record.event
            else {
                continue;
            };
            match (act, result) {
                (_, Outcome::Error) => self.reach(Goal::MasterError),
                (Act::Set { key, token, .. }, result) => {
                    let done = *result == Outcome::Done;
                    set.push((token, *node, *connection));
                    let quorum = || self.scenario.list_of(process).quorum();
                    note(&mut attempts, (process, token, key), (*sent, *result), quorum);
                    let forgot = |(known, at): &(usize, Ns)| known == node && sent > at;
                    let guarded = || self.scenario.options_of(process).guard.is_some();
                    if done && self.forgot.iter().any(forgot) && guarded() {
                        self.reach(Goal::TrustedAgain);
                    }
                    if done && !self.is_asking(process, key, *sent) {
                        self.reach(Goal::Zombie);
                    }
                    if delivered.is_some_and(|at| !self.is_asking(process, key, at)) {
                        self.reach(Goal::LateReply);
                    }
                }
                (Act::Keep { .. }, Outcome::Created) => {
                    self.reach(Goal::Repair);
                    if self.scenario.options_of(process).fencing {
                        self.reach(Goal::FencedRepair);
                    }
                }
                (Act::Certify { token: Some(token), .. }, Outcome::Done)
                    if self.granted.contains(&token) =>
                {
                    self.reach(Goal::Certified);
                }
                (Act::Delete { token: Some(token), .. }, Outcome::Done) => {
                    let elsewhere = |(known, on, over): &(&Name, usize, u64)| {
                        *known == token && on == node && over != connection
                    };
                    if !self.goals.contains(&Goal::PaidAnew) && set.iter().any(elsewhere) {
                        self.reach(Goal::PaidAnew);
                    }
                }
                _ => {}
            }
        }
        let some: Vec<&Attempt<'_>> =
            attempts.iter().filter(|one| (1..one.quorum).contains(&one.granted)).collect();
        let split = some.iter().enumerate().any(|(index, one)| {
            let both = |other: &&&Attempt<'_>| {
                other.key == one.key && other.from <= one.to && one.from <= other.to
            };
            some[index + 1..].iter().any(|other| both(&other))
        });
        if split {
            self.reach(Goal::SplitVote);
        }
        attempts
    }
}

fn note<'a>(
    attempts: &mut Vec<Attempt<'a>>,
    (process, token, key): (&'a Name, &'a Name, &'a Name),
    (sent, result): (Ns, Outcome),
    quorum: impl FnOnce() -> usize,
) {
    let (granted, refused) =
        (usize::from(result == Outcome::Done), usize::from(result == Outcome::Refused));
    // The latest attempts are at the end.
    match attempts.iter_mut().rev().take(16).find(|one| one.token == token) {
        Some(one) => {
            one.to = one.to.max(sent);
            one.granted += granted;
            one.refused += refused;
        }
        None => {
            let (from, to, quorum) = (sent, sent, quorum());
            attempts.push(Attempt { process, token, key, from, to, granted, refused, quorum });
        }
    }
}
