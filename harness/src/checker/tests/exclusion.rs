//! When two leases overlap.

use proptest::prelude::*;

use super::super::exclusion::overlaps;
use super::super::leases::Hold;
use super::notation::check;
use crate::history::Window;

#[test]
fn one_after_the_other_is_safe() {
    check(
        "10 c1 gets t1 on 12345 until 1988; 500 c1 releases t1 on 12345
        700 c2 gets t2 on 12345 until 2678; 900 c2 releases t2 on 12345; 3000 ends c1 c2
        => all safe
        => as-expected
        => grants 2
        => margins 3 3
        => hollow 0
        => acquire 1",
    );
}

#[test]
fn only_leases_of_one_resource_overlap_and_only_where_they_do_not_just_touch() {
    check(
        "10 c1 gets t1 on 123 until 1000
        - 1000 c2 gets t2 on 345 until 1900 => mutual-exclusion safe
        - 999.999 c2 gets t2 on 345 until 1900 => mutual-exclusion violated
        - 500 c2 gets t2 on 345 until 500; 600 c2 gets t3 on 345 until 550
          => mutual-exclusion safe
        - 20 c2 gets t2 of M until 1000 => mutual-exclusion safe",
    );
}

#[test]
fn the_ends_of_a_lease() {
    check(
        "10 c1 gets t1 on 123 until 1988; 501 c2 gets t2 on 123 until 2000
        - 500 c1 releases t1 on 123 => mutual-exclusion safe
        - 500 c1 loses => mutual-exclusion safe
        - 499.5 fault client.kill c1 => mutual-exclusion safe",
    );
    check(
        "10 c1 gets t1 on 123 until 1988
        - 1000 c1 extends t1 on 123 until 2978; 2500 c2 gets t2 on 123 until 4000
          => mutual-exclusion violated
        # The watchdog extends the lease.
        - 600 c1 extended until 2578; 2300 c2 gets t2 on 345 until 4000
          => mutual-exclusion violated",
    );
    // An extension after the end leaves a gap.
    check(
        "10 c1 gets t1 on 123 until 500; 600 c2 gets t2 on 345 until 800
        900 c1 extends t1 on 123 until 1500 => mutual-exclusion safe",
    );
}

#[test]
fn without_stamps_only_what_is_certain_counts() {
    // c2 counted on the lease from 620 to 900 for certain, and perhaps from 610, when its third
    // master had replied.
    check(
        "600 c2 asks; 609 c2 sets t2 on 345 replied 609.9; 620 c2 gets t2 unstamped valid 280
        - 10 c1 gets t1 on 123 until 605 => mutual-exclusion safe
        - 10 c1 gets t1 on 123 until 615 => mutual-exclusion inconclusive
        - 10 c1 gets t1 on 123 until 625 => mutual-exclusion violated",
    );
    // A release is called between its request and its first deletion.
    check(
        "10 c1 gets t1 on 123 until 1988; 500 c1 asks release; 510 c1 deletes t1 on 123 replied 511
        520 c1 answers unstamped
        - 499 c2 gets t2 on 123 until 2000 => mutual-exclusion violated
        - 505 c2 gets t2 on 123 until 2000 => mutual-exclusion inconclusive
        - 511 c2 gets t2 on 123 until 2000 => mutual-exclusion safe",
    );
}

/// A lease that its owner acquired again lasts until the release of the last handle.
#[test]
fn leases_with_several_handles() {
    check(
        "10 c1 gets t1 on 12345 until 1988; 99.9 c1 asks again; 100 c1 gets t1 until 1988 handles 2
        - 500 c1 releases t1 on 12345; 700 c2 gets t2 on 12345 until 2678
          => mutual-exclusion violated
        # Another handle is no other lease.
        - 500 c1 releases t1; 600 c1 releases t1 on 12345; 700 c2 gets t2 on 12345 until 2678
          3000 ends c1 c2 => all safe
          => grants 2
        - 500 c1 releases t1; 550 c2 gets t2 on 345 until 2538; 600 c1 releases t1 on 12345
          => mutual-exclusion violated
        # A client that reports a handle as the only one has a new lease.
        - 199.9 c1 asks again; 200 c1 gets t1 until 1988 handles 1; 500 c1 releases t1 on 12345
          700 c2 gets t2 on 12345 until 2678 => mutual-exclusion safe
        - 1499.9 c1 asks again; 1500 c1 gets t1 until 1988 handles 3 => validity safe
        - 1989.9 c1 asks again; 1990 c1 gets t1 until 1988 handles 3 => validity violated
        # A pause before the request excuses nothing: the client awaited no reply of a master.
        - 1000 fault client.pause c1; 1980 healed 1
          1989.9 c1 asks again; 1990 c1 gets t1 until 1988 handles 3 => validity violated
        # No quorum has confirmed the later deadline.
        - 199.9 c1 asks again; 200 c1 gets t1 until 2100 handles 3 => validity violated",
    );
}

