//! The coverage goals: states and events in which locks go wrong, whether or not this one does. A
//! search that does not reach them has shown little. It detects them in the history, as the
//! checkers see it.

use std::collections::{BTreeMap, BTreeSet};

use redquorum_checker::{Case, DISTRUSTED, Request, Strike, Verdict, prepare, verdict};
use redquorum_protocol::wire::TURN_MS;
use redquorum_scenario::client_protocol::{self, FailureReason, Op};
use redquorum_scenario::history::{Act, Event, History, Ns, Outcome, Phase, Record};
use redquorum_scenario::name::Name;
use redquorum_scenario::{
    Fault, FaultKind, NetworkFault, NodeFault, OnClient, OnLinks, OnMaster, Persistence, Scenario,
    named,
};

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
    seen.sharing();
    seen.replies();
    seen.deaths();
    let attempts = seen.commands();
    let several = several_reached(&seen, &attempts);
    let waits = waits_reached(&seen);
    let deployment = deployment_reached(&seen);
    let again = reentry_reached(case.world.records).into_iter();
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

    /// Leases of two clients at the same time: of one resource, or of one semaphore.
    fn sharing(&mut self) {
        let leases = &self.case.leases;
        for (index, one) in leases.iter().enumerate() {
            let beside = leases[..index]
                .iter()
                .filter(|other| other.client != one.client && other.span().touches(one.span()));
            for other in beside {
                let permits = [one, other].map(|it| self.case.requests[it.request].op.is_any());
                if one.shared && other.shared && one.resource == other.resource {
                    self.reach(Goal::Shared);
                } else if permits == [true; 2] && one.resource != other.resource {
                    self.reach(Goal::Permits);
                }
            }
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

named! {
    /// A coverage goal.
    pub enum Goal {
        /// A lease was granted by as few masters as possible, of three or more.
        BareQuorum = "bare-quorum", "a grant by the smallest possible quorum";
        /// A client held a lease while fewer masters than a quorum had its key.
        HeldWithoutQuorum = "held-without-quorum", "a lease held while no quorum had its key";
        Orphan = "orphan", "a key whose owner is dead";
        Repair = "repair", "an extension that created a key again";
        Zombie = "zombie", "a SET executed after its client gave up";
        LateReply = "late-reply", "a reply after the decision";
        LossInExtend = "loss-in-extend", "a loss during an extension";
        /// Two clients asked at once, and each got some masters but no quorum.
        SplitVote = "split-vote", "a split vote";
        ExtendAfterLoss = "extend-after-loss", "an extension refused because the lease was lost";
        /// A key that was set over one connection was deleted over another.
        CleanUpMoved = "clean-up-moved", "a clean-up completed on a new connection";
        Watchdog = "watchdog", "a watchdog that extended";
        GivenUp = "given-up", "an acquire cancelled under way";
        Late = "late", "a grant with nothing left of the TTL";
        NoQuorum = "no-quorum", "an acquire without replies from a quorum";
        StoppedInTime = "stopped-in-time", "a holder that checked its lease and stopped";
        HandOver = "hand-over", "a hand-over to a waiter";
        MasterError = "master-error", "a master that replied with an error";
        MasterBack = "master-back", "a master that was killed and restarted";
        /// The grants did not show one number, and a separate round certified one.
        Certified = "certified", "a fencing token certified in a second round";
        TokenRefused = "token-refused", "a write refused because of its fencing token";
        FencedRepair = "fenced-repair", "a repair of a lease with a fencing token";
        Distrusted = "distrusted", "a failed acquire with a distrusted master";
        TrustedAgain = "trusted-again", "a grant of a master that was distrusted before";
        HandleLeft = "handle-left", "a handle that outlived another of its lease";
        Prolonged = "prolonged", "a handle for which the lease was extended";
        Shared = "shared", "leases of two clients that shared a resource";
        Permits = "permits", "two permits of a semaphore that were out";
        Reacquired = "reacquired", "an owner that acquired again what it had lost";
        OppositeOrders = "opposite-orders", "several resources requested in opposite orders";
        CollectUndone = "collect-undone", "one of several resources released, another being taken";
        /// An acquire that waited went on as soon as the holder released.
        Woken = "woken", "an acquire that was woken by a release";
        Polled = "polled", "an acquire that was not woken and found the resource free by polling";
        /// A lease went from one client to the next waiter of its process, right behind the
        /// deletion of the key.
        HandOff = "hand-off", "a hand-off within a process";
        HandedOffGone = "handed-off-gone", "a waiter that gave up in its turn";
        /// A process had several leases in a row, and a waiter of another process came before its
        /// next one.
        Yielded = "yielded", "a turn for another process after several leases of one process";
        /// The first master was asked alone, and refused.
        RefusedFirst = "refused-first", "a refusal by the first master alone";
        /// The first master was asked alone and refused, and the others granted without it.
        FirstOverruled = "first-overruled", "a refusal by the first master that others overruled";
        /// The waiter before it was paused, or cut off, and stayed in the fair queues.
        PassedOver = "passed-over", "a grant to a fair waiter behind a silent one";
        Recycled = "recycled", "a client on its third connection to a master that resets them";
        Promoted = "promoted", "a grant of a master that refused as a replica before";
        /// The caller that had asked before did not poll its request meanwhile, and got a reply
        /// later.
        Unpolled = "unpolled", "a grant to another client than one that was not polled";
    }
}

impl Goal {
    /// The coverage goals that a search with the library can see, or one with the machines.
    pub fn all(library: bool) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |goal| match goal {
            // The library does not report its tokens.
            Self::Certified | Self::Woken | Self::Polled | Self::Yielded | Self::FirstOverruled => {
                !library
            }
            // The machines of the simulation have no futures.
            Self::Unpolled => library,
            _ => true,
        })
    }
}

