//! The shipped claims under the machine, with random timings.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redquorum_protocol::{Drift, Failure, LockConfig, Time};

use crate::world::{Fate, MS, NODE_TIMEOUT, NODES, World};

#[derive(Clone, Debug)]
enum Act {
    VoteRequest(Vec<usize>, u32),
    Leave(usize),
    Occupy(usize, u32),
    Stop(usize, u32),
}

fn any_keys() -> impl Strategy<Value = Vec<usize>> {
    Just((0..5).collect::<Vec<usize>>())
        .prop_shuffle()
        .prop_flat_map(|keys| (1..=4_usize).prop_map(move |count| keys[..count].to_vec()))
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (any_keys(), prop_oneof![Just(0), 1..400_u32]).prop_map(|(keys, wait)| Act::VoteRequest(keys, wait)),
        3 => (0..20_usize).prop_map(Act::Leave),
        1 => (0..5_usize, 1..300_u32).prop_map(|(key, ms)| Act::Occupy(key, ms)),
        1 => (0..NODES, 1..200_u32).prop_map(|(node, ms)| Act::Stop(node, ms)),
    ]
}

fn play(seed: u64, acts: &[(u32, Act)]) -> World {
    let mut world = World::new(seed);
    for (after, act) in acts {
        step(&mut world, Duration::from_millis(u64::from(*after)));
        match act {
            Act::VoteRequest(keys, wait) => drop(world.ask(keys, MS * *wait)),
            Act::Leave(caller) if *caller < world.callers.len() => world.leave(*caller),
            Act::Leave(_) => {}
            Act::Occupy(key, ms) if world.keys.iter().all(|keys| !keys.contains_key(key)) => {
                world.occupy(*key, MS * *ms);
            }
            Act::Occupy(..) => {}
            // A stopped master keeps the order of its sockets, so it is stopped only once at a
            // time.
            Act::Stop(node, ms) if world.now >= world.stopped[*node] => {
                world.stopped[*node] = world.now.plus(MS * *ms);
            }
            Act::Stop(..) => {}
        }
    }
    world
}

/// Lets time pass in small steps, and checks after each that no two callers hold one key.
fn step(world: &mut World, length: Duration) {
    let end = world.now.plus(length);
    while world.now < end {
        world.run_until(world.now.plus(MS).min(end));
        let holders = world.holders();
        let mut keys: Vec<usize> =
            holders.iter().flat_map(|caller| world.keys_of(*caller)).copied().collect();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all, "two hold one resource: {holders:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn all_are_held_or_none_and_whatever_ends_leaves_no_key(
        seed: u64,
        acts in vec((0..60_u32, any_act()), 1..25),
    ) {
        let mut world = play(seed, &acts);
        // After this, no caller waits any more.
        step(&mut world, Duration::from_secs(2));
        for caller in 0..world.callers.len() {
            let of = &world.callers[caller];
            prop_assert_ne!(of.fate, Fate::Trying);
        }
        let held: usize = world.holders().into_iter().map(|caller| world.keys_of(caller).len()).sum();
        // On a stopped master, a key may come too late to count. It is cleaned up with the rest.
        prop_assert!(world.left() >= held * (NODES / 2 + 1));
        prop_assert!(world.left() <= held * NODES);
        for caller in 0..world.callers.len() {
            world.leave(caller);
        }
        step(&mut world, Duration::from_secs(1));
        prop_assert_eq!(world.left(), 0);
    }

    #[test]
    fn two_that_name_them_in_opposite_orders_both_get_through(seed: u64, apart in 0..5_u32) {
        let mut world = World::new(seed);
        let first = world.ask(&[0, 1, 2], MS * 5_000);
        step(&mut world, MS * apart);
        let second = world.ask(&[2, 1, 0], MS * 5_000);
        let mut done = Vec::new();
        while done.len() < 2 {
            step(&mut world, MS * 10);
            prop_assert!(world.now < Time::ZERO.plus(MS * 5_000), "{done:?}");
            for caller in world.holders() {
                done.push(caller);
                world.leave(caller);
            }
        }
        prop_assert!(done.contains(&first) && done.contains(&second));
        step(&mut world, MS * 100);
        prop_assert_eq!(world.left(), 0);
    }

    #[test]
    fn it_ends_three_node_timeouts_after_the_wait_at_the_latest(
        seed: u64,
        wait in 0..300_u32,
        stop in vec((0..NODES, 0..200_u32), 0..3),
    ) {
        let mut world = World::new(seed);
        for (node, ms) in stop {
            world.stopped[node] = Time::ZERO.plus(MS * ms);
        }
        world.occupy(1, MS * wait / 2);
        let caller = world.ask(&[0, 1, 2], MS * wait);
        let end = MS * wait + NODE_TIMEOUT * 3;
        step(&mut world, end);
        let fate = world.callers[caller].fate;
        prop_assert_ne!(fate, Fate::Trying);
        if let Fate::Refused(at, ..) = fate {
            prop_assert!(at <= Time::ZERO.plus(end));
        }
    }
}

