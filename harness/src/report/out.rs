//! The folder of results: files that are whole at every moment.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::history::History;

/// The folder of results.
#[derive(Clone, Debug)]
pub struct Out {
    folder: PathBuf,
}

impl Out {
    /// Creates it if it is not there, and tries whether it can be written to.
    ///
    /// # Errors
    /// It cannot.
    pub fn create(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let out = Self { folder: folder.to_owned() };
        let trial = out.folder.join(format!(".trial-{}", std::process::id()));
        fs::write(&trial, [])?;
        fs::remove_file(trial)?;
        Ok(out)
    }

    /// A folder in it, for one of several backends.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn within(&self, name: &str) -> io::Result<Self> {
        Self::create(&self.folder.join(name))
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Replaces a file at once: whoever reads meanwhile, or kills this program, finds the old one
    /// or the new one.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.folder.join(format!(".{name}.{}", std::process::id()));
        fs::write(&new, bytes)?;
        fs::rename(&new, self.folder.join(name))
    }

    /// Keeps the history of a run: `name/history.jsonl`, of a variant `name.variant/…`, of a
    /// repetition `name@2/…`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn history(&self, name: &str, time: usize, history: &History) -> io::Result<PathBuf> {
        // Neither `.` nor `@` can be in a name.
        let mut name = name.replace('/', ".");
        if time > 0 {
            name += &format!("@{}", time + 1);
        }
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder)?;
        let path = folder.join("history.jsonl");
        let mut file = BufWriter::new(File::create(&path)?);
        history.write(&mut file)?;
        file.flush()?;
        Ok(path)
    }
}