const MS: Ns = 1_000_000;

fn ms(number: u64) -> Ns {
    Ns::try_from(number).unwrap_or(Ns::MAX).saturating_mul(MS)
}

/// An attempt of another process this soon after a deletion is due to the deletion: a wake-up, and
/// a short time for the wake-ups of other masters.
const SOON: Ns = 15 * MS;
/// A deletion and the SET of the next waiter of the same process are written at once.
const BEHIND: Ns = MS / 5;
/// After this many leases in a row, a waiter of another process is next.
const HAND_OFFS: usize = 3;

/// The SETs of one attempt.
struct Try<'a> {
    process: &'a Name,
    key: &'a Name,
    token: &'a Name,
    from: Ns,
    /// The latest time at which its keys expire, unless they are extended.
    expires: Ns,
    nodes: Vec<usize>,
    refused_by: Vec<usize>,
    /// It was written right behind the deletion of another lease of its process.
    handed_off: bool,
}

/// A deletion of a key. The script compares the value with an attempt's own token.
struct Delete<'a> {
    process: &'a Name,
    key: &'a Name,
    token: &'a Name,
    place: (u64, u64),
    sent: Ns,
    done: bool,
}

/// The goals of waiters. The history does not record the push messages of masters, so the goals are
/// derived from what follows them.
fn waits_reached(seen: &RunView<'_, '_>) -> Vec<Goal> {
    let records = seen.case.world.records;
    let deletes = deletes(records);
    let tries = tries(records, &deletes, |process, key, span| seen.waits(process, key, span));
    let requests = || seen.case.requests.iter();
    let granted = |of: &Name| requests().any(|one| token(one) == Some(of.as_str()));
    let mut goals = Vec::new();
    for (index, one) in tries.iter().enumerate() {
        if one.handed_off {
            goals.push(Goal::HandOff);
            let gone = requests().any(|request| {
                request.reply.is_some_and(|it| it.why == Some(FailureReason::Cancelled))
                    && one.process == request.process
                    && request.asked <= one.from
                    && (one.from..one.from + 200 * MS).contains(&request.replied())
            });
            goals.extend((gone && !granted(one.token)).then_some(Goal::HandedOffGone));
        } else {
            goals.extend(woken(seen, (&deletes, &tries[..index]), one, granted));
        }
        let alone = one.nodes.len() == 1 && one.refused_by.len() == 1;
        if alone && seen.scenario.list_of(one.process).quorum() > 1 {
            goals.push(Goal::RefusedFirst);
            let own = |other: &&Try<'_>| other.process == one.process && other.key == one.key;
            let next = tries[index + 1..].iter().find(own);
            let without =
                |next: &&Try<'_>| next.refused_by.contains(&one.nodes[0]) && granted(next.token);
            goals.extend(next.filter(without).map(|_| Goal::FirstOverruled));
        }
    }
    goals.extend(has_yielded(seen, &tries).then_some(Goal::Yielded));
    goals.sort_unstable();
    goals.dedup();
    goals
}

