//! Tests of the orchestrator in virtual time: no socket, no process, no sleep.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Input, Orchestrator, Order};
use redquorum_scenario::client_protocol::{Capability, ClientReply, FailureReason, Op};
use redquorum_scenario::history::{Event, Ns, Phase, Record, Window};
use redquorum_scenario::{self, Scenario};

const MS: Ns = 1_000_000;

fn scenario(rest: &str) -> Scenario {
    let text = format!("name = \"x\"\nabout = \"To be played.\"\n{rest}");
    redquorum_scenario::read("x.toml", &text).unwrap().runs().remove(0)
}

/// Carries out orders like a backend on which every order succeeds at once. The clients' answers
/// come from `replies`. Returns the orders as text, each with its time.
fn play(
    scenario: &Scenario,
    replies: impl Fn(Ns, &str, &Op) -> bool,
) -> (Orchestrator, Vec<String>) {
    let mut orchestrator = Orchestrator::new(Arc::new(scenario.clone()));
    let can =
        scenario.processes().into_iter().map(|name| (name.to_owned(), vec![Capability::Wait]));
    let mut inputs = vec![Input::Begin(can.collect::<BTreeMap<_, _>>())];
    let (mut now, mut log) = (0, Vec::new());
    for _ in 0..10_000 {
        if orchestrator.phase() == Some(Phase::End) {
            return (orchestrator, log);
        }
        let input = if inputs.is_empty() {
            let wake = orchestrator.next_wake().expect("it waits for nothing, and has not ended");
            now = now.max(wake);
            Input::Wake
        } else {
            inputs.remove(0)
        };
        let mut orders = Vec::new();
        orchestrator.handle(now, input, &mut orders);
        let at = Window { from: now, to: now };
        for order in orders {
            match order {
                Order::Request { request, .. } => {
                    let ok = replies(now, &request.client, &request.op);
                    let (client, op) = (&request.client, request.op.name());
                    log.push(format!("{} {client} {op} {ok}", now / MS));
                    inputs.push(Input::Replied(ClientReply {
                        id: request.id,
                        ok,
                        ..ClientReply::default()
                    }));
                }
                Order::Strike { fault, nodes, .. } => {
                    log.push(format!("{} strike {fault} {nodes:?}", now / MS));
                    inputs.push(Input::Struck { fault, at, failed: None });
                }
                Order::Heal(fault) => {
                    log.push(format!("{} heal {fault}", now / MS));
                    inputs.push(Input::Healed { fault, at, failed: None });
                }
                Order::Look => inputs.extend(
                    (1..=scenario.cluster.nodes)
                        .map(|node| Input::Keys { node, keys: Some(Vec::new()) }),
                ),
                other => panic!("{other:?}"),
            }
        }
    }
    panic!("it does not end: {log:#?}")
}

fn phases(orchestrator: &Orchestrator) -> Vec<Phase> {
    let phase = |event: &Event| match event {
        Event::Phase { phase } => Some(*phase),
        _ => None,
    };
    orchestrator.records().iter().filter_map(|record| phase(&record.event)).collect()
}

#[test]
fn each_fault_strikes_and_is_healed_in_its_phase() {
    let scenario = scenario(
        r#"
        [[client]]
        id = "c1"
        start = "10ms"
        script = ["acquire L", "work 100ms", "release L"]

        [[fault]]
        after = "c1 granted L + 20ms"
        for = "30ms"
        node.kill = { nodes = [2] }

        [[fault]]
        before = "c1 releases L"
        node.pause = { nodes = [3] }
        "#,
    );
    let (orchestrator, log) = play(&scenario, |_, _, _| true);
    assert_eq!(
        log,
        [
            "10 c1 acquire true",
            "30 strike 0 [2]",
            "60 heal 0",
            "110 strike 1 [3]",
            "110 c1 release true",
            "110 heal 1",
            "110 c1 acquire true",
            "110 c1 release true",
        ]
    );
    let all = [Phase::Run, Phase::Heal, Phase::FinalAcquire, Phase::Drain, Phase::End];
    assert_eq!(phases(&orchestrator), all);
}

