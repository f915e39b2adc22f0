//! Makes the rest of a find easy to read and to repeat: passes that rename and round
//! ([`to_moments`]), and passes that widen times ([`to_steady`]).

use super::{ROUND, Trial, roughness};
use crate::lengths::{self, Use, millis, of_millis};
use redquorum_checker::prepare;
use redquorum_scenario::client_protocol::{Op, Request};
use redquorum_scenario::history::{Event, History, Ns};
use redquorum_scenario::name::Name;
use redquorum_scenario::units::nanos;
use redquorum_scenario::{
    AccessKind, Clients, EventKind, Fault, FaultKind, FaultTime, FieldMut, Messages, Moment,
    NetworkFault, NodeFault, Nodes, Property, Role, Scenario, makes_sense,
};

const MS: Ns = 1_000_000;

/// Names moments of the protocol instead of times, and roles instead of numbers of masters; rounds
/// times.
pub(super) fn to_moments(trial: &mut Trial<'_>) {
    triggers(trial);
    parts(trial);
    times(trial);
    numbers(trial);
}

/// Proposes a scenario that reads better, and returns whether it is the best now.
fn improve(trial: &mut Trial<'_>, scenario: Scenario) -> bool {
    let is_better = rough(&scenario) < rough(trial.scenario());
    is_better && trial.offer(&scenario)
}

/// Proposes the best scenario with a change, and returns whether that is the best now.
fn attempt(trial: &mut Trial<'_>, change: impl FnOnce(&mut Scenario)) -> bool {
    let mut other = trial.scenario().clone();
    change(&mut other);
    improve(trial, other)
}

/// How far a scenario is from one that reads well: how its faults are aimed, and digits.
fn rough(scenario: &Scenario) -> [u64; 2] {
    let mut digits = 0;
    lengths::each(&mut scenario.clone(), &mut |_, length| digits += roughness(millis(*length)));
    let faults = &scenario.faults;
    digits += faults.iter().map(|fault| rough_numbers(&fault.kind)).sum::<u64>();
    [faults.iter().map(aim).sum(), digits]
}

/// How far a fault is from a readable description: a moment of the protocol is nearer than a time,
/// and a part that masters play is nearer than a number.
fn aim(fault: &Fault) -> u64 {
    let when = match &fault.when {
        FaultTime::At(at) if at.is_zero() => 0,
        FaultTime::At(_) => 3,
        FaultTime::After(moment) if !moment.plus.is_zero() => 1,
        FaultTime::After(_) | FaultTime::Before(_) => 0,
    };
    when + u64::from(matches!(fault.nodes, Some(Nodes::Some(_))))
}

/// How far the numbers of a fault that are no times are from simple ones.
fn rough_numbers(kind: &FaultKind) -> u64 {
    let of_field = |field| match field {
        FieldMut::Rate(rate) => rate.to_string().len() as u64,
        FieldMut::Bytes(bytes) => roughness(u64::from(*bytes)),
        FieldMut::Length(_)
        | FieldMut::Side(_)
        | FieldMut::Touches(_)
        | FieldMut::Messages(_)
        | FieldMut::Fixed => 0,
    };
    kind.clone().fields_mut().into_iter().map(of_field).sum()
}

/// Gives a fault at a fixed time the moment of the protocol before it; tries the latest moment
/// first.
fn triggers(trial: &mut Trial<'_>) {
    for index in 0..trial.scenario().faults.len() {
        let at = match &trial.scenario().faults[index].when {
            FaultTime::At(at) if !at.is_zero() => nanos(at.0),
            FaultTime::After(moment) if !moment.plus.is_zero() => {
                let plain = Moment { plus: of_millis(0), ..moment.clone() };
                offer_when(trial, index, FaultTime::After(plain));
                continue;
            }
            _ => continue,
        };
        // First tries the start of the run.
        if offer_when(trial, index, FaultTime::At(of_millis(0))) {
            continue;
        }
        let (scenario, seed, mutant) =
            (trial.scenario().clone(), trial.best.seed, trial.best.mutant);
        let Some(history) = trial.run(&scenario, seed, mutant) else { return };
        let mut moments = moments(&history);
        moments.retain(|(ns, ..)| *ns <= at);
        let latest = moments.into_iter().rev().take(6);
        for (ns, client, what) in latest {
            let after = u64::try_from((at - ns) / MS).unwrap_or(0);
            let when = |ms| {
                let (client, what) = (client.clone(), what.clone());
                FaultTime::After(Moment { client, what, plus: of_millis(ms) })
            };
            if offer_when(trial, index, when(0)) || offer_when(trial, index, when(after)) {
                break;
            }
        }
    }
}

fn offer_when(trial: &mut Trial<'_>, fault: usize, when: FaultTime) -> bool {
    attempt(trial, |other| other.faults[fault].when = when)
}

