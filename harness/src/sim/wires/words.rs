//! How commands look on the wire, and what commands and replies mean for a key.

use std::sync::Arc;

use redquorum_protocol::wire::Command;
use redquorum_protocol::{Key, Reply, Token};
use redquorum_redis_model::Request;

use crate::history::{Act, Outcome, text_of};
use crate::mutants::Mutant;
use crate::name::Name;
use crate::scenario::Class;

/// How many tokens are cached: enough for the few clients that are acquiring.
const TOKENS: usize = 8;

/// Caches the text of recent keys and tokens, since each of them goes to every master.
#[derive(Clone, Debug, Default)]
pub(in crate::sim) struct Texts {
    keys: Vec<(Key, Name)>,
    tokens: Vec<(Token, Name)>,
    /// The latest token that was looked up.
    latest: usize,
    /// The token to replace next.
    oldest: usize,
}

impl Texts {
    /// The effect of a command on a key, as the wire shows it. `None` if it touches no key.
    pub(super) fn act(&mut self, mutant: Mutant, command: &Command) -> Option<Act> {
        Some(match command {
            Command::Set { key, token, ttl_ms, .. }
            | Command::Guarded { key, token, ttl_ms, .. } => {
                let token = self.token(mutant.on_the_wire(*token));
                Act::Set { key: self.key(key), token, ttl_ms: Some(*ttl_ms) }
            }
            Command::Keep { key, token, ttl_ms, .. } => {
                let compares = mutant != Mutant::ExtendWithoutTokenCheck;
                let token = compares.then(|| self.token(mutant.on_the_wire(*token)));
                Act::Keep { key: self.key(key), token, ttl_ms: Some(*ttl_ms) }
            }
            Command::Delete { key, token, .. } => {
                let compares = mutant != Mutant::PlainDel;
                let token = compares.then(|| self.token(mutant.on_the_wire(*token)));
                Act::Delete { key: self.key(key), token }
            }
            Command::Certify { key, token, .. } => {
                let compares = mutant != Mutant::CertifiesAnywhere;
                let token = compares.then(|| self.token(mutant.on_the_wire(*token)));
                Act::Certify { key: self.key(key), token }
            }
            // These change no lock's key.
            Command::Enqueue { .. }
            | Command::Dequeue { .. }
            | Command::Watch { .. }
            | Command::Initialize { .. }
            | Command::Kill { .. }
            | Command::Hello
            | Command::Subscribe { .. }
            | Command::Load(_)
            | Command::Probe => return None,
        })
    }

    fn key(&mut self, key: &Key) -> Name {
        let known = |(known, _): &&(Key, Name)| Arc::ptr_eq(known, key) || known == key;
        if let Some((_, text)) = self.keys.iter().find(known) {
            return text.clone();
        }
        let text = text_of(key);
        self.keys.push((key.clone(), text.clone()));
        text
    }

    fn token(&mut self, token: Token) -> Name {
        // It is mostly the same token as before, on its way to the next master.
        let latest = self.tokens.get(self.latest).filter(|(known, _)| *known == token);
        if let Some((_, text)) = latest {
            return text.clone();
        }
        if let Some(place) = self.tokens.iter().position(|(known, _)| *known == token) {
            self.latest = place;
            return self.tokens[place].1.clone();
        }
        let text = text_of(token.as_bytes());
        if self.tokens.len() < TOKENS {
            self.latest = self.tokens.len();
            self.tokens.push((token, text.clone()));
        } else {
            self.latest = self.oldest;
            self.tokens[self.oldest] = (token, text.clone());
            self.oldest = (self.oldest + 1) % TOKENS;
        }
        text
    }
}

/// The class of a command.
pub(super) const fn class_of(command: &Command) -> Class {
    match command {
        Command::Set { .. } | Command::Guarded { .. } | Command::Certify { .. } => Class::Acquire,
        Command::Keep { .. } => Class::Extend,
        Command::Delete { .. } => Class::Release,
        Command::Enqueue { .. } | Command::Dequeue { .. } => Class::Line,
        _ => Class::Any,
    }
}

/// Encodes a command, as the mutant does, as a request.
pub(super) fn request(mutant: Mutant, command: Command) -> Request {
    match (mutant, command) {
        (Mutant::PlainDel, Command::Delete { key, .. }) => Request::words(&[b"DEL", &key]),
        (Mutant::ExtendWithoutTokenCheck, Command::Keep { key, ttl_ms, .. }) => {
            Request::words(&[b"PEXPIRE", &key, ttl_ms.to_string().as_bytes()])
        }
        (_, command) => {
            match mutant.script_mutant().filter(|script_mutant| script_mutant.is_about(&command)) {
                Some(script_mutant) => Request::Mutant(command, script_mutant),
                None if mutant == Mutant::OneToken => Request::Lock(mutant.with_token(&command)),
                None => Request::Lock(command),
            }
        }
    }
}

/// Approximate size of a request in bytes.
pub(super) fn size_of(request: &Request) -> u64 {
    match request {
        Request::Lock(command) | Request::Mutant(command, _) => command.size_hint() as u64,
        _ => 400,
    }
}

/// The outcome of a command according to its reply.
pub(super) fn outcome_of(act: &Act, reply: &Reply) -> Outcome {
    match (act, reply) {
        (act, Reply::Stamped { reply, .. }) => outcome_of(act, reply),
        (Act::Keep { .. }, Reply::Created) => Outcome::Created,
        (
            _,
            Reply::Created
            | Reply::Granted { .. }
            | Reply::Certified { .. }
            | Reply::Kept
            | Reply::Deleted
            | Reply::Freed { .. },
        ) => Outcome::Done,
        (_, Reply::Unknown(_)) => Outcome::Error,
        _ => Outcome::Refused,
    }
}
