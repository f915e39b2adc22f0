//! `break`: takes a lease away from its holder, by compare-and-delete of its keys.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use redquorum::Token;
use redquorum_protocol::wire::Command;
use redquorum_protocol::{Key, NodeSet, WakeUp};

use crate::codes::Code;
use crate::line::{AskError, Line, Value, on_all};
use crate::options::{LockOptions, plan_of};
use crate::{complain, runtime, say};

pub(crate) const HELP: &str = "\
The holder learns of it at its next extension, which comes within a third of its TTL, or else at its
deadline. Until then it believes that it holds the resource. Only a resource that compares fencing
tokens is safe meanwhile.

Exit codes:
  0    the lease is broken
  1    no master has a key with this token, or the answer was no
  64   the command line or an option is wrong
  69   too few masters answered: the lease may go on";

/// Which lease, and whether to ask.
#[derive(Debug, Args)]
pub(crate) struct BreakOptions {
    /// The resource
    #[arg(value_name = "RESOURCE")]
    resource: OsString,
    /// The token of the holder, as `redquorum holder` shows it: 8 hexadecimal digits, or more
    #[arg(long, value_name = "ID", value_parser = token_id)]
    token: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    lock: LockOptions,
}

fn token_id(text: &str) -> Result<String, String> {
    let digits = text.trim_end_matches('…').to_ascii_lowercase();
    let are_digits = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if are_digits && (8..=40).contains(&digits.len()) {
        return Ok(digits);
    }
    Err("write the 8 hexadecimal digits that `redquorum holder` shows".to_owned())
}

/// The digits of a token.
fn digits(token: &Token) -> String {
    token.as_bytes().iter().take(20).map(|byte| format!("{byte:02x}")).collect()
}

/// Looks, asks, and breaks.
pub(crate) fn main(options: BreakOptions) -> Result<Code, Code> {
    let plan = plan_of(&options.lock.builder()?, &options.resource)?;
    let key: Key = [&plan.prefix, options.resource.as_bytes()].concat().into();
    runtime()?.block_on(async {
        let found = on_all(&plan.nodes, {
            let key = key.clone();
            move |line| look(line, key.clone())
        })
        .await;
        let mut named = Vec::new();
        for (node, found) in plan.nodes.iter().zip(&found) {
            if let Err(why) = found {
                eprintln!("redquorum: {}: {why}", node.name());
            }
            let ours =
                found.iter().flatten().filter(|token| digits(token).starts_with(&options.token));
            named.extend(ours.map(|token| (node.name(), *token)));
        }
        let silent = silent(&found);
        let is_enough = !plan.quorum.may_be_a_rivals(silent);
        let Some(token) = named.first().map(|(_, token)| *token) else {
            if !is_enough {
                return Err(unavailable(silent.len(), found.len()));
            }
            let wrong =
                format!("no master has a key of {} with this token", options.resource.display());
            return Err(complain(Code::NO, &wrong, "redquorum holder shows who holds it now"));
        };
        if named.iter().any(|(_, other)| *other != token) {
            let fix = "give more of its digits: redis-cli GET shows them";
            return Err(complain(Code::USAGE, "several tokens begin with these digits", fix));
        }
        let masters: Vec<&str> = named.iter().map(|(name, _)| &**name).collect();
        let about =
            About { resource: &options.resource, token, masters: &masters, of: found.len() };
        if !options.yes && !is_confirmed(&about)? {
            return Ok(Code::NO);
        }
        let deleted = on_all(&plan.nodes, move |line| delete(line, key.clone(), token)).await;
        for (node, deleted) in plan.nodes.iter().zip(&deleted) {
            if let Err(why) = deleted {
                eprintln!("redquorum: {}: {why}", node.name());
            }
        }
        let silent = self::silent(&deleted);
        // A lease needs a quorum of keys.
        if plan.quorum.may_be_a_rivals(silent) {
            return Err(unavailable(silent.len(), deleted.len()));
        }
        let done = deleted.iter().filter(|deleted| **deleted == Ok(true)).count();
        say(&format!("broken: {about}; {done} keys are deleted"))
    })
}

/// The masters that did not answer.
fn silent<T>(replies: &[Result<T, String>]) -> NodeSet {
    NodeSet::which(replies, Result::is_err)
}

fn unavailable(silent: usize, all: usize) -> Code {
    let wrong = format!("{silent} of {all} masters did not answer");
    complain(Code::UNAVAILABLE, &wrong, "look at them: redquorum doctor; then try again")
}

/// What is broken.
struct About<'a> {
    resource: &'a OsString,
    token: Token,
    masters: &'a [&'a str],
    of: usize,
}

impl fmt::Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, token, masters, of } = self;
        let kind = if token.is_shared() { "the shared lease" } else { "the lease" };
        write!(f, "{kind} of {}, token {token:?}", resource.display())?;
        if let Some(name) = token.name() {
            write!(f, ", held by {name:?}")?;
        }
        write!(f, ", on {} of {of} masters", masters.len())
    }
}

/// Asks on the terminal.
fn is_confirmed(about: &About<'_>) -> Result<bool, Code> {
    if !io::stdin().is_terminal() {
        return Err(complain(Code::USAGE, "there is nobody to ask", "add --yes"));
    }
    drop(write!(io::stderr(), "This breaks {about}. Its holder may still act. Break it? [y/N] "));
    let mut answer = String::new();
    drop(io::stdin().lock().read_line(&mut answer));
    Ok(["y", "yes"].contains(&&*answer.trim().to_lowercase()))
}

/// The tokens in a key: its value, or the members of a set.
async fn look(mut line: Line, key: Key) -> Result<Vec<Token>, AskError> {
    let values = match line.ask(&[b"GET", &key]).await {
        Err(AskError::Refused(text)) if text.starts_with("WRONGTYPE") => {
            match line.ask(&[b"ZRANGE", &key, b"0", b"-1"]).await {
                // Of another program.
                Err(AskError::Refused(text)) if text.starts_with("WRONGTYPE") => Value::Nil,
                values => values?,
            }
        }
        value => value?,
    };
    let token = |value: &Value| match value {
        Value::Bytes(bytes) => Token::from_slice(bytes),
        _ => None,
    };
    Ok(match &values {
        Value::List(all) => all.iter().filter_map(token).collect(),
        value => token(value).into_iter().collect(),
    })
}

/// Deletes the key if it has this token, and wakes who waits for it, like a release. Returns
/// whether it had.
async fn delete(mut line: Line, key: Key, token: Token) -> Result<bool, AskError> {
    let command = Command::Delete { key, token, wake_up: WakeUp::First, leave: None };
    let reply = match line.run(&command).await {
        Err(AskError::Refused(text)) if text.starts_with("NOSCRIPT") => {
            if let Some(script) = command.script() {
                line.run(&Command::Load(script)).await?;
            }
            line.run(&command).await?
        }
        reply => reply?,
    };
    // 0 means no key, and a list the one of another holder.
    Ok(matches!(reply, Value::Integer(count) if count != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_named_by_its_first_digits() {
        let token = Token::new([0xab; 20]);
        assert_eq!(digits(&token), "ab".repeat(20));
        assert_eq!(token_id(&format!("{token:?}")).unwrap(), "abababab");
        assert_eq!(token_id("ABABABABAB").unwrap(), "ababababab");
        for wrong in ["", "abab", "xyxyxyxy", &"ab".repeat(21)] {
            assert!(token_id(wrong).unwrap_err().contains("holder"), "{wrong}");
        }
    }
}
