//! Hashes of states, or of parts of states, in the order of discovery, and a table to find them.

/// "None" as the number of a state.
pub(super) const NONE: u32 = u32::MAX;

/// See the [module](self). Each state takes sixteen bytes, and six to eleven in the table.
#[derive(Debug)]
pub(super) struct StateSet {
    keys: Vec<u128>,
    /// The numbers of states, with open addressing. The size is a power of two, at most three
    /// quarters full.
    slots: Vec<u32>,
}

impl StateSet {
    pub(super) fn new() -> Self {
        Self { keys: Vec::new(), slots: vec![NONE; 1 << 10] }
    }

    pub(super) const fn len(&self) -> usize {
        self.keys.len()
    }

    /// The number of the state with this key, and whether it is new.
    pub(super) fn enter(&mut self, key: u128) -> (u32, bool) {
        if self.keys.len() >= self.slots.len() / 4 * 3 {
            self.grow();
        }
        let slot = self.slot(key);
        if self.slots[slot] != NONE {
            return (self.slots[slot], false);
        }
        let number =
            u32::try_from(self.keys.len()).expect("fewer states than four thousand million");
        self.slots[slot] = number;
        self.keys.push(key);
        (number, true)
    }

    /// The slot of this key, used or free.
    fn slot(&self, key: u128) -> usize {
        let mask = self.slots.len() - 1;
        // Any bits of a hash are suitable.
        let mut slot = (key & mask as u128) as usize;
        while self.slots[slot] != NONE && self.keys[self.slots[slot] as usize] != key {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        self.slots = vec![NONE; self.slots.len() * 2];
        for number in 0..self.keys.len() {
            let slot = self.slot(self.keys[number]);
            self.slots[slot] = u32::try_from(number).expect("it was entered");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_keeps_its_number_while_the_table_grows() {
        let mut seen = StateSet::new();
        // Low bits that collide all the time.
        let keys: Vec<u128> = (0..5000).map(|n| (n << 64) | (n % 7)).collect();
        for (number, key) in (0..).zip(&keys) {
            assert_eq!(seen.enter(*key), (number, true));
        }
        for (number, key) in (0..).zip(&keys) {
            assert_eq!(seen.enter(*key), (number, false));
        }
        assert_eq!(seen.len(), 5000);
    }
}
