//! The folder of results. Each file in it is complete at every instant, and one run at a time
//! writes to it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redquorum_scenario::history::History;

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

    /// Writes the history of a run: `name/history.jsonl`, for a variant `name.variant/…`, for a
    /// repetition `name@2/…`.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn history(&self, name: &str, time: usize, history: &History) -> io::Result<PathBuf> {
        // A name contains neither `.` nor `@`.
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
