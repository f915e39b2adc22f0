//! The synced part of a master's append-only file, and the cut that leaves only this part: a power
//! loss. The shim records each sync (`shim/shim.rs`); this file reads the records. `node.rs`
//! calls it for a master that has ended.
//!
//! The base of the file and its manifest stay: Redis syncs both before it uses them.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::{Persistence, RigError, node::Node};

/// The file of the records, in the directory of the master.
pub(crate) const NOTES_FILE: &str = "synced";

/// The variable that passes it to the shim.
pub(crate) const NOTES_VARIABLE: &str = "REDQUORUM_SYNCS";

/// The data that a master keeps after a [power loss](crate::Masters::power_loss).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Persisted {
    /// Nothing.
    Nothing,
    /// Everything that it had answered.
    Everything,
    /// Everything that it had written to its file when its latest sync began: at this time of
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    Until(u64),
}

/// Cuts the file of a master that has ended, and returns what is left to it.
pub(crate) fn power_loss(node: &Node) -> Result<Persisted, RigError> {
    let failed = |why| RigError::PowerLoss { node: node.number, why };
    match node.plan.persistence {
        Persistence::None => Ok(Persisted::Nothing),
        // It answers only after its file is synced.
        Persistence::AofAlways => Ok(Persisted::Everything),
        Persistence::AofEverysec if node.plan.syncs => {
            cut(&node.dir).map_err(|error| failed(format!("its file cannot be cut: {error}")))
        }
        Persistence::AofEverysec => Err(failed(
            "its syncs were not recorded: start the masters with the builder's `syncs`".to_owned(),
        )),
    }
}

/// Cuts the append-only file in a master's directory back to the synced part.
fn cut(dir: &Path) -> io::Result<Persisted> {
    let notes = match fs::read(dir.join(NOTES_FILE)) {
        Ok(bytes) => notes(&bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut kept = Persisted::Nothing;
    for path in files(dir)? {
        let file = File::options().write(true).open(&path)?;
        let metadata = file.metadata()?;
        let note = notes.iter().rev().find(|[file, ..]| *file == number(&metadata));
        let length = note.map_or(0, |[_, length, _]| *length).min(metadata.len());
        file.set_len(length)?;
        if let Some([.., at]) = note {
            kept = Persisted::Until(*at);
        }
    }
    Ok(kept)
}

/// The files to which the server appends commands; there is one.
fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    // Up to 6.2 it was this file.
    let single = dir.join("appendonly.aof");
    let several = match fs::read_dir(dir.join("appendonlydir")) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    let grows = |path: &PathBuf| path.to_string_lossy().ends_with(".incr.aof");
    let mut all: Vec<PathBuf> = several?.into_iter().filter(grows).collect();
    // Of several files the last one grows.
    all.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    all.drain(..all.len().saturating_sub(1));
    all.extend(Some(single).filter(|path| path.exists()));
    Ok(all)
}

/// The syncs as the shim records them: the number of the file, its length, and the time. A torn
/// record at the end is ignored.
fn notes(bytes: &[u8]) -> Vec<[u64; 3]> {
    let (notes, _) = bytes.as_chunks::<24>();
    let word = |note: &[u8], index| u64::from_ne_bytes(note.as_chunks().0[index]);
    notes.iter().map(|note| [0, 1, 2].map(|index| word(note, index))).collect()
}

#[cfg(unix)]
fn number(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

// Never called: without Unix there is no shim.
#[cfg(not(unix))]
fn number(_metadata: &fs::Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cuts a file of 50 bytes. `notes` has the recorded syncs, by the number of the file. Returns
    /// what is kept, and the length that is left.
    fn cut_with(notes: impl Fn(u64) -> Vec<[u64; 3]>) -> (Persisted, u64) {
        let dir = std::env::temp_dir().join(format!("redquorum-disk-{}", std::process::id()));
        let _not_there = fs::remove_dir_all(&dir);
        let [base, file] = ["base.rdb", "incr.aof"]
            .map(|end| dir.join(format!("appendonlydir/appendonly.aof.1.{end}")));
        fs::create_dir_all(dir.join("appendonlydir")).unwrap();
        fs::write(&base, "base").unwrap();
        fs::write(&file, [b'x'; 50]).unwrap();
        let notes = notes(number(&fs::metadata(&file).unwrap()));
        if !notes.is_empty() {
            let bytes: Vec<u8> = notes.into_iter().flatten().flat_map(u64::to_ne_bytes).collect();
            fs::write(dir.join(NOTES_FILE), bytes).unwrap();
        }
        let kept = cut(&dir).unwrap();
        let [base, left] = [base, file].map(|file| fs::metadata(file).unwrap().len());
        assert_eq!(base, 4, "the base was synced when it was made");
        fs::remove_dir_all(dir).unwrap();
        (kept, left)
    }

    #[test]
    fn the_data_of_the_latest_sync_is_left() {
        let notes = |it: u64| vec![[it, 10, 1], [it + 1, 99, 2], [it, 30, 3], [it + 1, 99, 4]];
        assert_eq!(cut_with(notes), (Persisted::Until(3), 30));
        assert_eq!(cut_with(|_| Vec::new()), (Persisted::Nothing, 0), "no sync");
        assert_eq!(cut_with(|it| vec![[it + 1, 40, 1]]), (Persisted::Nothing, 0), "another file");
        assert_eq!(cut_with(|it| vec![[it, 70, 1]]), (Persisted::Until(1), 50), "a longer file");
    }
}
