//! Mutants: clients with a deliberate bug. They show that scenarios catch broken locks.
//!
//! A mutant drives the shipped state machines, and nothing in them knows of it. An adapter between
//! a machine and its environment falsifies the time, the votes, the random numbers, the effects, or
//! the bytes on the wire. Each mutation is a mistake that some lock library has made.
//!
//! [`Mutant`] lists them all, with what needs no memory. Those that no client process has are in
//! the drivers of the model check.
//!
//! - `claim.rs` is the adapter around a claim.
//! - `votes.rs` makes up votes, and `numbers.rs` falsifies fencing numbers.
//! - `conduct.rs` makes a client process ([`client_machine`](crate::client_machine)) drive the
//!   adapter instead of the claim.

use redquorum_protocol::wire::Command;
use redquorum_redis_model::{Request, ScriptMutant};
use redquorum_scenario::Mutant;

mod claim;
mod conduct;
mod numbers;
mod votes;

/// The request that the mutant sends for a command. The reply is read like one to the command.
pub fn request(mutant: Mutant, mut command: Command) -> Request {
    match (mutant, &command) {
        (Mutant::PlainDel, Command::Delete { key, .. }) => Request::words(&[b"DEL", key]),
        (Mutant::ExtendWithoutTokenCheck, Command::Keep { key, ttl_ms, .. }) => {
            Request::words(&[b"PEXPIRE", key, ttl_ms.to_string().as_bytes()])
        }
        _ => match script_mutant(mutant).filter(|script| script.is_about(&command)) {
            Some(script_mutant) => Request::Mutant(command, script_mutant),
            None => {
                replace_token(mutant, &mut command);
                Request::Lock(command)
            }
        },
    }
}

/// The check that the mutant's scripts leave out.
#[must_use]
pub const fn script_mutant(mutant: Mutant) -> Option<ScriptMutant> {
    match mutant {
        Mutant::CertifiesAnywhere => Some(ScriptMutant::Uncompared),
        Mutant::HintUnclamped => Some(ScriptMutant::Unclamped),
        Mutant::StaysAtEnd => Some(ScriptMutant::Endless),
        _ => None,
    }
}

/// Replaces the token of a command by the value that the mutant sets for it.
fn replace_token(mutant: Mutant, command: &mut Command) {
    if let Command::Set { token, .. }
    | Command::Guarded { token, .. }
    | Command::Keep { token, .. }
    | Command::Certify { token, .. }
    | Command::Delete { token, .. } = command
    {
        *token = mutant.on_the_wire(*token);
    }
}
