//! Why a rival got in: the causes of overlaps.

use super::notation::check;

#[test]
fn clocks_of_masters() {
    check(
        "10 c1 gets t1 on 123 until 1988
        - 100 fault clock.step 3 by 2s; 100 clock 3 ahead 2000; 300 c2 gets t2 on 345 until 2200
          => mutual-exclusion violated because clock.step
          ~ master 3 let c2 in at 299.4 ms: its clock was set 2000 ms forward at 100 ms
        # Healing a step back is a step forward.
        - 1 clock 3 ahead -3000; 100 clock 3; 300 c2 gets t2 on 345 until 2200
          => mutual-exclusion violated because clock.step
        - 20 fault clock.rate 3 factor 1.5; 20 clock 3 rate 1.5; 1500 c2 gets t2 on 345 until 3400
          => mutual-exclusion violated because clock.rate
          ~ its clock runs at 1.5 times the rate since 20 ms (fault 1, clock.rate)
        - 20 clock 3 jumps 1000; 1500 c2 gets t2 on 345 until 3400
          => mutual-exclusion violated because clock.strobe
          ~ its clock jumps by 1000 ms since 20 ms
        # The clock steps and is set back within 10 ms: the master may not have checked in between.
        - 100 clock 3 ahead 3000; 110 clock 3; => hollow 0
        - 100 clock 3 ahead 3000; 110 clock 3; 300 c2 gets t2 on 345 until 2200
          => mutual-exclusion violated because clock.step",
    );
}

#[test]
fn masters_that_lost_keys() {
    for (fault, cause) in [
        ("kill", "node.restart"),
        ("restart", "node.restart"),
        ("stop", "node.restart"),
        ("flush", "node.flush"),
        ("evict", "node.evict"),
    ] {
        // A file keeps keys over a restart. It prevents no deletion.
        let kept = if cause == "node.restart" { "unknown" } else { cause };
        check(&format!(
            "10 c1 gets t1 on 123 until 1988; 300 c2 gets t2 on 345 until 2200
            => mutual-exclusion violated
            - 100 fault node.{fault} 3; 150 healed 1 => mutual-exclusion violated because {cause}
              ~ it lost its keys at 100 ms (fault 1, node.{fault})
            - cluster.persistence = 'aof-always'; 100 fault node.{fault} 3
              => mutual-exclusion violated because {kept}
            # A fault before the key was there explains nothing.
            - 5 fault node.{fault} 3; 6 healed 1 => mutual-exclusion violated because unknown"
        ));
    }
}

#[test]
fn a_client_that_learns_of_its_grant_after_its_rival() {
    check(
        "50 c2 asks; 50.2 c2 sets t2 on 123; 51 fault client.pause c2
        301 c2 gets t2 until 2028; 200 c1 gets t1 on 123 until 2178
        - 100 fault node.flush 123 => mutual-exclusion violated because node.flush
          ~ master 3 let c1 in at 199.4 ms: it lost its keys at 100 ms (fault 2, node.flush)
        - => mutual-exclusion violated because unknown",
    );
}

