//! The figures of a run, and their table.

use std::fmt;
use std::time::Duration;

use crate::contender::{Kind, Pair};

/// The figures of one contender in one turn.
#[derive(Clone, Copy)]
pub(crate) struct Slice([f64; COLUMNS.len()]);

const COLUMNS: [&str; 9] = [
    "acquire p50 µs",
    "acquire p99 µs",
    "release p50 µs",
    "release p99 µs",
    "pair p50 µs",
    "pair p99 µs",
    "pairs/s",
    "client CPU µs/pair",
    "a master's CPU µs/pair",
];

impl Slice {
    pub(crate) fn new(pairs: &[Pair], wall: Duration, [client, master]: [Duration; 2]) -> Self {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let quantiles = |of: fn(&Pair) -> Duration| {
            let mut times: Vec<f64> = pairs.iter().map(|pair| micros(of(pair))).collect();
            times.sort_by(f64::total_cmp);
            [quantile(&times, 0.5), quantile(&times, 0.99)]
        };
        let [acquire50, acquire99] = quantiles(|pair| pair.acquire);
        let [release50, release99] = quantiles(|pair| pair.release);
        let [pair50, pair99] = quantiles(|pair| pair.acquire + pair.release);
        let count = pairs.len() as f64;
        let rate = count / wall.as_secs_f64();
        let [client, master] = [client, master].map(|cpu| micros(cpu) / count);
        Self([acquire50, acquire99, release50, release99, pair50, pair99, rate, client, master])
    }
}

pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let index = ((sorted.len() as f64 - 1.0) * share).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5)
}

/// All turns of all contenders in one setting. The table compares each contender with the first.
pub(crate) struct Table {
    kinds: &'static [Kind],
    pub(crate) slices: Vec<(Kind, Slice)>,
}

impl Table {
    pub(crate) const fn new(kinds: &'static [Kind]) -> Self {
        Self { kinds, slices: Vec::new() }
    }

    /// The median ratio, over all turns, of one contender's median acquire to another's.
    pub(crate) fn acquire_ratio(&self, of: Kind, to: Kind) -> f64 {
        self.ratio(0, of, to)
    }

    /// The same, of an acquire with its release.
    pub(crate) fn pair_ratio(&self, of: Kind, to: Kind) -> f64 {
        self.ratio(4, of, to)
    }

    fn ratio(&self, column: usize, of: Kind, to: Kind) -> f64 {
        let ratios = self.of(of).zip(self.of(to));
        median(ratios.map(|(own, other)| own.0[column] / other.0[column]).collect())
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(move |(of, _)| *of == kind).map(|(_, slice)| slice)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| | {} |", COLUMNS.join(" | "))?;
        writeln!(f, "|---|{}", "---|".repeat(COLUMNS.len()))?;
        let first = self.kinds[0];
        for kind in self.kinds.iter().copied() {
            write!(f, "| {} |", kind.name())?;
            for column in 0..COLUMNS.len() {
                let value = median(self.of(kind).map(|slice| slice.0[column]).collect());
                write!(f, " {value:.0}")?;
                if kind != first {
                    write!(f, " ({:.2} ×)", self.ratio(column, kind, first))?;
                }
                f.write_str(" |")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
