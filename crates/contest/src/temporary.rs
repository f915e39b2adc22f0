//! Temporary directories that go away with the contest, also after `kill -9`.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use redquorum_rig::Process;

/// A directory that is removed when this process ends in whatever way.
#[derive(Debug)]
pub(crate) struct Directory {
    process: Process,
}

impl Directory {
    /// A new one.
    pub(crate) fn new() -> io::Result<Self> {
        let process = Process::new(&path(), Path::new("/bin/true"), &[""; 0])?;
        Ok(Self { process })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.process.dir()
    }
}

/// A path for a new directory.
pub(crate) fn path() -> PathBuf {
    let temp = env::temp_dir();
    let temp = std::path::absolute(&temp).unwrap_or(temp);
    temp.join(format!("redquorum-contest-{:012x}", rand::random::<u64>() >> 16))
}