/// The moments for which a fault could wait, each at its first occurrence, in the order of time.
fn moments(history: &History) -> Vec<(Ns, Name, EventKind)> {
    let mut moments: Vec<(Ns, Name, EventKind)> = Vec::new();
    let mut asked: Vec<&Request> = Vec::new();
    let mut add = |ns: Ns, client: &Name, what: EventKind| {
        if !moments.iter().any(|(_, who, known)| who == client && *known == what) {
            moments.push((ns, client.clone(), what));
        }
    };
    for record in &history.records {
        match &record.event {
            Event::Requested(request) => {
                asked.push(request);
                if request.op.is_release() {
                    for resource in request.op.resources() {
                        add(record.ns, &request.client, EventKind::Releases(resource.clone()));
                    }
                }
            }
            Event::Replied { client, reply } => {
                let Some(request) = asked.iter().find(|request| request.id == reply.id) else {
                    continue;
                };
                let what = match (&request.op, reply.ok) {
                    (Op::Acquire { .. } | Op::AcquireAll { .. }, true) => EventKind::Granted,
                    (Op::Acquire { .. } | Op::AcquireAll { .. }, false) => EventKind::Refused,
                    (Op::Extend { .. }, true) => EventKind::Extended,
                    (Op::Release { .. } | Op::ReleaseAll { .. }, _) => EventKind::Released,
                    _ => continue,
                };
                for resource in request.op.resources() {
                    add(record.ns, client, what(resource.clone()));
                }
            }
            Event::Extended { client, resource, .. } => {
                add(record.ns, client, EventKind::Extended(resource.clone()));
            }
            Event::Lost { client, resource, .. } => {
                add(record.ns, client, EventKind::Lost(resource.clone()));
            }
            Event::Touched { client, register, way, .. } => {
                let what = match way {
                    AccessKind::Present => EventKind::Presents,
                    AccessKind::Read => EventKind::Reads,
                    AccessKind::Write => EventKind::Writes,
                };
                add(record.ns, client, what(register.clone()));
            }
            _ => {}
        }
    }
    moments
}

/// Selects masters by the part that they play.
fn parts(trial: &mut Trial<'_>) {
    let clients: Vec<Name> =
        trial.scenario().clients.iter().map(|client| client.id.clone()).collect();
    for index in 0..trial.scenario().faults.len() {
        let fault = &trial.scenario().faults[index];
        let Some(Nodes::Some(numbers)) = &fault.nodes else { continue };
        // Before the first request no master plays a part.
        if matches!(fault.when, FaultTime::At(at) if at.is_zero()) {
            continue;
        }
        let count = numbers.len();
        let own = match &fault.when {
            FaultTime::After(moment) | FaultTime::Before(moment) => Some(moment.client.clone()),
            FaultTime::At(_) => None,
        };
        let mut clients = clients.clone();
        // The client that the sentence already names comes first.
        clients.sort_by_key(|client| Some(client) != own.as_ref());
        'parts: for client in clients {
            for (granted, first) in
                [(true, Some(count)), (false, Some(count)), (true, None), (false, None)]
            {
                let role = Role { client: client.clone(), granted, first };
                let nodes = Some(Nodes::Role(role));
                if attempt(trial, |other| other.faults[index].nodes = nodes) {
                    break 'parts;
                }
            }
        }
    }
}

/// Rounds times, each separately.
fn times(trial: &mut Trial<'_>) {
    for index in 0..lengths::count(&mut trial.scenario().clone()) {
        let round = |trial: &mut Trial<'_>, to: &dyn Fn(u64) -> u64| {
            let rounder =
                |_, ms| Some(to(ms)).filter(|to| *to > 0 && roughness(*to) < roughness(ms));
            lengths::changed(trial.scenario(), index, rounder).is_some_and(|it| improve(trial, it))
        };
        ROUND.into_iter().any(|unit| {
            round(trial, &|ms| ms.next_multiple_of(unit)) || round(trial, &|ms| ms / unit * unit)
        });
    }
}

/// Rounds rates and amounts.
fn numbers(trial: &mut Trial<'_>) {
    const DIGITS: [f64; 8] = [1.0, 2.0, 10.0, 20.0, 100.0, 200.0, 1_000.0, 10_000.0];
    for index in 0..trial.scenario().faults.len() {
        let rate = |digits: f64| {
            move |other: &mut Scenario| {
                for field in other.faults[index].kind.fields_mut() {
                    if let FieldMut::Rate(rate) = field {
                        *rate = (*rate * digits).round() / digits;
                    }
                }
            }
        };
        let amount = |unit: u32| {
            move |other: &mut Scenario| {
                for field in other.faults[index].kind.fields_mut() {
                    if let FieldMut::Bytes(bytes) = field {
                        *bytes = *bytes / unit * unit;
                    }
                }
            }
        };
        let _ = DIGITS.into_iter().any(|digits| attempt(trial, rate(digits)))
            || [1_000, 100, 10].into_iter().any(|unit| attempt(trial, amount(unit)));
    }
}

/// By how much replies are slower than usual in the simulation.
const SLOWER: [u64; 6] = [0, 0, 0, 0, 3, 8];
/// How long two clients must have believed at the same time that they hold, to be detected whatever
/// a scheduler does.
const LONG: i64 = 50_000_000;
/// The score of a run that shows it for long enough.
const WELL: u32 = 2;
/// The score if all runs do.
const BEST: u32 = WELL * 6;

