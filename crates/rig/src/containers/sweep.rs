//! Containers and directories that a process left behind when it was killed. A sweep finds them by
//! their names, and removes them once their owner is certainly dead. Called at every start.
//!
//! No code of ours runs after `kill -9`, and an engine knows nothing of processes. So the next
//! start cleans up after the last. A guard in a container of its own would need a second image.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use super::{
    check_engine, docker, failed,
    owner::{Owner, ProcessState},
    remove,
};
use crate::RigError;

/// Every container that the rig starts has it.
pub(crate) const RIG_LABEL: &str = "redquorum.rig";
/// The directory of this machine that is mounted into the container.
pub(crate) const DIRECTORY_LABEL: &str = "redquorum.directory";

const DIRECTORY_PREFIX: &str = "redquorum-containers-";

/// A directory of this machine for a set of containers. Dropping it removes it. From the first
/// moment its name contains all that a sweep needs.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Any user of a container may read the files.
    pub(crate) fn new() -> Result<Self, RigError> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let temp = env::temp_dir();
        let temp = std::path::absolute(&temp).unwrap_or(temp);
        let path = temp.join(format!("{DIRECTORY_PREFIX}{}-{number}", Owner::this()));
        let doing = format!("make {}", path.display());
        fs::create_dir(&path).map_err(|error| failed(&doing, error))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The owner and a number, which form the names of the containers too.
    pub(crate) fn name(&self) -> String {
        let name = self.0.file_name().unwrap_or_default().to_string_lossy();
        name.trim_start_matches(DIRECTORY_PREFIX).to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A sweep removes the rest.
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// Removes the rig's containers whose owner is dead, and the directories that they had mounted.
/// Returns the names of the containers. Every start does this too.
///
/// Containers stay if their process lives, or cannot be seen from here (in another container, or of
/// another user).
///
/// # Errors
///
/// - [`RigError::NoContainers`], [`RigError::NoEngine`]: this build has no containers, or no engine
///   answers.
/// - [`RigError::Engine`]: the engine failed to execute a request.
pub fn sweep() -> Result<Vec<String>, RigError> {
    check_engine()?;
    let this = Owner::this();
    let filter = format!("label={RIG_LABEL}");
    let format = format!("{{{{.Names}}}}\t{{{{.Status}}}}\t{{{{.Label \"{DIRECTORY_LABEL}\"}}}}");
    let found = docker(&["ps", "--all", "--filter", &filter, "--format", &format])
        .map_err(|why| failed("list containers", why))?;
    let mut swept = Vec::new();
    for line in found.lines() {
        let mut words = line.split('\t');
        let [name, status, directory] = [(); 3].map(|()| words.next().unwrap_or_default());
        if !is_left(name, status, &this) {
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
        remove_directory(Path::new(directory), &this);
    }
    // Directories that no container names: a process was killed between the creation of both.
    for entry in fs::read_dir(env::temp_dir()).into_iter().flatten().flatten() {
        remove_directory(&entry.path(), &this);
    }
    Ok(swept)
}

fn is_left(name: &str, status: &str, this: &Owner) -> bool {
    // `redquorum-OWNER-SET-NUMBER`
    let owner = name.strip_prefix("redquorum-").and_then(|rest| rest.rsplitn(3, '-').nth(2));
    match owner.and_then(Owner::parse).map(|owner| owner.state(this)) {
        Some(ProcessState::Dead) => true,
        // The rig restarts no container at a boot. A running one belongs to a machine that shares
        // the engine with this one.
        Some(ProcessState::Rebooted) => {
            ["Created", "Exited", "Dead"].iter().any(|ended| status.starts_with(ended))
        }
        Some(ProcessState::Alive) | None => false,
    }
}

/// Removes only a directory with a name of this rig and a dead owner, because a label may contain
/// anything.
fn remove_directory(directory: &Path, this: &Owner) {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let set = name.strip_prefix(DIRECTORY_PREFIX).and_then(|set| set.rsplit_once('-'));
    let owner = set.and_then(|(owner, _)| Owner::parse(owner));
    if owner.is_some_and(|owner| owner.state(this) != ProcessState::Alive) {
        let _gone = fs::remove_dir_all(directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_with_our_name_and_a_dead_owner_are_removed() {
        let this = Owner::this();
        let temp = env::temp_dir().join(format!("redquorum-sweep-test-{}", std::process::id()));
        let dead = this.to_string().rsplit_once('-').unwrap().0.to_owned() + "-1";
        let kept = ["redquorum-other".to_owned(), format!("{DIRECTORY_PREFIX}{this}-1")];
        let gone = format!("{DIRECTORY_PREFIX}{dead}-1");
        for name in kept.iter().chain([&gone]) {
            fs::create_dir_all(temp.join(name)).unwrap();
            remove_directory(&temp.join(name), &this);
        }
        assert!(kept.iter().all(|name| temp.join(name).exists()));
        assert!(!temp.join(gone).exists());
        fs::remove_dir_all(temp).unwrap();
    }
}
