//! The problems of a scenario file: where, what, and the fix. `read.rs` finds them. This module
//! adds the line and the column, and renders the problems as a compiler does.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// A problem in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// What is wrong: a fragment in lower case.
    pub message: String,
    /// How to fix it.
    pub fix: String,
    /// The place, in bytes.
    pub span: Range<usize>,
    /// Another place that is related to the problem, and how it is related.
    pub also: Option<(Range<usize>, String)>,
}

/// All problems of one scenario file, in the order of its lines. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    file: String,
    text: String,
    list: Vec<Problem>,
}

impl Problem {
    pub(super) fn new(text: &str, span: Range<usize>, message: String, fix: String) -> Self {
        let span = inside(text, span);
        let before = &text[..span.start];
        let start_of_line = before.rfind('\n').map_or(0, |end| end + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[start_of_line..].chars().count() + 1,
            message,
            fix,
            span,
            also: None,
        }
    }

    pub(super) fn also(mut self, text: &str, span: Range<usize>, why: String) -> Self {
        self.also = Some((inside(text, span), why));
        self
    }
}

/// The nearest range that lies within a text and cuts no character in two.
fn inside(text: &str, span: Range<usize>) -> Range<usize> {
    let start = floor(text, span.start);
    start..floor(text, span.end).max(start)
}

fn floor(text: &str, index: usize) -> usize {
    (0..=index.min(text.len())).rev().find(|index| text.is_char_boundary(*index)).unwrap_or(0)
}

impl Problems {
    pub(super) fn new(file: &str, text: &str, mut list: Vec<Problem>) -> Self {
        list.sort_by_key(|problem| problem.span.start);
        list.dedup();
        Self { file: file.to_owned(), text: text.to_owned(), list }
    }

    /// The name of the file, as the caller gave it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The problems, in the order of lines.
    pub fn list(&self) -> &[Problem] {
        &self.list
    }

    /// Renders all problems with the lines that they are about, with colours if `colour` is set.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let all: Vec<String> =
            self.list.iter().map(|problem| self.render_one(problem, &renderer)).collect();
        all.join("\n\n")
    }

    fn render_one(&self, problem: &Problem, renderer: &Renderer) -> String {
        let primary = AnnotationKind::Primary.span(problem.span.clone());
        let mut snippet =
            Snippet::source(self.text.as_str()).path(self.file.as_str()).annotation(primary);
        if let Some((span, why)) = &problem.also {
            let context = AnnotationKind::Context.span(span.clone()).label(why.as_str());
            snippet = snippet.annotation(context);
        }
        let group = Level::ERROR
            .primary_title(problem.message.as_str())
            .element(snippet)
            .element(Level::HELP.message(problem.fix.as_str()));
        renderer.render(&[group])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Problems {}