#[test]
fn a_refused_client_skips_the_steps_that_need_the_lock() {
    let scenario = scenario(
        r#"
        [[client]]
        id = "c1"
        script = ["acquire L", "read R", "release L", "acquire M", "read S", "release M"]
        "#,
    );
    let refuses =
        |_, _: &str, op: &Op| !matches!(op, Op::Acquire { resource, .. } if resource == "L");
    let (orchestrator, _) = play(&scenario, refuses);
    let touched: Vec<&str> = orchestrator
        .records()
        .iter()
        .filter_map(|record| match &record.event {
            Event::Touched { register, .. } => Some(register.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(touched, ["S"]);
}

/// The accesses to registers as text, each with its time and the time at which it was sent.
fn touches(orchestrator: &Orchestrator) -> Vec<String> {
    let touch = |record: &Record| match &record.event {
        Event::Touched { client, way, seen, version, sent, .. } => Some(format!(
            "{} {client} {way:?} {seen} {version} {:?}",
            record.ns / MS,
            sent.map(|sent| sent / MS)
        )),
        _ => None,
    };
    orchestrator.records().iter().filter_map(touch).collect()
}

/// A client that reads, works and writes, and another that does the same meanwhile.
fn late(faults: &str) -> Orchestrator {
    let clients = r#"
        [[client]]
        id = "c1"
        script = ["acquire L", "read R", "work 100ms", "write R", "work 10ms", "write R", "release L"]

        [[client]]
        id = "c2"
        start = "200ms"
        script = ["acquire L", "read R", "work 50ms", "write R", "release L"]
        "#;
    play(&scenario(&format!("{clients}{faults}")), |_, _, _| true).0
}

#[test]
fn a_client_waits_for_its_delayed_requests_and_they_arrive_although_it_died() {
    let of_write = r#"
        [[fault]]
        before = "c1 writes R"
        for = "500ms"
        resource.delay = { client = "c1", what = "write", by = "90s" }
        "#;
    let of_two_faults = r#"
        [[fault]]
        at = "0s"
        for = "20ms"
        resource.delay = { what = "read", by = "30ms" }

        [[fault]]
        at = "0s"
        for = "20ms"
        resource.delay = { client = "c1", by = "1s" }
        "#;
    let of_the_dead = r#"
        [[fault]]
        at = "0s"
        resource.delay = { client = "c1", what = "write", by = "1s" }

        [[fault]]
        at = "150ms"
        client.kill = { client = "c1" }
        "#;
    // When a fault is healed meanwhile, requests in flight stay late, and later ones have no delay.
    let late_write = [
        "0 c1 Read 0 0 None",
        "200 c2 Read 0 0 None",
        "250 c2 Write 0 1 None",
        "90100 c1 Write 0 2 Some(100)",
        "90110 c1 Write 0 3 None",
    ];
    assert_eq!(touches(&late(of_write)), late_write);
    let sum_of_delays = [
        "200 c2 Read 0 0 None",
        "250 c2 Write 0 1 None",
        "1030 c1 Read 1 1 Some(0)",
        "1130 c1 Write 1 2 None",
        "1140 c1 Write 1 3 None",
    ];
    assert_eq!(touches(&late(of_two_faults)), sum_of_delays);
    let orchestrator = late(of_the_dead);
    assert_eq!(touches(&orchestrator).last().unwrap(), "1100 c1 Write 0 2 Some(100)");
    let is_heal = |it: &&Record| matches!(it.event, Event::Phase { phase: Phase::Heal });
    let healed = orchestrator.records().iter().find(is_heal);
    assert!(healed.unwrap().ns >= 1_100 * MS, "it is waited for");
}

#[test]
fn a_client_without_a_needed_capability_is_refused() {
    let table = [
        ("lock-delay = \"1s\"", "\"acquire L\", \"release L\"", Capability::LockDelay),
        ("restart-guard = \"2s\"", "\"acquire L\", \"release L\"", Capability::RestartGuard),
        ("", "\"acquire L and M\"", Capability::Several),
        ("", "\"acquire L\", \"acquire M\", \"release L and M\"", Capability::Several),
        ("", "\"acquire L wait 5s cancel 1s\"", Capability::Cancel),
        ("", "\"acquire L\", \"reacquire L\", \"release L\"", Capability::Reenter),
    ];
    let missing = |lock: &str, script: &str, can: &[Capability]| {
        let client = format!("[[client]]\nid = \"c1\"\nscript = [{script}]");
        let scenario = scenario(&format!("[lock]\n{lock}\n{client}"));
        super::missing(&scenario, &BTreeMap::from([("c1".into(), can.to_vec())]))
    };
    for (lock, script, can) in table {
        let why = format!("the client cannot `{}`", can.name());
        assert_eq!(missing(lock, script, &[Capability::Wait]), Some(why), "{lock} {script}");
        assert_eq!(missing(lock, script, &[Capability::Wait, can]), None, "{lock} {script}");
    }
    assert_eq!(missing("", "\"acquire L\", \"release L\"", &[]), None);
    // Where a lease must end, a lock that always extends it has nothing to show.
    let (keep, renews) = (Capability::KeepAlive, Capability::Renews);
    let held =
        |rest: &str| missing("ttl = \"1s\"", &format!("\"acquire L\", {rest}"), &[keep, renews]);
    let why = "the client `renews` its leases, and here one must end (c1)".to_owned();
    assert_eq!(held("\"work 600ms\", \"work 400ms\", \"release L\""), Some(why));
    assert_eq!(held("\"work 999ms\", \"release L\", \"work 9s\""), None);
    assert_eq!(held("\"keep L for 9s\", \"work 3s\", \"release L\""), None);
}

#[test]
fn a_cancelled_acquire_is_not_asked_again() {
    let script = r#"
        [[client]]
        id = "c1"
        script = ["acquire L wait 5s cancel 30ms"]
        "#;
    let scenario = scenario(script);
    let acquires = |why: FailureReason| {
        let mut orchestrator = Orchestrator::new(Arc::new(scenario.clone()));
        let can = BTreeMap::from([("c1".into(), vec![Capability::Cancel])]);
        let (mut now, mut inputs, mut count) = (0, vec![Input::Begin(can)], 0);
        while now < 500 * MS {
            let mut orders = Vec::new();
            orchestrator.handle(now, inputs.pop().unwrap_or(Input::Wake), &mut orders);
            for order in orders {
                let Order::Request { request, .. } = order else { continue };
                let is_run = orchestrator.phase() == Some(Phase::Run);
                count += u32::from(is_run && matches!(request.op, Op::Acquire { .. }));
                let refused =
                    ClientReply { id: request.id, why: Some(why), ..ClientReply::default() };
                inputs.push(Input::Replied(refused));
            }
            now += MS;
        }
        count
    };
    assert_eq!(acquires(FailureReason::Cancelled), 1);
    assert!(acquires(FailureReason::Taken) > 1);
}

/// Plays a run with a client whose answers come after these milliseconds, or never. Returns the
/// records.
fn delayed(scenario: &Scenario, delay: impl Fn(u64, &Op) -> Option<(Ns, bool)>) -> Vec<Record> {
    let mut orchestrator = Orchestrator::new(Arc::new(scenario.clone()));
    let can = scenario.processes().into_iter().map(|name| (name.to_owned(), Vec::new()));
    let mut inputs = vec![(0, Input::Begin(can.collect()))];
    let mut now = 0;
    while orchestrator.phase() != Some(Phase::End) {
        let place = inputs.iter().position(|(at, _)| *at <= now);
        let input = place.map_or(Input::Wake, |place| inputs.remove(place).1);
        let mut orders = Vec::new();
        orchestrator.handle(now, input, &mut orders);
        let at = Window { from: now, to: now };
        for order in orders {
            match order {
                Order::Request { request, .. } => {
                    let Some((after, ok)) = delay(request.id, &request.op) else { continue };
                    let why = (!ok).then_some(FailureReason::Taken);
                    let reply = ClientReply { id: request.id, ok, why, ..ClientReply::default() };
                    inputs.push((now + after * MS, Input::Replied(reply)));
                }
                Order::Strike { fault, .. } => {
                    inputs.push((now, Input::Struck { fault, at, failed: None }));
                }
                Order::Heal(fault) => inputs.push((now, Input::Healed { fault, at, failed: None })),
                Order::Look => inputs.extend(
                    (1..=scenario.cluster.nodes)
                        .map(|node| (now, Input::Keys { node, keys: Some(Vec::new()) })),
                ),
                Order::Kill { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        if inputs.iter().all(|(at, _)| *at > now) {
            now += MS;
        }
    }
    orchestrator.into_records()
}

/// The requests and replies of a history as text: `0 asks acquire 1`, `80 replies 1 true`.
fn requests(records: &[Record]) -> Vec<String> {
    let text = |record: &Record| {
        let at = record.ns / MS;
        Some(match &record.event {
            Event::Requested(request) => {
                let (op, wait) = (request.op.name(), request.op.wait_ms());
                format!("{at} asks {op} {} wait {wait}", request.id)
            }
            Event::Replied { reply, .. } => format!("{at} replies {} {}", reply.id, reply.ok),
            Event::Broken { why, .. } => format!("{at} {why}"),
            Event::Phase { phase: phase @ (Phase::Heal | Phase::FinalAcquire) } => {
                format!("{at} {phase:?}")
            }
            _ => return None,
        })
    };
    records.iter().filter_map(text).collect()
}

#[test]
fn an_acquire_that_the_harness_repeats_is_one_request() {
    let scenario = scenario(
        r#"
        [[client]]
        id = "c1"
        script = ["acquire L wait 1s", "release L"]
        "#,
    );
    // Each attempt takes 1 ms, and the third is granted.
    let records = delayed(&scenario, |id, _| Some((1, id >= 3)));
    let all = [
        "0 asks acquire 1 wait 1000",
        "97 replies 1 true",
        "97 asks release 4 wait 0",
        "98 replies 4 true",
        "98 Heal",
    ];
    assert_eq!(requests(&records)[..5], all);
    // The wait is over.
    let records = delayed(&scenario, |id, _| Some((1, id > 25)));
    assert_eq!(requests(&records)[1], "993 replies 1 false");
}

#[test]
fn a_client_that_hangs_at_a_fault_is_waited_for_after_the_healing() {
    let script = r#"
        [[client]]
        id = "c1"
        script = ["acquire L", "work 10ms", "release L"]
        "#;
    let fault = "[[fault]]\nat = \"0s\"\nnode.pause = { nodes = [1] }";
    let faulty = scenario(&format!("{script}{fault}"));
    let records = delayed(&faulty, |id, _| Some((if id == 1 { 7_000 } else { 1 }, true)));
    let all = [
        "0 asks acquire 1 wait 0",
        "5000 Heal",
        "7000 replies 1 true",
        "7000 asks release 2 wait 0",
        "7001 replies 2 true",
        "7001 FinalAcquire",
    ];
    assert_eq!(requests(&records)[..6], all);
    let silent = delayed(&faulty, |_, _| None);
    let why = "it does not answer to `acquire L` within 5s (c1)";
    let after = format!("10000 {why}, not even after the healing");
    assert_eq!(requests(&silent)[1..], ["5000 Heal", &after, "10000 FinalAcquire"]);
    // Without a fault there is nothing to wait for.
    let silent = delayed(&scenario(script), |_, _| None);
    assert_eq!(requests(&silent)[1], format!("5000 {why}"));
}

#[test]
fn a_refused_reacquire_skips_only_the_steps_of_that_handle() {
    let script = r#"
        [[client]]
        id = "c1"
        script = [
          "acquire L", "work 1ms", "reacquire L", "extend L", "reacquire L",
          "release L", "release L", "keep L for 1s", "release L", "extend L",
        ]
        "#;
    let scenario = scenario(script);
    let log = |refused: u32| {
        let asked = std::cell::Cell::new(0);
        let (_, log) = play(&scenario, |_, _, op| {
            let is_acquire = matches!(op, Op::Acquire { resource, .. } if resource == "L");
            asked.set(asked.get() + u32::from(is_acquire));
            !(is_acquire && asked.get() == refused)
        });
        let ops = log.iter().filter(|line| line.contains(" c1 "));
        let ops = ops.map(|line| line.split(' ').nth(2).unwrap().to_owned());
        let ops = ops.collect::<Vec<_>>().join(" ");
        // The final acquire has the last word.
        ops.strip_suffix(" acquire release").unwrap().to_owned()
    };
    let inner = "acquire acquire extend acquire release keep_alive release extend";
    assert_eq!(log(0), "acquire acquire extend acquire release release keep_alive release extend");
    assert_eq!(log(1), "acquire extend");
    assert_eq!(log(2), "acquire acquire keep_alive release extend");
    assert_eq!(log(3), inner);
}

#[test]
fn keys_outlive_leases_by_the_lock_delay() {
    let client = "[[client]]\nid = \"c1\"\nscript = [\"acquire L\", \"release L\"]";
    let longest = |lock: &str| super::longest_key(&scenario(&format!("[lock]\n{lock}\n{client}")));
    assert_eq!(longest("ttl = \"1s\"").as_millis(), 1_000);
    assert_eq!(longest("ttl = \"1s\"\nlock-delay = \"2s\"").as_millis(), 3_000);
}
