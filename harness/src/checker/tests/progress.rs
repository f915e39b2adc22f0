//! Progress: which refusals and delays nothing excuses.

use super::notation::check;

#[test]
fn a_refusal_with_nothing_in_the_way_is_a_violation() {
    check(
        "- 10 c1 asks; 20 c1 refused no-quorum => progress violated because bug
          ~ c1 asked for L at 10 ms, and was refused at 20 ms (no-quorum)
        - 10 c1 refused cancelled => progress safe
        - 10 c1 refused unsupported => progress safe
        # Final acquires do not count.
        - 5 phase final-acquire; 10 c1 refused => progress safe
        # A request without an answer fails where there was time.
        - 100 c1 asks; 200 phase heal => progress safe
        - 100 c1 asks; 1000 phase heal => progress violated
          ~ had no reply by 1000 ms",
    );
}

#[test]
fn leases_and_requests_are_in_the_way() {
    check(
        "50000 phase heal
        - 10 c1 gets t1 on 123 until 1988; 500 c1 releases t1 on 123; 300 c2 refused
          => progress safe
        # The deletions may be on their way.
        - 10 c1 gets t1 on 123 until 1988; 500 c1 releases t1 on 123; 640 c2 refused
          => progress safe
        - 10 c1 gets t1 on 123 until 1988; 500 c1 releases t1 on 123; 651 c2 refused
          => progress violated
        # A client's own lease is in its way.
        - 10 c2 gets t1 on 123 until 1988; 300 c2 refused => progress safe
        # Requests at the same time may split the votes.
        - 10 c1 asks; 15 c2 asks; 20 c1 refused; 25 c2 refused => progress safe
        # A dead waiter is in the way of no other client.
        - 10 c1 asks waiting 60000; 100 fault client.kill c1; 200 c2 refused => progress safe
        - 10 c1 asks waiting 60000; 100 fault client.kill c1; 300 c2 refused
          => progress violated",
    );
}

#[test]
fn keys_are_in_the_way_while_their_owner_cannot_or_need_not_delete_them() {
    // The keys of a lost lease stay until its release, which deletes nothing here.
    check(
        "50000 phase heal; 10 c1 gets t1 on 123 until 1988; 500 c1 loses
        # The holder may not have stopped yet.
        - 1000 c2 refused => progress safe
        - 1500 c1 releases t1; 1000 c2 refused => progress safe
        - 600 c1 releases t1; 1000 c2 refused => progress violated
        # The keys have expired.
        - 2200 c2 refused => progress violated",
    );
    // c1's keys stay until 2009.6 at the most.
    check(
        "50000 phase heal; 10 c1 gets t1 on 123 until 300
        # c1 may be cleaning up.
        - 400 c2 refused => progress safe
        - 500 c2 refused => progress violated
        - 100 fault client.kill c1; 500 c2 refused => progress safe
        - 100 fault client.kill c1; 2015 c2 refused => progress violated
        - 100 fault client.pause c1; 1800 c2 refused => progress safe
        - 100 fault net.cut c1; 1800 c2 refused => progress safe
        # Unreachable and blocked masters count together. Only master 1 forgot the key.
        - 100 fault client.kill c1; 100 fault node.kill 4; 110 c2 deletes any on 1; 500 c2 refused
          => progress safe",
    );
    check(
        "50000 phase heal
        # Three masters are free.
        - 9 c1 sets t1 on 12 silent; 1 fault client.kill c1; 500 c2 refused
          => progress violated
        # c2's own keys excuse its next refusal, for a moment.
        - 100 c2 asks; 100.2 c2 sets t2 on 123; 100.3 c2 refused cancelled; 150 c2 refused
          => progress safe
        - 100 c2 asks; 100.2 c2 sets t2 on 123; 100.3 c2 refused cancelled; 400 c2 refused
          => progress violated
        # All acquires after 450 ms detect the leak, although c2 asks again and again.
        - 10 c1 gets t1 on 123 until 300; 449 c2 refused; 449.5 c2 refused => progress safe
        - 10 c1 gets t1 on 123 until 300; 440 c2 refused; 460 c2 refused => progress violated
          ~ c2 asked for L at 460 ms
          !~ c2 asked for L at 440 ms",
    );
    // Masters remember the release, or lose it with their power. The links are up again.
    check(
        "50000 phase heal; 10 c1 gets t1 on 123 until 1988; 500 c1 releases t1 on 123
        600 fault node.power-loss 123; 650 healed 1; 2003 c2 refused
        - 600 kept 1 until 100 to 101; 600 kept 2 until 100 to 101; 600 kept 3 until 100 to 101
          => progress safe
        - 600 kept 1 until 590 to 591; 600 kept 2 until 590 to 591; 600 kept 3 until 590 to 591
          => progress violated",
    );
}