/// Which part of its state a master kept is on record.
#[test]
fn masters_that_kept_a_part_of_their_state() {
    for fault in ["power-loss", "failover"] {
        check(&format!(
            "10 c1 gets t1 on 123 until 1988
            => mutual-exclusion violated
            - 100 fault node.{fault} 3; 100 kept 3 until 4 to 5; 300 c2 gets t2 on 345 until 2200
              => mutual-exclusion violated because node.{fault}
              ~ it lost its keys at 100 ms (fault 1, node.{fault})
            # The last sync was after the grant.
            - 100 fault node.{fault} 3; 100 kept 3 until 50 to 51; 300 c2 gets t2 on 345 until 2200
              => mutual-exclusion violated because unknown
            - 100 fault node.{fault} 3; 100 kept 3 until 9 to 60; 300 c2 gets t2 on 345 until 2200
              => mutual-exclusion violated because node.{fault}
            - 100 fault node.{fault} 3; 300 c2 gets t2 on 345 until 2200
              => mutual-exclusion violated because node.{fault}
            # A lost extension leaves the key its old time.
            - 1900 c1 extends t1 on 123 until 3878
              1950 fault node.{fault} 3; 1950 kept 3 until 1000 to 1001
              2300 c2 gets t2 on 345 until 4200
              => mutual-exclusion violated because node.{fault}"
        ));
    }
    // A fault that failed may have hit some of its masters.
    check(
        "10 c1 gets t1 on 123 until 1988; 300 c2 gets t2 on 345 until 2200
        - 100 fails node.failover 23; 100 kept 3 until 4 to 5
          => mutual-exclusion violated because node.failover
        - 100 fails node.failover 23 => mutual-exclusion violated because unknown
        - 100 fails node.flush 23 => mutual-exclusion violated because node.flush",
    );
}

#[test]
fn keys_that_a_client_deleted() {
    check(
        "10 c1 gets t1 on 123 until 1988; 300 c2 gets t2 on 345 until 2200
        - 100 c2 deletes any on 3 => mutual-exclusion violated because bug
          ~ c2 deleted the key of c1 there at 100 ms
          ~ c2 deleted on master 3 at 100 ms the key that c1 had set at 9.4 ms
        - 100 c1 deletes t1 on 3 silent => mutual-exclusion violated because bug
          ~ c1 tried to delete",
    );
}

#[test]
fn leases_that_are_counted_on_for_too_long() {
    check(
        "# The key is gone by 2009.6.
        - 10 c1 gets t1 on 123 until 2200; 2100 c2 gets t2 on 345 until 4000
          => mutual-exclusion violated because bug
          ~ c1 counts on its lease for longer than the master keeps the key: 190.4 ms
        # The clock is half a percent fast, so the key is gone at 1999. The allowance is 1 % and
        # 2 ms, which this lock did not deduct.
        - 10 c1 gets t1 on 123 until 2009; 10 clock 3 rate 1.005; 2005 c2 gets t2 on 345 until 3900
          => mutual-exclusion violated because bug
          ~ which the allowance of 22 ms covers
        # Two percent exceed the allowance.
        - 10 c1 gets t1 on 123 until 1988; 10 clock 3 rate 1.02; 1980 c2 gets t2 on 345 until 3800
          => mutual-exclusion violated because clock.rate",
    );
}

#[test]
fn a_client_whose_own_clock_runs_slow() {
    check(
        "# The client's stamp of 1988 ms means 2207.8 ms, and the key is gone by 2009.6.
        - 10 c1 gets t1 on 123 until 1988; 10 fault client.rate c1 factor 0.9
          2100 c2 gets t2 on 345 until 4000 => mutual-exclusion violated because client.rate
          ~ c1's clock runs at 0.9 times the rate since 10 ms (fault 1, client.rate)
        # An extension needs only a quorum: on master 3 the key expires in its time.
        - 10 c1 gets t1 on 1234 until 1988; 10 fault client.rate c1 factor 0.9
          1000 c1 extends t1 on 124 until 2878 stamped 901
          3100 c2 gets t2 on 345 until 5000 => mutual-exclusion violated because client.rate
        # A master's clock steps when its key is over anyway.
        - 10 c1 gets t1 on 123 until 1988; 10 fault client.rate c1 factor 0.5
          2050 fault clock.step 3 by 10s; 2050 clock 3 ahead 10000
          2100 c2 gets t2 on 345 until 4000 => mutual-exclusion violated because client.rate
        # The allowance of 22 ms covers half a percent, but this lock did not deduct it.
        - 10 c1 gets t1 on 123 until 2009; 10 fault client.rate c1 factor 0.995
          2015 c2 gets t2 on 345 until 3900 => mutual-exclusion violated because bug
        # A master's clock gains a little, and a client's clock loses a little: together it is too
        # much.
        - 10 c1 gets t1 on 123 until 1988; 10 fault client.rate c1 factor 0.993
          10 clock 3 rate 1.006; 1999.6 c2 gets t2 on 345 until 3900
          => mutual-exclusion violated because client.rate
        - 10 c1 gets t1 on 123 until 1988; 10 fault client.rate c1 factor 0.994
          10 clock 3 rate 1.007; 1996.6 c2 gets t2 on 345 until 3900
          => mutual-exclusion violated because clock.rate",
    );
}

