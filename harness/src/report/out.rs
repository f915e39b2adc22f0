//! Where reports go: the folder of results, and the screen; and words that several reports share.
//!
//! Each file in the folder is complete at every instant, and one run at a time writes to it.

use std::borrow::Cow;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::process::errors_files;
use indicatif::{ProgressBar, ProgressStyle};
use redquorum_checker::Verdict;
use redquorum_scenario::Cause;
use redquorum_scenario::history::History;
use serde::Serialize;

/// The folder of results.
#[derive(Clone, Debug)]
pub struct Out {
    folder: PathBuf,
    /// Keeps other runs out of the folder, until it is closed.
    _claim: Option<Arc<File>>,
}

impl Out {
    /// Creates the folder if it does not exist, and checks that it is writable.
    ///
    /// # Errors
    ///
    /// It cannot be created or written, or another run writes to it.
    pub fn create(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let claim = claim(folder)?.map(Arc::new);
        let out = Self { folder: folder.to_owned(), _claim: claim };
        let trial = out.folder.join(format!(".trial-{}", std::process::id()));
        fs::write(&trial, [])?;
        fs::remove_file(trial)?;
        Ok(out)
    }

    /// A folder inside it, for one of several backends.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn within(&self, name: &str) -> io::Result<Self> {
        Self::create(&self.folder.join(name))
    }

    /// Its path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Replaces a file atomically: a reader, or a kill of this program, finds the old file or the
    /// new one.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.folder.join(format!(".{name}.{}", std::process::id()));
        fs::write(&new, bytes)?;
        fs::rename(&new, self.folder.join(name))
    }

    /// The folder of a run: `name`, for a variant `name.variant`, for a repetition `name@2`.
    /// Creates it if it does not exist, and removes what clients of an earlier run wrote on
    /// standard error: this run need not replace these files.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn run(&self, name: &str, time: usize) -> io::Result<PathBuf> {
        // A name contains neither `.` nor `@`.
        let mut name = name.replace('/', ".");
        if time > 0 {
            name += &format!("@{}", time + 1);
        }
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder)?;
        for (_, file) in errors_files(&folder) {
            fs::remove_file(file)?;
        }
        Ok(folder)
    }
}

/// Writes the history of a run to its folder.
pub(crate) fn write_history(folder: &Path, history: &History) -> io::Result<PathBuf> {
    let path = folder.join("history.jsonl");
    let mut file = BufWriter::new(File::create(&path)?);
    history.write(&mut file)?;
    file.flush()?;
    Ok(path)
}

/// Writes a history for a stream of several, and behind it the verdict on each property in a line
/// of its own: `{"verdict":{"mutual-exclusion":"safe",…}}`.
///
/// # Errors
///
/// Those of the writer.
pub fn write_judged(to: &mut impl Write, history: &History, verdict: &Verdict) -> io::Result<()> {
    history.write(to)?;
    to.write_all(b"{\"verdict\":")?;
    serde_json::to_writer(&mut *to, &verdict.observed)?;
    to.write_all(b"}\n")
}

/// Claims the folder for this run. The system ends the claim with the process, however that ends.
fn claim(folder: &Path) -> io::Result<Option<File>> {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;

    let file = File::open(folder)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => {
            Err(io::Error::new(io::ErrorKind::ResourceBusy, "another run writes to this folder"))
        }
        // Some file systems of a network have no locks.
        Err(_) => Ok(None),
    }
}

/// Standard output, and the progress bar below it. A closed pipe is not an error: a reader such as
/// `head` stops when it has enough.
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

/// A cause in the output. In a scenario file, `bug` is clear; here, the text names the lock.
pub(super) const fn label(cause: Cause) -> &'static str {
    match cause {
        Cause::Bug => "a bug of the lock",
        other => other.name(),
    }
}

/// Whether output to a stream has colours: it is a terminal, and the environment does not disable
/// them.
pub(crate) fn colourful(stream: &impl IsTerminal) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !set("NO_COLOR") && !dumb
}

/// A word, quoted for a shell where necessary.
pub(crate) fn shell_word(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        Cow::Borrowed(word)
    } else {
        Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_part_them() {
        for (word, quoted) in [
            ("scenarios/a-b.toml", "scenarios/a-b.toml"),
            ("python3 x.py", "'python3 x.py'"),
            ("it's", "'it'\\''s'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(word), quoted);
        }
    }
}
