//! The walk through all states of a model, breadth first, and the way to the first bad one.
//!
//! It checks each step, each state, each end (a state in which no event is due any more), and that
//! the model terminates: from every state, the due events lead to an end if the most urgent one
//! always goes first. This last check costs only a number for each state, because the most urgent
//! event leads to a state that is visited anyway.

use std::hash::{Hash, Hasher};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// A model whose states can be explored.
pub trait Model {
    /// One state. It must be small, because all states are kept.
    type State: Clone;
    /// An event that can happen.
    type Event: Copy;

    /// The initial states.
    fn starts(&mut self) -> Vec<Self::State>;

    /// The events that can happen in a state: due events first, the most urgent of them at the
    /// front. An event is due if it happens sooner or later unless another event prevents it: a
    /// message arrives, or a timer fires. Faults and free choices are not due.
    fn events(&mut self, state: &Self::State, out: &mut Vec<(Fairness, Self::Event)>);

    /// Returns the state after an event.
    ///
    /// # Errors
    ///
    /// A rule that the step breaks.
    fn step(&mut self, state: &Self::State, event: Self::Event) -> Result<Self::State, Broken>;

    /// Identifies a state. States with the same key must have the same future.
    fn key(&mut self, state: &Self::State) -> u128;

    /// Checks a state.
    ///
    /// # Errors
    ///
    /// A rule that it breaks.
    fn check(&mut self, _: &Self::State) -> Result<(), Broken> {
        Ok(())
    }

    /// Checks a state in which no event is due.
    ///
    /// # Errors
    ///
    /// A rule that it breaks as an end.
    fn check_end(&mut self, _: &Self::State) -> Result<(), Broken> {
        Ok(())
    }

    /// Describes an event, and its effect if the step succeeded.
    fn describe_event(
        &mut self,
        state: &Self::State,
        event: Self::Event,
        after: Option<&Self::State>,
    ) -> String;

    /// Describes a state.
    fn describe_state(&mut self, state: &Self::State) -> Vec<String>;
}

/// Whether an event must come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fairness {
    /// It happens sooner or later.
    Due,
    /// It may happen or not.
    Free,
}

/// A rule that is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The name of the rule.
    pub rule: &'static str,
    /// How it is broken.
    pub why: String,
}

/// The shortest sequence of steps that breaks a rule.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The broken rule.
    pub broken: Broken,
    /// One line for each step.
    pub steps: Vec<String>,
    /// The last state.
    pub last: Vec<String>,
}

/// The result of an exploration.
#[derive(Clone, Debug)]
pub struct Explored {
    /// The number of distinct states.
    pub states: usize,
    /// The number of steps, including those that lead to the same state.
    pub transitions: u64,
    /// The largest distance of a state from a start, in steps.
    pub depth: usize,
    /// The number of states in which no event is due.
    pub ends: usize,
    /// Whether all states were explored. False if there are more than the limit.
    pub complete: bool,
    /// The first broken rule.
    pub broken: Option<Counterexample>,
}

/// Explores all states of a model, or the first `most` states that it reaches.
pub fn explore<M: Model>(model: &mut M, most: usize) -> Explored {
    Walk::new(model).walk(most)
}

/// Not explored: it is unknown where the state leads.
const UNKNOWN: u32 = NONE - 1;

struct Walk<'m, M: Model> {
    model: &'m mut M,
    seen: StateSet,
    states: Vec<M::State>,
    /// The state from which each was reached first, and the index of the event.
    from: Vec<(u32, u16)>,
    /// The state after the most urgent event of each state; none at an end.
    onward: Vec<u32>,
    transitions: u64,
    ends: usize,
}

/// A broken rule, the state, and the event in that state if a step breaks the rule.
type Found = (Broken, u32, Option<u16>);

impl<'m, M: Model> Walk<'m, M> {
    fn new(model: &'m mut M) -> Self {
        Self {
            model,
            seen: StateSet::new(),
            states: Vec::new(),
            from: Vec::new(),
            onward: Vec::new(),
            transitions: 0,
            ends: 0,
        }
    }

    fn walk(mut self, most: usize) -> Explored {
        let mut depth = 0;
        let found = self.levels(most, &mut depth).and_then(|()| self.settles()).err();
        let complete = self.onward.len() == self.states.len();
        let broken = found.map(|found| self.counterexample(found));
        Explored {
            states: self.seen.len(),
            transitions: self.transitions,
            depth,
            ends: self.ends,
            complete: complete && broken.is_none(),
            broken,
        }
    }

