//! Output: the only writer of messages to the harness, and the clock of their stamps. The mutants
//! use it, too.

use std::io::{Write, stdout};
use std::process::exit;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::stamp;
use redquorum_scenario::client_protocol::{ClientLine, ClientReply, FailureReason, Notice};
use redquorum_scenario::units::nanos;

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

    /// Sends a message.
    pub(crate) fn tell(&self, message: ClientLine) {
        match self {
            Self::Stdout => write(&message),
            // The send fails only if the run is over.
            Self::Channel(to, _) => drop(to.send(message)),
        }
    }

    /// Answers a request.
    pub(crate) fn reply(&self, reply: ClientReply) {
        self.tell(ClientLine::Reply(reply));
    }

    /// Answers a request that succeeded at once.
    pub(crate) fn done(&self, id: u64) {
        self.reply(ClientReply::stamped(id, None, self.now(), Ok(())));
    }

    /// Answers a request that failed.
    pub(crate) fn refuse(&self, id: u64, why: FailureReason, text: impl Into<String>) {
        self.reply(ClientReply::stamped(id, None, self.now(), Err((why, text.into()))));
    }

    /// Sends a notice, which answers no request.
    pub(crate) fn notify(&self, notice: Notice) {
        self.tell(ClientLine::Notice(notice));
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
        match serde_json::from_str::<Numbered>(line) {
            Ok(Numbered { id, op }) if error.to_string().starts_with("unknown variant") => {
                self.refuse(id, FailureReason::Unsupported, format!("there is no op {op:?} here"));
            }
            Ok(Numbered { id, .. }) => {
                let why = format!("the request is not understood: {error}");
                self.refuse(id, FailureReason::Error, why);
            }
            Err(_) => eprintln!("no request: {error}: {line}"),
        }
    }
}

fn write(message: &ClientLine) {
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
