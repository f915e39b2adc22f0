//! Clients with master lists of their own: the quorum is that of a client's list, and a master that
//! the list contains twice counts once.

use super::*;

const ME: Property = Property::MutualExclusion;

/// A run with five masters, and two clients that know these lists of masters.
fn knowing(first: &str, second: &str) -> Run {
    let own = |text: String, id: &str, nodes: &str| {
        let id = format!("id = \"{id}\"");
        text.replace(&id, &format!("{id}\nnodes = {nodes}"))
    };
    Run::of(&own(own(TWO.to_owned(), "c1", first), "c2", second))
}

#[test]
fn two_quorums_without_a_common_master() {
    let mut run = knowing("[1, 2, 3]", "[3, 4, 5]");
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]).grant("c2", "t2", 300.0, 2200.0, &[4, 5]);
    run.judge()
        .because(&[Cause::NodeLists])
        .tells(ME, "c1 knows masters 1, 2, 3 and c2 knows masters 3, 4, 5")
        .tells(ME, "(margin 2)");
}

#[test]
fn a_quorum_is_of_the_clients_own_list() {
    let two_of = |nodes: &str| {
        let mut run = knowing(nodes, nodes);
        run.grant("c1", "t1", 10.0, 1988.0, &[1, 2]);
        run.judge().seen(Property::Validity)
    };
    assert_eq!(two_of("[1, 2, 3]"), Observed::Safe);
    assert_eq!(two_of("[1, 2, 3, 4]"), Observed::Violated);
}

#[test]
fn lists_are_no_cause_where_a_common_master_forgot() {
    let mut run = knowing("[1, 2, 3]", "[1, 2, 3, 4, 5]");
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    run.struck(100.0, 1, "clock.step = { node = 3, by = \"2s\" }", &[3], &[]);
    run.clock(100.0, 3, 2000.0, 1.0);
    run.grant("c2", "t2", 300.0, 2200.0, &[3, 4, 5]);
    run.judge().because(&[Cause::ClockStep]);
}

#[test]
fn nor_where_any_two_quorums_meet() {
    let mut run = knowing("[1, 2, 3, 4]", "[1, 2, 3, 4, 5]");
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]).grant("c2", "t2", 300.0, 2200.0, &[4, 5]);
    run.judge().because(&[Cause::Bug]).tells(ME, "c2 believed without a quorum: 2 of 5 masters");
}

#[test]
fn a_master_that_is_known_by_two_names_is_one() {
    let mut run = knowing("[1, 1, 2]", "[1, 1, 2]");
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2]);
    assert_eq!(run.judge().seen(Property::Validity), Observed::Safe);
    assert_eq!(run.judge().measures.margins, [2], "both would have to forget");

    let mut run = knowing("[1, 1, 2]", "[1, 1, 2]");
    run.grant("c1", "t1", 10.0, 1988.0, &[1]);
    run.judge().because(&[Cause::Bug]).tells(
        Property::Validity,
        "c1 believed without a quorum: 1 of 2 masters granted, and it takes 2",
    );
}

#[test]
fn an_acquire_need_not_succeed_where_too_few_of_its_own_masters_are_up() {
    let refused = |nodes: &str| {
        let mut run = knowing(nodes, "[1, 2, 3, 4, 5]");
        for fault in [1, 2] {
            let fault_kind = format!("node.kill = {{ node = {fault} }}");
            run.struck(1.0, fault, &fault_kind, &[fault], &[]);
        }
        run.refused("c1", 10.0, 20.0, 0, FailureReason::NoQuorum);
        run.ended(3000.0).seen(Property::Progress)
    };
    assert_eq!(refused("[1, 2, 3]"), Observed::Safe);
    assert_eq!(refused("[3, 4, 5]"), Observed::Violated);
    assert_eq!(refused("[1, 2, 3, 4, 5]"), Observed::Violated);
}

#[test]
fn who_knows_fewer_masters_than_its_quorum_can_never_acquire() {
    let mut run = knowing("[1, 1]", "[1, 2, 3, 4, 5]");
    run.phase(1000.0, Phase::Heal).phase(1010.0, Phase::Witness);
    run.refused("c1", 1020.0, 1030.0, 0, FailureReason::NoQuorum);
    run.grant("c2", "t2", 1040.0, 3018.0, &[1, 2, 3, 4, 5]);
    run.release("c2", "t2", 1050.0, &[1, 2, 3, 4, 5]);
    run.phase(1500.0, Phase::Settle);
    for node in 1..=5 {
        run.keys(1510.0, node, Some(&[]));
    }
    let verdict = run.phase(1520.0, Phase::End).judge();
    verdict
        .because(&[Cause::NodeLists])
        .only(&[(Property::Liveness, Observed::Violated)])
        .tells(Property::Liveness, "it knows 1 master, and its quorum is 2");
}
