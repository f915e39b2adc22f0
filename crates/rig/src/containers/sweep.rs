//! Containers and directories that a process left behind when it was killed. A sweep finds them by
//! their labels and names, and removes them once their owner is certainly dead. Called at every
//! start.
//!
//! No code of ours runs after `kill -9`, and an engine knows nothing of processes. So the next
//! start cleans up after the last. A guard in a container of its own would need a second image.

use std::{
    collections::HashMap,
    env, fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use bollard::{
    Docker,
    models::ContainerSummary,
    query_parameters::{ListContainersOptionsBuilder, RemoveContainerOptionsBuilder},
};
use futures_util::future::join_all;

use super::{
    engine::{failed, is_missing},
    owner::{Owner, ProcessState},
};
use crate::RigError;

/// The version of the rig. Every container that the rig starts has it.
pub(crate) const RIG_LABEL: &str = "redquorum.rig";
/// The process that started it, see [`Owner`].
pub(crate) const OWNER_LABEL: &str = "redquorum.owner";
/// The set of containers that were started together.
pub(crate) const SET_LABEL: &str = "redquorum.set";
/// The directory of this machine that is mounted into the container.
pub(crate) const DIRECTORY_LABEL: &str = "redquorum.directory";

const DIRECTORY_PREFIX: &str = "redquorum-containers-";

/// Containers that are started together, and end together.
#[derive(Debug, Clone)]
pub(crate) struct Set {
    pub(crate) owner: Owner,
    /// The owner and a number, which form the names of the containers and the directory.
    pub(crate) name: String,
}

impl Set {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let owner = Owner::this();
        let name = format!("{owner}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self { owner, name }
    }

    /// Creates a directory for the files of this set. From the first moment its name contains all
    /// that a sweep needs. Any user of a container may read the files.
    pub(crate) fn directory(&self) -> Result<Directory, RigError> {
        let temp = env::temp_dir();
        let temp = std::path::absolute(&temp).unwrap_or(temp);
        let path = temp.join(format!("{DIRECTORY_PREFIX}{}", self.name));
        let made = fs::create_dir(&path).map(|()| Directory(path.clone()));
        made.map_err(|error| {
            let why = format!("{} cannot be made: {error}", path.display());
            RigError::NoClocks { why }
        })
    }

    /// Removes all created containers of the set, started or not. For a start that failed half-way.
    pub(crate) async fn remove(&self, docker: &Docker) -> Result<(), RigError> {
        let found = labelled(docker, &format!("{SET_LABEL}={}", self.name)).await?;
        let ids = found.into_iter().filter_map(|container| container.id);
        let removed = join_all(ids.map(|id| remove(docker, id))).await;
        removed.into_iter().collect::<Result<Vec<_>, _>>().map(drop)
    }
}

/// A directory of this machine. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A sweep removes the rest.
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// See [`Containers::sweep`](super::Containers::sweep).
pub(crate) async fn sweep(docker: &Docker) -> Result<Vec<String>, RigError> {
    let this = Owner::this();
    let found = labelled(docker, RIG_LABEL).await?;
    let left = found.into_iter().filter(|container| is_left(container, &this));
    let removals = join_all(left.map(async |container| {
        let removed = remove(docker, container.id.clone().unwrap_or_default()).await?;
        if let Some(directory) = label(&container, DIRECTORY_LABEL) {
            remove_directory(Path::new(directory), &this);
        }
        Ok(removed.then(|| name(&container)))
    }));
    let swept = removals.await.into_iter().collect::<Result<Vec<_>, RigError>>()?;
    // Directories that no container names: a process was killed between the creation of both.
    for entry in fs::read_dir(env::temp_dir()).into_iter().flatten().flatten() {
        remove_directory(&entry.path(), &this);
    }
    Ok(swept.into_iter().flatten().collect())
}

fn is_left(container: &ContainerSummary, this: &Owner) -> bool {
    let Some(owner) = label(container, OWNER_LABEL).and_then(Owner::parse) else { return false };
    match owner.fate(this) {
        ProcessState::Dead => true,
        // The rig restarts no container at a boot. A running one belongs to a machine that shares
        // the engine with this one.
        ProcessState::Rebooted => {
            let state = container.state.as_ref().map(ToString::to_string).unwrap_or_default();
            matches!(state.as_str(), "created" | "exited" | "dead")
        }
        ProcessState::Alive => false,
    }
}

/// Removes only a directory with a name of this rig and a dead owner, because a label may contain
/// anything.
fn remove_directory(directory: &Path, this: &Owner) {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let set = name.strip_prefix(DIRECTORY_PREFIX).and_then(|set| set.rsplit_once('-'));
    let owner = set.and_then(|(owner, _)| Owner::parse(owner));
    if owner.is_some_and(|owner| owner.fate(this) != ProcessState::Alive) {
        let _gone = fs::remove_dir_all(directory);
    }
}

async fn labelled(docker: &Docker, label: &str) -> Result<Vec<ContainerSummary>, RigError> {
    let filters = HashMap::from([("label", vec![label])]);
    let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
    docker.list_containers(Some(options)).await.map_err(|error| failed("list containers", error))
}

/// Returns whether it was there. If another sweep removes it at the same time, that sweep reports
/// it.
pub(crate) async fn remove(docker: &Docker, id: String) -> Result<bool, RigError> {
    let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    match docker.remove_container(&id, Some(options)).await {
        Ok(()) => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        Err(bollard::errors::Error::DockerResponseServerError { status_code: 409, message })
            if message.contains("in progress") =>
        {
            Ok(false)
        }
        Err(error) => Err(failed("remove a container", error)),
    }
}

fn label<'a>(container: &'a ContainerSummary, name: &str) -> Option<&'a str> {
    container.labels.as_ref()?.get(name).map(String::as_str)
}

fn name(container: &ContainerSummary) -> String {
    let names = container.names.as_deref().unwrap_or_default();
    names.first().map(|name| name.trim_start_matches('/').to_owned()).unwrap_or_default()
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
