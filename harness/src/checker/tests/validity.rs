//! Validity: leases that are late, untrue, without a quorum, revived or not reported as lost.

use super::notation::check;

#[test]
fn a_lease_that_is_handed_out_or_extended_at_its_deadline_is_late() {
    check(
        "- 100 c1 gets t1 on 123 until 100 => validity violated
        - 100 c1 gets t1 on 123 until 99 => validity violated
        - 100 c1 gets t1 on 123 until 100.1 => validity safe
        - 100 c1 gets t1 on 123 until 2078; 500 c1 extends t1 on 123 until 499
          => validity violated because bug
          ~ nothing was left of it
        # The client was stopped after the third grant, which was delivered at 99.7.
        - 100 c1 gets t1 on 123 until 99.9; 99.8 fault client.pause c1; 99.9 healed 1
          => validity safe
        - 100 c1 gets t1 on 123 until 99.9; 50 fault client.pause c1; 50.1 healed 1
          => validity violated
        # Without a stamp, a client is late if its quorum was.
        - 99 c1 asks; 99.4 c1 sets t1 on 123; 2101 c1 gets t1 unstamped until 2078
          => validity safe
        - 99 c1 asks; 99.4 c1 sets t1 on 12; 99.4 c1 sets t1 on 3 replied 2100
          2101 c1 gets t1 unstamped until 2078 => validity violated",
    );
}

#[test]
fn a_lease_that_promises_more_than_the_masters_keep_is_untrue() {
    check(
        "# The keys live until 2099.4 + 1.2 at the most.
        - 100 c1 gets t1 on 1234 until 2150 => validity violated because bug
          ~ for longer than the master keeps the key
        - 100 c1 gets t1 on 1234 until 2101 => validity safe
        # The extension reaches a minority, or a quorum. On the other masters the key may expire.
        - 100 c1 gets t1 on 123 until 2078; 1000 c1 extends t1 on 12 until 2978
          => validity violated because bug
          ~ master 3
        - 100 c1 gets t1 on 12345 until 2078; 1000 c1 extends t1 on 123 until 2978
          => validity safe
        - 100 c1 gets t1 on 123 until 2078; 200 c1 deletes t1 on 2 replied 200.3
          => validity violated because bug
          ~ c1 deleted the key of c1 there at 200 ms
        # The client deletes the key shortly before its loss notice.
        - 100 c1 gets t1 on 123 until 2078; 200 c1 deletes t1 on 2 replied 200.3; 210 c1 loses
          => validity safe",
    );
}

#[test]
fn a_lease_that_a_fault_makes_untrue_is_so_by_design() {
    check(
        "100 c1 gets t1 on 123 until 2078
        # The simulation records the setting exactly, to the nanosecond.
        - 500 fault clock.step 1 by 3s; 500 clock 1 ahead 3000 exactly => validity safe
        - 1000 c1 extends t1 on 123 until 2978
          1100 fault clock.step 1 by 3s; 1100 clock 1 ahead 3000 => validity safe
          => hollow 1877.8
        - 200 fault node.restart 1 => validity safe
          => hollow 1877.5
        # With persistence to a file, the master forgets nothing.
        - cluster.persistence = 'aof-everysec'; 200 fault node.restart 1 => hollow 0",
    );
}

#[test]
fn a_lease_needs_a_quorum_when_it_is_handed_out() {
    check(
        "- 100 c1 gets t1 on 12 until 2078 => validity violated because bug
          ~ 2 of 5 masters granted, and it takes 3
        - 100 c1 gets t1 on 12 until 2078; 99.4 c1 sets t1 on 3 silent
          => validity violated because bug
          ~ when 2 of 5 masters had granted it
        - 100 c1 gets t1 on 12 until 2078; 99.4 c1 sets t1 on 345 replied 99.9
          => validity safe
        - 100 c1 gets t1 on 12 until 2078; 99.4 c1 sets t1 on 345 replied 103
          => validity violated",
    );
}