/// Why an attempt of a waiter was granted at that time: it was woken, or it found by itself that
/// the lease of another process had ended early.
fn woken(
    seen: &RunView<'_, '_>,
    (deletes, before): (&[Delete<'_>], &[Try<'_>]),
    one: &Try<'_>,
    granted: impl Fn(&Name) -> bool,
) -> Option<Goal> {
    let since = one.from - SOON;
    // Another waiter had its turn before.
    if !seen.waits(one.process, one.key, (since, one.from)) || !granted(one.token) {
        return None;
    }
    let released = deletes.iter().any(|delete| {
        delete.key == one.key
            && delete.process != one.process
            && delete.done
            && granted(delete.token)
            && (since..one.from).contains(&delete.sent)
    });
    if released {
        return Some(Goal::Woken);
    }
    let lease = before.iter().rfind(|other| other.key == one.key && granted(other.token))?;
    (lease.process != one.process && one.from < lease.expires).then_some(Goal::Polled)
}

/// Whether a waiter of another process came before the next one of a process that had several
/// leases in a row.
fn has_yielded(seen: &RunView<'_, '_>, tries: &[Try<'_>]) -> bool {
    let lease = |request: &Request<'_>| {
        let granted = token(request)?;
        Some((request.replied(), tries.iter().find(|one| one.token == granted)?))
    };
    let mut leases: Vec<(Ns, &Try<'_>)> = seen.case.requests.iter().filter_map(lease).collect();
    leases.sort_by_key(|(at, _)| *at);
    leases.windows(HAND_OFFS + 1).any(|some| {
        let ((at, other), before) = (some[HAND_OFFS], &some[..HAND_OFFS]);
        let (process, key) = (before[0].1.process, before[0].1.key);
        let own =
            |(_, one): &(Ns, &Try<'_>)| one.handed_off && one.process == process && one.key == key;
        before.iter().all(own)
            && other.process != process
            && other.key == key
            && seen.is_asking(process, key, at)
    })
}

fn deletes(records: &[Record]) -> Vec<Delete<'_>> {
    let all = records.iter().filter_map(|record| match &record.event {
        Event::Command {
            process,
            connection,
            number,
            act: Act::Delete { key, token: Some(token) },
            sent,
            result,
            ..
        } => Some(Delete {
            process,
            key,
            token,
            place: (*connection, *number),
            sent: *sent,
            done: *result == Outcome::Done,
        }),
        _ => None,
    });
    all.collect()
}

/// All attempts, in their order.
fn tries<'a>(
    records: &'a [Record],
    deletes: &[Delete<'a>],
    waits: impl Fn(&str, &str, (Ns, Ns)) -> bool,
) -> Vec<Try<'a>> {
    let places: BTreeMap<(u64, u64), &Delete<'a>> =
        deletes.iter().filter(|delete| delete.done).map(|delete| (delete.place, delete)).collect();
    let mut tries: BTreeMap<&Name, Try<'a>> = BTreeMap::new();
    for record in records {
        let Event::Command {
            process,
            node,
            connection,
            number,
            act: Act::Set { key, token, ttl_ms, .. },
            sent,
            result,
            ..
        } = &record.event
        else {
            continue;
        };
        let (nodes, refused_by) = (Vec::new(), Vec::new());
        let one = tries.entry(token).or_insert_with(|| Try {
            process,
            key,
            token,
            from: *sent,
            expires: ttl_ms.map_or(Ns::MAX, |ttl| ms(ttl).saturating_add(*sent)),
            nodes,
            refused_by,
            handed_off: false,
        });
        one.from = one.from.min(*sent);
        one.nodes.push(*node);
        if *result == Outcome::Refused {
            one.refused_by.push(*node);
        }
        let before = places.get(&(*connection, number.wrapping_sub(1)));
        one.handed_off |= before.is_some_and(|delete| {
            delete.key == key
                && delete.token != token
                && sent.saturating_sub(delete.sent) <= BEHIND
                // A client that asks when the reply to its release arrives asks a moment later.
                && waits(process, key, (delete.sent - MS, *sent))
        });
    }
    let mut tries: Vec<Try<'a>> = tries.into_values().collect();
    tries.sort_by_key(|one| one.from);
    tries
}

