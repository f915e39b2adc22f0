//! The figures of a run with many leases: how long acquires and hand-overs took.

use serde::Serialize;

use super::text::ms;
use crate::checker::{Case, times};
use crate::history::Ns;

/// Fewer values are no distribution.
const FEW: usize = 5;
/// The heights of the histogram's bars.
const HEIGHTS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const BARS: usize = 24;

/// How a time was distributed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Figure {
    what: &'static str,
    count: usize,
    least: String,
    median: String,
    most_of: String,
    most: String,
    /// The number of values in equal parts of the range, as bars.
    histogram: String,
}

pub(super) fn of(case: &Case<'_>) -> Vec<Figure> {
    let (acquires, hand_overs) = times(case);
    let figures = [
        figure("time to acquire", acquires),
        figure("from the end of a lease to the grant of a waiter", hand_overs),
    ];
    figures.into_iter().flatten().collect()
}

fn figure(what: &'static str, mut times: Vec<Ns>) -> Option<Figure> {
    if times.len() < FEW {
        return None;
    }
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 10];
    Some(Figure {
        what,
        count: times.len(),
        least: ms(at(0)),
        median: ms(at(5)),
        most_of: ms(at(9)),
        most: ms(at(10)),
        histogram: histogram(&times),
    })
}

/// A bar for each part of the range of sorted times. A part with a value has a visible bar.
fn histogram(times: &[Ns]) -> String {
    let (least, most) = (times[0], times[times.len() - 1]);
    let mut counts = [0; BARS];
    for time in times {
        let part = i128::from(time - least) * BARS as i128 / i128::from((most - least).max(1));
        counts[usize::try_from(part).unwrap_or(0).min(BARS - 1)] += 1;
    }
    let highest = counts.into_iter().max().unwrap_or(1);
    counts
        .map(|count: usize| HEIGHTS[(count * (HEIGHTS.len() - 1)).div_ceil(highest)])
        .iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_takes_a_few_values() {
        let ms =
            |values: &[i64]| figure("x", values.iter().map(|value| value * 1_000_000).collect());
        assert_eq!(ms(&[1, 2, 3, 4]), None);
        let figure = ms(&[25, 1, 1, 1, 2, 1]).unwrap();
        assert_eq!((&*figure.least, &*figure.median, &*figure.most), ("1 ms", "1 ms", "25 ms"));
        assert_eq!(figure.histogram, format!("█▂{}▂", "·".repeat(21)));
        assert_eq!(ms(&[7; 5]).unwrap().histogram, format!("█{}", "·".repeat(23)));
    }
}
