//! Whether what is searched is what a scenario file would show.

use std::time::Instant;

use super::walk::{Ground, SEED};
use super::*;
use crate::history::History;
use crate::sim::{Course, Latency, trace_hash};

fn grounds(nodes: usize) -> Vec<Ground> {
    let ground = |lesson: Lesson| Ground {
        vocabulary: vocabulary(&lesson, Symmetry::Folded),
        lesson,
    };
    lessons(nodes).into_iter().map(ground).collect()
}

/// The same scenario from its very beginning.
fn replayed(history: &History) -> History {
    let mut course = Course::new(&history.header.scenario, SEED, Latency::Even, Lie::None);
    while course.step() {}
    course.finish()
}

#[test]
fn what_is_forked_is_what_is_replayed_to_the_byte() {
    let begin = Instant::now();
    let (mut count, mut hash) = (0, 0);
    for ground in grounds(3) {
        let mut same = |_: &[usize], history: &History| {
            count += 1;
            let replay = replayed(history);
            assert!(*history == replay, "{}", toml::to_string(&replay.header.scenario).unwrap());
            hash ^= trace_hash(history) ^ trace_hash(&replay);
        };
        let starts = ground.starts(Lie::None, &mut same);
        for (number, start) in starts.iter().enumerate() {
            let depth = if number % 200 == 0 { 2 } else { 1 };
            ground.walk(start, depth, &mut same);
        }
    }
    println!("{count} {:?}", begin.elapsed());
}
