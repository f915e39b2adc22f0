//! Voice: the one writer to standard output. Whole lines, written at once. The saboteurs speak with
//! it, too.

use std::io::{Write, stdout};
use std::process::exit;

use serde::Serialize;

use crate::talk::{Answer, Notice, Why};

/// Speaks to the harness.
#[derive(Clone, Copy)]
pub(crate) struct Voice;

impl Voice {
    /// Answers a request.
    pub(crate) fn answer(self, answer: &Answer) {
        self.say(answer);
    }

    /// Answers a request that was not done.
    pub(crate) fn refuse(self, id: u64, why: Why, text: impl Into<String>) {
        let (why, text) = (Some(why), Some(text.into()));
        self.say(&Answer { id, at_ns: Some(crate::stamp::now()), why, text, ..Answer::default() });
    }

    /// Says something unasked.
    pub(crate) fn tell(self, notice: &Notice) {
        self.say(notice);
    }

    /// Answers a line that is no request, if it says at least which one it is.
    pub(crate) fn refuse_line(self, line: &str, error: &serde_json::Error) {
        /// As much as is needed to answer.
        #[derive(serde::Deserialize)]
        struct Numbered {
            id: u64,
            #[serde(default)]
            op: String,
        }
        const KNOWN: [&str; 8] = [
            "acquire",
            "acquire_all",
            "extend",
            "keep_alive",
            "release",
            "release_all",
            "cancel",
            "step",
        ];
        match serde_json::from_str::<Numbered>(line) {
            Ok(Numbered { id, op }) if KNOWN.contains(&op.as_str()) => {
                self.refuse(id, Why::Error, format!("the request is not understood: {error}"));
            }
            Ok(Numbered { id, op }) => {
                self.refuse(id, Why::Unsupported, format!("there is no op {op:?} here"));
            }
            Err(_) => eprintln!("no request: {error}: {line}"),
        }
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
