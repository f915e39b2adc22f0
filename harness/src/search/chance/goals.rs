//! What a search should have come by, or it has shown little: situations in which locks go wrong,
//! whether or not this one does. They are seen in the history, as the judge sees it.

use std::fmt;

use crate::history::{Act, Event, History, Ns, Outcome, Phase};
use crate::judge::{DISTRUSTED, Verdict};
use crate::name::Name;
use crate::scenario::{Harm, NodeHarm, Persistence, Scenario};
use crate::talk::Why;

/// A situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Goal {
    /// A lease was granted by as few masters as can be, of three or more.
    BareQuorum,
    /// A lease was believed while fewer masters than a quorum had its key.
    HollowHold,
    /// A client died with a lease in its hands.
    Orphan,
    /// An extension found a key missing and made it anew.
    Repair,
    /// A master set a key when its client had given the attempt up.
    Zombie,
    /// The answer to a SET came when the acquire had its verdict.
    LateReply,
    /// A lease was lost while it was being extended.
    LossInExtend,
    /// Two asked at once, and each got some masters but no quorum.
    SplitVote,
    /// An extension was refused because the lease was lost.
    ExtendAfterLoss,
    /// What a broken connection left behind was deleted over another one.
    PaidAnew,
    /// A watchdog extended a lease.
    Watchdog,
    /// An acquire was given up while it was under way.
    GivenUp,
    /// A quorum granted, and nothing was left of the TTL.
    Late,
    /// Too few masters answered.
    NoQuorum,
    /// A client found, by looking, that its lease is over.
    StoppedInTime,
    /// A resource went from its holder to one that waited.
    HandOver,
    /// A master answered with an error.
    MasterError,
    /// A master died, and came back before the end.
    MasterBack,
    /// The grants did not show one number, and a round of its own certified one.
    Certified,
    /// A register refused a fencing token.
    FencedOff,
    /// An extension of a lease with a fencing token found a key missing and made it anew.
    FencedRepair,
    /// An acquire failed, and a master that might have granted it is distrusted.
    Distrusted,
    /// A master that had forgotten, and was distrusted for it, granted to a client with a guard.
    TrustedAgain,
}

impl Goal {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::BareQuorum,
        Self::HollowHold,
        Self::Orphan,
        Self::Repair,
        Self::Zombie,
        Self::LateReply,
        Self::LossInExtend,
        Self::SplitVote,
        Self::ExtendAfterLoss,
        Self::PaidAnew,
        Self::Watchdog,
        Self::GivenUp,
        Self::Late,
        Self::NoQuorum,
        Self::StoppedInTime,
        Self::HandOver,
        Self::MasterError,
        Self::MasterBack,
        Self::Certified,
        Self::FencedOff,
        Self::FencedRepair,
        Self::Distrusted,
        Self::TrustedAgain,
    ];

    /// Its name, for people and for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BareQuorum => "bare-quorum",
            Self::HollowHold => "hollow-hold",
            Self::Orphan => "orphan",
            Self::Repair => "repair",
            Self::Zombie => "zombie",
            Self::LateReply => "late-reply",
            Self::LossInExtend => "loss-in-extend",
            Self::SplitVote => "split-vote",
            Self::ExtendAfterLoss => "extend-after-loss",
            Self::PaidAnew => "paid-anew",
            Self::Watchdog => "watchdog",
            Self::GivenUp => "given-up",
            Self::Late => "late",
            Self::NoQuorum => "no-quorum",
            Self::StoppedInTime => "stopped-in-time",
            Self::HandOver => "hand-over",
            Self::MasterError => "master-error",
            Self::MasterBack => "master-back",
            Self::Certified => "certified",
            Self::FencedOff => "fenced-off",
            Self::FencedRepair => "fenced-repair",
            Self::Distrusted => "distrusted",
            Self::TrustedAgain => "trusted-again",
        }
    }

    /// What it is, in a few words.
    pub const fn about(self) -> &'static str {
        match self {
            Self::BareQuorum => "a grant by as few masters as can be",
            Self::HollowHold => "a lease that was believed and not true",
            Self::Orphan => "a key whose owner is dead",
            Self::Repair => "an extension that made a key anew",
            Self::Zombie => "a SET executed after its client gave up",
            Self::LateReply => "an answer after the verdict",
            Self::LossInExtend => "a loss during an extension",
            Self::SplitVote => "a split vote",
            Self::ExtendAfterLoss => "an extension refused, the lease being lost",
            Self::PaidAnew => "a debt paid on a new connection",
            Self::Watchdog => "a watchdog that extended",
            Self::GivenUp => "an acquire given up under way",
            Self::Late => "a grant with nothing left of the TTL",
            Self::NoQuorum => "too few masters that answer",
            Self::StoppedInTime => "a holder that looked, and stopped",
            Self::HandOver => "a hand-over to one that waited",
            Self::MasterError => "a master that answered with an error",
            Self::MasterBack => "a master that died and came back",
            Self::Certified => "a fencing token certified in a second round",
            Self::FencedOff => "a register that refused a fencing token",
            Self::FencedRepair => "a repair of a lease with a fencing token",
            Self::Distrusted => "an acquire that failed, with a master that is distrusted",
            Self::TrustedAgain => "a grant of a master that had been distrusted",
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The goals that a run reached, in no order, each once.
pub(super) fn reached(history: &History, verdict: &Verdict) -> Vec<Goal> {
    let mut seen = Seen {
        scenario: &history.header.scenario,
        requests: Vec::new(),
        granted: Vec::new(),
        forgot: Vec::new(),
        goals: Vec::new(),
    };
    let scenario = seen.scenario;
    let nodes = i64::try_from(scenario.cluster.nodes).unwrap_or(i64::MAX);
    let bare = 2 * i64::try_from(scenario.cluster.quorum()).unwrap_or(i64::MAX) - nodes;
    // Of a lock that knows all masters.
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
    seen.commands(history);
    seen.goals
}

/// A request, from its start to its end.
struct Request<'a> {
    id: u64,
    client: &'a str,
    op: &'a str,
    resource: Option<&'a str>,
    asked: Ns,
    answered: Ns,
    /// The lease that it gave ended then at the latest.
    deadline: Option<Ns>,
}

