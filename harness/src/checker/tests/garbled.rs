//! For any history, the checker reaches a verdict, and does so soon.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn time() -> impl Strategy<Value = Ns> {
    prop_oneof![
        8 => (0..4000i64).prop_map(|ms| ms * 1_000_000),
        1 => Just(i64::MIN),
        1 => Just(i64::MAX),
        1 => any::<i64>(),
    ]
}

fn windows() -> impl Strategy<Value = Window> {
    (time(), time()).prop_map(|(from, to)| Window { from, to })
}

fn name(of: &'static [&'static str]) -> impl Strategy<Value = Name> {
    prop::sample::select(of).prop_map(Name::from)
}

fn client() -> impl Strategy<Value = Name> {
    name(&["c1", "c2", "nobody"])
}

fn resource() -> impl Strategy<Value = Name> {
    name(&["L", "M", "x:L", ""])
}

fn token() -> impl Strategy<Value = Name> {
    name(&["t1", "t2", "t3", "ü…"])
}

fn ttl() -> impl Strategy<Value = Option<u64>> {
    prop::option::of(prop_oneof![Just(2000), Just(0), Just(u64::MAX)])
}

fn fault_kind() -> impl Strategy<Value = crate::scenario::FaultKind> {
    prop::sample::select(
        &[
            "node.kill = { nodes = [1, 2] }",
            "node.restart = { nodes = [1, 2, 3, 4, 5] }",
            "node.pause = { node = 1 }",
            "node.slow = { node = 1, by = \"1s\" }",
            "clock.step = { node = 2, by = \"-3s\" }",
            "net.cut = {}",
            "net.delay = { by = \"1ms\" }",
            "client.pause = { client = \"c1\" }",
            "client.kill = { client = \"c2\" }",
        ][..],
    )
    .prop_map(|fault_kind| toml::from_str(fault_kind).unwrap())
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (resource(), token(), ttl())
            .prop_map(|(key, token, ttl_ms)| Act::Set { key, token, ttl_ms }),
        2 => (resource(), prop::option::of(token()), ttl())
            .prop_map(|(key, token, ttl_ms)| Act::Keep { key, token, ttl_ms }),
        2 => (resource(), prop::option::of(token()))
            .prop_map(|(key, token)| Act::Delete { key, token }),
        1 => (resource(), prop::option::of(token()))
            .prop_map(|(key, token)| Act::Certify { key, token }),
        1 => prop::option::of(resource())
            .prop_map(|key| Act::Other { key, command: "GETDEL".into() }),
    ]
}

fn said() -> impl Strategy<Value = Said> {
    prop::sample::select(
        &[Said::Done, Said::Done, Said::Created, Said::Refused, Said::Error, Said::Silent][..],
    )
}

fn event() -> impl Strategy<Value = Event> {
    let id = 0..6u64;
    let asked = (client(), id.clone(), name(&["acquire", "extend", "release", "step", "?"]))
        .prop_flat_map(|(client, id, op)| {
            let with = prop::collection::vec(resource(), 0..3);
            let wait = prop::option::of(any::<u64>());
            (prop::option::of(resource()), with, any::<bool>(), ttl(), wait).prop_map(
                move |(resource, with, again, ttl_ms, wait_ms)| Event::Asked {
                    client: client.clone(),
                    id,
                    op: op.to_string().into(),
                    resource,
                    with,
                    again,
                    ttl_ms,
                    wait_ms,
                },
            )
        });
    let stamps = (
        prop::option::of(time()),
        prop::option::of(time()),
        prop::option::of(time()),
        prop::option::of(any::<u64>()),
    );
    let answered = (client(), id, any::<bool>(), prop::option::of(token()), stamps).prop_map(
        |(client, id, ok, token, (from, at, deadline, valid_ms))| Event::Answered {
            client,
            id,
            ok,
            token,
            from,
            at,
            deadline,
            valid_ms,
            fence: valid_ms.map(|ms| ms % 4),
            handles: valid_ms.map(|ms| ms % 3),
            why: (!ok).then_some(FailureReason::Taken),
            text: None,
        },
    );
    let command = (client(), 0..6usize, 0..4u64, 0..9u64, act(), said()).prop_flat_map(
        |(process, node, connection, number, act, result)| {
            (time(), prop::option::of(time()), prop::option::of(time())).prop_map(
                move |(sent, replied, delivered)| Event::Command {
                    process: process.clone(),
                    node,
                    connection,
                    number,
                    act: act.clone(),
                    sent,
                    replied,
                    delivered,
                    result,
                },
            )
        },
    );
    let phase = prop::sample::select(
        &[Phase::Run, Phase::Heal, Phase::Witness, Phase::Settle, Phase::End][..],
    );
    let rate =
        prop_oneof![Just(1.0), Just(0.0), Just(f64::NAN), Just(-1e300), Just(2.0), Just(1e300)];
    prop_oneof![
        4 => asked,
        4 => answered,
        8 => command,
        1 => phase.prop_map(|phase| Event::Phase { phase }),
        1 => client().prop_map(|process| Event::Ready { process, can: vec![Capability::Lost] }),
        1 => (client(), resource(), time())
            .prop_map(|(client, resource, at)| Event::Lost { client, resource, at }),
        1 => (client(), resource(), time())
            .prop_map(|(client, resource, deadline)| Event::Extended { client, resource, deadline }),
        2 => (client(), any::<bool>(), any::<u64>(), 0..3u64).prop_map(
            |(client, write, seen, version)| Event::Touched {
                sent: (seen > version).then_some(0),
                client,
                register: "R".into(),
                way: if write { AccessKind::Write } else { AccessKind::Read },
                seen: seen % 3,
                version,
                fence: (version % 2 == 0).then_some(seen),
                refused: version % 3 == 0,
            }
        ),
        1 => (0..3usize, fault_kind(), windows(), any::<bool>()).prop_map(|(fault, fault_kind, at, failed)| {
            Event::Struck {
                fault,
                fault_kind: Box::new(fault_kind),
                nodes: Vec::new(),
                processes: Vec::new(),
                at,
                failed: failed.then(String::new),
            }
        }),
        1 => (0..3usize, windows())
            .prop_map(|(fault, at)| Event::Cured { fault, at, failed: None }),
        1 => (0..6usize, windows(), time(), rate, time()).prop_map(
            |(node, since, ahead, rate, strobe_by)| Event::Clock {
                node,
                since,
                ahead,
                rate,
                strobe_by,
                strobe_every: 1,
            }
        ),
        1 => (0..3usize, 0..6usize, windows())
            .prop_map(|(fault, node, until)| Event::Kept { fault, node, until }),
        1 => (client()).prop_map(|process| Event::Broken { process, why: String::new() }),
        1 => (0..6usize, any::<bool>()).prop_map(|(node, any)| Event::Keys {
            node,
            keys: any.then(Vec::new),
        }),
    ]
}

