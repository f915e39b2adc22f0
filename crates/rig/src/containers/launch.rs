//! The start of a container through testcontainers. Called by `containers.rs`.
//!
//! testcontainers has a runtime of its own, and waits for it: its calls panic within another
//! runtime. So the caller makes a thread for each.

use std::{collections::HashMap, fs, path::Path};

use testcontainers::{
    GenericImage, ImageExt,
    bollard::models::{HostConfig, PortBinding},
    core::{AccessMode, IntoContainerPort, Mount},
    runners::SyncRunner,
};

use super::{
    Launch, PORT, remove,
    sweep::{DIRECTORY_LABEL, RIG_LABEL},
};
use crate::{Builder, Clock, disk};

/// The directory of the append-only file within a container. The official image has a volume there.
const DATA: &str = "/data";

/// The directory of the clock within a container, if the append-only file is in a volume.
const CLOCK: &str = "/redquorum";

/// The start of a container with this name and the id of this image. `dir` is the directory of the
/// master, `set` that of all masters.
pub(super) fn launch(plan: &Builder, name: &str, image: &str, dir: &Path, set: &Path) -> Launch {
    // testcontainers joins both halves again, and pulls no image of which the engine has the id.
    let (algorithm, digest) = image.split_once(':').unwrap_or((image, "latest"));
    let arguments = plan.arguments();
    let arguments = arguments.iter().map(|argument| argument.to_string_lossy());
    let port = PORT.to_string();
    let own = ["--dir", DATA, "--port", &port, "--bind", "0.0.0.0", "--protected-mode", "no"];
    // The server must be able to write to its directory: as root, or, to a directory of this
    // machine, as this process's user, so that this user can cut and remove the files.
    let (inside, user, access) = if plan.syncs {
        (DATA, user(dir), AccessMode::ReadWrite)
    } else {
        (CLOCK, "0:0".to_owned(), AccessMode::ReadOnly)
    };
    let mut request = GenericImage::new(algorithm, digest)
        // Not the script of the official image, which would change the user.
        .with_entrypoint("redis-server")
        .with_exposed_port(PORT.tcp())
        .with_cmd(arguments.chain(own.map(Into::into)))
        .with_container_name(name)
        .with_user(user)
        .with_working_dir(DATA)
        .with_label(RIG_LABEL, env!("CARGO_PKG_VERSION"))
        .with_label(DIRECTORY_LABEL, set.to_string_lossy())
        .with_host_config_modifier(publish);
    if plan.clocks {
        // The engine does not label the mount for SELinux, so the container runs without labels.
        let mount = Mount::bind_mount(dir.to_string_lossy(), inside).with_access_mode(access);
        request = request.with_mount(mount).with_security_opt("label=disable");
        for (name, value) in Clock::env_at(Path::new(inside)) {
            request = request.with_env_var(name, value.to_string_lossy());
        }
    }
    if plan.syncs {
        let notes = Path::new(inside).join(disk::NOTES_FILE);
        request = request.with_env_var(disk::NOTES_VARIABLE, notes.to_string_lossy());
    }
    let name = name.to_owned();
    Box::new(move || match request.start() {
        // A sweep removes what cannot be removed at the end.
        Ok(container) => Ok(Box::new(move || drop(container.rm()))),
        Err(error) => {
            // testcontainers keeps a container that it created and could not start.
            let _removed = remove(&name);
            Err(error.to_string())
        }
    })
}

/// Publishes the server's port on this machine's loopback and nowhere else.
fn publish(host: &mut HostConfig) {
    let binding = PortBinding { host_ip: Some("127.0.0.1".to_owned()), host_port: None };
    host.publish_all_ports = Some(false);
    host.port_bindings = Some(HashMap::from([(format!("{PORT}/tcp"), Some(vec![binding]))]));
}

/// The user who created a directory: the user of this process.
fn user(dir: &Path) -> String {
    #[cfg(unix)]
    if let Ok(metadata) = fs::metadata(dir) {
        use std::os::unix::fs::MetadataExt;
        return format!("{}:{}", metadata.uid(), metadata.gid());
    }
    let _unknown = dir;
    "0:0".to_owned()
}
