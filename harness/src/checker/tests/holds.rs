//! Why a run without violations holds.

use super::notation::Run;
use crate::checker::{prepare, reason_to_hold};

/// The reason of a run, or nothing.
fn reason(events: &str) -> String {
    let history = Run::of(events).history();
    prepare(&history, |case| reason_to_hold(case).unwrap_or_default())
}

#[test]
fn masters_that_kept_the_key_of_a_lease() {
    let lease = "10 c1 gets t1 on 12345 until 1988; 300 c2 refused; 900 c1 releases t1 on 12345";
    let one = format!("{lease}; 100 fault node.flush 1");
    assert_eq!(
        reason(&one),
        "Master 1 lost c1's key early, but masters 2, 3, 4, 5 kept it while c2 asked for L: it \
         could get at most 1 of 5 masters, and a quorum takes 3."
    );
    let harmless = format!("{lease}; 100 fault net.cut c2 12");
    assert_eq!(
        reason(&harmless),
        "Masters 1, 2, 3, 4, 5 kept c1's key while c2 asked for L: it could not get any master."
    );
    // The history does not show why c2 was refused.
    assert_eq!(reason(&format!("{lease}; 100 fault node.flush 123")), "");
    assert_eq!(reason(lease), "", "no fault struck");
    let two = format!(
        "{one}; 1000 c2 gets t2 on 2345 until 2900; 1100 c1 refused; 1200 c2 releases t2 on 2345"
    );
    assert_eq!(
        reason(&two),
        "Another client asked for the resource during 2 leases, and meanwhile at least 4 of 5 \
         masters kept the key of each: at most 1 could grant, and a quorum takes 3."
    );
}

#[test]
fn other_reasons() {
    let lease = "10 c1 gets t1 on 345 until 1988; 900 c1 releases t1 on 345";
    assert_eq!(
        reason(&format!("{lease}; 1 fault node.kill 12; 1000 healed 1")),
        "Faults hit only masters 1, 2, and a quorum of masters 3, 4, 5 granted every lease."
    );
    assert_eq!(
        reason(&format!("{lease}; 100 fault node.flush 5")),
        "No client asked for a resource while another client held it, so no fault could let a \
         second client in."
    );
    assert_eq!(
        reason("1 fault node.pause 123; 10 c1 refused no-quorum"),
        "No acquire was granted before the faults were healed, so there was no lease to break."
    );
    assert_eq!(
        reason(
            "10 c1 gets t1 on 12345 until 1988 fence 1; 15 fault client.pause c1
             20 c1 reads 0 fence 1
             2100 c2 gets t2 on 12345 until 4078 fence 2; 2110 c2 reads 0 fence 2
             2200 c1 writes 0 1 fence 1 rejected"
        ),
        "The register R refused c1's write under fencing token 1 at 2200 ms: it had seen token 2."
    );
}
