//! The files of a master in a container, on this machine and not in a volume, so that the end of
//! its append-only file can be cut. Called by `builder.rs`.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use testcontainers::{ContainerRequest, GenericImage, ImageExt, core::Mount};

use crate::{RigError, disk};

/// The directory of the files of one master, within that of the set.
pub(super) fn of(set: &Path, number: usize) -> PathBuf {
    set.join(number.to_string()).join("data")
}

/// Creates it, where that of the master's clock already exists.
pub(super) fn create(set: &Path, number: usize) -> Result<(), RigError> {
    let directory = of(set, number);
    fs::create_dir(&directory).map_err(|error| RigError::PowerLoss {
        node: number,
        why: format!("{} cannot be made: {error}", directory.display()),
    })
}

/// Gives it to a container, which writes there as this process's user, so that this user can cut
/// and remove the files.
pub(super) fn mounted(
    request: ContainerRequest<GenericImage>,
    directory: &Path,
    inside: &str,
) -> ContainerRequest<GenericImage> {
    let user = owner(directory).unwrap_or_else(|_| "0:0".to_owned());
    let notes = Path::new(inside).join(disk::NOTES_FILE);
    request
        .with_mount(Mount::bind_mount(directory.to_string_lossy(), inside))
        .with_user(user)
        .with_env_var(disk::NOTES_VARIABLE, notes.to_string_lossy())
}

/// The user who created it: the user of this process.
fn owner(directory: &Path) -> io::Result<String> {
    let metadata = fs::metadata(directory)?;
    Ok(format!("{}:{}", metadata.uid(), metadata.gid()))
}