/// Widens times until the find no longer depends on small differences. It must show from several
/// seeds, on masters that are slower than those of the simulation, and for longer than a
/// scheduler's delay. Only then it shows on real masters too.
pub(super) fn to_steady(trial: &mut Trial<'_>) {
    let mut score = score_of(trial, &trial.scenario().clone());
    if score < BEST {
        score = ordered(trial, score);
    }
    if score < BEST {
        score = scaled(trial, score);
    }
    while score < BEST && !trial.is_over() {
        let better = widened(trial, score);
        if better == score {
            return;
        }
        score = better;
    }
}

/// How well a scenario shows the find.
fn score_of(trial: &mut Trial<'_>, scenario: &Scenario) -> u32 {
    let mut score = 0;
    for (index, slower) in (0..).zip(SLOWER) {
        let mut scenario = scenario.clone();
        if slower > 0 {
            // Appended after the other faults, whose numbers stay as they are.
            let slow = FaultKind::Node(NodeFault::Slow { by: of_millis(slower) });
            let when = FaultTime::At(of_millis(0));
            scenario.faults.push(Fault::of_nodes(when, None, Nodes::All, slow));
        }
        let seed = trial.best.seed + index;
        let Some(lasts) = trial.lasts(&scenario, seed) else { continue };
        let short = trial.kind.property == Some(Property::MutualExclusion) && lasts < LONG;
        score += if short { 1 } else { WELL };
    }
    score
}

/// Takes a scenario if it shows the find better. It may weigh more.
fn take(trial: &mut Trial<'_>, scenario: Scenario, score: u32) -> Option<u32> {
    if !makes_sense(&scenario) {
        return None;
    }
    let better = score_of(trial, &scenario);
    if better <= score {
        return None;
    }
    let found = trial.shows(&scenario, trial.best.seed)?;
    trial.best = found;
    Some(better)
}

/// Fixes what the seed had decided: which client comes first, and which masters it gets.
fn ordered(trial: &mut Trial<'_>, score: u32) -> u32 {
    let (start, seed, mutant) = (trial.scenario().clone(), trial.best.seed, trial.best.mutant);
    let Some(history) = trial.run(&start, seed, mutant) else { return score };
    let Some((first, masters)) = first_grant(&history) else { return score };
    let mut score = score;
    for (later, bare) in [(300, false), (0, true), (300, true)] {
        let mut other = start.clone();
        for client in other.clients.iter_mut().filter(|client| client.id != first) {
            client.start = of_millis(millis(client.start) + later);
        }
        if bare {
            let nodes = (1..=other.cluster.nodes).filter(|node| !masters.contains(node));
            let nodes: Vec<usize> = nodes.collect();
            if nodes.is_empty() {
                continue;
            }
            let links = (Clients::Some(vec![first.clone()]), Nodes::Some(nodes));
            let drop = NetworkFault::Drop(Messages::default());
            let when = FaultTime::At(of_millis(0));
            other.faults.insert(0, Fault::of_links(when, None, links, drop));
        }
        if let Some(better) = take(trial, other, score) {
            score = better;
        }
    }
    score
}

/// The client that is granted a lease first, and by which masters.
fn first_grant(history: &History) -> Option<(Name, Vec<usize>)> {
    prepare(history, |case| {
        let lease = case.leases.first()?;
        Some((lease.client.into(), lease.masters(&case.keys)))
    })
}

/// Scales all planned times up, so that unplanned delays matter less.
fn scaled(trial: &mut Trial<'_>, score: u32) -> u32 {
    let start = trial.scenario().clone();
    let mut score = score;
    for factor in [2, 4, 8] {
        let mut slower = start.clone();
        lengths::each(&mut slower, &mut |what, length| {
            if what == Use::Plan {
                *length = of_millis(millis(*length).saturating_mul(factor));
            }
        });
        if let Some(better) = take(trial, slower, score) {
            score = better;
        }
    }
    score
}

/// Makes one time longer or shorter.
fn widened(trial: &mut Trial<'_>, score: u32) -> u32 {
    let changes: [fn(u64) -> u64; 6] = [
        |ms| ms * 2,
        |ms| ms + ms / 2,
        |ms| ms / 2,
        |ms| ms + 100,
        |ms| ms + 20,
        |ms| ms.saturating_sub(20),
    ];
    for index in 0..lengths::count(&mut trial.scenario().clone()) {
        for change in changes {
            let wider = |_, ms: u64| Some(round(change(ms))).filter(|new| ms > 0 && *new > 0);
            let Some(other) = lengths::changed(trial.scenario(), index, wider) else { continue };
            if let Some(better) = take(trial, other, score) {
                return better;
            }
        }
    }
    score
}

/// The nearest number of two digits.
fn round(ms: u64) -> u64 {
    let unit = 10_u64.pow(ms.checked_ilog10().unwrap_or(0).saturating_sub(1));
    let nearest = (ms + unit / 2) / unit * unit;
    if roughness(nearest) < roughness(ms) { nearest } else { ms }
}