/// How long a fair queue waits for a silent waiter.
const TURN: Ns = TURN_MS.cast_signed() * 1_000_000;

/// Coverage goals in the life of a deployment: silent waiters, recycled connections, demoted
/// masters, and callers that do not poll.
fn deployment_reached(seen: &RunView<'_, '_>) -> Vec<Goal> {
    let has = |goal, occurred: bool| occurred.then_some(goal);
    let goals = [
        has(Goal::PassedOver, is_passed_over(seen)),
        has(Goal::Recycled, is_recycled(seen)),
        has(Goal::Promoted, is_promoted(seen)),
        has(Goal::Unpolled, is_unpolled(seen)),
    ];
    goals.into_iter().flatten().collect()
}

/// Whether a fair waiter got its lease although another one had come before it, was silent for a
/// turn, and still was in the queues.
fn is_passed_over(seen: &RunView<'_, '_>) -> bool {
    let case = seen.case;
    let silences = |strike: &Strike<'_>, process: &str| {
        let cut = matches!(strike.fault.kind, FaultKind::Net(NetworkFault::Cut(_)));
        (cut || strike.fault.kind.pauses_clients()) && strike.hits_process(process)
    };
    let fair = |request: &&Request<'_>| {
        request.is_acquire_of_run() && seen.scenario.options_of(request.process).fair
    };
    let all: Vec<&Request<'_>> = case.requests.iter().filter(fair).collect();
    all.iter().filter(|request| request.granted()).any(|granted| {
        all.iter().any(|other| {
            (other.resource, other.op.wait_ms() > 0) == (granted.resource, true)
                && other.process != granted.process
                && other.asked < granted.asked
                && other.replied() > granted.replied()
                && case.faults.strikes().iter().any(|strike| {
                    let span = strike.span();
                    silences(strike, other.process)
                        && other.asked < span.from
                        && span.from + TURN < granted.replied()
                        && granted.replied() < span.to
                })
        })
    })
}

/// Whether all connections to a master were reset at least twice, and a client used a third one.
fn is_recycled(seen: &RunView<'_, '_>) -> bool {
    let resets = |node: usize| {
        let of = |strike: &&Strike<'_>| {
            matches!(&strike.fault.kind, FaultKind::Net(NetworkFault::Reset(messages))
                if messages.index.is_none())
                && strike.hits_node(node)
        };
        seen.case.faults.strikes().iter().filter(of).count()
    };
    let mut used: BTreeMap<(&str, usize), BTreeSet<u64>> = BTreeMap::new();
    for record in seen.case.world.records {
        if let Event::Command { process, node, connection, .. } = &record.event {
            used.entry((process, *node)).or_default().insert(*connection);
        }
    }
    used.iter().any(|((_, node), connections)| connections.len() > 2 && resets(*node) > 1)
}

/// Whether a master refused a command while it was demoted, and granted after its promotion.
fn is_promoted(seen: &RunView<'_, '_>) -> bool {
    let case = seen.case;
    let heals = case.world.until(Phase::Heal);
    let demoted = case.faults.strikes().iter().filter(|strike| {
        matches!(strike.fault.kind, FaultKind::Node(NodeFault::Demote)) && !strike.failed
    });
    let mut all = demoted.filter_map(|strike| Some((strike, strike.healed?)));
    all.any(|(strike, healed)| {
        (1..=case.world.n).filter(|node| strike.hits_node(*node)).any(|node| {
            let has = |wanted: &dyn Fn(&Act, Outcome, Ns) -> bool| {
                case.world.records.iter().any(|record| match &record.event {
                    Event::Command { node: on, act, sent, result, .. } => {
                        *on == node && wanted(act, *result, *sent)
                    }
                    _ => false,
                })
            };
            has(&|_, result, sent| result == Outcome::Error && strike.span().contains(sent))
                && has(&|act, result, sent| {
                    matches!(act, Act::Set { .. })
                        && result == Outcome::Done
                        && (healed.to..heals).contains(&sent)
                })
        })
    })
}

