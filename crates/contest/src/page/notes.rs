//! The footnotes of a section.

use serde::Serialize;

/// Numbered footnotes. Cells with the same text share a number.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct Notes(Vec<String>);

impl Notes {
    /// Returns the number of a footnote, from 1, and adds it if it is new.
    pub(super) fn number(&mut self, text: &str) -> usize {
        if let Some(index) = self.0.iter().position(|it| it == text) {
            return index + 1;
        }
        self.0.push(text.to_owned());
        self.0.len()
    }
}

/// The verdict in a cell of a table: a symbol and words, so that no colour is needed.
#[derive(Debug, Default, Serialize)]
pub(super) struct Cell {
    /// The class that colours the cell: `good`, `bad`, `slow` or `none`.
    class: &'static str,
    symbol: &'static str,
    text: String,
    /// The second line.
    detail: Option<String>,
    note: Option<usize>,
}

impl Cell {
    pub(super) fn correct() -> Self {
        Self { class: "good", symbol: "✓", text: "correct".to_owned(), ..Self::default() }
    }

    pub(super) fn wrong(text: String) -> Self {
        Self { class: "bad", symbol: "✗", text, ..Self::default() }
    }

    /// Correct data, but applicants waited or were turned away.
    pub(super) fn slow(text: String) -> Self {
        Self { class: "slow", symbol: "◷", text, ..Self::default() }
    }

    pub(super) fn not_offered(note: usize) -> Self {
        let text = "not offered".to_owned();
        Self { class: "none", symbol: "–", text, note: Some(note), ..Self::default() }
    }

    pub(super) fn failed(note: usize) -> Self {
        let text = "not completed".to_owned();
        Self { class: "none", symbol: "!", text, note: Some(note), ..Self::default() }
    }

    pub(super) fn not_run() -> Self {
        Self { class: "none", symbol: "?", text: "not run".to_owned(), ..Self::default() }
    }

    pub(super) fn with_detail(self, detail: Option<String>) -> Self {
        Self { detail, ..self }
    }
}