#[test]
fn a_client_that_got_a_length_and_paused_before_the_answer() {
    check(
        "9 c1 asks; 9.4 c1 sets t1 on 123; 1000.1 c1 gets t1 stamped 1000 valid 1978
        2100 c2 gets t2 on 345 until 4000
        - 9.8 fault client.pause c1; 999 healed 1
          => mutual-exclusion violated because client.pause
          ~ c1 got the length of its lease, not its deadline
        - => mutual-exclusion violated because bug",
    );
}

#[test]
fn leases_without_a_quorum_and_with_one_token() {
    check(
        "- 10 c1 gets t1 on 12 until 1988; 300 c2 gets t2 on 345 until 2200
          => mutual-exclusion violated because bug
          ~ c1 believed without a quorum: 2 of 5 masters
        - 10 c1 gets t1 on 123 until 1988; 300 c2 gets t2 on 45 until 2200
          => mutual-exclusion violated because bug
          ~ c2 believed without a quorum: 2 of 5 masters
        - 10 c1 gets t on 123 until 1988; 300 c2 gets t on 345 until 2200
          => mutual-exclusion violated because bug
          ~ c1 and c2 have the same token",
    );
}

#[test]
fn several_causes() {
    check(
        "10 c1 gets t1 on 1234 until 1988
        # c1 has four masters, and c2 needs two of them.
        - 100 fault clock.step 3 by 2s; 100 clock 3 ahead 2000; 100 fault node.restart 4
          300 c2 gets t2 on 345 until 2200
          => mutual-exclusion violated because clock.step, node.restart
        # The lease is extended on three masters. On the fourth one it expires in its time.
        - 1900 c1 extends t1 on 123 until 3878
          2000 fault clock.step 3 by 2s; 2000 clock 3 ahead 2000
          2300 c2 gets t2 on 345 until 4200 => mutual-exclusion violated because clock.step",
    );
}

#[test]
fn clients_with_master_lists_of_their_own() {
    check(
        "10 c1 gets t1 on 123 until 1988
        - c1: nodes = [1, 2, 3]; c2: nodes = [3, 4, 5]; 300 c2 gets t2 on 45 until 2200
          => mutual-exclusion violated because node-lists
          ~ c1 knows masters 1, 2, 3 and c2 knows masters 3, 4, 5
          ~ (margin 2)
        # A common master forgot.
        - c1: nodes = [1, 2, 3]; 100 fault clock.step 3 by 2s; 100 clock 3 ahead 2000
          300 c2 gets t2 on 345 until 2200 => mutual-exclusion violated because clock.step
        # Any two quorums meet.
        - c1: nodes = [1, 2, 3, 4]; 300 c2 gets t2 on 45 until 2200
          => mutual-exclusion violated because bug
          ~ c2 believed without a quorum: 2 of 5 masters",
    );
    // The quorum is that of a client's list. A master that the list contains twice counts once.
    check(
        "- c1: nodes = [1, 2, 3]; 10 c1 gets t1 on 12 until 1988 => validity safe
        - c1: nodes = [1, 2, 3, 4]; 10 c1 gets t1 on 12 until 1988 => validity violated
        - c1: nodes = [1, 1, 2]; 10 c1 gets t1 on 12 until 1988 => validity safe
          => margins 2
        - c1: nodes = [1, 1, 2]; 10 c1 gets t1 on 1 until 1988 => validity violated because bug
          ~ c1 believed without a quorum: 1 of 2 masters granted, and it takes 2",
    );
}