    fn levels(&mut self, most: usize, depth: &mut usize) -> Result<(), Found> {
        for start in self.model.starts() {
            self.enter(start, (NONE, 0))?;
        }
        let mut events = Vec::new();
        let mut level_ends = self.states.len();
        while self.onward.len() < self.states.len() && self.states.len() < most {
            if self.onward.len() == level_ends {
                *depth += 1;
                level_ends = self.states.len();
            }
            self.expand(&mut events)?;
        }
        Ok(())
    }

    /// Takes every step from the next state.
    fn expand(&mut self, events: &mut Vec<(Fairness, M::Event)>) -> Result<(), Found> {
        let number = self.onward.len();
        let this = u32::try_from(number).expect("it was entered");
        let state = self.states[number].clone();
        events.clear();
        self.model.events(&state, events);
        let due = events.first().is_some_and(|(fairness, _)| *fairness == Fairness::Due);
        if !due {
            self.ends += 1;
            self.model.check_end(&state).map_err(|broken| (broken, this, None))?;
        }
        let mut onward = NONE;
        for (index, (_, event)) in (0..).zip(events.iter()) {
            self.transitions += 1;
            let after = self.model.step(&state, *event);
            let after = after.map_err(|broken| (broken, this, Some(index)))?;
            let reached = self.enter(after, (this, index))?;
            if index == 0 && due {
                onward = reached;
            }
        }
        self.onward.push(onward);
        Ok(())
    }

    fn enter(&mut self, state: M::State, from: (u32, u16)) -> Result<u32, Found> {
        let (number, new) = self.seen.enter(self.model.key(&state));
        if new {
            let checked = self.model.check(&state);
            self.states.push(state);
            self.from.push(from);
            checked.map_err(|broken| (broken, number, None))?;
        }
        Ok(number)
    }

    /// Checks that the due events lead from every state to an end, and not into a loop.
    fn settles(&mut self) -> Result<(), Found> {
        const SETTLED: u32 = NONE;
        self.onward.resize(self.states.len(), UNKNOWN);
        // The number of the walk that visited each state. Each walk stops at an end, or at a state
        // that an earlier walk has visited.
        let mut walk_of = vec![0; self.states.len()];
        for start in 0..self.states.len() {
            let walk = u32::try_from(start).expect("it was entered") + 1;
            let mut at = start;
            while walk_of[at] == 0 {
                walk_of[at] = walk;
                match self.onward[at] {
                    NONE | UNKNOWN => break,
                    next => at = next as usize,
                }
            }
            if walk_of[at] == walk && !matches!(self.onward[at], NONE | UNKNOWN) {
                let why = "what is due leads back here, again and again".to_owned();
                let broken = Broken { rule: "every run ends", why };
                return Err((broken, u32::try_from(at).expect("it was entered"), None));
            }
            let mut at = start;
            while walk_of[at] == walk {
                walk_of[at] = SETTLED;
                match self.onward[at] {
                    NONE | UNKNOWN => break,
                    next => at = next as usize,
                }
            }
        }
        self.onward.retain(|onward| *onward != UNKNOWN);
        Ok(())
    }

    fn counterexample(&mut self, (broken, last, event): Found) -> Counterexample {
        let mut way = Vec::new();
        let mut at = last;
        while let (from, index) = self.from[at as usize]
            && from != NONE
        {
            way.push((from, index, Some(at)));
            at = from;
        }
        way.reverse();
        way.extend(event.map(|index| (last, index, None)));
        let mut events = Vec::new();
        let mut steps = Vec::new();
        for (from, index, to) in way {
            let state = self.states[from as usize].clone();
            events.clear();
            self.model.events(&state, &mut events);
            let (_, event) = events[usize::from(index)];
            let after = to.map(|to| self.states[to as usize].clone());
            steps.push(self.model.describe_event(&state, event, after.as_ref()));
        }
        let last = self.states[last as usize].clone();
        Counterexample { broken, steps, last: self.model.describe_state(&last) }
    }
}

/// "None" as the number of a state.
const NONE: u32 = u32::MAX;

/// Hashes of states, or of parts of states, in the order of discovery, and a table to find them.
/// Each state takes sixteen bytes, and six to eleven in the table.
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

/// A hash of 128 bits that never changes and is the same everywhere. It identifies states.
///
/// It has two lanes of 64 bits. Each step of a lane is a bijection of the lane for a given word and
/// of the word for a given lane, and the lanes differ in structure. It does not resist an attacker
/// who constructs collisions. Among n states that are not chosen to collide, the chance of a
/// collision is about n² / 2¹²⁹.
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
    use std::collections::HashSet;

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
