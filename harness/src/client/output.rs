//! Output: the only writer of messages to the harness, and the clock of their stamps. The mutants
//! use it, too.

use std::io::{Write, stdout};
use std::process::exit;

use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client_protocol::{ClientLine, ClientReply, FailureReason, Notice};
use crate::stamp;
use crate::units::nanos;

/// The writer of messages to the harness.
#[derive(Clone)]
pub(crate) enum Output {
    /// Writes whole lines to standard output, at once. Stamps are of `CLOCK_MONOTONIC`.
    Stdout,
    /// Sends messages to the harness in the same process. Stamps are of Tokio's clock, counted from
    /// this instant.
    Channel(mpsc::UnboundedSender<ClientLine>, Instant),
}

impl Output {
    /// The current time, as a stamp.
    pub(crate) fn now(&self) -> i64 {
        match self {
            Self::Stdout => stamp::now(),
            Self::Channel(_, origin) => nanos(origin.elapsed()),
        }
    }

    /// Answers a request.
    pub(crate) fn reply(&self, reply: &ClientReply) {
        match self {
            Self::Stdout => write(reply),
            Self::Channel(to, _) => send(to, ClientLine::Reply(reply.clone())),
        }
    }

    /// Answers a request that failed.
    pub(crate) fn refuse(&self, id: u64, why: FailureReason, text: impl Into<String>) {
        let (why, text) = (Some(why), Some(text.into()));
        self.reply(&ClientReply {
            id,
            at_ns: Some(self.now()),
            why,
            text,
            ..ClientReply::default()
        });
    }

    /// Sends a notice, which answers no request.
    pub(crate) fn notify(&self, notice: &Notice) {
        match self {
            Self::Stdout => write(notice),
            Self::Channel(to, _) => send(to, ClientLine::Notice(notice.clone())),
        }
    }

    /// Answers a line that is not a valid request, if it contains at least the number of a request.
    pub(crate) fn refuse_line(&self, line: &str, error: &serde_json::Error) {
        /// The part of a request that a reply needs.
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
}

fn send(to: &mpsc::UnboundedSender<ClientLine>, message: ClientLine) {
    // The send fails only if the run is over.
    let _ = to.send(message);
}

fn write(message: &impl Serialize) {
    let mut line = serde_json::to_vec(message)
        .unwrap_or_else(|why| unreachable!("numbers, texts and enums are always JSON, but: {why}"));
    line.push(b'\n');
    // The lock covers both calls, so that lines do not mix.
    let mut out = stdout().lock();
    if out.write_all(&line).and_then(|()| out.flush()).is_err() {
        // The harness no longer reads.
        exit(0);
    }
}
