//! The small languages inside strings, word by word. `step.rs` has the steps of a script,
//! `moment.rs` the moments at which a fault strikes, `length.rs` the lengths of time. This module
//! does not know whether the names exist in the scenario; `read/check` checks that.

use std::fmt;

use super::length::Length;
use crate::name::Name;
use crate::named;

mod moment;
mod step;

pub use moment::{EventKind, Moment};
pub use step::{AccessKind, Step};

named! {
    /// The purpose of a request, by its effect on a key.
    #[derive(Default)]
    pub enum Class {
        /// The request sets a key that must not exist.
        Acquire = "acquire",
        /// The request prolongs a key.
        Extend = "extend",
        /// The request deletes a key.
        Release = "release",
        /// The request enters the fair queue, or leaves it. It touches no key of a lock.
        Queue = "queue",
        /// No request: a master notifies a client that a resource became free.
        WakeUp = "wake-up",
        /// Any request.
        #[default]
        Any = "any",
    }
}

/// The words of a string, taken one after the other.
struct Words<'a> {
    text: &'a str,
    rest: std::iter::Peekable<std::str::SplitWhitespace<'a>>,
    wanted: &'static str,
}

impl<'a> Words<'a> {
    fn of(text: &'a str, wanted: &'static str) -> Self {
        Self { text, rest: text.split_whitespace().peekable(), wanted }
    }

    fn wrong(&self, why: impl fmt::Display) -> String {
        format!("`{}`: {why}; write {}", self.text, self.wanted)
    }

    fn next(&mut self, what: &str) -> Result<&'a str, String> {
        self.rest.next().ok_or_else(|| self.wrong(format_args!("{what} is missing")))
    }

    fn name(&mut self, what: &str) -> Result<Name, String> {
        let word = self.next(what)?;
        let good = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
        if !word.chars().all(good) {
            return Err(self.wrong(format_args!(
                "`{word}` is no name for {what}: use letters, digits and . _ : -"
            )));
        }
        Ok(word.into())
    }

    /// The name after a word, if the word is next.
    fn name_after(&mut self, word: &str, what: &str) -> Result<Option<Name>, String> {
        self.rest.next_if_eq(&word).map(|_| self.name(what)).transpose()
    }

    fn length(&mut self, after: &str) -> Result<Length, String> {
        self.next(&format!("the time after `{after}`"))?.parse()
    }

    /// The length after a word, if the word is next.
    fn option(&mut self, word: &str) -> Result<Option<Length>, String> {
        self.rest.next_if_eq(&word).map(|_| self.length(word)).transpose()
    }

    fn end<T>(mut self, value: T) -> Result<T, String> {
        match self.rest.next() {
            Some(word) => Err(self.wrong(format_args!("`{word}` is too much"))),
            None => Ok(value),
        }
    }
}

/// A time without spaces, so that it is one word: `1s500ms`.
fn compact(length: Length) -> String {
    length.to_string().replace(' ', "")
}
