//! Hashes of states, or of parts of states, in the order of discovery, and a table to find them.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// "None" as the number of a state.
pub(super) const NONE: u32 = u32::MAX;

/// See the [module](self). Each state takes sixteen bytes, and six to eleven in the table.
#[derive(Debug)]
pub(super) struct StateSet {
    keys: Vec<u128>,
    /// The numbers of states.
    table: HashTable<u32>,
}

impl StateSet {
    pub(super) const fn new() -> Self {
        Self { keys: Vec::new(), table: HashTable::new() }
    }

    pub(super) const fn len(&self) -> usize {
        self.keys.len()
    }

    /// The number of the state with this key, and whether it is new.
    pub(super) fn enter(&mut self, key: u128) -> (u32, bool) {
        let Self { keys, table } = self;
        let of = |number: &u32| keys[*number as usize];
        match table.entry(half(key), |number| of(number) == key, |number| half(of(number))) {
            Entry::Occupied(known) => (*known.get(), false),
            Entry::Vacant(free) => {
                let number =
                    u32::try_from(keys.len()).expect("fewer states than four thousand million");
                free.insert(number);
                keys.push(key);
                (number, true)
            }
        }
    }
}

/// Any bits of a hash are suitable.
const fn half(key: u128) -> u64 {
    (key >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_keeps_its_number_while_the_table_grows() {
        let mut seen = StateSet::new();
        // Halves that collide all the time.
        let keys: Vec<u128> = (0..5000).map(|n| ((n % 7) << 64) | n).collect();
        for (number, key) in (0..).zip(&keys) {
            assert_eq!(seen.enter(*key), (number, true));
        }
        for (number, key) in (0..).zip(&keys) {
            assert_eq!(seen.enter(*key), (number, false));
        }
        assert_eq!(seen.len(), 5000);
    }
}
