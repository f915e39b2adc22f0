//! Cuts bytes into lines of bounded length. A line that is too long is reported once; its rest is
//! read and discarded. So neither side blocks, and memory stays bounded.

use std::io::Read;

use crate::client_protocol::LONGEST_LINE;

const CHUNK: usize = 64 * 1024;

pub(super) struct Lines<R> {
    from: R,
    /// Bytes that were read and not yet cut.
    unread: Vec<u8>,
    /// How many of these bytes are known to contain no end of a line.
    searched: usize,
    /// Whether the current line is too long.
    skipping: bool,
    ended: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Line(Vec<u8>),
    TooLong,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, unread: Vec::new(), searched: 0, skipping: false, ended: false }
    }

    /// The next line. `None` at the end. The rest after the last end of a line counts as a line.
    pub(super) fn next(&mut self) -> Option<Cut> {
        loop {
            let end = self.unread[self.searched..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end.map(|end| self.searched + end) {
                let mut line: Vec<u8> = self.unread.drain(..=end).collect();
                self.searched = 0;
                if std::mem::take(&mut self.skipping) {
                    continue;
                }
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Some(Cut::Line(line));
            }
            self.searched = self.unread.len();
            if self.unread.len() > LONGEST_LINE || self.skipping {
                self.unread.clear();
                self.searched = 0;
                if !std::mem::replace(&mut self.skipping, true) {
                    return Some(Cut::TooLong);
                }
            }
            if self.ended {
                let rest = std::mem::take(&mut self.unread);
                self.searched = 0;
                return (!rest.is_empty()).then_some(Cut::Line(rest));
            }
            self.fill();
        }
    }

    fn fill(&mut self) {
        let filled = self.unread.len();
        self.unread.resize(filled + CHUNK, 0);
        let count = loop {
            match self.from.read(&mut self.unread[filled..]) {
                Ok(count) => break count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break 0,
            }
        };
        self.unread.truncate(filled + count);
        self.ended = count == 0;
    }
}

/// A client's output in a form that is safe to show: bounded, without control characters.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 300;
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = clean.take(LONGEST).collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(bytes: &[u8]) -> Vec<Cut> {
        let mut lines = Lines::new(bytes);
        std::iter::from_fn(|| lines.next()).collect()
    }

    #[test]
    fn lines_are_cut_at_their_ends_whatever_those_are() {
        let line = |text: &str| Cut::Line(text.as_bytes().to_vec());
        assert_eq!(cut(b"a\n\nb\r\nc"), [line("a"), line(""), line("b"), line("c")]);
        assert_eq!(cut(b""), []);
    }

    #[test]
    fn a_line_that_is_too_long_is_told_once_and_what_follows_is_heard() {
        let mut bytes = vec![b'x'; 5 * LONGEST_LINE];
        bytes.extend_from_slice(b"\nheard\n");
        assert_eq!(cut(&bytes), [Cut::TooLong, Cut::Line(b"heard".to_vec())]);
        bytes.truncate(2 * LONGEST_LINE);
        assert_eq!(cut(&bytes), [Cut::TooLong]);
    }
}