/// What a token's SETs came to.
struct Attempt<'a> {
    token: &'a Name,
    key: &'a Name,
    from: Ns,
    to: Ns,
    granted: usize,
    /// How many it takes.
    quorum: usize,
}

struct Seen<'a> {
    scenario: &'a Scenario,
    requests: Vec<Request<'a>>,
    /// The tokens of leases that came with a fencing token.
    granted: Vec<&'a Name>,
    /// Which masters may have forgotten, and when.
    forgot: Vec<(usize, Ns)>,
    goals: Vec<Goal>,
}

impl<'a> Seen<'a> {
    fn reach(&mut self, goal: Goal) {
        if !self.goals.contains(&goal) {
            self.goals.push(goal);
        }
    }

    /// The requests, and what their answers say.
    fn answers(&mut self, history: &'a History) {
        for record in &history.records {
            let ns = record.ns;
            match &record.event {
                Event::Asked { client, id, op, resource, .. } => self.requests.push(Request {
                    id: *id,
                    client,
                    op,
                    resource: resource.as_deref(),
                    asked: ns,
                    answered: Ns::MAX,
                    deadline: None,
                }),
                Event::Answered { id, ok, why, deadline, token, fence, text, .. } => {
                    self.granted.extend(token.as_ref().filter(|_| fence.is_some()));
                    if !ok && text.as_ref().is_some_and(|text| text.contains(DISTRUSTED)) {
                        self.reach(Goal::Distrusted);
                    }
                    let asked = self.requests.iter_mut().rev().find(|request| request.id == *id);
                    let Some(request) = asked else { continue };
                    request.answered = ns;
                    request.deadline = deadline.filter(|_| *ok);
                    let goal = match (request.op, why) {
                        ("extend", Some(Why::Lost)) => Goal::ExtendAfterLoss,
                        ("step", Some(Why::Lost)) => Goal::StoppedInTime,
                        ("acquire", Some(Why::Cancelled)) => Goal::GivenUp,
                        ("acquire", Some(Why::Late)) => Goal::Late,
                        ("acquire", Some(Why::NoQuorum)) => Goal::NoQuorum,
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
                Event::Struck { harm, processes, at, failed: None, .. } if harm.kills_clients() => {
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
                Event::Struck { fault, harm, nodes, at, failed: None, .. } => {
                    if self.forgets(harm) {
                        self.forgot.extend(nodes.iter().map(|node| (*node, at.to)));
                    }
                    if matches!(**harm, Harm::Node(_))
                        && !["node.slow", "node.lag"].contains(&harm.name())
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

    /// Whether masters that this hits are distrusted by who has a guard.
    fn forgets(&self, harm: &Harm) -> bool {
        let durable = self.scenario.cluster.persistence == Persistence::AofAlways;
        harm.starts_again() && !durable
            || matches!(harm, Harm::Node(NodeHarm::Flush { .. } | NodeHarm::Failover { .. }))
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

    /// Whether a process is asking for something at this time.
    fn is_asking(&self, process: &str, key: &str, at: Ns) -> bool {
        self.requests.iter().any(|request| {
            request.op == "acquire"
                && request.resource.is_some_and(|resource| key.ends_with(resource))
                && request.asked <= at
                && at <= request.answered
                && self.process(request.client) == process
        })
    }

    /// What happened on the masters.
    fn commands(&mut self, history: &'a History) {
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
                    note(&mut attempts, token, key, (*sent, done), quorum);
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
    }
}

fn note<'a>(
    attempts: &mut Vec<Attempt<'a>>,
    token: &'a Name,
    key: &'a Name,
    (sent, done): (Ns, bool),
    quorum: impl FnOnce() -> usize,
) {
    // The latest are at the end.
    match attempts.iter_mut().rev().take(16).find(|one| one.token == token) {
        Some(one) => {
            one.to = one.to.max(sent);
            one.granted += usize::from(done);
        }
        None => {
            let granted = usize::from(done);
            let quorum = quorum();
            attempts.push(Attempt { token, key, from: sent, to: sent, granted, quorum });
        }
    }
}
