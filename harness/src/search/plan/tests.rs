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
    // All that there are: node 6, clock 3, net 8, client 4.
    assert_eq!(names.len(), 21, "{names:?}");
}
