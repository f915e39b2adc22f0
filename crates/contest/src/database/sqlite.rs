//! SQLite: a file in a temporary directory.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{Database, Place, Product, Target};
use crate::{results::Server, temporary};

/// The file, in a directory that is removed with it.
#[derive(Debug)]
pub(super) struct File {
    /// `None`: the file is kept.
    _dir: Option<temporary::Directory>,
}

/// Makes a place for the file, in `keep_in` if it is to be kept.
pub(super) fn open(keep_in: Option<&Path>) -> Result<Database, String> {
    let place = |why: io::Error| format!("there is no place for the SQLite file: {why}");
    let (file, dir): (PathBuf, _) = match keep_in {
        Some(out) => {
            fs::create_dir_all(out).map_err(place)?;
            let file = out.join("contest.sqlite");
            if file.exists() {
                let shown = file.display();
                return Err(format!("{shown} exists: remove it, or name another --out"));
            }
            (file, None)
        }
        None => {
            let dir = temporary::Directory::new().map_err(place)?;
            (dir.path().join("contest.sqlite"), Some(dir))
        }
    };
    fs::File::create_new(&file).map_err(place)?;
    Ok(Database {
        product: Product::Sqlite,
        target: Target::Sqlite(file),
        server: Server {
            product: "SQLite".to_owned(),
            version: String::new(),
            place: "embedded, a temporary file".to_owned(),
        },
        notes: Vec::new(),
        place: Place::File { _file: File { _dir: dir } },
    })
}
