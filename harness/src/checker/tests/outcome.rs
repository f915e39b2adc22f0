//! Liveness and hygiene at the end of a run, and the comparison with the expectation.

use super::notation::{Run, check};
use crate::history::Event;
use crate::scenario::Scenario;

#[test]
fn each_process_that_lives_must_be_granted_after_the_healing() {
    check(
        "- 100 ends c1 c2 => liveness safe
        - 100 ends c1 => liveness violated
          ~ c2 was never asked
        - 50 fault client.kill c2; 100 ends c1 => liveness safe
        - 100 ends c1; 150 c2 asks; 160 c2 refused => liveness violated
          ~ c2 asked for L after the healing, and was refused at 160 ms
        - 100 ends c1; 150 c2 refused; 200 c2 gets t2 on 123 until 2000 => liveness safe
        - 100 ends c1; 150 c2 asks => liveness violated
          ~ had no reply
        - 100 ends => liveness violated
          ~ no client answered
        - 50 fault client.kill c1; 50 fault client.kill c2; 100 ends => liveness violated
          ~ no client process is left for the final acquire
        - 10 c1 gets t1 on 123 until 30; 40 c1 releases t1 on 123 => inconclusive
          => liveness inconclusive
          => hygiene inconclusive
          ! liveness: expected safe, observed inconclusive
          ! hygiene: expected safe, observed inconclusive
          ! the run broke off before its end
        # A client that knows fewer masters than its quorum can never acquire.
        - c1: nodes = [1, 1]; 100 ends c2; 150 c1 refused no-quorum
          => liveness violated because node-lists
          => hygiene safe
          ~ it knows 1 master, and its quorum is 2
        # The harness is to blame for a fault that it could not heal.
        - 10 c1 gets t1 on 123 until 1988; 100 c1 releases t1 on 123
          150 fault node.kill 123; 3000 stays 1; 3000 ends
          3020 c1 asks waiting 5000; 3020 c2 asks waiting 5000
          3450 c1 refused no-quorum; 3450 c2 refused no-quorum
          => liveness inconclusive
          => inconclusive
          ! liveness: expected safe, observed inconclusive
          ! fault 1, node.kill could not be healed",
    );
}

#[test]
fn a_key_that_is_left_is_a_leak_unless_it_belongs_to_the_bookkeeping() {
    // The last reply counts.
    check(
        "10 c1 gets t1 on 123 until 300; 50 c1 releases t1 on 12; 100 ends c1 c2
        605 left 3 L=t1
        - 615 left 3 => hygiene safe
        - 615 left 3 redquorum:fence:L=7 => hygiene safe
        - 615 left 3 unknown => hygiene inconclusive
        - 615 left 3 redquorum:line:L= => hygiene violated
          ~ master 3 still has redquorum:line:L at 615 ms: positions of processes that are gone
        - 615 left 3 L=t1 => hygiene violated because bug
          ~ master 3 still has L at 615 ms, for 100 ms more: it was set by c1, token t1",
    );
}

#[test]
fn no_client_deletes_or_prolongs_the_key_of_another() {
    // c1's key is on master 1 from 10 to some 2010, for certain or perhaps.
    for act in ["deletes", "keeps"] {
        check(&format!(
            "3000 ends c1 c2
            - 10 c1 sets t1 on 1; 500 c2 {act} any on 1 => hygiene violated
            - 10 c1 sets t1 on 1 silent; 500 c2 {act} any on 1 => hygiene inconclusive
            # It may be c2's own key.
            - 10 c1 sets t1 on 1 silent; 498 c2 sets t2 on 1 silent; 500 c2 {act} any on 1
              => hygiene safe
            - 10 c1 sets t1 on 1; 2500 c2 {act} any on 1 => hygiene safe
            # The key was created between 10 and 10.2, and may have expired.
            - 10 c1 sets t1 on 1; 2010 c2 {act} any on 1 => hygiene inconclusive"
        ));
    }
    // A client deletes its own key without a token.
    check(
        "10 c1 gets t1 on 123 until 1988; 500 c1 releases any on 123; 3000 ends c1 c2
        => all safe",
    );
}

