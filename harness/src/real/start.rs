//! Starts a run: a process for each client process of the scenario, behind proxies of its own, and
//! waits for its first message. `heard.rs` handles the later messages.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use redquorum_rig::network::Network;
use redquorum_rig::{Clock, Cluster};

use super::inject::Processes;
use super::run::{GLANCE, Signal};
use super::{Failure, RealBackend, interrupted};
use crate::client_protocol::{
    Capability, ClientLine, NODES_VARIABLE, Notice, OPTIONS_VARIABLE, Options, PROTOCOL,
};
use crate::mutex::unpoisoned;
use crate::name::Name;
use crate::orchestrator::processes_of;
use crate::process::{ClientProcess, Word, shown};
use crate::scenario::{ClientFault, Fault, FaultKind, Scenario};

/// Timeout for a client to become ready.
pub(super) const READY: Duration = Duration::from_secs(10);
/// Timeout for a replica to receive its master's latest writes. A replica acknowledges once a
/// second.
const COPIED: Duration = Duration::from_secs(5);

/// The wall clocks of client processes that have one of their own.
type Clocks = BTreeMap<Name, Clock>;

/// Starts each process that the scenario names, behind proxies of its own.
pub(super) fn clients(
    ground: &RealBackend,
    scenario: &Scenario,
    cluster: &dyn Cluster,
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
            let missing = || io::Error::other("the masters have no directory for a clock");
            let dir = cluster.scratch().ok_or_else(missing)?.join(format!("clock-of-{name}"));
            fs::create_dir(&dir)?;
            let clock = Clock::create(&dir).map_err(io::Error::other)?;
            env.extend(clock.env());
            clocks.insert(name.to_owned(), clock);
        }
        let (to, of) = (signals.clone(), name.to_owned());
        let hear = move |heard| drop(to.send(Signal::ReceivedMessage(of.clone(), heard)));
        let process = ClientProcess::spawn(&ground.command, env, hear)?;
        processes.insert(name.to_owned(), Mutex::new(process));
    }
    Ok((processes, clocks))
}

/// Sets the boot markers of the masters for guarded clients, so that the clients trust them. Does
/// nothing if the scenario wants the masters new.
pub(super) fn initialize(scenario: &Scenario, cluster: &dyn Cluster) -> Result<(), String> {
    let ask = |node, words: &[&[u8]]| {
        let why = |error| format!("master {node} cannot be marked: {error}");
        cluster.command(node, words).map_err(why)
    };
    let info = |node, section: &[u8]| {
        Ok::<_, String>(ask(node, &[b"INFO", section])?.text().unwrap_or_default().into_owned())
    };
    if scenario.lock.guard.is_none() || !scenario.lock.initialized {
        return Ok(());
    }
    let nodes = 1..=scenario.cluster.nodes;
    for node in nodes.clone() {
        let info = info(node, b"server")?;
        let run_id = info.lines().find_map(|line| line.trim().strip_prefix("run_id:"));
        let marker = scenario.marker(node, run_id.unwrap_or_default()).unwrap_or_default();
        ask(node, &[b"SET", redquorum_protocol::wire::BOOT, marker.as_bytes()])?;
    }
    // Without this, a replica that is to lag would catch up first, and a fault would strike late.
    for node in nodes.filter(|_| scenario.cluster.replicas) {
        let until = Instant::now() + COPIED;
        while !is_copied(&info(node, b"replication")?) {
            if Instant::now() >= until {
                return Err(format!("the replica of master {node} does not get its marker"));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// Whether the replica has all data of the master, according to the master's `INFO`.
fn is_copied(info: &str) -> bool {
    let after = |text: &'_ str, name: &str| {
        let rest = text.split_once(name)?.1;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    let replica = info.lines().find(|line| line.starts_with("slave0:") && line.contains("online"));
    let has = replica.and_then(|line| after(line, ",offset="));
    has.is_some_and(|has| after(info, "master_repl_offset:").is_some_and(|all| has >= all))
}

/// Whether a fault sets the wall clock of this process.
fn needs_clock(scenario: &Scenario, process: &str) -> bool {
    let sets = |fault: &Fault| {
        matches!(fault.fault_kind, FaultKind::Client(ClientFault::Clock { .. }))
            && processes_of(&fault.fault_kind, scenario).iter().any(|hit| hit == process)
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
            Ok(Signal::ReceivedMessage(process, heard)) => Some((process, heard)),
            _ => None,
        };
        match signal {
            Some((process, heard)) => {
                let can =
                    first_words(&heard.what).map_err(|why| not_ready(processes, &process, &why))?;
                ready.insert(process, can);
            }
            None if Instant::now() >= until => {
                let late = processes.keys().find(|name| !ready.contains_key(*name));
                let late = late.map_or("", Name::as_str);
                let why = format!(
                    "it says nothing for {} (--ready-timeout)",
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
        "the client of process {process} does not get ready: {why} (`client-check` tells what \
         is wrong with a driver){behind}"
    ))
}

/// The capabilities of a client, read from its first message.
fn first_words(word: &Word) -> Result<Vec<Capability>, String> {
    let line = match word {
        Word::Line(line) => line,
        Word::TooLong => return Err("its first line is longer than 1 MiB".to_owned()),
        Word::NotUtf8 => return Err("its first line is not UTF-8".to_owned()),
        Word::Closed(how) => return Err(how.clone()),
    };
    match ClientLine::read(line) {
        Ok(ClientLine::Notice(Notice::Ready { protocol: PROTOCOL, can, .. })) => Ok(can),
        Ok(ClientLine::Notice(Notice::Ready { protocol, .. })) => {
            Err(format!("it speaks protocol {protocol}, and this harness speaks {PROTOCOL}"))
        }
        Ok(_) => Err(format!("its first line is not `ready` but `{}`", shown(line))),
        Err(why) => Err(format!("its first line is `{}`: {why}", shown(line))),
    }
}
