//! A folder for each test, shared by the test programs that need one.

use std::fs;
use std::path::{Path, PathBuf};

/// Creates an empty folder for a test, under cargo's target directory.
pub(crate) fn folder(name: &str) -> PathBuf {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
    let folder = own.join(name.replace('/', "."));
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).unwrap();
    folder
}