#[test]
fn expected_violations_and_causes() {
    check(
        "10 c1 gets t1 on 123 until 1988; 100 fault clock.step 3 by 3s; 100 clock 3 ahead 3000
        300 c2 gets t2 on 345 until 2200; 3000 ends c1 c2
        - expect.mutual-exclusion = 'violated' => as-expected
        - expect.mutual-exclusion = 'violated'; expect.because = ['clock.step'] => as-expected
        - => differs
          ! mutual-exclusion: expected safe, observed violated
        - expect.mutual-exclusion = 'violated'; expect.because = ['node.restart'] => differs
          ! because: expected node.restart, which is no cause of what was observed
        # A bug is expected only if the scenario names it.
        - expect.mutual-exclusion = 'violated'; expect.validity = 'violated'
          2200 c1 gets t9 on 124 until 2199 => differs
          ! because: observed bug, which was not expected
        - expect.mutual-exclusion = 'violated'; expect.validity = 'violated'
          expect.because = ['bug', 'clock.step']; 2200 c1 gets t9 on 124 until 2199
          => as-expected",
    );
    check(
        "10 c1 gets t1 on 123 until 1988; 100 fault clock.step 3 by 3s; 100 clock 3 ahead 3000
        299 c2 asks; 300 c2 refused; 3000 ends c1 c2
        - => as-expected
        - 5000 c1 breaks it ended with status 101 => differs
          ! process c1: it ended with status 101
        # A violation that did not show has no cause.
        - expect.mutual-exclusion = 'violated'; expect.because = ['clock.step'] => not-seen
          ! mutual-exclusion: expected violated, observed safe
        # A broken process does not change the outcome; a violation does.
        - expect.mutual-exclusion = 'violated'; 4000 c1 breaks it left => not-seen
          ! mutual-exclusion: expected violated, observed safe
          ! process c1: it left
        - expect.mutual-exclusion = 'violated'; 3515 left 1 L=t1 => differs
          ! mutual-exclusion: expected violated, observed safe
          ! hygiene: expected safe, observed violated
          ! because: observed bug, which was not expected
        # c2 reports no stamps: it may have had a lease from 1987 on, or from 1990 on.
        - 1986 c2 asks; 1986.2 c2 sets t2 on 345; 1990 c2 gets t2 unstamped valid 500
          => inconclusive
          ! mutual-exclusion: expected safe, observed inconclusive
        - 1986 c2 asks; 1986.2 c2 sets t2 on 345; 1990 c2 gets t2 unstamped valid 500
          expect.mutual-exclusion = 'violated'; expect.because = ['clock.step'] => inconclusive
          ! mutual-exclusion: expected violated, observed inconclusive",
    );
}

#[test]
fn a_run_must_have_gone_as_it_should_to_mean_anything() {
    check(
        "10 c1 gets t1 on 123 until 1988; 299 c2 asks; 300 c2 refused; 3000 ends c1 c2
        - expect.acquires = { c1 = 'granted', c2 = 'refused', c = 'granted' } => as-expected
        - expect.acquires = { c1 = 'all-granted', c2 = 'taken' } => as-expected
        - expect.acquires = { c1 = 'refused', c2 = 'granted', c3 = 'refused' } => not-seen
          ! acquires: c1 was not refused (1 of 1 granted)
          ! acquires: c2 was never granted (0 of 1 granted)
          ! acquires: c3 was not refused (0 of 0 granted)
        - expect.acquires = { c = 'all-granted', c2 = 'all-granted' } => not-seen
          ! acquires: c was not granted every time (1 of 2 granted)
          ! acquires: c2 was not granted every time (0 of 1 granted)
        - expect.acquires = { c2 = 'late' } => not-seen
          ! acquires: c2 was not refused as late (0 of 1 granted)
        - expect.acquires = { c2 = 'no-quorum' } => not-seen
          ! acquires: c2 was not refused for want of a quorum (0 of 1 granted)
        - expect.margin = { c1 = 1 } => as-expected
        - expect.margin = { c1 = 2, c2 = 1 } => not-seen
          ! margin: the first grant of c1 has 1, expected 2
          ! margin: c2 was never granted",
    );
    check(
        "fault = [{ at = '100ms', clock.step = { node = 3, by = '3s' } }]; 1000 ends c1 c2
        - 100 fault clock.step 3 by 3s => as-expected
        - => not-seen
          ! fault 1 (clock.step) never struck
        - 100 fails clock.step 3 by 3s => not-seen
          ! fault 1 (clock.step) failed to strike",
    );
}

#[test]
fn bounds_of_times_and_commands() {
    check(
        "0 c1 asks waiting 5000; 3000 ends c1 c2
        - expect.within = { c1 = '600ms' }; 600 c1 gets t1 on 123 until 1600 => as-expected
        - expect.within = { c1 = '600ms', c = '600ms', c2 = '1s' }
          600.1 c1 gets t1 on 123 until 1600
          => differs
          ! within: c1 asked at 0 ms and was granted after 600.1 ms, expected at most 600ms
          ! within: c1 asked at 0 ms and was granted after 600.1 ms, expected at most 600ms
          ! within: c2 was never granted",
    );
    // The commands of final acquires do not count.
    check(
        "10 c1 gets t1 on 123 until 1988; 100 c1 releases t1 on 123
        500 c2 gets t2 on 123 until 1988; 600 c2 releases t2 on 123; 3000 ends c1 c2
        - expect.commands = { c1 = 6 } => as-expected
        - expect.commands = { c1 = 5 } => differs
          ! commands: c1 sent 6, expected at most 5",
    );
}