#[test]
fn a_grant_must_come_soon_after_the_way_is_free() {
    check(
        "0 c1 asks
        - 250 c1 gets t1 on 123 until 1250 => progress safe
        - 251.1 c1 gets t1 on 123 until 1250 => progress violated",
    );
    check(
        "0 c1 asks waiting 5000
        - 700 c1 gets t1 on 123 until 1700 => progress safe
        - 701.1 c1 gets t1 on 123 until 1700 => progress violated",
    );
    // c1 releases at 1000, and has until 1150.4 to clean up; then c2 has 700.
    check(
        "10 c1 gets t1 on 123 until 1988; 1000 c1 releases t1 on 123; 100 c2 asks waiting 5000
        - 1850 c2 gets t2 on 123 until 1950 => progress safe
          => hand-over 850
        - 1852 c2 gets t2 on 123 until 1950 => progress violated
        - 1850 c2 refused => progress safe
        - 1852 c2 refused => progress violated",
    );
    // All keys are lost at 600, and no master announces it; then c2 has a second to look, and 700.
    check(
        "10 c1 gets t1 on 123 until 4000; 300 fault client.kill c1; 600 fault node.flush all
        100 c2 asks waiting 5000
        - 2250 c2 gets t2 on 123 until 2350 => progress safe
        - 2450 c2 gets t2 on 123 until 2550 => progress violated",
    );
    // c1 is refused, and its clean-up wakes no waiter; then c2 has a second to look, and 700. The
    // release of a lease wakes a waiter.
    check(
        "50 c1 asks; 50.2 c1 sets t1 on 123; 100 c2 asks waiting 5000
        150 c1 refused; 150.2 c1 deletes t1 on 123
        - 1990 c2 gets t2 on 123 until 2100 => progress safe
        - 2010 c2 gets t2 on 123 until 2100 => progress violated
        - 200 c1 gets t3 on 345 until 2178; 210 c1 releases t3 on 345
          1990 c2 gets t2 on 123 until 2100 => progress violated",
    );
    // c1 dies. Its keys expire at 2150. A client that asked before they were set may have seen
    // another client's keys, and may sleep until those expire.
    check(
        "150 c1 gets t1 on 123 until 2000; 300 fault client.kill c1
        - 100 c2 asks waiting 5000; 3800 c2 gets t2 on 123 until 3900 => progress safe
        - 100 c2 asks waiting 5000; 4000 c2 gets t2 on 123 until 4100 => progress violated
        - 250 c2 asks waiting 5000; 3800 c2 gets t2 on 123 until 3900 => progress violated",
    );
}

#[test]
fn clients_that_wait_together_must_not_wait_for_long() {
    for (granted, seen) in [(1200, "safe"), (2100, "violated")] {
        let (then, released) = (granted + 20, granted + 10);
        check(&format!(
            "50 c1 gets t0 on 12345 until 2028; 60 c1 releases t0 on 12; 6000 ends c1 c2
            400 c1 asks waiting 5000; 400 c2 asks waiting 5000
            {granted} c1 gets t1 on 12345 until 4000; {released} c1 releases t1 on 12345
            {then} c2 gets t2 on 12345 until 4000; {} c2 releases t2 on 12345
            => progress {seen}",
            granted + 30
        ));
    }
    // Keys that a client left itself are in its way for a moment only.
    check(
        "50 c1 gets t0 on 12345 until 2028; 60 c1 releases t0 on 12; 61 c1 asks waiting 5000
        - 700 c1 gets t1 on 12345 until 2678 => progress safe
        - 2060 c1 gets t1 on 12345 until 4038 => progress violated",
    );
}

