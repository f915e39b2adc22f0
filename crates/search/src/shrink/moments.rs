//! The passes that rename and round: moments of the protocol instead of times, parts instead of
//! numbers of masters, round times.

use super::Trial;
use super::weight::roughness;
use crate::lengths::{self, of_millis};
use redquorum_scenario::client_protocol::{Op, Request};
use redquorum_scenario::history::{Event, History, Ns};
use redquorum_scenario::name::Name;
use redquorum_scenario::units::nanos;
use redquorum_scenario::{
    AccessKind, EventKind, FaultTime, FieldMut, Moment, Nodes, Role, Scenario,
};

const MS: Ns = 1_000_000;
/// The values to which times are rounded, the roundest first.
const ROUND: [u64; 13] = [10_000, 5_000, 2_000, 1_000, 500, 200, 100, 50, 20, 10, 5, 2, 1];

pub(super) fn all(trial: &mut Trial<'_>) {
    triggers(trial);
    parts(trial);
    times(trial);
    numbers(trial);
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
    trial.attempt(|other| other.faults[fault].when = when)
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
                if trial.attempt(|other| other.faults[index].nodes = nodes) {
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
            lengths::changed(trial.scenario(), index, rounder).is_some_and(|it| trial.offer(it))
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
        let _ = DIGITS.into_iter().any(|digits| trial.attempt(rate(digits)))
            || [1_000, 100, 10].into_iter().any(|unit| trial.attempt(amount(unit)));
    }
}
