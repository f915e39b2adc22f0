//! The tape of choices: all that a generator decided, in the order in which it decided.
//!
//! A generator asks the tape for every choice. A tape is filled from a seeded source, or it is
//! replayed. The same tape gives the same result, and an edited tape gives a result that the
//! generator could have drawn too. So the shrinker edits tapes, and knows nothing of what is drawn.
//!
//! Generators keep two rules:
//!
//! * 0 is the simplest choice of each. A tape that has ended gives zeros.
//! * What belongs together is a [span](Tape::span). A replay that needs less of a span than is
//!   there goes on behind the span, so a change inside moves nothing behind it.

use std::collections::BTreeMap;
use std::ops::Range;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use redquorum_scenario::Length;

use crate::lengths::of_millis;

/// What a choice decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    /// Whether something is there at all. A random run decides for it always.
    Kept,
    /// One of several, the simplest first; and a chance.
    Index,
    /// The number of masters.
    Masters,
    /// The number of one master.
    Master,
    /// A time in milliseconds. A round one is the simplest: the least just suffices.
    Time,
}

/// A tape is a sequence of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Symbol {
    Choice(u64, What),
    Open,
    Close,
}

/// The longest time that a shrinker chooses.
const LONGEST: u64 = 10_000;

/// Where choices come from.
enum Source {
    /// The number, the current purpose, and the random source of each.
    Seed(u64, &'static str, BTreeMap<&'static str, ChaCha8Rng>),
    /// Another tape, and the part of the current span that was not read.
    Tape(Vec<Symbol>, Range<usize>),
}

/// A tape that a generator reads and at the same time writes.
pub(crate) struct Tape {
    source: Source,
    written: Vec<Symbol>,
}

impl Tape {
    /// A tape that is filled from a number. The stream of its generator never changes. The
    /// simulation has its own streams from the same number.
    pub(crate) const fn of_seed(number: u64) -> Self {
        Self { source: Source::Seed(number, "", BTreeMap::new()), written: Vec::new() }
    }

    pub(crate) fn replay(symbols: Vec<Symbol>) -> Self {
        let all = 0..symbols.len();
        Self { source: Source::Tape(symbols, all), written: Vec::new() }
    }

    /// What was chosen.
    pub(crate) fn written(self) -> Vec<Symbol> {
        self.written
    }

    /// Choices that belong together.
    pub(crate) fn span<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> T {
        self.written.push(Symbol::Open);
        let behind = match &mut self.source {
            Source::Seed(..) => None,
            Source::Tape(symbols, rest) => {
                let open = rest.start;
                let (own, behind) = match symbols[rest.clone()].first() {
                    Some(Symbol::Open) => {
                        let close = end_of(symbols, open);
                        (open + 1..close, close + 1..rest.end)
                    }
                    _ => (open..open, rest.clone()),
                };
                *rest = own;
                Some(behind)
            }
        };
        let drawn = draw(self);
        if let (Source::Tape(_, rest), Some(behind)) = (&mut self.source, behind) {
            *rest = behind;
        }
        self.written.push(Symbol::Close);
        drawn
    }

    /// A span for one purpose, with a random source of its own, which it continues when it is there
    /// again. Its choices do not change those of other purposes: the rest of a scenario is the same
    /// with them and without.
    pub(crate) fn purpose<T>(
        &mut self,
        purpose: &'static str,
        draw: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let mut set = |to| match &mut self.source {
            Source::Seed(_, now, _) => std::mem::replace(now, to),
            Source::Tape(..) => to,
        };
        let before = set(purpose);
        let drawn = self.span(draw);
        if let Source::Seed(_, now, _) = &mut self.source {
            *now = before;
        }
        drawn
    }

    /// A choice between two numbers, both included, which is drawn if the tape is filled from a
    /// seed.
    fn choose(
        &mut self,
        what: What,
        least: u64,
        most: u64,
        draw: impl FnOnce(&mut dyn FnMut() -> u64) -> u64,
    ) -> u64 {
        let value = match &mut self.source {
            Source::Seed(number, purpose, sources) => {
                let salt = |purpose: &str| {
                    purpose.bytes().fold(0, |salt, byte| salt << 8 | u64::from(byte))
                };
                let seed = *number ^ salt(purpose);
                draw(&mut || {
                    let new = || ChaCha8Rng::seed_from_u64(seed);
                    sources.entry(purpose).or_insert_with(new).next_u64()
                })
            }
            Source::Tape(symbols, rest) => match symbols[rest.clone()].first() {
                Some(Symbol::Choice(value, _)) => {
                    rest.start += 1;
                    (*value).clamp(least, most)
                }
                _ => least,
            },
        };
        self.written.push(Symbol::Choice(value, what));
        value
    }

