//! The situations that a search must reach; otherwise it has shown little. Locks go wrong in these
//! situations, whether or not this one does. The search detects them in the history, as the
//! checkers see it.

use redquorum_checker::{Case, DISTRUSTED, Request, Verdict, prepare, verdict};
use redquorum_scenario::client_protocol::{FailureReason, Op};
use redquorum_scenario::history::{Act, Event, History, Ns, Outcome, Phase};
use redquorum_scenario::name::Name;
use redquorum_scenario::{Fault, OnClient, OnLinks, OnMaster, Persistence, Scenario};

mod again;
mod deployment;
mod goal;
mod several;
mod waits;

pub use goal::Goal;

/// The verdict on a run, and the goals that it reached, in no order, each once.
pub(super) fn checked(history: &History) -> (Verdict, Vec<Goal>) {
    prepare(history, |case| {
        let verdict = verdict(case);
        let goals = reached(case, &verdict);
        (verdict, goals)
    })
}

fn reached(case: &Case<'_>, verdict: &Verdict) -> Vec<Goal> {
    let scenario = case.world.scenario;
    let mut seen = RunView { case, scenario, forgot: Vec::new(), goals: Vec::new() };
    let nodes = i64::try_from(scenario.cluster.nodes).unwrap_or(i64::MAX);
    let bare = 2 * i64::try_from(scenario.cluster.quorum()).unwrap_or(i64::MAX) - nodes;
    // For a lock that knows all masters.
    let own_lists = scenario.clients.iter().any(|client| client.nodes.is_some());
    if nodes > 2 && !own_lists && verdict.measures.margins.contains(&bare) {
        seen.reach(Goal::BareQuorum);
    }
    if verdict.measures.hollow_ns > 0 {
        seen.reach(Goal::HeldWithoutQuorum);
    }
    if verdict.measures.hand_over_ns.is_some() {
        seen.reach(Goal::HandOver);
    }
    seen.replies();
    seen.deaths();
    let attempts = seen.commands();
    let several = several::reached(&seen, &attempts);
    let waits = waits::reached(&seen);
    let deployment = deployment::reached(&seen);
    let again = again::reached(case.world.records).into_iter();
    for goal in again.chain(several).chain(waits).chain(deployment) {
        seen.reach(goal);
    }
    seen.goals
}

/// The value of the lease that a request returned.
fn token<'a>(request: &Request<'a>) -> Option<&'a str> {
    request.reply.filter(|reply| reply.ok)?.token
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

struct RunView<'c, 'a> {
    case: &'c Case<'a>,
    scenario: &'a Scenario,
    /// The masters that may have forgotten, and when.
    forgot: Vec<(usize, Ns)>,
    goals: Vec<Goal>,
}

