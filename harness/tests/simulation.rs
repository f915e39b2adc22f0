//! The simulation from outside: a seed determines a run, and each part of a run has random streams
//! of its own; the honest client passes every scenario, and each mutant is caught; the library does
//! what the shipped machines do.

use std::time::Duration;

use redquorum_checker::{Observed, Outcome, check};
use redquorum_scenario::client_protocol::FailureReason;
use redquorum_scenario::history::{Event, History};
use redquorum_scenario::{Mutant, Property, Scenario, embedded_runs};
use redquorum_search::chance::Search;
use redquorum_search::plan::Space;
use redquorum_simulator::run_with_slow_starts;

fn runs() -> Vec<Scenario> {
    embedded_runs().collect()
}

fn named(name: &str) -> Scenario {
    embedded_runs().find(|run| run.name == name).expect("it is there")
}

/// A scenario from its text; it has no variants.
fn scenario(text: &str) -> Scenario {
    toml::from_str::<Scenario>(text).unwrap().runs().remove(0)
}

/// A line for each event of one client, which has a process of its own.
fn of_client(history: &History, name: &str) -> Vec<String> {
    let is_about = |event: &Event| match event {
        Event::Replied { client, .. }
        | Event::Lost { client, .. }
        | Event::Extended { client, .. }
        | Event::Touched { client, .. } => *client == name,
        Event::Command { process, .. } => *process == name,
        _ => false,
    };
    let lines = history.records.iter().filter(|record| is_about(&record.event));
    // The numbers of requests and connections count over all clients.
    let plain = |line: String| {
        let mut value: serde_json::Value = serde_json::from_str(&line).unwrap();
        for number in ["id", "connection"] {
            value.as_object_mut().unwrap().remove(number);
        }
        value.to_string()
    };
    lines.map(|record| plain(serde_json::to_string(record).unwrap())).collect()
}

#[test]
fn the_hash_of_a_trace_is_the_seeds() {
    for run in runs() {
        let hash = |seed| {
            redquorum_simulator::trace_hash(&redquorum_simulator::run(&run, seed, Mutant::None))
        };
        for seed in [0, 1, u64::MAX] {
            assert_eq!(hash(seed), hash(seed), "{} with seed {seed}", run.name);
        }
        assert_ne!(hash(1), hash(2), "{}", run.name);
    }
}

/// Two clients that share nothing.
const APART: &str = r#"
name = "apart"
about = "Two clients, each with a resource of its own."

[[client]]
id = "c1"
loop = 10
think = "7ms"
script = ["acquire A wait 2s", "read R", "work 20ms", "write R", "release A"]

[[client]]
id = "c2"
loop = 10
think = "5ms"
script = ["acquire B wait 2s", "read S", "work 30ms", "extend B", "write S", "release B"]
"#;

/// Faults that strike only the first client.
const FAULTS: [&str; 12] = [
    r#"net.cut = { client = "c1", nodes = [1, 2] }"#,
    r#"net.drop = { client = "c1", nodes = [1], what = "reply", index = 3, count = 2 }"#,
    r#"net.hold = { client = "c1", nodes = [2, 4] }"#,
    r#"net.delay = { client = "c1", by = "9ms" }"#,
    r#"net.duplicate = { client = "c1", command = "acquire" }"#,
    r#"net.trickle = { client = "c1", nodes = [5], bytes = 2000 }"#,
    r#"net.half-open = { client = "c1", nodes = [3], end = "client" }"#,
    r#"net.reset = { client = "c1", nodes = [1, 2] }"#,
    r#"client.pause = { client = "c1" }"#,
    r#"client.kill = { client = "c1" }"#,
    r#"client.clock = { client = "c1", by = "-1h" }"#,
    r#"client.rate = { client = "c1", factor = 0.5 }"#,
];

/// The events of the second client, without those after the healing.
fn undisturbed(scenario: &Scenario) -> Vec<String> {
    let history = redquorum_simulator::run(scenario, 7, Mutant::None);
    let mut lines = of_client(&history, "c2");
    let last = lines.iter().rposition(|line| line.contains("\"register\":\"S\"")).unwrap();
    lines.truncate(last + 1);
    lines
}