#[test]
fn without_a_majority_nothing_is_asked() {
    for (seen, fault, healed, at) in [
        ("safe", "node.kill 123", "", 200),
        ("violated", "node.kill 12", "", 200),
        // After a fault is healed, the links need a while; broken links need longer.
        ("safe", "node.kill 123", "900 healed 1", 2000),
        ("violated", "node.kill 123", "900 healed 1", 2200),
        ("safe", "node.pause 123", "900 healed 1", 1000),
        ("violated", "node.pause 123", "900 healed 1", 1010),
        ("safe", "node.restart 123", "", 1200),
        ("violated", "node.restart 123", "", 1400),
        // Network faults hit only the named clients.
        ("safe", "net.cut c2 123", "", 200),
        ("violated", "net.cut c1 123", "", 200),
        ("violated", "net.duplicate c2 123", "", 200),
        // A delay matters if it is long enough for timeouts.
        ("safe", "node.slow 123 by 30ms", "", 200),
        ("violated", "node.slow 123 by 20ms", "", 200),
        ("violated", "clock.step 123 by 3s", "", 200),
        ("safe", "client.pause c2", "900 healed 1", 950),
    ] {
        check(&format!(
            "50000 phase heal; 100 fault {fault}
            {healed}
            {at} c2 refused => progress {seen}"
        ));
    }
    // Too few of the masters that a client knows are up.
    check(
        "3000 ends c1 c2; 1 fault node.kill 12; 10 c1 refused no-quorum
        - c1: nodes = [1, 2, 3] => progress safe
        - c1: nodes = [3, 4, 5] => progress violated
        - => progress violated",
    );
    // Masters that reply late on a busy machine.
    check(
        "0 fault net.cut 45; 1000 healed 1; 3000 ends c1 c2; 10 c1 asks; 61.5 c1 refused no-quorum
        11 c1 sets t1 on 12 replied 12; 61.2 c1 deletes t1 on 123 replied 63
        - 11 c1 sets t1 on 3 replied 12 => progress violated
        - 11 c1 sets t1 on 3 replied 62 => progress safe",
    );
}

#[test]
fn counters_at_their_end_are_the_cause_where_too_few_others_are_left() {
    check(
        "10 c1 refused no-quorum
        - lock.fencing = true; 5 fault node.counter 123 resource L ahead last
          => progress violated because node.counter
          ~ to their end on masters 1, 2, 3
        - lock.fencing = true; 5 fault node.counter 123 resource L ahead end
          => progress violated because node.counter
        # Enough masters are left.
        - lock.fencing = true; 5 fault node.counter 12 resource L ahead end
          => progress violated because bug
        - lock.fencing = true; 5 fault node.counter 123 resource M ahead end
          => progress violated because bug
        # The counter is only far ahead.
        - lock.fencing = true; 5 fault node.counter 123 resource L ahead 1d
          => progress violated because bug
        - 5 fault node.counter 123 resource L ahead end => progress violated because bug",
    );
}