#[test]
fn an_extension_needs_a_quorum_that_still_has_the_key() {
    check(
        "100 c1 gets t1 on 12345 until 2078
        - 1000 c1 extends t1 on 123 until 2078 => validity safe
        - 1000 c1 extends t1 on 12 until 2078 => validity violated
        # A key that had to be created anew is not a vote for an extension.
        - 1000 c1 extends t1 on 12 until 2078; 999.4 c1 keeps t1 on 3 created
          => validity violated
          ~ when 2 of 5 masters had replied that they still have the key
        # Commands without a token prove nothing.
        - 999 c1 asks extend; 999.4 c1 keeps any on 123; 1000 c1 answers until 2978
          => validity safe
        # A lease that is over cannot be extended.
        - 500 c1 loses; 1000 c1 extends t1 on 123 until 2978 => validity violated
          ~ when it was over since 500 ms",
    );
    // A re-entry returns the deadline of a round that its client gave up, and that went on; or of
    // one that the watchdog began.
    check(
        "100 c1 gets t1 on 12345 until 2078; 1000.1 c1 keeps t1 on 12345
        1001 c1 asks again; 1001.1 c1 gets t1 until 2978 handles 2
        - 1000 c1 asks again; 1000.2 c1 refused cancelled => validity safe
        - 1000 c1 asks keep_alive; 1000.05 c1 answers => validity safe
        - => validity violated",
    );
    check(
        "1000 c1 extends t1 on 123 until 2978
        - 100 c1 gets t1 on 123 until 1005 => validity safe
        - 100 c1 gets t1 on 123 until 900 => validity violated",
    );
}

/// An extension creates keys anew that were gone.
#[test]
fn an_extension_over_a_gap_is_a_bug_if_the_client_had_replies_that_show_the_gap() {
    check(
        "100 c1 gets t1 on 123 until 2078; 200 fault node.flush 1
        - 999.4 c1 keeps t1 on 4 created; 1199.4 c1 keeps t1 on 1 created
          1300 c1 extends t1 on 123 until 3278 => validity violated because bug
          ~ a quorum of masters lacked its key
        - 1199.4 c1 keeps t1 on 1 created; 1300 c1 extends t1 on 123 until 3278
          => validity violated because bug
          ~ a quorum of masters lacked its key
        # The fourth key is there before the first is gone.
        - 149.4 c1 keeps t1 on 4 created; 1199.4 c1 keeps t1 on 1 created
          1300 c1 extends t1 on 123 until 3278 => validity safe
        - 149.4 c1 keeps t1 on 45 created; 1199.4 c1 keeps t1 on 1 created
          1300 c1 extends t1 on 123 until 3278 => validity safe
        # The fourth key is of the attempt itself, and late. The loss of the first may be later.
        - 250.1 c1 sets t1 on 4 replied 250.3; 1199.4 c1 keeps t1 on 1 created
          1300 c1 extends t1 on 123 until 3278 => validity safe
        # The key is created anew when the old one would have expired anyway.
        - 999.4 c1 keeps t1 on 4 created; 1000 c1 extends t1 on 23 until 2978
          2199.4 c1 keeps t1 on 1 created; 2300 c1 extends t1 on 1234 until 2978
          !~ a quorum of masters lacked its key
        # The reply comes too late.
        - 999.4 c1 keeps t1 on 4 created; 1000 c1 extends t1 on 23 until 2978
          1199.4 c1 keeps t1 on 1 created; 1210 c1 extends t1 on 1234 until 2978
          !~ a quorum of masters lacked its key",
    );
}

#[test]
fn a_client_must_be_notified_of_its_loss_in_time() {
    // c2 cannot report losses.
    check(
        "0 c1 can lost; 0 c2 can deadline
        10 c1 gets t1 on 123 until 1988; 2100 c2 gets t2 on 123 until 2200; 6000 ends c1 c2
        - 1988 c1 loses => validity safe
        - 500 c1 loses => validity safe
        - 2238 c1 loses => validity safe
        - 2239 c1 loses => validity violated because bug
          ~ 251 ms after the deadline
        - => validity violated because bug
          ~ it was never notified of its loss
        - 1000 fault client.pause c1; 3400 healed 1; 3600 c1 loses => validity safe
        - 1000 fault client.pause c1; 3400 healed 1; 3700 c1 loses => validity violated
        - 1000 fault client.pause c1; 1900 healed 1; 2400 c1 loses => validity violated",
    );
    check(
        "0 c1 can lost; 10 c1 gets t1 on 123 until 1988; 5000 phase end
        - => validity violated
        - 2000 c1 releases t1 => validity safe
        - 2100 fault client.kill c1 => validity safe
        - 2100 phase drain => validity safe",
    );
}

