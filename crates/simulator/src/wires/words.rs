//! What commands and replies mean for a key.

use std::collections::VecDeque;
use std::sync::Arc;

use redquorum_protocol::wire::Command;
use redquorum_protocol::{Key, Reply, Token};
use redquorum_redis_model::Request;

use super::Payload;
use redquorum_scenario::Mutant;
use redquorum_scenario::history::{Act, Outcome, text_of};
use redquorum_scenario::name::Name;

/// How many tokens are cached: enough for the few clients that are acquiring.
const TOKENS: usize = 8;

/// Caches the text of all keys and of recent tokens, since each of them goes to every master.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    keys: Vec<(Key, Name)>,
    /// The latest one is the last.
    tokens: VecDeque<(Token, Name)>,
}

impl Texts {
    /// The effect of a command on a key, as the wire shows it. `None` if it touches no key.
    pub(super) fn act(&mut self, mutant: Mutant, command: &Command) -> Option<Act> {
        let Self { keys, tokens } = self;
        let token = |token| text_of_token(tokens, mutant.on_the_wire(token));
        let act = Act::of(command.key_effect(), |key| text_of_key(keys, key), token)?;
        let compares = !matches!(
            (mutant, command),
            (Mutant::ExtendWithoutTokenCheck, Command::Keep { .. })
                | (Mutant::PlainDel, Command::Delete { .. })
                | (Mutant::CertifiesAnywhere, Command::Certify { .. })
        );
        Some(if compares { act } else { act.uncompared() })
    }
}

fn text_of_key(keys: &mut Vec<(Key, Name)>, key: &Key) -> Name {
    let known = |(known, _): &&(Key, Name)| Arc::ptr_eq(known, key) || known == key;
    if let Some((_, text)) = keys.iter().find(known) {
        return text.clone();
    }
    let text = text_of(key);
    keys.push((key.clone(), text.clone()));
    text
}

fn text_of_token(tokens: &mut VecDeque<(Token, Name)>, token: Token) -> Name {
    // It is mostly the same token as before, on its way to the next master.
    if let Some((_, text)) = tokens.iter().rfind(|(known, _)| *known == token) {
        return text.clone();
    }
    if tokens.len() == TOKENS {
        tokens.pop_front();
    }
    let text = text_of(token.as_bytes());
    tokens.push_back((token, text.clone()));
    text
}

/// Approximate size of a message in bytes.
pub(super) fn size_of(payload: &Payload) -> u64 {
    match payload {
        Payload::Request(Request::Lock(command) | Request::Mutant(command, _)) => {
            command.size_hint() as u64
        }
        Payload::Request(_) => 400,
        Payload::Reply { .. } => 40,
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
