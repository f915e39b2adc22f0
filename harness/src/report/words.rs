//! Words that several reports share: causes, words for a shell, colours for a terminal.

use std::borrow::Cow;
use std::io::IsTerminal;

use redquorum_scenario::Cause;

/// A cause in the output. In a scenario file, `bug` is clear; here, the text names the lock.
pub(super) const fn label(cause: Cause) -> &'static str {
    match cause {
        Cause::Bug => "a bug of the lock",
        other => other.name(),
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
        for (word, quoted) in [
            ("scenarios/a-b.toml", "scenarios/a-b.toml"),
            ("python3 x.py", "'python3 x.py'"),
            ("it's", "'it'\\''s'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(word), quoted);
        }
    }
}