#[test]
fn a_token_must_not_come_again() {
    check(
        "100 c1 gets t1 on 123 until 2078; 200 c1 releases t1 on 123
        - 300 c1 gets t1 on 123 until 2278 => validity violated because bug
          ~ and in another attempt
        - 300 c1 gets t2 on 123 until 2278 => validity safe",
    );
}

/// Not every client reports its token, and not every command can be interpreted.
#[test]
fn the_token_of_a_lease_is_found_among_the_commands() {
    check(
        "99 c1 asks
        - 99.2 c1 sets t1 on 123; 100 c1 gets t1 unreported valid 1978 => validity safe
          => margins 1
        - 99.2 c1 runs EVALSHA on 12345; 100 c1 gets t1 until 2078 => validity safe
          => margins
        # The process gives up an attempt that has a quorum. The fourth master is slow, and sets that
        # key after the quorum of the next attempt.
        - 99.1 c1 sets t1 on 123 replied 99.2; 99.2 c1 deletes t1 on 123 replied 99.3
          99.3 c1 sets t2 on 123 replied 99.4; 99.5 c1 sets t1 on 4 replied 99.6
          100 c1 gets t2 unreported until 2078; 100.1 c1 deletes t1 on 4 => validity safe
        # One master of three replies. The client gives the attempt up, and tries again. The others
        # resume, and execute both attempts: the keys of the first one last.
        - 98 c1 sets t1 on 1 replied 98.1; 98.2 c1 deletes t1 on 1 replied 98.3
          99.1 c1 sets t2 on 1 replied 99.2; 99.3 c1 sets t2 on 234 replied 99.4
          99.5 c1 sets t1 on 234 replied 99.6; 99.7 c1 deletes t1 on 234 replied 99.8
          100 c1 gets t2 unreported until 2078 => validity safe",
    );
    // Clients of one process: only c1 has a quorum.
    check(
        "c1: process = 'p'; c2: process = 'p'; 99 c1 asks; 99.1 c2 asks
        99.4 p sets t1 on 123; 99.5 p sets t2 on 45; 100 c1 gets t1 unreported until 2078
        100 c2 refused => validity safe",
    );
}

#[test]
fn stamps_of_another_clock_prove_nothing() {
    // The leases overlap. c1's stamps are a day ahead.
    let day = 86_400_000.0;
    check(&format!(
        "99 c1 asks; 99.4 c1 sets t1 on 123; 100 c1 gets t1 stamped {} until {}
        200 c2 gets t2 on 345 until 2178; 3000 ends c1 c2
        => differs
        ! validity: expected safe, observed violated
        ! process c1: its answer to acquire, asked at 99 ms and given at 100 ms, is stamped 86400100 ms: stamps are nanoseconds of CLOCK_MONOTONIC",
        100.0 + day,
        2078.0 + day,
    ));
    for (from, at, right) in
        [(100, 110, true), (98, 110, false), (100, 113, false), (108, 101, false)]
    {
        let result = if right { "as-expected" } else { "differs" };
        let run = format!("100 c1 asks release; 111 c1 answers called {from} stamped {at}");
        let stamp = if from == 98 { from } else { at };
        let line = format!(
            "! process c1: its answer to release, asked at 100 ms and given at 111 ms, is stamped \
             {stamp} ms: stamps are nanoseconds of CLOCK_MONOTONIC"
        );
        let line = if right { "" } else { &line };
        check(&format!("{run}; 3000 ends c1 c2\n=> {result}\n{line}"));
    }
    check(
        "10 c1 gets t1 on 123 until 1988; 500 c1 loses stamped 5000; 3000 ends c1 c2
        => differs
        ! process c1: its loss, reported at 500 ms, is stamped 5000 ms: stamps are nanoseconds of CLOCK_MONOTONIC",
    );
}