#[test]
fn the_report_names_beliefs_and_masters() {
    check(
        "12.3 c1 gets 3f2a55aa77 on 123 until 1978.3; 14 fault node.slow 5 by 1ms
        14.2 fault clock.step 1 by 3s; 14.2 clock 1 ahead 3000
        310.1 c2 gets t2 on 145 until 912
        => mutual-exclusion violated because clock.step
        ~ c1 believed that it holds L from 12.3 ms to 1978.3 ms (deadline), token 3f2a55aa…
        ~ c2 believed that it holds L from 310.1 ms to 912 ms (deadline), token t2
        ~ c1 was granted by masters 1, 2, 3 (margin 1)
        ~ masters 4, 5 have no key of c1: no request of c1 arrived before the grant
        ~ c2 was granted by masters 1, 4, 5
        ~ both believed that they hold L from 310.1 ms to 912 ms
        ~ master 1 let c2 in at 309.5 ms: its clock was set 3000 ms forward at 14.2 ms (fault 2, clock.step), and c1's key was gone 1702.2 ms before its time
        => hollow 1963.9",
    );
}

#[test]
fn the_report_explains_which_masters_have_no_key() {
    check(
        "10 c1 gets t1 on 123 until 1988; 14 fault clock.step 1 by 3s; 14 clock 1 ahead 3000
        310 c2 gets t2 on 145 until 912
        => mutual-exclusion violated because clock.step
        - 1 fault net.drop c1 45 what request; 400 healed 2
          ~ masters 4, 5 have no key of c1: the network dropped c1's requests (fault 2, net.drop)
          ~ c2 needs 3 of 5 masters, and 2 have no key of c1: if 1 of masters 1, 2, 3 loses its key, c2 can get a quorum
        # The fault is healed before the attempt, or does not hit all requests.
        - 1 fault net.drop c1 45 what request; 2 healed 2
          ~ masters 4, 5 have no key of c1: no request of c1 arrived before the grant
        - 1 fault net.drop c1 45 what request index 1
          ~ masters 4, 5 have no key of c1: no request of c1 arrived (fault 2, net.drop)
        - 1 fault net.cut c1 4; 9.5 c1 sets t1 on 5 refused
          ~ master 4 has no key of c1: c1 was cut off (fault 2, net.cut)
          ~ master 5 has no key of c1: another key was there
        # A command without a reply may have set the key.
        - 9.5 c1 sets t1 on 5 silent
          ~ master 4 has no key of c1
          !~ master 5 has no key
          !~ c2 needs",
    );
    check(
        "10 c1 gets t1 on 12345 until 1988; 14 fault node.flush 123
        310 c2 gets t2 on 123 until 912
        => mutual-exclusion violated because node.flush
        - ~ c2 needs 3 of 5 masters, and all have a key of c1: if 3 of masters 1, 2, 3, 4, 5 lose their keys, c2 can get a quorum
          !~ no key of",
    );
}

proptest! {
    #[test]
    fn the_sweep_finds_an_overlap_exactly_where_two_holds_overlap(
        spans in prop::collection::vec((0..40i64, 0..10i64), 0..12)
    ) {
        let hold = |(lease, (from, length)): (usize, &(i64, i64))| {
            let span = Window::new(*from, from + length);
            Hold { lease, inner: span, outer: span }
        };
        let mut holds: Vec<Hold> = spans.iter().enumerate().map(hold).collect();
        let found = overlaps(&mut holds, |hold| hold.inner);
        for (first, second, _) in &found {
            prop_assert!(first.inner.from < second.inner.to && second.inner.from < first.inner.to);
        }
        // The checker reports every hold that overlaps an earlier one, once.
        let wanted: Vec<usize> = holds.iter().enumerate().filter(|(place, hold)| {
            holds[..*place].iter().any(|before| before.inner.meet(hold.inner).is_some())
        }).map(|(_, hold)| hold.lease).collect();
        let found: Vec<usize> = found.iter().map(|(_, second, _)| second.lease).collect();
        prop_assert_eq!(found, wanted);
    }
}
