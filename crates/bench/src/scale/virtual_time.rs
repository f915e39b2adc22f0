//! Runs of scenarios in virtual time, and the leases in their histories.

use std::collections::BTreeMap;
use std::time::Duration;

use redquorum_scenario::client_protocol::Op;
use redquorum_scenario::history::{Event, History, Ns, Phase};
use redquorum_scenario::name::Name;
use redquorum_scenario::{Mutant, Scenario};
use redquorum_simulator::{Course, Latency};

/// The commands of a handshake, which the simulation counts on each connection.
const HANDSHAKE: u64 = 4;

/// A lease. The times are in nanoseconds of the run.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) client: Name,
    pub(super) asked: Ns,
    pub(super) granted: Ns,
    /// When the client began to give it back.
    pub(super) released: Ns,
    /// When the release returned.
    pub(super) returned: Ns,
}

/// What clients did.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// In the order of their grants.
    pub(super) leases: Vec<Lease>,
    /// The number of leases that ended before their release.
    pub(super) lost: usize,
    /// The number of commands that each master received.
    pub(super) commands: Vec<u64>,
}

pub(super) fn read(text: &str) -> Result<Scenario, String> {
    let scenario: Scenario = toml::from_str(text).map_err(|why| format!("{why}\n{text}"))?;
    Ok(scenario.runs().swap_remove(0))
}

/// Plays a scenario until all scripts are done: not its last phases, in which each client acquires
/// once more.
pub(super) fn play(scenario: &Scenario, seed: u64) -> Run {
    let mut course = Course::new(scenario, seed, Latency::Chance, Mutant::None);
    while (!course.has_begun() || course.is_running()) && course.step() {}
    Run::of(&course.finish())
}

impl Run {
    pub(super) fn of(history: &History) -> Self {
        let mut run = Self::default();
        let mut open: BTreeMap<u64, (Ns, bool)> = BTreeMap::new();
        let mut held: BTreeMap<Name, Lease> = BTreeMap::new();
        let mut sent: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
        for record in &history.records {
            match &record.event {
                Event::Phase { phase } if *phase != Phase::Run => break,
                Event::Requested(request) => {
                    open.insert(request.id, (record.ns, request.op.is_acquire()));
                    if let (Op::Release { .. }, Some(lease)) =
                        (&request.op, held.get_mut(&request.client))
                    {
                        lease.released = record.ns;
                    }
                }
                Event::Replied { client, reply } => match open.remove(&reply.id) {
                    Some((asked, true)) if reply.ok => {
                        let (client, granted) = (client.clone(), record.ns);
                        let lease = Lease { client, asked, granted, released: 0, returned: 0 };
                        held.insert(lease.client.clone(), lease);
                    }
                    Some((_, true)) => {}
                    Some((asked, false)) => {
                        if let Some(lease) = held.get(client).filter(|it| it.released == asked) {
                            run.leases.push(Lease { returned: record.ns, ..lease.clone() });
                            held.remove(client);
                        }
                    }
                    None => {}
                },
                Event::Lost { .. } => run.lost += 1,
                Event::Command { node, connection, number, .. } => {
                    let (_, last) = sent.entry(*connection).or_insert((*node, 0));
                    *last = (*last).max(number.saturating_sub(HANDSHAKE));
                }
                _ => {}
            }
        }
        run.leases.sort_by_key(|lease| lease.granted);
        run.commands = vec![0; history.header.scenario.cluster.nodes];
        sent.into_values().for_each(|(node, commands)| run.commands[node - 1] += commands);
        run
    }

    /// The times between the call of a release and the next grant, where the next client waited
    /// already. In the order of the grants.
    pub(super) fn hand_overs(&self) -> impl Iterator<Item = (&Lease, &Lease, Duration)> {
        let both = self.leases.windows(2).filter(|both| both[1].asked < both[0].released);
        both.map(|both| (&both[0], &both[1], between(both[0].released, both[1].granted)))
    }
}

pub(super) fn between(from: Ns, to: Ns) -> Duration {
    Duration::from_nanos(u64::try_from(to.saturating_sub(from)).unwrap_or(0))
}

pub(super) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