/// Whether a client got a lease while the request of another one for it, made before, was not
/// polled. That one was answered later.
fn is_unpolled(seen: &RunView<'_, '_>) -> bool {
    let acquires = || seen.case.requests.iter().filter(|request| request.is_acquire_of_run());
    acquires().any(|unpolled| {
        let Some(span) = unpolled.unpolled.filter(|_| !unpolled.is_given_up()) else {
            return false;
        };
        acquires().any(|other| {
            other.granted()
                && other.resource == unpolled.resource
                && other.client != unpolled.client
                && (span.from..span.to).contains(&other.replied())
        })
    })
}

/// The goals of clients that want several resources at once.
fn several_reached(seen: &RunView<'_, '_>, attempts: &[Attempt<'_>]) -> Vec<Goal> {
    let several = |request: &&Request<'_>| request.is_acquire() && request.is_of_several();
    let several: Vec<&Request<'_>> = seen.case.requests.iter().filter(several).collect();
    let mut goals = Vec::new();
    goals.extend(are_opposite(&several).then_some(Goal::OppositeOrders));
    goals.extend(
        several.iter().any(|one| is_undone(seen, one, attempts)).then_some(Goal::CollectUndone),
    );
    goals
}

/// Whether two clients named the same two resources in opposite orders, and wanted them at the same
/// time.
fn are_opposite(several: &[&Request<'_>]) -> bool {
    let named = several.iter().flat_map(|first| {
        let beside =
            |second: &&&Request<'_>| second.record == first.record && second.place > first.place;
        several.iter().filter(beside).map(|second| (*first, second.resource))
    });
    let named: Vec<(&Request<'_>, Option<&str>)> = named.collect();
    named.iter().any(|(one, last)| {
        named.iter().any(|(other, others_last)| {
            one.client != other.client
                && (one.resource, *last) == (*others_last, other.resource)
                && one.asked <= other.replied()
                && other.asked <= one.replied()
        })
    })
}

/// Whether a quorum granted a resource, and the client gave it up since another was taken.
fn is_undone(seen: &RunView<'_, '_>, request: &Request<'_>, attempts: &[Attempt<'_>]) -> bool {
    let during = request.asked..=request.replied();
    let of = |name: &str| {
        let name = name.to_owned();
        let own = attempts.iter().filter(|one| one.process == request.process);
        own.filter(move |one| one.key.ends_with(&name)).filter(|one| during.contains(&one.from))
    };
    let is_lease = |one: &Attempt<'_>| {
        seen.case.requests.iter().any(|other| token(other) == Some(one.token.as_str()))
    };
    let won = of(request.resource.unwrap_or_default());
    let mut won = won.filter(|one| one.granted >= one.quorum && !is_lease(one));
    won.any(|won| {
        let lost = |one: &Attempt<'_>| {
            let together = one.from <= won.to && won.from <= one.to;
            together && one.granted < one.quorum && one.refused > 0
        };
        request.with().any(|name| of(name).any(lost))
    })
}

/// The goals of owners that acquire again a resource that they hold.
fn reentry_reached(records: &[Record]) -> Vec<Goal> {
    let mut goals = Vec::new();
    // By number.
    let mut asked = BTreeMap::new();
    // The owners whose lease was lost, until they have another.
    let mut lost = BTreeSet::new();
    for record in records {
        match &record.event {
            Event::Requested(request) => {
                asked.insert(request.id, request);
            }
            Event::Replied { reply, .. } => {
                let Some(client_protocol::Request { client, op, .. }) = asked.get(&reply.id) else {
                    continue;
                };
                let others = reply.ok && reply.handles.is_some();
                // Without a round no time passes between the two.
                if op.is_acquire() && others {
                    goals.extend((reply.at_ns > reply.from_ns).then_some(Goal::Prolonged));
                } else if op.is_acquire() {
                    for resource in op.resources() {
                        let anew = op.is_again() && lost.contains(&(client, resource));
                        goals.extend(anew.then_some(Goal::Reacquired));
                        if reply.ok {
                            lost.remove(&(client, resource));
                        }
                    }
                } else if op.is_release() && others {
                    goals.push(Goal::HandleLeft);
                }
            }
            Event::Lost { client, resource, .. } => {
                lost.insert((client, resource));
            }
            _ => {}
        }
    }
    goals
}
