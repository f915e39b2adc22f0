//! Helpers that several commands share: errors, JSON, words for a shell.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use super::Code;

/// Prints an error and its remedy on standard error.
pub(super) fn complain(wrong: &str, mend: &str) {
    // If standard error is closed, the message is dropped.
    drop(writeln!(io::stderr(), "error: {wrong}\n  = help: {mend}"));
}

/// Prints a line. A closed pipe is not an error.
pub(super) fn say(text: &str) -> Code {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("standard output cannot be written: {error}"), "look where it leads");
            Code::Environment
        }
        _ => Code::AsExpected,
    }
}

/// Prints a value as JSON.
pub(super) fn say_json(value: &impl Serialize) -> Code {
    match serde_json::to_string_pretty(value) {
        Ok(text) => say(&text),
        Err(error) => {
            complain(&format!("this is no JSON: {error}"), "please report it");
            Code::Internal
        }
    }
}

/// Whether output to a stream has colours: it is a terminal, and the environment does not disable
/// them.
pub(crate) fn colourful(stream: &impl IsTerminal) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !set("NO_COLOR") && !dumb
}

/// A word, quoted for a shell where necessary.
pub(crate) fn shell_word(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        Cow::Borrowed(word)
    } else {
        Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_part_them() {
        assert_eq!(shell_word("scenarios/a-b.toml"), "scenarios/a-b.toml");
        assert_eq!(shell_word("python3 x.py"), "'python3 x.py'");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
