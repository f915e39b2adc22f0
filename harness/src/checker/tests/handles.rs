//! Leases that their owners acquired again: they last until the release of the last handle.

use super::*;

const ME: Property = Property::MutualExclusion;

/// A re-entry with this deadline. It takes 0.1 ms and needs no command.
fn again(run: &mut Run, at: f64, deadline: f64, handles: u64) {
    let id = run.ask_again(at - 0.1, "c1", "L");
    let (stamp, deadline, handles) = (Some(at), Some(deadline), Some(handles));
    let answer = Answer { token: Some("t1"), at: stamp, deadline, handles, ..Answer::default() };
    run.answer(at, "c1", id, answer);
}

/// A lease with two handles.
fn twice() -> Run {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3, 4, 5]);
    again(&mut run, 100.0, 1988.0, 2);
    run
}

#[test]
fn a_release_that_frees_while_a_handle_is_out_is_seen_once_a_rival_gets_in() {
    let mut run = twice();
    run.release("c1", "t1", 500.0, &[1, 2, 3, 4, 5]);
    run.grant("c2", "t2", 700.0, 2678.0, &[1, 2, 3, 4, 5]);
    assert_eq!(run.judge().seen(ME), Observed::Violated);
}

#[test]
fn the_last_release_ends_it() {
    let mut run = twice();
    run.release("c1", "t1", 500.0, &[]);
    run.release("c1", "t1", 600.0, &[1, 2, 3, 4, 5]);
    run.grant("c2", "t2", 700.0, 2678.0, &[1, 2, 3, 4, 5]);
    let verdict = run.ended(3000.0);
    verdict.only(&[]).because(&[]);
    assert_eq!(verdict.measures.grants, 2, "another handle is no other lease");
    // A rival that comes before the last release is too early.
    let mut run = twice();
    run.release("c1", "t1", 500.0, &[]);
    run.grant("c2", "t2", 550.0, 2538.0, &[3, 4, 5]);
    run.release("c1", "t1", 600.0, &[1, 2, 3, 4, 5]);
    assert_eq!(run.judge().seen(ME), Observed::Violated);
}

#[test]
fn a_handle_that_says_it_is_the_only_one_is_a_new_lease() {
    let mut run = twice();
    again(&mut run, 200.0, 1988.0, 1);
    run.release("c1", "t1", 500.0, &[1, 2, 3, 4, 5]);
    run.grant("c2", "t2", 700.0, 2678.0, &[1, 2, 3, 4, 5]);
    assert_eq!(run.judge().seen(ME), Observed::Safe);
}

#[test]
fn a_handle_of_a_lease_that_is_over_is_handed_out_too_late() {
    let mut run = twice();
    again(&mut run, 1500.0, 1988.0, 3);
    assert_eq!(run.judge().seen(Property::Validity), Observed::Safe);
    again(&mut run, 1990.0, 1988.0, 4);
    assert_eq!(run.judge().seen(Property::Validity), Observed::Violated);
    // A pause before the request excuses nothing: the client awaited no reply of a master.
    let mut run = twice();
    run.struck(1000.0, 1, "client.pause = { client = \"c1\" }", &[], &["c1"]).cured(1980.0, 1);
    again(&mut run, 1990.0, 1988.0, 3);
    assert_eq!(run.judge().seen(Property::Validity), Observed::Violated);
}

#[test]
fn an_owner_that_is_refused_what_it_holds_is_seen() {
    let refused = |at: f64, end: f64| {
        let mut run = twice();
        for release in [400.0, 401.0].into_iter().take_while(|at| *at < end) {
            run.release("c1", "t1", release, &[1, 2, 3, 4, 5]);
        }
        let id = run.ask_again(at, "c1", "L");
        let why = Some(FailureReason::Taken);
        run.answer(at + 1.0, "c1", id, Answer { ok: false, why, ..Answer::default() });
        run.judge().seen(Property::Progress)
    };
    assert_eq!(refused(200.0, 0.0), Observed::Violated);
    // The client still has one handle.
    assert_eq!(refused(400.5, 401.0), Observed::Violated);
    // A client has no right to a resource that it has released or lost: it competes like any other.
    assert_ne!(refused(402.0, 500.0), Observed::Violated);
    assert_ne!(refused(1987.5, 0.0), Observed::Violated);
}

#[test]
fn handles_of_one_lease_have_one_fencing_token() {
    for (fence, seen) in
        [(Some(7), Observed::Safe), (Some(8), Observed::Violated), (None, Observed::Violated)]
    {
        let mut run = Run::two();
        run.scenario.lock.fencing = true;
        run.fenced("c1", "t1", 10.0, 1988.0, &[1, 2, 3], 7);
        let id = run.ask_again(99.9, "c1", "L");
        let (at, deadline, handles) = (Some(100.0), Some(1988.0), Some(2));
        let answer =
            Answer { token: Some("t1"), at, deadline, handles, fence, ..Answer::default() };
        run.answer(100.0, "c1", id, answer);
        assert_eq!(run.judge().seen(Property::FencedResource), seen, "{fence:?}");
    }
}

#[test]
fn a_later_deadline_that_no_quorum_has_confirmed_is_seen() {
    let mut run = twice();
    again(&mut run, 200.0, 2100.0, 3);
    assert_eq!(run.judge().seen(Property::Validity), Observed::Violated);
}
