//! Voice: the one writer to standard output. Whole lines, written at once.

use std::io::{Write, stdout};
use std::process::exit;

use serde::Serialize;

use crate::talk::{Answer, Notice, Why};

/// Speaks to the harness.
#[derive(Clone, Copy)]
pub(super) struct Voice;

impl Voice {
    /// Answers a request.
    pub(super) fn answer(self, answer: &Answer) {
        self.say(answer);
    }

    /// Answers a request that was not done.
    pub(super) fn refuse(self, id: u64, why: Why, text: impl Into<String>) {
        let (why, text) = (Some(why), Some(text.into()));
        self.say(&Answer { id, at_ns: Some(crate::stamp::now()), why, text, ..Answer::default() });
    }

    /// Says something unasked.
    pub(super) fn tell(self, notice: &Notice) {
        self.say(notice);
    }

    fn say(self, what: &impl Serialize) {
        let mut line = serde_json::to_vec(what).unwrap_or_else(|why| {
            unreachable!("numbers, texts and enums are always JSON, but: {why}")
        });
        line.push(b'\n');
        // Locked over both, so that no two lines mix.
        let mut out = stdout().lock();
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            // Nobody listens any more.
            exit(0);
        }
    }
}
