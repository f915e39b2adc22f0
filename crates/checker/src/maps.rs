//! Hash maps and sets for histories: of tokens, names and numbers. There are many of these and none
//! is hostile, so a fast hash is better than one that withstands an attack. The hash is the same in
//! every run of the program.

pub(crate) use rustc_hash::{FxHashMap as Map, FxHashSet as Set};

/// Numbers for texts, in the order in which each text first occurs.
#[derive(Default)]
pub struct Numbers<'a> {
    all: Map<&'a str, usize>,
    latest: Option<(&'a str, usize)>,
}

impl<'a> Numbers<'a> {
    /// The number of a text. A new text gets the next number.
    pub fn of(&mut self, text: &'a str) -> usize {
        // The text is usually that of the previous call: the same command goes to every master.
        if let Some((_, number)) = self.latest.filter(|(latest, _)| *latest == text) {
            return number;
        }
        let next = self.all.len();
        let number = *self.all.entry(text).or_insert(next);
        self.latest = Some((text, number));
        number
    }

    pub fn known(&self, text: &str) -> Option<usize> {
        self.all.get(text).copied()
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }
}

/// The values in their order, each once.
pub(crate) fn sorted<T: Ord>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// How many different masters there are among these.
pub(crate) fn count(nodes: impl Iterator<Item = usize>) -> usize {
    let mut few: u64 = 0;
    let mut others = Vec::new();
    for node in nodes {
        if node < 64 {
            few |= 1 << node;
        } else {
            others.push(node);
        }
    }
    others.sort_unstable();
    others.dedup();
    few.count_ones() as usize + others.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_counts_once() {
        assert_eq!(count([3, 1, 3, 700, 64, 700, 1].into_iter()), 4);
        assert_eq!(count(std::iter::empty()), 0);
    }
}
