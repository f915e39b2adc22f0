//! Fencing tokens, and updates that registers lose.

use super::notation::check;

#[test]
fn tokens_grow() {
    check(
        "10 c1 gets t1 on 123 until 510 fence 7; 60 c1 releases t1 on 123
        - 100 c2 gets t2 on 123 until 600 fence 8; 150 c2 releases t2 on 123
          200 c1 gets t3 on 123 until 700 fence 1000 => fenced-resource safe
        - 100 c2 gets t2 on 123 until 600 fence 7 => fenced-resource violated because bug
          ~ c2 was granted it with the same at 100 ms
        - 100 c1 gets t2 on 123 until 600 fence 12; 150 c1 releases t2 on 123
          200 c2 gets t3 on 123 until 700 fence 10 => fenced-resource violated because bug
          ~ with fencing token 12 at 100 ms
        # Acquires at the same time have no order.
        - 110 c1 asks; 111 c2 asks; 120 c1 gets t2 until 700 fence 9
          121 c2 gets t3 until 700 fence 8
          => fenced-resource safe",
    );
    // Handles of one lease have one token.
    check(
        "lock.fencing = true; 10 c1 gets t1 on 123 until 1988 fence 7; 99.9 c1 asks again
        - 100 c1 gets t1 until 1988 handles 2 fence 7 => fenced-resource safe
        - 100 c1 gets t1 until 1988 handles 2 fence 8 => fenced-resource violated
        - 100 c1 gets t1 until 1988 handles 2 => fenced-resource violated",
    );
}

#[test]
fn masters_that_lost_their_counters_are_the_cause_and_a_wrong_wall_clock_with_them() {
    check(
        "10 c1 gets t1 on 123 until 500 fence 9; 50 fault node.restart 3
        600 c2 gets t2 on 345 until 1100 fence 2
        - => fenced-resource violated because node.restart
          ~ master 3 lost its counter at 50 ms (fault 1, node.restart)
        - 60 fault client.clock c2 by -1h
          => fenced-resource violated because node.restart, client.clock
          ~ the wall clock of c2",
    );
}

#[test]
fn sections_one_after_the_other_lose_nothing() {
    check(
        "10 c1 gets t1 on 123 until 1988; 20 c1 reads 0; 30 c1 writes 0 1; 40 c1 reads 1
        50 c1 writes 1 2; 60 c1 releases t1 on 123; 100 c2 gets t2 on 123 until 2078
        110 c2 reads 2; 120 c2 writes 2 3; 130 c2 releases t2 on 123; 3000 ends c1 c2
        => all safe",
    );
}

#[test]
fn lost_updates_with_fencing_tokens_and_without() {
    check(
        "- 20 c1 reads 0; 30 c2 reads 0; 40 c2 writes 0 1 => unfenced-resource safe
        - 20 c1 reads 0; 30 c2 reads 0; 40 c2 writes 0 1; 50 c1 writes 0 2
          => unfenced-resource violated because unknown
          => fenced-resource not-used
        - 20 c1 reads 0 fence 1; 30 c2 reads 0 fence 2; 40 c2 writes 0 1 fence 2
          50 c1 writes 0 2 fence 1 => fenced-resource violated
          => unfenced-resource safe
        # The register refuses the write.
        - 20 c1 reads 0 fence 1; 30 c2 reads 0 fence 2; 40 c2 writes 0 1 fence 2
          50 c1 writes 0 2 fence 1 rejected => fenced-resource safe
          => unfenced-resource safe",
    );
}

#[test]
fn why_a_client_wrote_after_the_end_of_its_lease() {
    check(
        "10 c1 gets t1 on 123 until 1988; 20 c1 reads 0
        2100 c2 gets t2 on 123 until 4078; 2110 c2 reads 0; 2200 c2 writes 0 1
        2300 c2 releases t2 on 123
        => unfenced-resource violated
        => mutual-exclusion safe
        - 2500 c1 writes 0 2; 100 fault client.pause c1; 2400 healed 1
          => unfenced-resource violated because client.pause
          ~ c2 wrote R at 2200 ms
          ~ c1 wrote R at 2500 ms on top of version 0
          ~ it was paused from 100 ms to 2400.5 ms (fault 1, client.pause)
        - 2500 c1 writes 0 2 => unfenced-resource violated because late-write
          ~ 512 ms after the end
        # A pause that ended in good time is no excuse.
        - 2500 c1 writes 0 2; 100 fault client.pause c1; 200 healed 1
          => unfenced-resource violated because late-write
        # The client checked its lease at 1900.5, and was stopped before it could answer.
        - 1900 c1 asks step; 1901 fault client.pause c1; 2400 healed 1
          2401 c1 answers stamped 1900.5; 2401 c1 writes 0 2
          => unfenced-resource violated because client.pause
          ~ had last looked at its deadline at 1900.5 ms
        # The write was sent in time, and was delayed.
        - 3000 c1 writes 0 2 sent 1000; 900 fault resource.delay c1 what write by 2s
          => unfenced-resource violated because resource.delay
          ~ c1 sent that write at 1000 ms, in time, and it came at 3000 ms
          ~ 1012 ms after the end of its lease (fault 1, resource.delay)
        # A delay is no excuse for a write that was sent too late, or before the fault struck.
        - 3000 c1 writes 0 2 sent 2500; 900 fault resource.delay c1 what write by 2s
          => unfenced-resource violated because late-write
        - 3000 c1 writes 0 2 sent 1000; 1100 fault resource.delay c1 what write by 2s
          => unfenced-resource violated because unknown
        - 3000 c1 writes 0 2 sent 1000 => unfenced-resource violated because unknown",
    );
    // The late write is not the last one.
    check(
        "10 c1 gets t1 on 123 until 1988; 20 c1 reads 0; 100 fault client.pause c1; 2150 healed 1
        2100 c2 gets t2 on 123 until 4078; 2110 c2 reads 0; 2160 c1 writes 0 1; 2200 c2 writes 0 2
        => unfenced-resource violated because client.pause
        ~ c1 wrote R at 2160 ms",
    );
}

#[test]
fn where_leases_overlap_the_causes_are_those_of_the_overlap() {
    check(
        "10 c1 gets t1 on 123 until 1988; 20 c1 reads 0
        30 fault clock.step 3 by 3s; 30 clock 3 ahead 3000
        100 c2 gets t2 on 345 until 2078; 110 c2 reads 0; 200 c2 writes 0 1; 300 c1 writes 0 2
        => unfenced-resource violated because clock.step
        => mutual-exclusion violated
        => validity safe
        => progress safe
        => fenced-resource not-used",
    );
    // The first hold lasts longest when the others begin, so the check pairs each of them with it.
    check(
        "c1: nodes = [5]; c2: nodes = [1]; c3: script = ['acquire L', 'release L']
        10 c1 gets t1 on 5 until 1988; 500 c2 gets t2 on 1 until 1900; 510 c2 reads 0
        1000 c3 gets t3 on 234 until 2900; 1010 c3 reads 0; 1020 c3 writes 0 1; 1500 c2 writes 0 2
        => unfenced-resource violated because node-lists",
    );
}
