//! Numbers as the page prints them.

/// A count with a thin space between groups of three digits.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let parts = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    parts.collect::<Vec<_>>().join("\u{202f}")
}

/// The range of some counts: one number if they are equal.
pub(super) fn range(numbers: impl IntoIterator<Item = u64>) -> String {
    let mut numbers: Vec<_> = numbers.into_iter().collect();
    numbers.sort_unstable();
    match (numbers.first(), numbers.last()) {
        (Some(first), Some(last)) if first == last => count(*first),
        (Some(first), Some(last)) => format!("{}–{}", count(*first), count(*last)),
        _ => String::new(),
    }
}

/// A time in milliseconds, in seconds from one second on.
pub(super) fn time(ms: f64) -> String {
    if ms >= 1000.0 {
        format!("{:.1} s", ms / 1000.0)
    } else if ms >= 9.95 {
        format!("{ms:.0} ms")
    } else {
        format!("{ms:.1} ms")
    }
}

/// A long time in seconds, in minutes from two minutes on.
pub(super) fn duration(seconds: f64) -> String {
    if seconds >= 120.0 { format!("{:.0} min", seconds / 60.0) } else { format!("{seconds:.0} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_units() {
        assert_eq!(count(7), "7");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(range([50, 50]), "50");
        assert_eq!(range([17, 9, 14]), "9–17");
        assert_eq!(time(0.42), "0.4 ms");
        assert_eq!(time(42.4), "42 ms");
        assert_eq!(time(3_050.0), "3.0 s");
        assert_eq!(duration(75.0), "75 s");
        assert_eq!(duration(2_471.0), "41 min");
    }
}
