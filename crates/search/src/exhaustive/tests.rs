//! Tests that a schedule of the search gives the same result as its scenario file, and that the
//! search detects failures.

use super::base_scenarios::fault;
use super::*;
use super::{SEED, SearchSpace};
use redquorum_checker::{Observed, check};
use redquorum_scenario::history::History;
use redquorum_scenario::{Cause, Fault, Property, Scenario};
use redquorum_simulator::{Course, Latency, trace_hash};

/// The base scenarios of these names.
fn some(nodes: usize, names: &[&str]) -> Vec<BaseScenario> {
    let mut all = base_scenarios(nodes);
    all.retain(|base| names.contains(&base.scenario.name.as_str()));
    assert_eq!(all.len(), names.len());
    all
}

fn search(plan: &Plan) -> Tally {
    plan.search(&|_, _| true)
}

/// The history of a scenario, run from its beginning.
fn played(scenario: &Scenario) -> History {
    let mut course = Course::new(scenario, SEED, Latency::Even, Mutant::None);
    while course.step() {}
    course.finish()
}

#[test]
fn a_forked_run_equals_its_replay_to_the_byte() {
    let mut count = 0;
    let defended = some(3, &["bare", "extends", "cleared-bare", "replicas-bare"]);
    let defended = defended.into_iter().map(BaseScenario::defended);
    for base in base_scenarios(3).into_iter().chain(defended) {
        let space = SearchSpace { vocabulary: vocabulary(&base, Symmetry::Folded), base };
        let mut same = |faults: &[usize], history: &History| {
            count += 1;
            let replay = played(&history.header.scenario);
            assert!(*history == replay, "{}", toml::to_string(&replay.header.scenario).unwrap());
            if faults.is_empty() {
                assert_eq!(trace_hash(history), trace_hash(&replay));
            }
        };
        let starts = space.starts(Mutant::None, &mut same);
        for (number, start) in starts.iter().enumerate() {
            // Every other first fault alone, and a few of them with every second fault.
            if number % 201 == 100 {
                space.walk(start, 2, &mut same);
            } else if number % 2 == 0 {
                space.walk(start, 1, &mut same);
            }
        }
    }
    assert!(count > 2_000, "{count}");
}

#[test]
fn every_class_is_found_by_one_fault_and_nothing_breaks_inside_the_assumptions() {
    let tally = search(&Plan { threads: 2, ..Plan::new(3, 1) });
    if let Some(wrong) = tally.wrong.first() {
        panic!("{}\n{}", wrong.lines.join("\n"), toml::to_string(&wrong.scenario).unwrap());
    }
    assert!(tally.inside > 1_000, "{tally:?}");
    for class in Class::ALL.iter().copied() {
        let found = [true, false].iter().find_map(|bare| tally.smallest(class, *bare));
        let faults = usize::from(class != Class::NodeLists);
        assert_eq!(found.map(|found| found.faults), Some(faults), "{class}");
    }
    // Without a fault everything is well, so that the fault is what shows. The exceptions are base
    // scenarios whose clients know different masters.
    let calm = search(&Plan::new(3, 0));
    let kinds: Vec<_> = calm.kinds.into_keys().map(|(_, cause)| cause).collect();
    assert_eq!((calm.schedules, calm.violated), (vec![14], 1));
    assert!(kinds.iter().all(|cause| *cause == Cause::NodeLists), "{kinds:?}");
}

#[test]
fn the_margin_is_the_number_of_masters_that_must_forget() {
    let of = |nodes| search(&Plan { threads: 2, ..Plan::new(nodes, 1) });
    let (one, three) = (of(1), of(3));
    let text = table(&[(1, &one), (3, &three)]);
    assert!(!text.contains('≠'), "{text}");
    let stands = include_str!("../../../../docs/tables/fewest-faults.md");
    for line in text.lines().filter(|line| !line.contains("---")) {
        assert!(stands.contains(line), "docs/tables has another table than\n{text}");
    }
}

#[test]
fn defences_keep_leases_apart_where_masters_forget_and_are_not_blind_to_the_rest() {
    let plan = || Plan { threads: 2, ..Plan::new(3, 1) };
    let (without, with) = (search(&plan()), search(&plan().defended()));
    if let Some(wrong) = with.wrong.first() {
        panic!("{}\n{}", wrong.lines.join("\n"), toml::to_string(&wrong.scenario).unwrap());
    }
    // Faults that a guard detects are inside its assumptions.
    assert!(with.inside > without.inside + 500, "{} and {}", with.inside, without.inside);
    let of = |tally: &Tally, row| tally.rows.get(&row).copied().unwrap_or_default();
    for class in [
        Class::Restart,
        Class::EarlyReturn,
        Class::Flush,
        Class::PowerLoss,
        Class::Failover,
        Class::Evict,
        Class::ClockStep,
        Class::ClockRate,
        Class::ClockStrobe,
    ] {
        let (before, after) = (of(&without, Row::Of(class)), of(&with, Row::Of(class)));
        assert!(before.exclusion > 0, "{class}: nothing to defend against");
        assert!(after.schedules > 40, "{class}: {after:?}");
        let unseen = matches!(
            class,
            Class::Evict | Class::ClockStep | Class::ClockRate | Class::ClockStrobe
        );
        // Where the count is not zero, a scenario in `tests/found` shows the failure.
        assert_eq!(after.exclusion > 0, unseen, "{class}: {after:?}");
    }
    let lists = of(&with, Row::NodeLists);
    assert_eq!((lists.schedules, lists.exclusion), (1, 1));
    assert_eq!(of(&with, Row::Nothing).exclusion, 0);
    assert!(defences(&without, &with).contains("| `FLUSHALL` | 77 / 77 | 15 | 0 |"));
}

