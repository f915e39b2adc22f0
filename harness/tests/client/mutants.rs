//! The mutants as processes on real masters: the conformance check accepts the honest one, and all
//! of them work while nothing fails. `tests/suite` shows that each is caught.

use redquorum_rig::Masters;
use redquorum_rig::trials::Case;
use redquorum_scenario::Mutant;

use crate::protocol::{Client, await_having, mutant_command};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: the_honest_client_is_accepted,
        with_masters: a_mutant_that_breaks_the_order_is_not_fair,
        with_masters: every_mutant_is_granted_a_free_resource,
    ]
}

/// Whether the conformance check accepts a mutant, and its report.
fn checked(mutant: Mutant) -> (bool, String) {
    crate::check::checked(&mutant_command(mutant.name()).join(" "), 2)
}

fn the_honest_client_is_accepted() {
    let (well, page) = checked(Mutant::None);
    assert!(well && page.matches("skipped").count() == 1, "{page}");
    assert!(page.contains("skipped  renews"), "{page}");
}

fn a_mutant_that_breaks_the_order_is_not_fair() {
    for mutant in [Mutant::JumpsQueue, Mutant::KeepsPlace] {
        let (well, page) = checked(mutant);
        let wrong = page.contains("wrong    fair: 3 processes with the option");
        assert!(!well && wrong, "{mutant}: {page}");
    }
}

fn every_mutant_is_granted_a_free_resource() {
    let masters = Masters::start(3).unwrap();
    for mutant in Mutant::clients() {
        let mut client = Client::start(&mutant_command(mutant.name()), &masters);
        let deadline = client.granted("c1", mutant.name()).deadline_ns.unwrap();
        assert!(client.extend("c1", mutant.name()).deadline_ns.unwrap() > deadline, "{mutant}");
        assert!(client.release("c1", mutant.name()).ok, "{mutant}");
        await_having(&masters, mutant.name(), 0);
    }
}
