//! A hash of 128 bits that never changes and is the same everywhere. It identifies states.
//!
//! It has two lanes of 64 bits. Each step of a lane is a bijection of the lane for a given word and
//! of the word for a given lane, and the lanes differ in structure. It does not resist an attacker
//! who constructs collisions. Among n states that are not chosen to collide, the chance of a
//! collision is about n² / 2¹²⁹.

use std::hash::{Hash, Hasher};

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Wide(u64, u64);

impl Wide {
    pub(crate) const fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03)
    }

    pub(crate) const fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.0 ^= self.0 >> 32;
        self.1 = self.1.rotate_left(29).wrapping_add(word).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        self.1 ^= self.1 >> 31;
    }

    #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
    pub(crate) const fn words(&mut self, of: u128) {
        self.word(of as u64);
        self.word((of >> 64) as u64);
    }

    pub(crate) fn end(&self) -> u128 {
        let mut last = self.clone();
        last.word(self.1);
        last.word(self.0);
        (u128::from(last.0) << 64) | u128::from(last.1)
    }

    pub(crate) fn of(value: &impl Hash) -> u128 {
        let mut wide = Self::new();
        value.hash(&mut wide);
        wide.end()
    }
}

impl Hasher for Wide {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.word(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.word(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.word(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.word(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn small_values_do_not_collide_in_either_half() {
        let mut halves = [HashSet::new(), HashSet::new()];
        for a in 0..256_u64 {
            for b in 0..256_u64 {
                let wide = Wide::of(&(a, b));
                halves[0].insert(wide & u128::from(u64::MAX));
                halves[1].insert(wide >> 64);
            }
        }
        assert!(halves.iter().all(|half| half.len() == 1 << 16));
    }
}
