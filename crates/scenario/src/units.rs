//! Conversions of lengths of time to numbers, for histories and for the client protocol, and of
//! numbers to text. They do not overflow.

use std::fmt::Display;
use std::time::Duration;

/// Converts to nanoseconds, saturating.
pub fn nanos(length: Duration) -> i64 {
    i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)
}

/// A number of things of this name: `1 fault`, `2 faults`, `2 copies`.
pub fn plural(count: impl Display + PartialEq + From<u8>, name: &str) -> String {
    if count == 1.into() {
        return format!("{count} {name}");
    }
    let stem = name.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    stem.map_or_else(|| format!("{count} {name}s"), |stem| format!("{count} {stem}ies"))
}

/// Converts to whole milliseconds, rounded up, saturating.
pub fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_and_several_have_their_words() {
        for (count, name, text) in
            [(1, "copy", "1 copy"), (2, "copy", "2 copies"), (0, "key", "0 keys")]
        {
            assert_eq!(plural(count, name), text);
        }
    }
}
