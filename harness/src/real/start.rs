//! Starts a run: a process for each client process of the scenario, behind proxies of its own, and
//! waits for its first message. `received.rs` handles the later messages.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};
use std::{fs, io};

use redquorum_rig::network::Network;
use redquorum_rig::{Clock, Masters, RigError};

use super::inject::Processes;
use super::{Failure, GLANCE, RealBackend, Signal, interrupted};
use crate::mutex::unpoisoned;
use crate::process::{ClientProcess, OutputEvent};
use redquorum_scenario::client_protocol::{
    Capability, ClientLine, NODES_VARIABLE, Notice, OPTIONS_VARIABLE, Options, PROTOCOL, shown,
};
use redquorum_scenario::name::Name;
use redquorum_scenario::{Fault, Scenario, SetsClock};
use redquorum_simulator::orchestrator::processes_of;

/// Timeout for a client to become ready.
pub(super) const READY: Duration = Duration::from_secs(10);

/// The wall clocks of client processes that have one of their own.
type Clocks = BTreeMap<Name, Clock>;

/// Starts each process that the scenario names, behind proxies of its own.
pub(super) fn clients(
    ground: &RealBackend,
    scenario: &Scenario,
    cluster: &Masters,
    network: &Network,
    signals: &Sender<Signal>,
) -> io::Result<(Processes, Clocks)> {
    let (mut processes, mut clocks) = (BTreeMap::new(), BTreeMap::new());
    for name in scenario.processes() {
        let options = serde_json::to_string(&Options::of(scenario, name))?;
        let mut urls = Vec::new();
        // A client that lists a master under two names gets two addresses for it.
        for node in scenario.list_of(name).addresses() {
            urls.push(format!("redis://{}", network.listen(name, *node)?));
        }
        let mut env: Vec<(&str, OsString)> =
            vec![(NODES_VARIABLE, urls.join(",").into()), (OPTIONS_VARIABLE, options.into())];
        if needs_clock(scenario, name) {
            let dir = cluster.dir(1).join(format!("clock-of-{name}"));
            fs::create_dir(&dir)?;
            let clock = Clock::create(&dir).map_err(io::Error::other)?;
            env.extend(clock.env());
            clocks.insert(name.to_owned(), clock);
        }
        let (to, of) = (signals.clone(), name.to_owned());
        let receive = move |message| drop(to.send(Signal::ReceivedMessage(of.clone(), message)));
        let process = ClientProcess::spawn(&ground.command, env, receive)?;
        processes.insert(name.to_owned(), Mutex::new(process));
    }
    Ok((processes, clocks))
}

/// Sets the boot markers of the masters for guarded clients, so that the clients trust them. Does
/// nothing if the scenario wants the masters new.
pub(super) fn initialize(scenario: &Scenario, cluster: &Masters) -> Result<(), String> {
    let failed = |node| move |error: RigError| format!("master {node} cannot be marked: {error}");
    if scenario.lock.guard.is_none() || !scenario.lock.initialized {
        return Ok(());
    }
    let nodes = 1..=scenario.cluster.nodes;
    for node in nodes.clone() {
        let info = cluster.info(node, "server").map_err(failed(node))?;
        let run_id = info.lines().find_map(|line| line.trim().strip_prefix("run_id:"));
        let marker = scenario.marker(node, run_id.unwrap_or_default()).unwrap_or_default();
        let set: [&[u8]; 3] = [b"SET", redquorum_protocol::wire::BOOT, marker.as_bytes()];
        cluster.command(node, &set).map_err(failed(node))?;
    }
    // Without this, a replica that is to lag would catch up first, and a fault would strike late.
    for node in nodes.filter(|_| scenario.cluster.replicas) {
        cluster.catch_up(node).map_err(failed(node))?;
    }
    Ok(())
}

/// Whether a fault sets the wall clock of this process.
fn needs_clock(scenario: &Scenario, process: &str) -> bool {
    let sets = |fault: &Fault| {
        fault.kind.row().clock == SetsClock::OfClient
            && processes_of(fault, scenario).iter().any(|hit| hit == process)
    };
    scenario.faults.iter().any(sets)
}

/// Waits for the first message of each client.
pub(super) fn all_ready(
    timeout: Duration,
    inbox: &Receiver<Signal>,
    processes: &Processes,
) -> Result<BTreeMap<Name, Vec<Capability>>, Failure> {
    let until = Instant::now() + timeout;
    let mut ready = BTreeMap::new();
    while ready.len() < processes.len() {
        if interrupted() {
            return Err(Failure::Interrupted);
        }
        let signal = match inbox.recv_timeout(GLANCE) {
            Ok(Signal::ReceivedMessage(process, message)) => Some((process, message)),
            _ => None,
        };
        match signal {
            Some((process, message)) => {
                let can = capabilities(&message.what)
                    .map_err(|why| not_ready(processes, &process, &why))?;
                ready.insert(process, can);
            }
            None if Instant::now() >= until => {
                let late = processes.keys().find(|name| !ready.contains_key(*name));
                let late = late.map_or("", Name::as_str);
                let why = format!(
                    "it sends nothing for {} (--ready-timeout)",
                    humantime::format_duration(timeout)
                );
                return Err(not_ready(processes, late, &why));
            }
            None => {}
        }
    }
    Ok(ready)
}

fn not_ready(processes: &Processes, process: &str, why: &str) -> Failure {
    let complaints = processes.get(process).map(|process| unpoisoned(process).complaints());
    let complaints = complaints.filter(|text| !text.is_empty());
    let behind = complaints.map(|text| format!("; it complains:\n{text}")).unwrap_or_default();
    Failure::Environment(format!(
        "the client of process {process} does not get ready: {why} (`client-check` reports what \
         is wrong with a driver){behind}"
    ))
}

/// The capabilities of a client, read from its first message.
fn capabilities(event: &OutputEvent) -> Result<Vec<Capability>, String> {
    let line = event.line()?;
    match ClientLine::read(line) {
        Ok(ClientLine::Notice(Notice::Ready { protocol: PROTOCOL, can, .. })) => Ok(can),
        Ok(ClientLine::Notice(Notice::Ready { protocol, .. })) => {
            Err(format!("it has protocol {protocol}, and this harness {PROTOCOL}"))
        }
        Ok(_) => Err(format!("its first line is not `ready` but `{}`", shown(line))),
        Err(why) => Err(format!("its first line is `{}`: {why}", shown(line))),
    }
}