#[test]
fn masters_that_are_alike_are_folded_and_nothing_is_missed_by_it() {
    for names in [&["full", "edge"], &["wakes", "takes-over"]] {
        folded_and_not(&some(3, names));
    }
}

fn folded_and_not(bases: &[BaseScenario]) {
    let of = |symmetry| {
        let bases = bases.to_vec();
        let tally = search(&Plan { bases, symmetry, threads: 2, ..Plan::new(3, 1) });
        let kinds: Vec<(Property, Cause)> = tally.kinds.keys().copied().collect();
        let size =
            |(class, bare)| tally.smallest(class, bare).map(|found| (found.faults, found.masters));
        let smallest: Vec<_> = tally.smallest.keys().map(|key| (*key, size(*key))).collect();
        (tally.schedules[1], kinds, smallest)
    };
    let (folded, unfolded) = (of(Symmetry::Folded), of(Symmetry::Unfolded));
    assert!(unfolded.0 > folded.0 * 3 / 2, "{} and {}", unfolded.0, folded.0);
    assert_eq!((folded.1, folded.2), (unfolded.1, unfolded.2));
}

/// The search would try a place that never comes in vain, without any notice.
#[test]
fn each_fault_of_a_waiter_has_its_place() {
    for (nodes, name) in [(3, "wakes"), (3, "takes-over"), (5, "wakes"), (5, "takes-over")] {
        let base = some(nodes, &[name]).remove(0);
        let space = SearchSpace { vocabulary: vocabulary(&base, Symmetry::Folded), base };
        let starts = space.starts(Mutant::None, &mut |_: &[usize], _: &History| ());
        assert_eq!(starts.len(), space.vocabulary.len(), "{name} with {nodes} masters");
        assert!(starts.len() > 200, "{}", starts.len());
    }
}

/// Runs that the search leaves out as duplicates must be equal: with masters that sync every write,
/// and with masters that keep nothing.
#[test]
fn persistence_matters_only_where_a_master_starts_again() {
    let [bare, durable]: [BaseScenario; 2] = some(3, &["bare", "durable"]).try_into().unwrap();
    let play = |base: &BaseScenario, fault: &Fault| played(&base.with(std::slice::from_ref(fault)));
    let (mut same, mut differ) = (0, 0);
    for fault in vocabulary(&durable, Symmetry::Folded) {
        let (one, other) = (play(&bare, &fault), play(&durable, &fault));
        let verdicts = [&one, &other].map(|history| check(history).observed);
        if durable.is_its_own(std::iter::once(&fault)) {
            differ += usize::from(one.records != other.records);
        } else {
            assert_eq!(one.records, other.records, "{fault:?}");
            assert_eq!(verdicts[0], verdicts[1], "{fault:?}");
            same += 1;
        }
    }
    assert!(same > 200 && differ > 20, "{same} {differ}");
}

#[test]
fn mutants_are_found() {
    for (mutant, base, faults) in [
        (Mutant::SmallQuorum, "bare", 0),
        (Mutant::PlainDel, "full", 0),
        (Mutant::NoDeadlineCheck, "bare", 1),
        (Mutant::ForgetsSuspend, "extends", 1),
        (Mutant::ErrorIsYes, "full", 1),
        (Mutant::NeverWoken, "wakes", 0),
    ] {
        let bases = some(3, &[base]);
        let tally = search(&Plan { bases, mutant, threads: 2, ..Plan::new(3, faults) });
        assert!(tally.broken > 0, "{mutant}");
    }
}

#[test]
fn the_result_does_not_hang_on_the_number_of_threads() {
    let of = |threads| {
        let bases = some(3, &["full"]);
        let tally = search(&Plan { bases, threads, ..Plan::new(3, 1) });
        format!("{tally:?}")
    };
    assert_eq!(of(1), of(3));
}

#[test]
fn parts_without_time_are_counted() {
    let plan = Plan { bases: some(3, &["full"]), ..Plan::new(3, 1) };
    let tally = plan.search(&|done, _| done < 5);
    assert_eq!(tally.cut, tally.parts - 5);
    assert_eq!(tally.schedules, [1, 5]);
}

/// A key that was set while the clock ran fast, and that no client will delete, lives on when the
/// clock is set right. The run must wait for its end.
#[test]
fn a_key_on_a_master_with_a_fast_clock_is_no_leak() {
    let base = some(5, &["extends"]).remove(0);
    let fast = fault("at = '0s'", "clock.rate = { nodes = 'all', factor = 2.0 }");
    let dies = fault("before = 'c1 reply 3 of extend'", "client.kill = { client = 'c1' }");
    let verdict = check(&played(&base.with(&[fast, dies])));
    assert_eq!(verdict.observed[&Property::Hygiene], Observed::Safe, "{verdict:#?}");
}