#[test]
fn guards_may_refuse() {
    // A guard distrusts clocks that stepped, if the process may notice.
    for (clock_guard, nodes, by, seen) in [
        ("lock.clock-guard = '500ms'", 123, "2s", "safe"),
        ("lock.clock-guard = '500ms'", 123, "251ms", "safe"),
        ("lock.clock-guard = '500ms'", 123, "250ms", "violated"),
        ("lock.clock-guard = '500ms'", 12, "2s", "violated"),
        ("", 123, "2s", "violated"),
        // All other clocks are ahead of this one.
        ("lock.clock-guard = '500ms'", 1, "-2s", "safe"),
        ("lock.clock-guard = '500ms'", 1, "-250ms", "violated"),
    ] {
        check(&format!(
            "lock.restart-guard = '2s'
            {clock_guard}
            5 fault clock.step {nodes} by {by}; 10 c1 refused no-quorum => progress {seen}"
        ));
    }
    // A master that two lists share has the marker of the first client.
    check(
        "50000 phase heal
        - lock.restart-guard = '2s'; c1: nodes = [1, 2, 3]; c2: nodes = [3, 4, 5]; 10 c2 refused
          => progress safe
        - lock.restart-guard = '2s'; c1: nodes = [1, 2, 3]; c2: nodes = [3, 4, 5]; 10 c1 refused
          => progress violated
        - lock.restart-guard = '2s'; c1: nodes = [1, 2]; c2: nodes = [3, 4, 5]; 10 c2 refused
          => progress violated
        - lock.restart-guard = '2s'; c1: nodes = [1, 2, 3]; c2: nodes = [3, 2, 1]; 10 c2 refused
          => progress violated
        - c1: nodes = [1, 2, 3]; c2: nodes = [3, 4, 5]; 10 c2 refused => progress violated
        # Another master loses its marker. The first client needs no guard.
        - lock.restart-guard = '2s'; c1: nodes = [1, 2, 3]; c1: restart-guard = false
          c2: nodes = [3, 4, 5]; 5 fault node.flush 4; 10 c2 refused => progress safe
        # The first client that comes marks new masters.
        - lock.restart-guard = '100ms'; lock.ttl = '100ms'; lock.initialized = false
          c1: nodes = [1, 2, 3]; c2: nodes = [3, 4, 5]; 10 c1 refused => progress safe",
    );
}

#[test]
fn a_lock_delay_is_in_the_way_unless_the_lease_was_released() {
    // These are 1 s, 1 % of 3 s and 2 ms, and the time for a clean-up.
    check(
        "50000 phase heal; 10 c1 gets t1 on 123 until 1988
        - lock.lock-delay = '1s'; 3150 c2 refused => progress safe
        - lock.lock-delay = '1s'; 3172 c2 refused => progress violated
        - 2150 c2 refused => progress violated
        - lock.lock-delay = '1s'; 500 c1 releases t1 on 123; 651 c2 refused
          => progress violated",
    );
}

#[test]
fn a_waiter_that_dies_is_in_the_way_for_one_turn() {
    // These are a turn of three seconds, one second until the next look, and the time for an
    // acquire.
    check(
        "50000 phase heal; 10 c1 asks waiting 20000; 100 fault client.kill c1
        50 c2 asks waiting 20000
        - lock.fair = true; 4800 c2 gets t2 on 123 until 6700 => progress safe
        - lock.fair = true; 4802 c2 gets t2 on 123 until 6700 => progress violated
        - 4000 c2 gets t2 on 123 until 5900 => progress violated",
    );
}

#[test]
fn an_extension_that_a_quorum_did_must_not_fail() {
    check(
        "100 c1 gets t1 on 12345 until 2078; 999 c1 asks extend; 1050 c1 refused no-quorum
        - 999.5 c1 keeps t1 on 123 replied 1000 => progress violated
        - 999.5 c1 keeps t1 on 12 replied 1000 => progress safe
        # The replies are so late that the client may have given up.
        - 999.5 c1 keeps t1 on 123 replied 1040 => progress safe",
    );
}

#[test]
fn an_owner_must_not_be_refused_what_it_holds() {
    check(
        "10 c1 gets t1 on 12345 until 1988; 99.9 c1 asks again; 100 c1 gets t1 until 1988 handles 2
        - 200 c1 refused again => progress violated
        # The client still has one handle.
        - 400 c1 releases t1 on 12345; 400.5 c1 refused again => progress violated
        # A client has no right to a resource that it has released or lost.
        - 400 c1 releases t1 on 12345; 401 c1 releases t1 on 12345; 402 c1 refused again
          => progress safe
        - 1987.5 c1 refused again => progress safe",
    );
}