impl<'a> RunView<'_, 'a> {
    fn reach(&mut self, goal: Goal) {
        if !self.goals.contains(&goal) {
            self.goals.push(goal);
        }
    }

    /// The replies to requests, and the notices of clients.
    fn replies(&mut self) {
        for request in &self.case.requests {
            let Some(reply) = request.reply else { continue };
            if !reply.ok && reply.explanation().is_some_and(|text| text.contains(DISTRUSTED)) {
                self.reach(Goal::Distrusted);
            }
            self.reach(match (request.op, reply.why) {
                (Op::Extend { .. }, Some(FailureReason::Lost)) => Goal::ExtendAfterLoss,
                (Op::Step { .. }, Some(FailureReason::Lost)) => Goal::StoppedInTime,
                (op, Some(FailureReason::Cancelled)) if op.is_acquire() => Goal::GivenUp,
                (op, Some(FailureReason::Late)) if op.is_acquire() => Goal::Late,
                (op, Some(FailureReason::NoQuorum)) if op.is_acquire() => Goal::NoQuorum,
                _ => continue,
            });
        }
        for (index, record) in self.case.world.records.iter().enumerate() {
            match &record.event {
                Event::Lost { client, .. } => {
                    let extends = self.case.requests.iter().any(|request| {
                        request.is_extend()
                            && request.client == client.as_str()
                            && request.record < index
                            && request.reply.is_none_or(|reply| reply.record > index)
                    });
                    if extends {
                        self.reach(Goal::LossInExtend);
                    }
                }
                Event::Extended { .. } => self.reach(Goal::Watchdog),
                Event::Touched { refused: true, .. } => self.reach(Goal::TokenRefused),
                _ => {}
            }
        }
    }

    /// Clients and masters that died.
    fn deaths(&mut self) {
        let durable = self.scenario.cluster.persistence == Persistence::AofAlways;
        let mut dead: Vec<usize> = Vec::new();
        for record in self.case.world.records {
            match &record.event {
                Event::Struck { fault, nodes, processes, at, failed: None } => {
                    let Some(Fault { kind, .. }) = self.scenario.fault(*fault) else { continue };
                    let row = kind.row();
                    if kind.removes_markers(durable) {
                        self.forgot.extend(nodes.iter().map(|node| (*node, at.to)));
                    }
                    let is_down = !matches!(row.master, OnMaster::Runs | OnMaster::Lags);
                    if is_down || row.links == OnLinks::Errors {
                        dead.push(*fault);
                    }
                    let orphan = self.case.requests.iter().any(|request| {
                        let deadline = request.reply.filter(|reply| reply.ok);
                        let deadline = deadline.and_then(|reply| reply.deadline_ns);
                        row.client == OnClient::Killed
                            && processes.iter().any(|gone| gone == request.process)
                            && request.is_acquire()
                            && request.replied() <= at.from
                            && deadline.is_some_and(|deadline| deadline > at.to)
                            && !self.is_released(request, at.from)
                    });
                    if orphan {
                        self.reach(Goal::Orphan);
                    }
                }
                Event::Healed { fault, failed: None, .. } if dead.contains(fault) => {
                    self.reach(Goal::MasterBack);
                }
                Event::Phase { phase: Phase::Heal } => return,
                _ => {}
            }
        }
    }

    fn is_released(&self, acquire: &Request<'_>, by: Ns) -> bool {
        self.case.requests.iter().any(|request| {
            request.op.is_release()
                && request.client == acquire.client
                && request.resource == acquire.resource
                && (acquire.asked..=by).contains(&request.asked)
        })
    }

    /// Whether a process has a request under way at this time.
    fn is_asking(&self, process: &str, key: &str, at: Ns) -> bool {
        self.waits(process, key, (at, at))
    }

    /// Whether one request of a process is under way throughout, from one instant to another.
    fn waits(&self, process: &str, key: &str, (from, to): (Ns, Ns)) -> bool {
        self.case.requests.iter().any(|request| {
            request.is_acquire()
                && request.resource.is_some_and(|resource| key.ends_with(resource))
                && request.asked <= from
                && to <= request.replied()
                && request.process == process
        })
    }

    /// The commands on the masters. Returns the attempts.
    fn commands(&mut self) -> Vec<Attempt<'a>> {
        let mut attempts: Vec<Attempt<'a>> = Vec::new();
        // The tokens of leases with a fencing token.
        let fenced = self.case.requests.iter().filter_map(|request| request.reply);
        let fenced = fenced.filter(|reply| reply.fence.is_some());
        let fenced: Vec<&str> = fenced.filter_map(|reply| reply.token).collect();
        // Where each token was set: token, master, connection.
        let mut set: Vec<(&Name, usize, u64)> = Vec::new();
        for record in self.case.world.records {
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
                    if fenced.contains(&token.as_str()) =>
                {
                    self.reach(Goal::Certified);
                }
                (Act::Delete { token: Some(token), .. }, Outcome::Done) => {
                    let elsewhere = |(known, on, over): &(&Name, usize, u64)| {
                        *known == token && on == node && over != connection
                    };
                    if !self.goals.contains(&Goal::CleanUpMoved) && set.iter().any(elsewhere) {
                        self.reach(Goal::CleanUpMoved);
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
