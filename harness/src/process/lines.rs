//! Cuts bytes into lines of bounded length. A line that is too long is reported once; its rest is
//! read and discarded. So neither side blocks, and memory stays bounded.

use std::io::{BufRead, BufReader, Read};

use super::OutputEvent;
use redquorum_scenario::client_protocol::LONGEST_LINE;

pub(super) struct Lines<R> {
    from: BufReader<R>,
    /// Whether the rest of the current line is to be discarded.
    skipping: bool,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from: BufReader::with_capacity(64 * 1024, from), skipping: false }
    }

    /// The next line. `None` at the end. The rest after the last end of a line counts as a line. A
    /// read that fails counts as the end.
    pub(super) fn next(&mut self) -> Option<OutputEvent> {
        if std::mem::take(&mut self.skipping) {
            self.from.skip_until(b'\n').ok()?;
        }
        let mut line = Vec::new();
        let mut bounded = self.from.by_ref().take(LONGEST_LINE as u64 + 1);
        // What was read before a failure is a line like any other rest.
        let _read = bounded.read_until(b'\n', &mut line);
        if line.pop_if(|last| *last == b'\n').is_some() {
            line.pop_if(|last| *last == b'\r');
        } else if line.is_empty() {
            return None;
        } else if line.len() > LONGEST_LINE {
            self.skipping = true;
            return Some(OutputEvent::TooLong);
        }
        Some(String::from_utf8(line).map_or(OutputEvent::NotUtf8, OutputEvent::Line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(bytes: &[u8]) -> Vec<OutputEvent> {
        let mut lines = Lines::new(bytes);
        std::iter::from_fn(|| lines.next()).collect()
    }

    fn line(text: &str) -> OutputEvent {
        OutputEvent::Line(text.to_owned())
    }

    #[test]
    fn lines_end_with_a_line_feed_or_with_the_input() {
        assert_eq!(cut(b"a\n\nb\r\nc"), [line("a"), line(""), line("b"), line("c")]);
        assert_eq!(cut(b""), []);
    }

    #[test]
    fn a_line_that_is_too_long_is_reported_once_and_the_next_line_is_read() {
        let mut bytes = vec![b'x'; 5 * LONGEST_LINE];
        bytes.extend_from_slice(b"\nnext\n");
        assert_eq!(cut(&bytes), [OutputEvent::TooLong, line("next")]);
        bytes.truncate(2 * LONGEST_LINE);
        assert_eq!(cut(&bytes), [OutputEvent::TooLong]);
    }
}