#[test]
fn what_is_free_is_won_in_one_round_trip() {
    let mut world = World::new(7);
    let caller = world.ask(&[0, 1, 2, 3], Duration::ZERO);
    // A round trip takes at most 3.1 ms in each direction.
    step(&mut world, MS * 7);
    assert!(matches!(world.callers[caller].fate, Fate::Held(..)));
    assert!(world.sets.iter().all(|(at, ..)| *at == Time::ZERO), "all are asked at one instant");
    assert_eq!(world.rounds(caller), 1);
}

#[test]
fn while_one_is_taken_the_others_are_free_for_everybody_else() {
    let mut world = World::new(7);
    world.occupy(1, MS * 1_000);
    let waits = world.ask(&[0, 1, 2], MS * 2_000);
    step(&mut world, MS * 50);
    let single = world.ask(&[0, 2], Duration::ZERO);
    step(&mut world, MS * 10);
    assert!(matches!(world.callers[single].fate, Fate::Held(..)));
    world.leave(single);
    step(&mut world, MS * 1_600);
    assert!(matches!(world.callers[waits].fate, Fate::Held(..)), "{:?}", world.callers[waits].fate);
}

#[test]
fn the_ttl_of_a_later_round_is_that_of_the_first() {
    let mut world = World::new(7);
    let terms = LockConfig::new(NODES, MS * 400, Drift::default(), NODE_TIMEOUT).unwrap();
    world.occupy(1, MS * 1_000);
    let caller = world.ask_on(terms, &[0, 1], MS * 3_000);
    while world.callers[caller].fate == Fate::Trying {
        step(&mut world, MS);
    }
    let Fate::Held(at, deadline) = world.callers[caller].fate else { panic!("it was free") };
    assert!(at >= Time::ZERO.plus(MS * 1_000) && world.rounds(caller) > 1);
    assert!(deadline <= at.plus(terms.validity()));
    let on_masters = world.keys.iter().flat_map(|keys| keys.values()).map(|(_, expires)| *expires);
    assert!(on_masters.max().unwrap() <= at.plus(MS * 407));
}

#[test]
fn who_is_in_the_way_for_ever_is_named() {
    let mut world = World::new(7);
    world.occupy(1, MS * 10_000);
    let caller = world.ask(&[0, 1], MS * 300);
    step(&mut world, MS * 400);
    let fate = world.callers[caller].fate;
    assert!(matches!(fate, Fate::Refused(_, 1, Failure::Taken)), "{fate:?}");
    // Only the keys of the other client are left.
    assert_eq!(world.left(), NODES);
}

#[test]
fn keys_that_were_left_and_two_holders_would_be_seen() {
    let mut world = World::new(7);
    let first = world.ask(&[0, 1], Duration::ZERO);
    step(&mut world, MS * 10);
    assert!(matches!(world.callers[first].fate, Fate::Held(..)));
    assert_eq!(world.left(), 2 * NODES);
    // Masters that forget let a second caller in.
    world.keys.iter_mut().for_each(std::collections::BTreeMap::clear);
    world.ask(&[1, 0], Duration::ZERO);
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| step(&mut world, MS * 10)));
    assert!(seen.is_err());
}