#[test]
fn requests_that_came_later_and_were_granted_first() {
    // c2 waits from 10 ms on, and is in the fair queue 150 ms later.
    check(
        "10 c2 asks waiting 5000; 3000 ends c1 c2; 1 c1 gets t1 on 123 until 1900
        50 c1 releases t1 on 123
        # c1 asked before c2 was in the queue.
        - expect.overtaken = { c2 = 0 }; 110 c1 gets t2 on 123 until 1900; 159 c1 releases t2 on 123
          200 c2 gets t3 on 123 until 2000; 210 c2 releases t3 on 123 => as-expected
        # A request that does not wait is never in the queue.
        - expect.overtaken = { c2 = 'some', c1 = 0 }; 200 c2 gets t3 on 123 until 2000
          210 c2 releases t3 on 123 => not-seen
          ! overtaken: c1 was never in the fair queue
          ! overtaken: c2 never was, expected at least once
        - expect.overtaken = { c2 = 'some' }; 201 c1 gets t2 on 123 until 1900
          250 c1 releases t2 on 123; 300 c2 gets t3 on 123 until 2000; 310 c2 releases t3 on 123
          => as-expected",
    );
    // c1 comes later twice. The last time is after the grant.
    let line = "! overtaken: c2 asked at 10 ms, and was in the fair queue from 160 ms on: c1 got \
                it 2 times before, though it came later each time, expected at most 1";
    check(&format!(
        "10 c2 asks waiting 5000; 3000 ends c1 c2
        201 c1 gets t1 on 123 until 1900; 250 c1 releases t1 on 123
        301 c1 gets t2 on 123 until 1900; 350 c1 releases t2 on 123
        400 c2 gets t3 on 123 until 2000; 410 c2 releases t3 on 123
        1101 c1 gets t4 on 123 until 1900; 1150 c1 releases t4 on 123
        - expect.overtaken = {{ c2 = 2 }} => as-expected
        - expect.overtaken = {{ c2 = 1 }} => differs
          {line}
        - expect.overtaken = {{ c = 1 }} => differs
          {line}"
    ));
}

#[test]
fn clients_of_one_process_are_in_one_queue() {
    // c2 is in the queue 150 ms after the lease of its own process ended, at 300 ms.
    check(
        "c1: process = 'p'; c2: process = 'p'; c3: script = ['acquire L', 'release L']
        expect.overtaken = { c2 = 0 }; 3000 ends p c3
        0 c1 asks waiting 5000; 10 c2 asks waiting 5000; 1 c1 gets t1 until 1900
        300 c1 releases t1; 600 c2 gets t2 until 2500; 700 c2 releases t2
        - 441 c3 gets t3 on 123 until 1990; 500 c3 releases t3 on 123 => overtaken no
        - 461 c3 gets t3 on 123 until 1990; 500 c3 releases t3 on 123 => overtaken yes",
    );
    // Clients of a process that ask at once may be served in any order.
    check(
        "c1: process = 'p'; c3: process = 'p'; expect.overtaken = { c2 = 0 }; 3000 ends p c2
        0 c1 asks waiting 5000; 0.1 c3 asks waiting 5000; 5 c2 asks waiting 5000
        200 c3 gets t3 until 1900; 250 c3 releases t3; 300 c2 gets t2 until 1990
        350 c2 releases t2; 400 c1 gets t1 until 2000; 450 c1 releases t1 => overtaken no",
    );
}

#[test]
fn the_example_has_its_expected_result() {
    let text = include_str!("../../../../scenarios/clock-step-one-holder.toml");
    let scenario: Scenario = toml::from_str(text).unwrap();
    let mut run = Run::of(
        "0 c1 can deadline lost; 0 c2 can deadline lost; 0 fault net.drop c1 45 what request
        3 c1 gets t1 on 123 until 1980; 3.2 fault clock.step 1 by 3s; 3.2 clock 1 ahead 3000
        3.9 c1 reads 0; 150 healed 1; 301 c2 gets t2 on 145 until 2278
        302 c2 reads 0; 402 c2 writes 0 1; 403 c2 releases t2 on 145
        604 c1 writes 0 2; 605 c1 releases t1 on 23; 700 ends c1 c2",
    );
    let checked = |run: &Run| super::check_history(&run.history_of(scenario.clone()));
    let verdict = checked(&run);
    assert_eq!(verdict.outcome, super::Outcome::AsExpected, "{:?}", verdict.differences);
    // The run has the intended fault, but no step: the harness is blind.
    run.records.retain(|record| !matches!(record.event, Event::Clock { .. }));
    let lines = [
        "because: expected clock.step, which is no cause of what was observed",
        "because: observed unknown, which was not expected",
    ];
    assert_eq!(checked(&run).differences, lines);
}
