//! Text from histories, cut to a length that a page can show, and times.

use redquorum_scenario::history::Ns;

/// The longest text from a history that the page shows.
const LONGEST: usize = 240;

/// A text, cut if it is too long. A note gives the number of characters that are missing.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… ({} bytes more)", &text[..end], text.len() - end),
    }
}

/// A name, cut for a label.
pub(super) fn name(text: &str) -> String {
    let mut short: String = text.chars().take(24).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// The first characters of a token, enough to distinguish it from others.
pub(super) fn token(text: &str) -> String {
    let text = text.strip_prefix("hex:").unwrap_or(text);
    text.chars().take(8).collect()
}

/// A time in milliseconds, to the microsecond: `12.345 ms`.
pub(super) fn ms(ns: Ns) -> String {
    let micros = ns / 1_000;
    let (sign, micros) = (if micros < 0 { "-" } else { "" }, micros.unsigned_abs());
    let decimals = format!("{:03}", micros % 1_000);
    let decimals = decimals.trim_end_matches('0');
    let point = if decimals.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{decimals} ms", micros / 1_000)
}

/// The line of a record in its `history.jsonl`. The first line is the header.
pub(in crate::report) const fn line(record: usize) -> usize {
    record + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_with_a_note() {
        assert_eq!(cut("c1"), "c1");
        let long = cut(&"ä".repeat(10_000));
        assert!(long.starts_with("ää") && long.ends_with("… (19520 bytes more)"), "{long}");
        assert_eq!(name(&"x".repeat(30)).chars().count(), 25);
    }

    #[test]
    fn times_have_as_many_decimals_as_they_need() {
        let texts = [0, 2_650_000, 12_000_000, -50_000, 999].map(ms);
        assert_eq!(texts, ["0 ms", "2.65 ms", "12 ms", "-0.05 ms", "0 ms"]);
    }
}
