//! The order of grants.

use proptest::prelude::*;
use redquorum_protocol::Time;

use crate::world::{MS, Sort, World};

fn any_sort() -> impl Strategy<Value = Sort> {
    let latency = prop_oneof![Just(1), Just(500), Just(5_000), Just(30_000)];
    let lost = prop_oneof![3 => Just(0_u64), 1 => Just(30), 1 => Just(100)];
    let slow = prop_oneof![2 => Just(0_u64), 1 => Just(20_000), 1 => Just(300_000)];
    let sorts = (1..=5_usize, any::<bool>(), latency, slow, lost);
    sorts.prop_map(|(nodes, wake_ups, latency, slow, lost)| {
        // With two masters a quorum is both of them, so neither may be slow.
        let slow = if nodes > 2 { slow } else { 0 };
        Sort { nodes, fair: true, wake_ups, latency, slow, lost }
    })
}

/// A world of `processes` processes that acquire `times` times each. Each of them starts a little
/// later than the one before.
fn crowd(seed: u64, sort: Sort, processes: u64, times: u32) -> World {
    let mut world = World::new(seed, sort);
    let start = world.now;
    for number in 0..processes {
        let later = world.random.below(1 + 20 * number);
        world.enter(start.plus(MS * u32::try_from(later).unwrap()), times);
    }
    world
}

fn within(world: &World, seconds: u64) -> Time {
    world.now.plus(MS * u32::try_from(seconds * 1_000).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn once_it_stands_in_line_each_other_process_comes_before_it_once_at_most(
        seed: u64, sort in any_sort(), processes in 2..7_u64, times in 1..6_u32,
    ) {
        let mut world = crowd(seed, sort, processes, times);
        let end = within(&world, 120);
        world.run_until(end);
        prop_assert!(world.is_done(), "somebody waits for ever: {:?}", world.granted);
        prop_assert!(world.most <= 1, "{:?}", world.granted);
    }

    #[test]
    fn who_dies_first_in_line_is_passed_over_soon(
        seed: u64, sort in any_sort(), processes in 2..6_u64,
    ) {
        let mut world = crowd(seed, sort, processes, 5);
        let end = within(&world, 120);
        let mut died = None;
        while !world.is_done() && world.now < end {
            world.run_until(world.now.plus(MS));
            if died.is_none() && world.granted.len() > 3 {
                died = (0..usize::try_from(processes).unwrap()).find(|it| world.is_first(*it));
                died.into_iter().for_each(|it| world.kill(it));
            }
        }
        prop_assert!(world.is_done() && world.most <= 1);
        let times: Vec<Time> = world.granted.iter().map(|(time, _)| *time).collect();
        let longest = times.windows(2).map(|two| two[1].since(two[0])).max().unwrap_or_default();
        // The position of the killed process lapses, a check finds that, and two rounds grant the
        // next waiter. The death of a holder would take longer.
        prop_assert!(longest < MS * 5_500, "{longest:?}");
    }
}

/// Without a fair queue, a process is overtaken more often: this is what a failure looks like.
#[test]
fn without_a_line_others_come_before_it_again_and_again() {
    let most = |fair: bool| {
        let overtaken = (0..20).map(|seed| {
            let sort = Sort { nodes: 5, fair, wake_ups: true, latency: 500, slow: 0, lost: 0 };
            let mut world = crowd(seed, sort, 5, 8);
            world.run_until(within(&world, 120));
            assert!(world.is_done());
            world.most
        });
        overtaken.max().unwrap()
    };
    let (with, without) = (most(true), most(false));
    assert!(with == 1 && without > 2, "{with} and {without}");
}
