//! How many commands an acquisition took.

use super::notation::Run;
use crate::checker::{commands_per_acquisition, prepare};

#[test]
fn commands_of_an_acquisition() {
    let commands = |events: &str| {
        let history = Run::of(events).history();
        prepare(&history, commands_per_acquisition)
    };
    let leases = "10 c1 gets t1 on 123 until 1988; 100 c1 releases t1 on 12345
        200 c2 asks; 201 c2 sets t2 on 45 refused; 202 c2 deletes t2 on 45
        300 c2 gets t3 on 12345 until 2100";
    assert_eq!(commands(leases), [3, 9]);
    // A clean-up of the lease before does not count.
    assert_eq!(
        commands(&format!("{leases}; 150 c2 deletes t1 on 4; 250 c2 deletes t1 on 4")),
        [3, 9]
    );
    assert!(commands(&format!("c2: process = 'c1'; {leases}")).is_empty());
}
