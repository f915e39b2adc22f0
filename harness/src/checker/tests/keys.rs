//! The true holds, seen through hollow time: c1 has a lease on the masters 1, 2 and 3, and believes
//! in it from 10 ms to 1988 ms. In that time, events affect the key on master 3.

use super::notation::check;

#[test]
fn commands_show_the_state_of_a_key() {
    check(
        "10 c1 gets t1 on 123 until 1988
        - => hollow 0
        # A command that failed or was refused changed nothing.
        - 500 c2 deletes t2 on 3 refused => hollow 0
        - 500 c2 deletes t2 on 3 error => hollow 0
        # A deletion that was never answered may not have happened. It did if the next command finds
        # nothing, or if another client could set the key.
        - 500 c1 deletes t1 on 3 silent => hollow 0
        - 500 c1 deletes t1 on 3 silent; 600 c1 deletes t1 on 3 refused replied 601
          => hollow 1387
        - 500 c1 deletes t1 on 3 silent; 700 c2 sets t2 on 3 replied 702 => hollow 1286
        # A deletion without a token takes whatever is there.
        - 500 c2 deletes any on 3 replied 501 => hollow 1487
        - 500 c2 deletes any on 3 refused replied 501 => hollow 1487
        # A repair counts as a key and not as a grant.
        - 100 c1 keeps t1 on 4 created; 200 c1 deletes t1 on 3 => hollow 0
          => margins 1",
    );
}

#[test]
fn clocks_end_keys_early_or_late() {
    check(
        "10 c1 gets t1 on 123 until 1988
        # The clock was set at some time until 500.2.
        - 500 clock 3 ahead 3000 => hollow 1487.8
        # The clock shows 2010.6 at 1510.6.
        - 500 clock 3 ahead 500 => hollow 477.4
        - 500 clock 3 ahead -500 => hollow 0
        # The clock runs twice as fast since 500.2: 1510.4 more take half of that.
        - 500 clock 3 rate 2 => hollow 732.6
        - 500 clock 3 rate 0.5 => hollow 0
        # A master whose clock jumps ahead may not have checked at that time.
        - 500 clock 3 jumps 3000 => hollow 0
        # A clock that was ahead already when the key was set does not matter.
        - 1 clock 3 ahead 3000 => hollow 0
        # A step back: the key lives longer.
        - 1 clock 3 ahead 3000; 500 clock 3 => hollow 0",
    );
}

#[test]
fn a_set_that_was_never_answered_may_have_happened_soon_and_not_for_ever() {
    // With the silent fourth master, the lease may be true.
    check(
        "10 c1 gets t1 on 123 until 4000; 100 c1 extends t1 on 12 until 6000
        1900 c1 extends t1 on 12 until 6000; 3800 c1 extends t1 on 12 until 6000
        50 c1 deletes t1 on 3 replied 50; 10 c1 sets t1 on 4 silent
        # The command takes effect within a second, and then the key lives for two.
        - => hollow 2989
        # A later answer on the same connection bounds that time.
        - 400 c2 deletes t2 on 4 refused replied 401 => hollow 3598
        # A paused master may execute the command when it resumes.
        - 5 fault node.pause 4; 900 healed 1 => hollow 2098.5
        # A master that dies does not execute it.
        - 300 fault node.kill 4; 400 healed 1 => hollow 5699.5",
    );
}

#[test]
fn a_key_that_is_prolonged_was_set() {
    check(
        "9 c1 asks; 9.4 c1 sets t1 on 12; 9.4 c1 sets t1 on 3 silent; 10 c1 gets t1 until 1988
        - => margins 0
        - 1000 c1 extends t1 on 123 until 2978 => margins 1
          => hollow 0",
    );
}

#[test]
fn prefixes_of_drivers_are_seen_through() {
    // With one resource, any key is its key. With two, a key must end with the name.
    check(
        "- 10 c1 gets t1 on 123 key lock:L until 1988 => margins 1
        - 10 c1 gets t1 on 123 key M until 1988 => margins 1
        - c1: script = ['acquire L', 'acquire M']; 10 c1 gets t1 on 123 key lock:L until 1988
          => validity safe
        - c1: script = ['acquire L', 'acquire M']; 10 c1 gets t1 on 123 key lock:M until 1988
          => validity violated",
    );
}
