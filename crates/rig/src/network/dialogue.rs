//! Matches replies to requests. RESP has no message ids: replies come in the order of requests, and
//! this file knows the exceptions. Of a protocol that the network does not parse, everything that
//! a server sends answers what its client sent last. Called by `connection.rs`.

use std::{collections::VecDeque, sync::Arc};

use super::framing::Protocol;
use crate::RespValue;

/// The largest total size of repeated `AUTH`, `HELLO` or `SELECT` requests. Beyond it none are
/// remembered.
const MAX_SESSION_BYTES: usize = 64 * 1024;

/// The identity of a message, as rules and the observer receive it.
#[derive(Debug, Clone)]
pub(super) struct Label {
    pub(super) number: u64,
    pub(super) command: Arc<[Vec<u8>]>,
}

impl Label {
    /// The label of a reply that answers no request, and of data that is no message.
    pub(super) fn none() -> Self {
        Self { number: 0, command: Arc::new([]) }
    }

    /// The label of a push message of a master: its words, such as `message`, the channel and the
    /// payload.
    fn push(message: &RespValue) -> Self {
        let RespValue::Array(words) = message else { return Self::none() };
        let words = words.iter().filter_map(RespValue::text).map(|text| text.as_bytes().to_vec());
        Self { number: 0, command: words.collect() }
    }
}

/// The requests that a new connection must send to be treated as this one.
#[derive(Debug, Clone, Default)]
pub(super) struct Session {
    pub(super) bytes: Vec<u8>,
    /// The number of these requests.
    pub(super) requests: usize,
}

/// The requests of a connection, and which of them wait for a reply.
#[derive(Debug)]
pub(super) struct Dialogue {
    protocol: Protocol,
    requests: u64,
    unanswered: VecDeque<Label>,
    /// Whether replies cannot be distinguished from push messages any more.
    unmatched: bool,
    pub(super) session: Session,
}

impl Dialogue {
    pub(super) fn new(protocol: Protocol) -> Self {
        let (unanswered, session) = (VecDeque::new(), Session::default());
        Self { protocol, requests: 0, unanswered, unmatched: false, session }
    }

    /// Handles a request.
    pub(super) fn request(&mut self, words: Vec<Vec<u8>>) -> Label {
        self.requests += 1;
        Label { number: self.requests, command: words.into() }
    }

    /// Records that the request was not lost: the master will answer it.
    pub(super) fn expect(&mut self, label: &Label, frame: &[u8]) {
        if self.unmatched {
            return;
        }
        if self.protocol == Protocol::Opaque {
            self.unanswered = [label.clone()].into();
            return;
        }
        if is(&label.command, &["AUTH", "HELLO", "SELECT"])
            && self.session.bytes.len() + frame.len() <= MAX_SESSION_BYTES
        {
            self.session.bytes.extend_from_slice(frame);
            self.session.requests += 1;
        }
        self.unanswered.push_back(label.clone());
    }

    /// Handles a reply, and returns the label of its request. `push`: it is a RESP3 push.
    pub(super) fn answered(&mut self, reply: &RespValue, push: bool) -> Label {
        if self.protocol == Protocol::Opaque {
            return self.unanswered.front().cloned().unwrap_or_else(Label::none);
        }
        let Some(command) = self.unanswered.front().map(|label| &label.command) else {
            return if push { Label::push(reply) } else { Label::none() };
        };
        // A confirmation is an array in RESP2 and a push in RESP3. One request has several.
        let confirms = is(command, &SUBSCRIBING)
            && matches!(reply, RespValue::Array(values) if values.first().is_some_and(is_confirmation));
        if push && !confirms {
            return Label::push(reply);
        }
        let streams =
            is(command, &["MONITOR", "SYNC", "PSYNC"]) && !matches!(reply, RespValue::Error(_));
        // It gets no reply, and neither do the requests behind it.
        let silences = is(command, &["CLIENT"])
            && command.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"REPLY"))
            && command.get(2).is_some_and(|word| !word.eq_ignore_ascii_case(b"ON"));
        let label = self.unanswered.pop_front().unwrap_or_else(Label::none);
        if streams || silences || (confirms && !push) {
            self.unmatched = true;
            self.unanswered.clear();
        }
        if silences { Label::none() } else { label }
    }
}

const SUBSCRIBING: [&str; 6] =
    ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"];

fn is(command: &[Vec<u8>], names: &[&str]) -> bool {
    let Some(word) = command.first() else { return false };
    names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
}

fn is_confirmation(value: &RespValue) -> bool {
    value.text().is_some_and(|text| text.ends_with("subscribe"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(dialogue: &mut Dialogue, words: &str) {
        let label =
            dialogue.request(words.split(' ').map(|word| word.as_bytes().to_vec()).collect());
        dialogue.expect(&label, words.as_bytes());
    }

    #[test]
    fn replies_answer_requests_in_order_until_none_can_be_matched() {
        let ok = RespValue::Status("OK".to_owned());
        let refusal = RespValue::Error("NOPERM".to_owned());
        for (words, first, numbers) in [
            ("SET k v", &ok, [1, 2, 0]),
            ("SUBSCRIBE news", &refusal, [1, 2, 0]),
            ("MONITOR", &refusal, [1, 2, 0]),
            ("MONITOR", &ok, [1, 0, 0]),
            ("CLIENT REPLY OFF", &ok, [0, 0, 0]),
            ("client reply skip", &ok, [0, 0, 0]),
        ] {
            let mut dialogue = Dialogue::new(Protocol::Resp);
            ask(&mut dialogue, words);
            ask(&mut dialogue, "GET k");
            let found = [first, &ok, &ok].map(|reply| dialogue.answered(reply, false).number);
            assert_eq!(found, numbers, "{words}: {first:?}");
        }
    }
}
