//! Voice: the only writer to standard output. It writes whole lines, at once. The mutants use it,
//! too.

use std::io::{Write, stdout};
use std::process::exit;

use serde::Serialize;

use crate::client_protocol::{Answer, FailureReason, Notice};

/// The writer of messages to the harness.
#[derive(Clone, Copy)]
pub(crate) struct Output;

impl Output {
    /// Answers a request.
    pub(crate) fn answer(self, answer: &Answer) {
        self.say(answer);
    }

    /// Answers a request that failed.
    pub(crate) fn refuse(self, id: u64, why: FailureReason, text: impl Into<String>) {
        let (why, text) = (Some(why), Some(text.into()));
        self.say(&Answer { id, at_ns: Some(crate::stamp::now()), why, text, ..Answer::default() });
    }

    /// Sends a notice, which answers no request.
    pub(crate) fn tell(self, notice: &Notice) {
        self.say(notice);
    }

    /// Answers a line that is not a valid request, if it contains at least the number of a request.
    pub(crate) fn refuse_line(self, line: &str, error: &serde_json::Error) {
        /// The part of a request that an answer needs.
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
                self.refuse(
                    id,
                    FailureReason::Error,
                    format!("the request is not understood: {error}"),
                );
            }
            Ok(Numbered { id, op }) => {
                self.refuse(id, FailureReason::Unsupported, format!("there is no op {op:?} here"));
            }
            Err(_) => eprintln!("no request: {error}: {line}"),
        }
    }

    fn say(self, what: &impl Serialize) {
        let mut line = serde_json::to_vec(what).unwrap_or_else(|why| {
            unreachable!("numbers, texts and enums are always JSON, but: {why}")
        });
        line.push(b'\n');
        // The lock covers both calls, so that lines do not mix.
        let mut out = stdout().lock();
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            // The harness no longer reads.
            exit(0);
        }
    }
}