    /// A number less than a bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.uniform(What::Index, bound)
    }

    fn uniform(&mut self, what: What, bound: u64) -> u64 {
        let bound = bound.max(1);
        self.choose(what, 0, bound - 1, |next| next() % bound)
    }

    /// A number less than a bound. The shrinker may choose up to another bound.
    pub(crate) fn below_or(&mut self, bound: u64, most: u32) -> u32 {
        let value = self.choose(What::Index, 0, u64::from(most), |next| next() % bound);
        u32::try_from(value).unwrap_or(most)
    }

    /// A number between two others, both included.
    pub(crate) fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// A time in milliseconds, between two others. The shrinker may choose longer ones.
    pub(crate) fn millis(&mut self, least: u64, most: u64) -> u64 {
        let bound = most.saturating_sub(least) + 1;
        self.choose(What::Time, least, LONGEST.max(most), |next| least + next() % bound)
    }

    /// A time.
    pub(crate) fn time(&mut self, least: u64, most: u64) -> Length {
        of_millis(self.millis(least, most))
    }

    /// Returns true with probability `often` / `of`. False is simpler.
    pub(crate) fn chance(&mut self, often: u64, of: u64) -> bool {
        self.choose(What::Index, 0, 1, |next| u64::from(next() % of < often)) == 1
    }

    /// Returns true with probability `often` / `of`. True is simpler.
    pub(crate) fn usually(&mut self, often: u64, of: u64) -> bool {
        self.choose(What::Index, 0, 1, |next| u64::from(next() % of >= often)) == 0
    }

    /// One of these numbers, or another between them. The least is the simplest.
    pub(crate) fn one_of(&mut self, all: &[u64]) -> u64 {
        let least = all.iter().min().copied().unwrap_or_default();
        let most = all.iter().max().copied().unwrap_or_default();
        let any = |next: &mut dyn FnMut() -> u64| all[index(next() % all.len() as u64)];
        self.choose(What::Index, least, most, any)
    }

    /// How many masters there are, if that is not given. Fewer are simpler.
    pub(crate) fn masters(&mut self, given: Option<usize>) -> usize {
        const OFTEN: [usize; 6] = [1, 3, 3, 4, 5, 5];
        let often = |next: &mut dyn FnMut() -> u64| OFTEN[index(next() % OFTEN.len() as u64)];
        let most = given.unwrap_or(5) as u64;
        let drawn = |next: &mut dyn FnMut() -> u64| given.unwrap_or_else(|| often(next)) as u64;
        index(self.choose(What::Masters, 1, most, drawn))
    }

    /// The number of a master, from 1.
    pub(crate) fn master(&mut self, of: usize) -> usize {
        let of = of as u64;
        index(self.choose(What::Master, 1, of, |next| 1 + next() % of))
    }

    pub(crate) fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())].clone()
    }

    pub(crate) fn index(&mut self, of: usize) -> usize {
        index(self.below(of as u64))
    }

    /// Returns a value with probability `often` / `of`.
    pub(crate) fn maybe<T>(
        &mut self,
        often: u64,
        of: u64,
        draw: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        self.span(|tape| tape.chance(often, of).then(|| draw(tape)))
    }

    /// Whether something is there, which only the shrinker leaves out.
    pub(crate) fn keeps(&mut self) -> bool {
        self.choose(What::Kept, 0, 1, |_| 1) == 1
    }

    /// A value that only the shrinker leaves out.
    pub(crate) fn kept<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.span(|tape| tape.keeps().then(|| draw(tape)))
    }
}

fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Where the span that opens here closes.
pub(crate) fn end_of(symbols: &[Symbol], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, symbol) in symbols.iter().enumerate().skip(open) {
        match symbol {
            Symbol::Open => depth += 1,
            Symbol::Close if depth == 1 => return at,
            Symbol::Close => depth -= 1,
            Symbol::Choice(..) => {}
        }
    }
    symbols.len()
}

#[cfg(test)]
mod tests {
    use super::{Symbol, Tape, What, end_of};
    use crate::plan::Space;

    #[test]
    fn a_replay_gives_what_the_seed_gave() {
        for number in 0..300 {
            for space in [Space::INSIDE, Space::OUTSIDE] {
                let mut tape = Tape::of_seed(number);
                let drawn = space.read(&mut tape);
                let symbols = tape.written();
                let mut again = Tape::replay(symbols.clone());
                assert_eq!(space.read(&mut again), drawn);
                assert_eq!(again.written(), symbols);
            }
        }
    }

    #[test]
    fn an_edit_inside_a_span_moves_nothing_behind_it() {
        let read = |symbols: Vec<Symbol>| {
            let mut tape = Tape::replay(symbols);
            let inner = tape.span(|tape| [tape.below(10), tape.below(10)]);
            (inner, tape.span(|tape| tape.below(10)), tape.below(10))
        };
        let choice = |value| Symbol::Choice(value, What::Index);
        let (open, close) = (Symbol::Open, Symbol::Close);
        let full = vec![open, choice(1), choice(2), close, open, choice(3), close, choice(4)];
        assert_eq!(end_of(&full, 0), 3);
        assert_eq!(read(full.clone()), ([1, 2], 3, 4));
        let without = |range| {
            let mut less = full.clone();
            less.drain(range);
            read(less)
        };
        assert_eq!(without(1..2), ([2, 0], 3, 4));
        assert_eq!(without(1..3), ([0, 0], 3, 4));
        assert_eq!(without(5..6), ([1, 2], 0, 4));
        // More than is read: a span that has become shorter.
        let mut more = full.clone();
        more.insert(1, choice(99));
        assert_eq!(read(more), ([9, 1], 3, 4));
    }

    /// A tape of nothing leaves everything out, and no edit gives what cannot be drawn.
    #[test]
    fn every_tape_can_be_read() {
        let nothing = Space::OUTSIDE.read(&mut Tape::replay(Vec::new()));
        assert!(nothing.clients.is_empty() && nothing.faults.is_empty());
        for number in 0..200 {
            let mut tape = Tape::of_seed(number);
            let _ = Space::OUTSIDE.read(&mut tape);
            let symbols = tape.written();
            for at in (0..symbols.len()).step_by(7) {
                let mut edited = symbols.clone();
                match edited[at] {
                    Symbol::Choice(value, what) => edited[at] = Symbol::Choice(value / 2, what),
                    Symbol::Open => drop(edited.drain(at + 1..end_of(&symbols, at))),
                    Symbol::Close => edited.insert(at, Symbol::Choice(1, What::Index)),
                }
                let _ = Space::OUTSIDE.read(&mut Tape::replay(edited));
            }
        }
    }
}
