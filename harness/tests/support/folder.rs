//! A folder for each test, shared by the test programs that need one.

use std::fs;
use std::path::{Path, PathBuf};

/// An empty folder of a test's own, among what cargo builds.
pub(crate) fn folder(name: &str) -> PathBuf {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
    let folder = own.join(name.replace('/', "."));
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).unwrap();
    folder
}