#[test]
fn a_fault_of_one_client_shifts_nothing_that_another_draws() {
    let calm = undisturbed(&scenario(APART));
    assert!(calm.len() > 100, "{}", calm.len());
    for effect in FAULTS {
        let fault = format!("{APART}\n[[fault]]\nat = \"100ms\"\n{effect}\n");
        let struck = undisturbed(&scenario(&fault));
        assert_eq!(calm, struck, "{effect}");
    }
}

#[test]
fn another_client_shifts_nothing_that_the_first_ones_draw() {
    let more = format!(
        "{APART}\n[[client]]\nid = \"c3\"\nloop = 20\nscript = [\"acquire C\", \"release C\"]\n"
    );
    assert_eq!(undisturbed(&scenario(APART)), undisturbed(&scenario(&more)));
}

fn run(rest: &str) -> History {
    let scenario = scenario(&format!("name = \"t\"\nabout = \"A test.\"\n{rest}"));
    redquorum_simulator::run(&scenario, 0, Mutant::None)
}

fn is_broken(history: &History) -> bool {
    history.records.iter().any(|record| matches!(record.event, Event::Broken { .. }))
}

#[test]
fn the_clock_of_a_client_measures_its_wait() {
    // The time, in milliseconds, at which c2 is refused. It waits for a second, from 100 ms on.
    let refused = |fault: &str| {
        let history = run(&format!(
            "[[client]]\nid = \"c1\"\nscript = [\"acquire L\", \"keep L for 30s\", \"work 6s\"]\n\
             [[client]]\nid = \"c2\"\nstart = \"100ms\"\nscript = [\"acquire L wait 1s\"]\n{fault}"
        ));
        assert!(!is_broken(&history));
        let replies = history.records.iter().filter_map(|record| match &record.event {
            Event::Replied { client, reply } if client == "c2" && !reply.ok => Some(record.ns),
            _ => None,
        });
        replies.min().expect("it is refused") / 1_000_000
    };
    let context = |ms: i64, fault: &str| {
        let at = refused(fault);
        assert!((ms..ms + 60).contains(&at), "{at} instead of {ms}: {fault}");
    };
    let rate = |factor: f64| {
        format!("[[fault]]\nat = \"0s\"\nclient.rate = {{ client = \"c2\", factor = {factor} }}\n")
    };
    context(1_100, "");
    context(2_100, &rate(0.5));
    context(600, &rate(2.0));
    // Half of the wait at one rate, half at the other: a change of rate sets earlier timers anew.
    let since =
        |at: &str, rest: &str| rate(0.5).replace("at = \"0s\"", &format!("at = \"{at}\"{rest}"));
    context(1_600, &since("600ms", ""));
    context(1_350, &since("0s", "\nfor = \"600ms\""));
}

#[test]
fn a_client_whose_clock_is_slow_has_its_time_to_answer() {
    let slow = "[[client]]\nid = \"c1\"\nscript = [\"acquire L wait 10s\"]\n\
                [lock]\nrestart-guard = \"10s\"\ninitialized = false\n\
                [[fault]]\nat = \"0s\"\nclient.rate = { client = \"c1\", factor = 0.1 }\n";
    assert!(!is_broken(&run(slow)));
    // The end of one fault does not end the other.
    let suspended = "[[client]]\nid = \"c1\"\nscript = [\"acquire L\", \"release L\"]\n\
                     [[fault]]\nafter = \"c1 granted L\"\nclient.suspend = { client = \"c1\" }\n\
                     [[fault]]\nat = \"0s\"\nfor = \"10s\"\n\
                     client.rate = { client = \"c1\", factor = 0.9 }\n";
    assert!(!is_broken(&run(suspended)));
}

// Masters that come back slowly, as containers on a busy machine do. In many scenarios a client
// depends on a master that was down. Each must leave so much time that its result is the same on a
// slow machine: no one who sees it fail there could tell why.

/// How long an engine on a busy machine takes to start a container again. A process takes less.
const SLOW: Duration = Duration::from_secs(2);

/// Whether a master comes back in a run, before its end.
fn starts_again(run: &Scenario) -> bool {
    run.faults.iter().any(|fault| {
        let at_once = fault.kind.is_at_once();
        fault.kind.starts_again() && (at_once || fault.lasts.is_some())
    })
}

/// What differs in a run whose masters start slowly, if anything does.
fn differs(run: &Scenario, seed: u64, start: Duration) -> Option<String> {
    let verdict = check(&run_with_slow_starts(run, seed, start));
    let differs = verdict.outcome == Outcome::Differs || verdict.outcome == Outcome::NotSeen;
    differs.then(|| format!("{}, seed {seed}: {:?}", run.name, verdict.differences))
}

