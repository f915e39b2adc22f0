//! Error replies: what the texts of each supported server mean.

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
#[derive(Clone, Copy, Debug)]
pub struct KnownError {
    /// The command that provokes the error, as words separated by spaces. A script is one word in
    /// quotes.
    pub command: &'static str,
    /// What the error means.
    pub kind: ErrorKind,
    /// The texts, each with the versions that reply so, separated by spaces: `6.2 7.0`. The name of
    /// a script is `<sha1>`, and each line number is `1`.
    pub texts: &'static [(&'static str, &'static str)],
}

/// The versions that [`KNOWN_ERRORS`] covers: Redis 6.2, 7.0 and 8.2, and Valkey 9.1.
pub const KNOWN_VERSIONS: [&str; 4] = ["6.2", "7.0", "8.2", "9.1"];

macro_rules! known {
    ($($kind:ident: $command:literal { $($versions:literal: $text:literal)+ })+) => {
        &[$(KnownError {
            command: $command,
            kind: ErrorKind::$kind,
            texts: &[$(($versions, $text)),+],
        }),+]
    };
}

/// The errors that [`ErrorKind::of`] tells apart, and the more frequent others. A test of the
/// library provokes each on a real server and compares the text.
///
/// The user `locker` provokes them. It may run `EVAL`, `EVALSHA`, `PTTL`, `SET` and `TYPE` with the
/// keys `r` and `list`, which is a list. For errors of kind `Other` the server is in the state that
/// the script names.
pub const KNOWN_ERRORS: &[KnownError] = known! {
    Forbidden: "GET r" {
        "6.2": "NOPERM this user has no permissions to run the 'get' command or its subcommand"
        "7.0": "NOPERM this user has no permissions to run the 'get' command"
        "8.2 9.1": "NOPERM User locker has no permissions to run the 'get' command"
    }
    Forbidden: "EVAL \"return redis.call('GET', KEYS[1])\" 1 r" {
        "6.2": "ERR Error running script (call to f_<sha1>): @user_script:1: @user_script: 1: \
                The user executing the script can't run this command or subcommand"
        "7.0": "ERR The user executing the script can't run this command or subcommand \
                script: <sha1>, on @user_script:1."
        "8.2": "ERR ACL failure in script: User locker has no permissions to run the 'get' command \
                script: <sha1>, on @user_script:1."
        "9.1": "ERR ACL failure in script: User locker has no permissions to run the 'get' command \
                script: on @user_script:1."
    }
    Forbidden: "EVAL \"return redis.pcall('GET', KEYS[1])\" 1 r" {
        "6.2": "@user_script: 1: The user executing the script can't run this command or subcommand"
        "7.0": "ERR The user executing the script can't run this command or subcommand"
        "8.2 9.1": "ERR ACL failure in script: User locker has no permissions to run the 'get' command"
    }
    Forbidden: "PTTL other" {
        "6.2 7.0": "NOPERM this user has no permissions to access one of the keys used as arguments"
        "8.2 9.1": "NOPERM No permissions to access a key"
    }
    Forbidden: "EVAL \"return redis.call('PTTL', ARGV[1])\" 0 other" {
        "6.2": "ERR Error running script (call to f_<sha1>): @user_script:1: @user_script: 1: \
                The user executing the script can't access at least one of the keys mentioned in the \
                command arguments"
        "7.0": "ERR The user executing the script can't access at least one of the keys mentioned in the \
                command arguments script: <sha1>, on @user_script:1."
        "8.2": "ERR ACL failure in script: No permissions to access a key \
                script: <sha1>, on @user_script:1."
        "9.1": "ERR ACL failure in script: No permissions to access a key script: on @user_script:1."
    }
    Forbidden: "NOSUCH r" {
        "6.2": "ERR unknown command `NOSUCH`, with args beginning with: `r`, "
        "7.0 8.2 9.1": "ERR unknown command 'NOSUCH', with args beginning with: 'r' "
    }
    Forbidden: "EVAL \"return redis.call('NOSUCH', KEYS[1])\" 1 r" {
        "6.2": "ERR Error running script (call to f_<sha1>): @user_script:1: @user_script: 1: \
                Unknown Redis command called from Lua script"
        "7.0 8.2": "ERR Unknown Redis command called from script script: <sha1>, on @user_script:1."
        "9.1": "ERR Unknown command called from script script: on @user_script:1."
    }
    WrongType: "SET list x GET" {
        "6.2 7.0 8.2 9.1": "WRONGTYPE Operation against a key holding the wrong kind of value"
    }
    WrongType: "EVAL \"return redis.call('SET', KEYS[1], 'x', 'GET')\" 1 list" {
        "6.2": "ERR Error running script (call to f_<sha1>): @user_script:1: \
                WRONGTYPE Operation against a key holding the wrong kind of value"
        "7.0 8.2": "WRONGTYPE Operation against a key holding the wrong kind of value \
                    script: <sha1>, on @user_script:1."
        "9.1": "WRONGTYPE Operation against a key holding the wrong kind of value \
                script: on @user_script:1."
    }
    NoScript: "EVALSHA 0123456789012345678901234567890123456789 0" {
        "6.2 7.0 8.2": "NOSCRIPT No matching script. Please use EVAL."
        "9.1": "NOSCRIPT No matching script."
    }
    Busy: "TYPE r" {
        "6.2 7.0 8.2": "BUSY Redis is busy running a script. You can only call SCRIPT KILL or \
                        SHUTDOWN NOSAVE."
        "9.1": "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or \
                SHUTDOWN NOSAVE."
    }
    Other: "EVAL \"return redis.call('SET', KEYS[1], 'read-only')\" 1 r" {
        "6.2": "ERR Error running script (call to f_<sha1>): @user_script:1: @user_script: 1: \
                -READONLY You can't write against a read only replica."
        "7.0 8.2": "READONLY You can't write against a read only replica. \
                    script: <sha1>, on @user_script:1."
        "9.1": "READONLY You can't write against a read only replica. script: on @user_script:1."
    }
    Other: "EVAL \"return redis.call('SET', KEYS[1], 'no replicas')\" 1 r" {
        "6.2": "ERR Error running script (call to f_<sha1>): @user_script:1: @user_script: 1: \
                -NOREPLICAS Not enough good replicas to write."
        "7.0 8.2": "NOREPLICAS Not enough good replicas to write. \
                    script: <sha1>, on @user_script:1."
        "9.1": "NOREPLICAS Not enough good replicas to write. script: on @user_script:1."
    }
    Other: "EVAL \"return redis.call('SET', KEYS[1], 'out of memory')\" 1 r" {
        "6.2": "ERR Error running script (call to f_<sha1>): @user_script:1: @user_script: 1: \
                -OOM command not allowed when used memory > 'maxmemory'."
        "7.0 8.2": "OOM command not allowed when used memory > 'maxmemory'. \
                    script: <sha1>, on @user_script:1."
        "9.1": "OOM command not allowed when used memory > 'maxmemory'. script: on @user_script:1."
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_one_text_for_each_error_and_all_texts_mean_the_same() {
        for known in KNOWN_ERRORS {
            let versions = known.texts.iter().flat_map(|(versions, _)| versions.split(' '));
            assert!(versions.eq(KNOWN_VERSIONS), "{}", known.command);
            for (versions, text) in known.texts {
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
        for known in KNOWN_ERRORS.iter().filter(|known| known.kind == ErrorKind::Other) {
            let code = |text: &'static str| {
                let code = unwrapped(text.as_bytes()).split(|byte| *byte == b' ').next();
                code.unwrap_or_default()
            };
            let mut codes = known.texts.iter().map(|(_, text)| code(text));
            let first = codes.next().unwrap_or_default();
            assert!(first.iter().all(u8::is_ascii_uppercase) && codes.all(|code| code == first));
        }
        let long =
            "ERR Error running script (call to f_0123): @user_script:31: @user_script: 31: -OOM x";
        assert_eq!(unwrapped(long.as_bytes()), b"OOM x");
    }
}
