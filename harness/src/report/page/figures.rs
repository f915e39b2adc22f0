//! The figures of a run with many leases: how long acquires and hand-overs took, and how many
//! commands an acquisition took.

use serde::Serialize;

use super::text::ms;
use redquorum_checker::{Case, commands_per_acquisition, times};

/// Fewer values are no distribution.
const FEW: usize = 5;
/// The heights of the histogram's bars.
const HEIGHTS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const BARS: usize = 24;

/// The distribution of a time or of a number.
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
        figure("time to acquire", acquires, ms),
        figure("time from the end of a lease to the grant of a waiter", hand_overs, ms),
        figure("commands per acquisition", commands_per_acquisition(case), |count| {
            count.to_string()
        }),
    ];
    figures.into_iter().flatten().collect()
}

fn figure(what: &'static str, mut values: Vec<i64>, text: fn(i64) -> String) -> Option<Figure> {
    if values.len() < FEW {
        return None;
    }
    values.sort_unstable();
    let at = |part: usize| text(values[(values.len() - 1) * part / 10]);
    Some(Figure {
        what,
        count: values.len(),
        least: at(0),
        median: at(5),
        most_of: at(9),
        most: at(10),
        histogram: histogram(&values),
    })
}

/// A bar for each part of the range of sorted values. A part with a value has a visible bar.
fn histogram(values: &[i64]) -> String {
    let (least, most) = (values[0], values[values.len() - 1]);
    let mut counts = [0; BARS];
    for value in values {
        let part = i128::from(value - least) * BARS as i128 / i128::from((most - least).max(1));
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
        let ms = |values: &[i64]| {
            figure("x", values.iter().map(|value| value * 1_000_000).collect(), ms)
        };
        assert_eq!(ms(&[1, 2, 3, 4]), None);
        let figure = ms(&[25, 1, 1, 1, 2, 1]).unwrap();
        assert_eq!((&*figure.least, &*figure.median, &*figure.most), ("1 ms", "1 ms", "25 ms"));
        assert_eq!(figure.histogram, format!("█▂{}▂", "·".repeat(21)));
        assert_eq!(ms(&[7; 5]).unwrap().histogram, format!("█{}", "·".repeat(23)));
    }
}
