//! The place of a value in the text. The checks of values note places as paths; this module finds
//! them in the tree that the TOML parser leaves.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// A path into a scenario file, such as `fault[1].net.drop.nodes[2]`, and the part of the value at
/// this path that is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    steps: Vec<Step>,
    /// Whether the key is meant, not its value.
    key: bool,
    /// The word inside a string that is meant.
    word: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl Place {
    pub(super) fn key(&self, key: impl Into<String>) -> Self {
        self.with(Step::Key(key.into()))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = self.steps.clone();
        steps.push(step);
        Self { steps, key: false, word: None }
    }

    /// The key of this path, for a problem with the name.
    pub(super) fn itself(&self) -> Self {
        Self { key: true, ..self.clone() }
    }

    /// A word of the string at this path.
    pub(super) fn word(&self, word: impl AsRef<str>) -> Self {
        Self { word: Some(word.as_ref().to_owned()), ..self.clone() }
    }

    pub(super) fn is_within(&self, outer: &Self) -> bool {
        self.steps.starts_with(&outer.steps)
    }

    /// The span of the place. If the path does not exist, this is the span of its last step that
    /// exists.
    pub(super) fn span(&self, text: &str, root: &DeTable<'_>) -> Range<usize> {
        let mut span = 0..0;
        let (mut table, mut array) = (Some(root), None);
        for (number, next) in self.steps.iter().enumerate() {
            let last = number + 1 == self.steps.len();
            let Some((key, value)) = step(table, array, next) else { return span };
            (table, array) = (value.as_ref().as_table(), value.as_ref().as_array());
            span = match key {
                // A table from a header has the span of the header; a table from dotted keys has
                // that of the last key.
                Some(key) if (last && self.key) || table.is_some() => key,
                _ => value.span(),
            };
        }
        match &self.word {
            Some(word) => narrowed(text, span, word),
            None => span,
        }
    }
}

/// The place of a whole word inside a span; the span if the word is not there.
pub(super) fn narrowed(text: &str, span: Range<usize>, word: &str) -> Range<usize> {
    let part = |c: char| c.is_alphanumeric() || "._:-".contains(c);
    let Some(inside) = text.get(span.clone()).filter(|_| !word.is_empty()) else { return span };
    let whole = |start: usize| {
        !inside[..start].ends_with(part) && !inside[start + word.len()..].starts_with(part)
    };
    // The last occurrence: the verb `release` comes before a resource of that name.
    match inside.match_indices(word).map(|(start, _)| start).filter(|start| whole(*start)).last() {
        Some(start) => span.start + start..span.start + start + word.len(),
        None => span,
    }
}

/// The value of a step from a table or a list, with the span of its key.
fn step<'a, 'i>(
    table: Option<&'a DeTable<'i>>,
    array: Option<&'a DeArray<'i>>,
    step: &Step,
) -> Option<(Option<Range<usize>>, &'a Spanned<DeValue<'i>>)> {
    match step {
        Step::Index(index) => Some((None, array?.get(*index)?)),
        Step::Key(key) => {
            // `node = 1` is read as `nodes = [1]`.
            let find = |name: &str| table?.iter().find(|(key, _)| key.get_ref() == name);
            let (key, value) = find(key).or_else(|| find(key.strip_suffix('s')?))?;
            Some((Some(key.span()), value))
        }
    }
}
