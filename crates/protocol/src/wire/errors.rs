//! Error replies: what the texts of each supported server mean.

use alloc::vec::Vec;

/// What an error reply means to the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// The user may not run the command, or not with this key or channel; or the server does not
    /// have the command.
    Forbidden,
    /// The key holds a value of another type.
    WrongType,
    /// The script is not loaded.
    NoScript,
    /// The server executes no commands now: it runs a script, or loads its data.
    Busy,
    /// Any other error: the command may work later.
    Other,
}

/// How the error texts begin, without their code `ERR`.
const BEGINNINGS: [(&[u8], ErrorKind); 10] = [
    (b"NOPERM", ErrorKind::Forbidden),
    // In scripts: before 7.2, and since.
    (b"The user executing the script can't ", ErrorKind::Forbidden),
    (b"ACL failure in script", ErrorKind::Forbidden),
    (b"unknown command", ErrorKind::Forbidden),
    // In scripts: of Redis, and of Valkey.
    (b"Unknown Redis command", ErrorKind::Forbidden),
    (b"Unknown command", ErrorKind::Forbidden),
    (b"WRONGTYPE", ErrorKind::WrongType),
    (b"NOSCRIPT", ErrorKind::NoScript),
    (b"BUSY", ErrorKind::Busy),
    (b"LOADING", ErrorKind::Busy),
];

impl ErrorKind {
    /// The kind of an error reply, given its text without the leading `-`.
    pub fn of(text: &[u8]) -> Self {
        let text = unwrapped(text);
        let text = text.strip_prefix(b"ERR ").unwrap_or(text);
        let known = BEGINNINGS.iter().find(|(beginning, _)| text.starts_with(beginning));
        known.map_or(Self::Other, |(_, kind)| *kind)
    }
}

/// The text of an error as a command outside of scripts has it. Redis 6.2 puts the place in the
/// script before the errors of the script's commands, and so hides their codes:
///
/// ```text
/// ERR Error running script (call to f_…): @user_script:1: @user_script: 1: -READONLY You can't …
/// ```
pub(super) fn unwrapped(text: &[u8]) -> &[u8] {
    const PLACE: &[u8] = b"@user_script:";
    if !text.starts_with(b"ERR Error running script") && !text.starts_with(PLACE) {
        return text;
    }
    let last = text.windows(PLACE.len()).rposition(|part| part == PLACE);
    let behind = last.map_or(text, |at| &text[at + PLACE.len()..]);
    // Skip the number of the line, and a colon.
    let is_place = |byte: &u8| matches!(byte, b' ' | b':' | b'0'..=b'9');
    let start = behind.iter().position(|byte| !is_place(byte)).unwrap_or(0);
    behind[start..].strip_prefix(b"-").unwrap_or(&behind[start..])
}

/// An error of a server, as each supported version words it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownError {
    /// The command that provokes the error, as words separated by spaces. A script is one word in
    /// quotes.
    pub command: &'static str,
    /// What the error means.
    pub kind: ErrorKind,
    /// The texts, each with the versions that reply so, separated by spaces: `6.2 7.0`.
    pub texts: Vec<(&'static str, &'static str)>,
}

/// The versions that [`known_errors`] covers: Redis 6.2, 7.0 and 8.2, and Valkey 9.1.
pub const KNOWN_VERSIONS: [&str; 4] = ["6.2", "7.0", "8.2", "9.1"];

/// The errors of `errors.txt`, for tests.
pub fn known_errors() -> impl Iterator<Item = KnownError> {
    use ErrorKind::{Busy, Forbidden, NoScript, Other, WrongType};
    include_str!("errors.txt").split("\n\n").skip(1).filter_map(|error| {
        let mut lines = error.lines().filter_map(|line| line.split_once(": "));
        let (kind, command) = lines.next()?;
        let is_kind = |of: &ErrorKind| alloc::format!("{of:?}") == kind;
        let kind = [Forbidden, WrongType, NoScript, Busy, Other].into_iter().find(is_kind)?;
        Some(KnownError { command, kind, texts: lines.collect() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_one_text_for_each_error_and_all_texts_mean_the_same() {
        assert_eq!(known_errors().count(), 14);
        for known in known_errors() {
            let versions = known.texts.iter().flat_map(|(versions, _)| versions.split(' '));
            assert!(versions.eq(KNOWN_VERSIONS), "{}", known.command);
            for (versions, text) in &known.texts {
                assert_eq!(ErrorKind::of(text.as_bytes()), known.kind, "{versions}: {text}");
            }
        }
    }

    #[test]
    fn the_arguments_that_an_error_repeats_do_not_change_its_kind() {
        for (text, kind) in [
            (
                "ERR unknown command 'X', with args beginning with: 'WRONGTYPE' ",
                ErrorKind::Forbidden,
            ),
            ("NOPERM User NOSCRIPT has no permissions", ErrorKind::Forbidden),
            ("ERR value is not an integer: NOPERM @user_script: 1: NOPERM", ErrorKind::Other),
            ("LOADING Redis is loading the dataset in memory", ErrorKind::Busy),
            ("", ErrorKind::Other),
            ("@user_script:", ErrorKind::Other),
            ("@user_script: 1: ", ErrorKind::Other),
            ("ERR Error running script", ErrorKind::Other),
        ] {
            assert_eq!(ErrorKind::of(text.as_bytes()), kind, "{text}");
        }
    }

    #[test]
    fn an_error_in_a_script_begins_with_its_code() {
        for known in known_errors().filter(|known| known.kind == ErrorKind::Other) {
            let code =
                |text: &'static str| unwrapped(text.as_bytes()).split(|byte| *byte == b' ').next();
            let mut codes = known.texts.iter().map(|(_, text)| code(text));
            let first = codes.next().flatten();
            assert!(first.unwrap().iter().all(u8::is_ascii_uppercase));
            assert!(codes.all(|code| code == first));
        }
        let long =
            "ERR Error running script (call to f_0123): @user_script:31: @user_script: 31: -OOM x";
        assert_eq!(unwrapped(long.as_bytes()), b"OOM x");
    }
}
