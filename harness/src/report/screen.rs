//! Standard output, and the progress bar below it. A closed pipe is not an error: a reader such as
//! `head` stops when it has enough.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::colourful;

pub(super) struct Screen {
    to: Box<dyn Write + Send>,
    bar: ProgressBar,
    colour: bool,
    closed: bool,
}

impl Screen {
    pub(super) fn new(progress: bool) -> Self {
        // The bar goes to standard error, and is hidden if that is no terminal.
        let bar = if progress { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self { to: Box::new(io::stdout()), bar, colour: colourful(&io::stdout()), closed: false }
    }

    /// Without progress bar and colours.
    pub(super) fn plain(to: Box<dyn Write + Send>) -> Self {
        Self { to, bar: ProgressBar::hidden(), colour: false, closed: false }
    }

    pub(super) const fn colour(&self) -> bool {
        self.colour
    }

    pub(super) fn line(&mut self, text: &str) {
        if self.closed || text.is_empty() {
            return;
        }
        let to = &mut self.to;
        let done = self.bar.suspend(|| writeln!(to, "{text}").and_then(|()| to.flush()));
        self.closed = done.is_err();
    }

    pub(super) fn json(&mut self, value: &impl Serialize) {
        if let Ok(text) = serde_json::to_string(value) {
            self.line(&text);
        }
    }

    pub(super) fn complain(&self, text: &str) {
        self.bar.suspend(|| drop(writeln!(io::stderr(), "{text}")));
    }

    pub(super) fn phase(&self, progress: &str, name: &str, what: &str) {
        let what = if what.is_empty() { String::new() } else { format!(": {what}") };
        self.bar.set_message(format!("{progress} {name}{what}"));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen").field("closed", &self.closed).finish_non_exhaustive()
    }
}