#[test]
fn masters_have_the_time_that_they_need_to_come_back() {
    let runs: Vec<Scenario> = runs().into_iter().filter(starts_again).collect();
    assert!(runs.len() > 20, "{}", runs.len());
    let seeds = |run| (0..5).find_map(move |seed| differs(run, seed, SLOW));
    let wrong: Vec<String> = runs.iter().filter_map(seeds).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_scenario_that_leaves_too_little_time_would_be_seen() {
    for (start, is_hasty) in [("500ms", true), ("4s", false)] {
        let run = scenario(&format!(
            "name = \"t\"\nabout = \"A test.\"\n\
             [[client]]\nid = \"c\"\nstart = \"{start}\"\nscript = [\"acquire L wait 1s\"]\n\
             [[fault]]\nat = \"0s\"\nfor = \"100ms\"\nnode.kill = {{ nodes = [1, 2, 3] }}\n\
             [expect]\nacquires = {{ c = \"granted\" }}\n"
        ));
        assert!(starts_again(&run));
        assert_eq!(differs(&run, 0, Duration::from_millis(25)), None);
        assert_eq!(differs(&run, 0, SLOW).is_some(), is_hasty, "{start}");
    }
}

/// Without one of its faults, a scenario that expects a violation ends in `not-seen`. So each fault
/// is needed, and no checker sees a violation that is not there. `tests/agree.rs` shows that real
/// masters give the same verdicts, and `tests/suite` leaves out one fault there.
#[test]
fn no_violation_is_seen_without_its_fault() {
    let mut left_out = 0;
    for run in runs().into_iter().filter(|run| run.expect.any_violation()) {
        for fault in 0..run.faults.len() {
            let mut without = run.clone();
            without.faults.remove(fault);
            let verdict = check(&redquorum_simulator::run(&without, 1, Mutant::None));
            let lines = &verdict.differences;
            assert_eq!(verdict.outcome, Outcome::NotSeen, "{}, fault {fault}: {lines:?}", run.name);
            left_out += 1;
        }
    }
    assert!(left_out > 30, "{left_out} faults were left out");
}

#[test]
fn some_scenario_catches_every_mutant() {
    let runs = runs();
    for mutant in Mutant::clients().filter(|mutant| *mutant != Mutant::None) {
        // A mutation that shows only under rare timing may need another seed.
        let differs = |run: &&Scenario, seed| {
            check(&redquorum_simulator::run(run, seed, mutant)).outcome == Outcome::Differs
        };
        let caught = (1..=3).find_map(|seed| runs.iter().find(|run| differs(run, seed)));
        assert!(caught.is_some(), "{mutant} passes everything");
    }
}

/// A wall clock means nothing to this project's lock, so only a mutant shows whether it was set.
#[test]
fn a_wall_clock_that_stands_shows_no_mutant() {
    let mut run = named("clock-back-in-acquire");
    run.faults.clear();
    let verdict = check(&redquorum_simulator::run(&run, 1, Mutant::WallClock));
    assert_eq!(verdict.outcome, Outcome::AsExpected, "{:?}", verdict.differences);
}

/// How a run shows a mutant: it violates a property, or a difference starts with these words.
enum Sign {
    Violated(Property),
    Line(&'static str),
}

/// These scenarios see these mutants from every seed. `the_honest_client_passes_everything` shows
/// that they see nothing where nothing is wrong.
#[test]
fn a_mutant_is_seen_where_its_bug_matters_from_every_seed() {
    use Sign::{Line, Violated};
    for (name, mutant, sign) in [
        ("one-server-twice", Mutant::ServerTwice, Violated(Property::MutualExclusion)),
        ("waiters-at-peace", Mutant::CallsAlways, Line("commands: c")),
        ("wake-up-lost/calm", Mutant::NeverWoken, Violated(Property::Progress)),
        ("wake-up-lost/of-two-masters", Mutant::NeverWoken, Violated(Property::Progress)),
        ("waiter-gone", Mutant::NeverWoken, Violated(Property::Progress)),
        ("herd", Mutant::NeverWoken, Violated(Property::Progress)),
        ("fair/queues", Mutant::JumpsQueue, Line("overtaken: late")),
        ("fair/first-gives-up", Mutant::KeepsPlace, Violated(Property::Progress)),
        ("fair/patient", Mutant::LosesPlace, Line("overtaken: ")),
        ("reentry/released-once", Mutant::FirstReleaseFrees, Violated(Property::MutualExclusion)),
        ("reentry", Mutant::ReentersDead, Violated(Property::Validity)),
        ("clock-back-in-acquire", Mutant::WallClock, Violated(Property::MutualExclusion)),
    ] {
        for seed in 0..10 {
            let verdict = check(&redquorum_simulator::run(&named(name), seed, mutant));
            assert_eq!(verdict.outcome, Outcome::Differs, "{mutant}, {name}, seed {seed}");
            let seen = match sign {
                Violated(property) => verdict.observed[&property] == Observed::Violated,
                Line(start) => verdict.differences.iter().any(|line| line.starts_with(start)),
            };
            assert!(seen, "{mutant}, {name}, seed {seed}: {verdict:?}");
        }
    }
}

/// Under a fault, a waiter is owed what its scenario says. For some seeds the mutant attempts in
/// time by chance.
#[test]
fn a_waiter_that_is_not_woken_is_too_late_for_its_scenario() {
    for name in ["wake-up-lost", "wake-up-lost/late", "wake-up-lost/no-wake-up"] {
        let slow = (0..10).filter(|seed| {
            let verdict = check(&redquorum_simulator::run(&named(name), *seed, Mutant::NeverWoken));
            verdict.observed[&Property::Progress] == Observed::Violated
        });
        assert!(slow.count() > 0, "{name}: seen for none of 10 seeds");
    }
}

#[test]
fn the_honest_client_passes_everything_with_any_seed() {
    for run in runs() {
        for seed in 0..10 {
            let verdict = check(&redquorum_simulator::run(&run, seed, Mutant::None));
            assert_eq!(
                verdict.outcome,
                Outcome::AsExpected,
                "{} with seed {seed}: {:?}\n{:#?}",
                run.name,
                verdict.differences,
                verdict.findings
            );
        }
    }
}

/// One that holds, one that breaks, the watchdog, the fair queue, and wake-ups that are lost.
const NAMES: [&str; 5] =
    ["calm", "clock-step-one-holder", "watchdog", "fair/wake-ups-lost", "wake-up-lost/late"];

#[test]
fn scenarios_come_out_as_expected_and_a_seed_repeats_them() {
    for name in NAMES {
        let run = named(name);
        let history = redquorum_harness::library::run(&run, 1);
        let verdict = check(&history);
        assert_eq!(verdict.outcome, Outcome::AsExpected, "{name}: {:?}", verdict.differences);
        let hash = redquorum_simulator::trace_hash(&history);
        assert_eq!(
            hash,
            redquorum_simulator::trace_hash(&redquorum_harness::library::run(&run, 1)),
            "{name}"
        );
        assert_ne!(
            hash,
            redquorum_simulator::trace_hash(&redquorum_harness::library::run(&run, 2)),
            "{name}"
        );
    }
}

#[test]
fn futures_that_are_dropped_at_random_polls_break_nothing() {
    // Seed 18158: after a pause a client finds its lease lost. It must not report as an
    // extension what a dropped extension moved before.
    for (seed, runs) in [(0, 40), (18_158, 1)] {
        let search = Search {
            space: Space::INSIDE,
            seed,
            runs,
            mutant: Mutant::None,
            play: |scenario, seed, _| redquorum_harness::library::run_with_neglect(scenario, seed),
            jobs: 1,
        };
        assert_eq!(search.first(), None);
    }
}

#[test]
fn callers_neglect_their_futures_only_when_asked_for() {
    let run = named("calm");
    let has = |history: &History, is: fn(&Event) -> bool| {
        history.records.iter().any(|record| is(&record.event))
    };
    let cancelled = |event: &Event| matches!(event, Event::Replied { reply, .. } if reply.why == Some(FailureReason::Cancelled));
    let unpolled = |event: &Event| matches!(event, Event::Unpolled { .. });
    let play = redquorum_harness::library::run;
    let neglect = redquorum_harness::library::run_with_neglect;
    for is in [cancelled, unpolled] {
        assert!((0..20).all(|seed| !has(&play(&run, seed), is)));
        assert!((0..20).any(|seed| has(&neglect(&run, seed), is)));
    }
}