proptest! {
    #[test]
    fn any_history_comes_to_a_verdict(
        records in prop::collection::vec((time(), event()), 0..60),
        nodes in prop_oneof![Just(5usize), Just(0), Just(usize::MAX)],
    ) {
        let mut run = Run::two();
        run.scenario.cluster.nodes = nodes;
        run.records = records.into_iter().map(|(ns, event)| Record { ns, event }).collect();
        let history = run.history();
        let verdict = judge(&history);
        prop_assert_eq!(verdict.observed.len(), Property::ALL.len());
        // The verdict is always the same.
        prop_assert_eq!(judge(&history), verdict);
    }
}

#[test]
fn a_verdict_reads_back_as_it_was_written() {
    let verdict = Run::two().judge();
    let json = serde_json::to_string(&verdict).unwrap();
    assert_eq!(serde_json::from_str::<Verdict>(&json).unwrap(), verdict);
}

/// `count` leases of two clients, one after the other, on five masters.
fn long(count: u32) -> Run {
    let mut run = Run::two();
    let all = [1, 2, 3, 4, 5];
    for round in 0..count {
        let at = 2.0 + f64::from(round) * 5.0;
        let (client, token) = (if round % 2 == 0 { "c1" } else { "c2" }, format!("t{round}"));
        run.grant(client, &token, at, at + 1978.0, &all);
        run.release(client, &token, at + 2.0, &all);
    }
    run.witnessed(10.0 + f64::from(count) * 5.0, &["c1", "c2"]);
    run
}

#[test]
fn ten_thousand_leases_are_judged_in_the_blink_of_an_eye() {
    let run = long(10_000);
    let history = run.history();
    let begun = Instant::now();
    let verdict = judge(&history);
    let took = begun.elapsed();
    assert_eq!(verdict.outcome, Outcome::AsExpected, "{:?}", verdict.differences);
    assert_eq!(verdict.measures.grants, 10_000);
    // This is the bound without optimisation, beside other work. Optimised code is some ten times
    // as fast.
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_lock_that_is_none_is_judged_soon_as_well() {
    // Every request is granted at once or refused at once. All keys stay, and all have one token.
    let mut run = Run::two();
    for round in 0..400 {
        let at = 2.0 + f64::from(round) * 2.0;
        let client = if round % 2 == 0 { "c1" } else { "c2" };
        run.grant(client, "t", at, at + 1978.0, &[1, 2, 3, 4, 5]);
        run.read(at + 0.1, client, 0).write(at + 0.2, client, 7, u64::from(round == 0));
        run.refused(client, at + 0.5, at + 0.6, 0, FailureReason::Taken);
        run.set(client, 1, "t", at + 0.5, None);
    }
    let history = run.history();
    let begun = Instant::now();
    let verdict = judge(&history);
    assert_eq!(verdict.seen(Property::MutualExclusion), Observed::Violated);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}
