//! What is drawn can be run, and says the same as a file.

use super::Space;
use crate::scenario::{Scenario, makes_sense};

#[test]
fn what_is_drawn_makes_sense_and_can_be_written() {
    for space in [Space::INSIDE, Space::OUTSIDE] {
        for number in 0..300 {
            let scenario = space.draw(number);
            assert!(makes_sense(&scenario), "{number}: {scenario:#?}");
            let text = toml::to_string(&scenario).unwrap();
            assert_eq!(toml::from_str::<Scenario>(&text).unwrap(), scenario, "{number}");
        }
    }
}

#[test]
fn the_same_number_draws_the_same() {
    assert_eq!(Space::INSIDE.draw(7), Space::INSIDE.draw(7));
    assert_ne!(Space::INSIDE.draw(7), Space::INSIDE.draw(8));
}

#[test]
fn every_fault_is_drawn() {
    let mut names: Vec<&str> = (0..3_000)
        .flat_map(|number| Space::OUTSIDE.draw(number).faults)
        .map(|fault| fault.harm.name())
        .collect();
    names.sort_unstable();
    names.dedup();
    // All that there are: node 12, clock 3, net 8, client 4, resource 1.
    assert_eq!(names.len(), 28, "{names:?}");
}

#[test]
fn clients_know_different_masters_only_outside_the_assumptions() {
    let parted = |space: &Space| {
        let parts = |number: &u64| {
            let scenario = space.draw(*number);
            let lists = scenario.clients.iter().map(|client| scenario.list(client));
            let lists: Vec<_> = lists.collect();
            lists.iter().any(|one| lists.iter().any(|other| one.can_part_from(other)))
        };
        (0..1_000).filter(parts).count()
    };
    assert_eq!(parted(&Space::INSIDE), 0);
    assert!(parted(&Space::OUTSIDE) > 20, "{}", parted(&Space::OUTSIDE));
}

#[test]
fn a_master_is_known_by_two_addresses_only_outside_the_assumptions() {
    let twice = |space: &Space| {
        let has = |number: &u64| {
            let scenario = space.draw(*number);
            let mut lists = scenario.clients.iter().map(|client| scenario.list(client));
            lists.any(|list| list.masters().len() < list.addresses().len())
        };
        (0..1_000).filter(has).count()
    };
    assert_eq!(twice(&Space::INSIDE), 0);
    assert!(twice(&Space::OUTSIDE) > 20, "{}", twice(&Space::OUTSIDE));
}
