//! Containers and directories that a process left behind when it was killed. A sweep removes them
//! once their owner is certainly dead. Called at every start.
//!
//! No code of ours runs after `kill -9`, and an engine knows nothing of processes. So the next
//! start cleans up after the last. A guard in a container of its own would need a second image.
//!
//! Each container has a label with its directory on this machine, and the owner holds a lock on the
//! directory. The system releases the lock when the owner ends, in whatever way.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process,
};

use super::{check_engine, docker, failed, remove};
use crate::{RigError, ports};

/// Every container that the rig starts has it.
pub(crate) const RIG_LABEL: &str = "redquorum.rig";
/// The directory of this machine that is mounted into the container.
pub(crate) const DIRECTORY_LABEL: &str = "redquorum.directory";

const DIRECTORY_PREFIX: &str = "redquorum-containers-";

/// A directory of this machine for a set of containers. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Held until this process ends. `None`: the file system has no locks, so no sweep removes the
    /// directory.
    _lock: Option<File>,
}

impl Directory {
    /// Any user of a container may read the files.
    pub(crate) fn new() -> Result<Self, RigError> {
        let temp = env::temp_dir();
        let temp = std::path::absolute(&temp).unwrap_or(temp);
        let owner = format!("{}-{}", place(), process::id());
        loop {
            let path = temp.join(format!("{DIRECTORY_PREFIX}{owner}-{:016x}", ports::random()));
            let doing = format!("make {}", path.display());
            fs::create_dir(&path).map_err(|error| failed(&doing, error))?;
            let lock = lock(&path);
            // A sweep that comes before the lock takes the directory for one that was left behind.
            let is_swept =
                lock.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            if path.exists() && !is_swept {
                return Ok(Self { path, _lock: lock.ok() });
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A unique name, which the names of the containers contain too.
    pub(crate) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        name.trim_start_matches(DIRECTORY_PREFIX).to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A sweep removes the rest.
        let _gone = fs::remove_dir_all(&self.path);
    }
}

/// The place within which a path means one directory: the boot and the mount namespace, as
/// `BOOT-NAMESPACE`. A part is `0` on systems where all processes share it.
fn place() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/mnt").unwrap_or_default();
    let namespace = namespace.to_string_lossy().replace(|c: char| !c.is_ascii_digit(), "");
    let parts = [boot.split('-').next().unwrap_or_default(), &namespace];
    parts.map(|part| if part.is_empty() { "0" } else { part }).join("-")
}

/// Locks a directory until the file is closed, or its process ends.
#[cfg(unix)]
fn lock(directory: &Path) -> io::Result<File> {
    use rustix::fs::{FlockOperation, flock};
    let file = File::open(directory)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

// Masters do not start here.
#[cfg(not(unix))]
fn lock(_directory: &Path) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Locks a directory that was left behind. Only one with a name of this rig, because a label may
/// contain anything.
fn claim(directory: &Path) -> io::Result<File> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with(DIRECTORY_PREFIX) {
        lock(directory)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

/// Removes the rig's containers whose owner is dead, and the directories that they had mounted.
/// Returns the names of the containers. Every start does this too.
///
/// Containers stay if their process lives, or cannot be seen from here (in another container).
///
/// # Errors
///
/// - [`RigError::NoContainers`], [`RigError::NoEngine`]: this build has no containers, or no engine
///   answers.
/// - [`RigError::Engine`]: the engine failed to execute a request.
pub fn sweep() -> Result<Vec<String>, RigError> {
    check_engine()?;
    let place = place();
    let filter = format!("label={RIG_LABEL}");
    let format = format!("{{{{.Names}}}}\t{{{{.Status}}}}\t{{{{.Label \"{DIRECTORY_LABEL}\"}}}}");
    let found = docker(&["ps", "--all", "--filter", &filter, "--format", &format])
        .map_err(|why| failed("list containers", why))?;
    let mut swept = Vec::new();
    // Held until all containers of a directory are removed.
    let mut claims = BTreeMap::new();
    for line in found.lines() {
        let mut words = line.split('\t');
        let [name, status, directory] = [(); 3].map(|()| words.next().unwrap_or_default());
        let directory = PathBuf::from(directory);
        let claim = claims.entry(directory.clone()).or_insert_with(|| claim(&directory));
        if !is_left(&directory, claim, status, &place) {
            continue;
        }
        // If another sweep removes it at the same time, that sweep reports it.
        match remove(name) {
            Ok(removed) if removed.lines().any(|line| line == name) => swept.push(name.to_owned()),
            Err(why) if !why.contains("No such container") && !why.contains("in progress") => {
                return Err(failed("remove a container", why));
            }
            _ => {}
        }
    }
    // Directories that no container names: a process was killed between the creation of both.
    for entry in fs::read_dir(env::temp_dir()).into_iter().flatten().flatten() {
        claims.entry(entry.path()).or_insert_with_key(|path| claim(path));
    }
    for (directory, _lock) in claims.iter().filter(|(_, claim)| claim.is_ok()) {
        let _gone = fs::remove_dir_all(directory);
    }
    Ok(swept)
}

/// Whether the owner of a container is dead, given its directory and the claim to it.
fn is_left(directory: &Path, claim: &io::Result<File>, status: &str, place: &str) -> bool {
    match claim {
        Ok(_) => return true,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return false,
        Err(_) => {}
    }
    // A living owner has its directory, but maybe not where this process sees it.
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let owner = name.strip_prefix(DIRECTORY_PREFIX).unwrap_or_default();
    if owner.starts_with(&format!("{place}-")) {
        return true;
    }
    // The rig restarts no container at a boot. A running one belongs to a machine that shares the
    // engine with this one.
    let boot = |place: &str| place.split('-').next().map(str::to_owned);
    let ended = ["Created", "Exited", "Dead"].iter().any(|ended| status.starts_with(ended));
    ended && boot(owner) != boot(place)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_directories_with_our_name_and_a_dead_owner_are_claimed() {
        let living = Directory::new().unwrap();
        assert_eq!(claim(living.path()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let temp = env::temp_dir().join(format!("redquorum-sweep-test-{}", process::id()));
        let [ours, other] = [DIRECTORY_PREFIX, "redquorum-other-"].map(|lead| {
            let directory = temp.join(format!("{lead}1-2-3-4"));
            fs::create_dir_all(&directory).unwrap();
            directory
        });
        assert!(claim(&ours).is_ok() && claim(&other).is_err());
        fs::remove_dir_all(temp).unwrap();
    }

    #[test]
    fn without_its_directory_only_a_container_of_a_dead_owner_is_left() {
        for (owner, status, expected) in [
            // A living owner would have its directory in this place.
            ("b-1", "Up 3 minutes", true),
            ("b-1", "Exited (0) 2 hours ago", true),
            // Another container of this machine.
            ("b-2", "Exited (0) 2 hours ago", false),
            // An earlier boot, or another machine.
            ("a-1", "Exited (0) 2 hours ago", true),
            ("a-1", "Created", true),
            ("a-1", "Up 3 minutes", false),
        ] {
            let directory = PathBuf::from(format!("/nowhere/{DIRECTORY_PREFIX}{owner}-33-44"));
            let found = is_left(&directory, &claim(&directory), status, "b-1");
            assert_eq!(found, expected, "{owner}: {status}");
        }
        let foreign = Path::new("/nowhere/b-1-33-44");
        assert!(!is_left(foreign, &claim(foreign), "Exited (0)", "b-1"));
        assert!(!is_left(Path::new(""), &claim(Path::new("")), "Exited (0)", "b-1"));
    }
}