#[test]
fn a_lease_that_is_kept_alive_must_not_end_while_a_majority_can_be_reached() {
    check(
        "c1: script = ['acquire L', 'keep L for 10s', 'work 4s', 'release L']
        100 c1 gets t1 on 12345 until 2078; 101 c1 asks keep_alive; 102 c1 answers; 5000 ends c1 c2
        - 2078 c1 loses => progress violated
          ~ that c1 kept alive ended at 2078 ms
        - 1500 fault net.cut c1 123; 2078 c1 loses => progress safe
        - 1500 fault client.pause c1; 2100 healed 1; 2101 c1 loses => progress safe
        - 500 fault node.restart 123; 2078 c1 loses => progress safe
        # The clocks step after the last extension by a quorum, and before the next one.
        - 1500 fault clock.step 123 by 3s; 1500 clock 1 ahead 3000; 1500 clock 2 ahead 3000
          1500 clock 3 ahead 3000; 1600 c1 loses => progress safe
        - 1500 c1 releases t1 on 12345 => progress safe",
    );
}

#[test]
fn a_fast_clock_shortens_the_time_for_which_a_lease_is_kept() {
    check(
        "c1: script = ['acquire L', 'keep L for 5s', 'work 9s', 'release L']
        100 c1 gets t1 on 12345 until 2078; 101 c1 asks keep_alive; 102 c1 answers stamped 102
        1900 c1 keeps t1 on 12345; 8000 ends c1 c2
        - 1901 c1 extended until 4000; 4000 c1 loses => progress violated
          ~ that c1 kept alive ended at 4000 ms
        # c1's clock shows 1500 ms more from 1602 ms on.
        - 102 fault client.rate c1 factor 2; 1602 healed 1
          1901 c1 extended until 5500; 4000 c1 loses stamped 5500 => progress safe",
    );
}

/// A client that asks for L and M gets both, or neither.
#[test]
fn requests_for_several_resources() {
    check(
        "100 c2 asks with M; 100 c2 asks of M with L; 101 c2 refused; 101 c2 refused
        # L is held, so M is not granted either.
        - 10 c1 gets t1 on 123 until 1988 => progress safe
        - => progress violated",
    );
    // c1 releases at 1000, and has until 1150.4 to clean up; then c2 has 700.
    check(
        "10 c1 gets t1 on 123 until 1988; 1000 c1 releases t1 on 123
        20 c2 asks with M waiting 5000; 20 c2 asks of M with L waiting 5000
        - 1850 c2 refused; 1850 c2 refused => progress safe
        - 1852 c2 refused; 1852 c2 refused => progress violated",
    );
}

#[test]
fn a_client_must_not_keep_some_of_several_resources() {
    // The bound is three node timeouts and 100 ms more.
    for (deleted, refused, more, seen) in [
        (101, 102, "", "inconclusive"),
        (350, 351, "", "inconclusive"),
        (352, 4000, "", "violated"),
        (352, 102, "", "violated"),
        (1000, 4000, "", "violated"),
        (1000, 4000, "200 fault client.pause c2; 900 healed 1", "inconclusive"),
        (1000, 4000, "200 fault client.kill c2", "inconclusive"),
    ] {
        let sign = if seen == "violated" { "~" } else { "!~" };
        check(&format!(
            "100 c2 asks with M waiting 5000; 100 c2 asks of M with L waiting 5000
            100.2 c2 sets t2 on 123; {deleted} c2 deletes t2 on 123
            {more}
            {refused} c2 refused; {refused} c2 refused => hygiene {seen}
            {sign} c2 asked for L and M at 100 ms, and kept L on master 1"
        ));
    }
    check(
        "100 c2 asks with M waiting 5000; 100 c2 asks of M with L waiting 5000
        100.2 c2 sets t2 on 123
        - 101 c2 gets t2 until 2050 => hygiene inconclusive
        # Before the grant, the keys are not kept by right.
        - 1000 c2 gets t2 until 2050 => hygiene violated",
    );
}
