//! MariaDB in a container, by the engine's command line.
//!
//! The container's first process ends when its input does, which is a pipe of this process: the
//! container is removed in whatever way the contest ends.

use std::{
    env,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use redquorum_rig::containers::{docker, remove};
use sqlx::ConnectOptions;

use super::{Database, Place, mariadb};

const IMAGE_VARIABLE: &str = "REDQUORUM_MARIADB_IMAGE";
const IMAGE: &str = "mariadb:11.4";
/// An image may have to be pulled.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// Ends with the server, and with the input. Of a command in the background the shell would close
/// the input.
const SCRIPT: &str = "exec 3<&0; docker-entrypoint.sh mariadbd --max-connections=300 & server=$!; \
                      (cat <&3 >/dev/null; kill -9 $server) & wait $server";

#[derive(Debug)]
pub(super) struct Container {
    pub(super) name: String,
    child: Child,
}

impl Drop for Container {
    fn drop(&mut self) {
        let _removed = remove(&self.name);
        drop(self.child.stdin.take());
        let _ended = self.child.wait();
    }
}

fn image() -> String {
    env::var(IMAGE_VARIABLE)
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| IMAGE.to_owned())
}

/// Whether an engine replies that has the image. An image is pulled only for `--database
/// container`.
pub(super) fn image_is_present() -> bool {
    docker(&["image", "inspect", "--format", "{{.Id}}", &image()]).is_ok()
}

pub(super) async fn start() -> Result<Database, String> {
    docker(&["version", "--format", "{{.Server.Version}}"]).map_err(|why| {
        format!("no container engine replies: {why}: start it, or use another --database")
    })?;
    let name = format!("redquorum-contest-{:08x}", rand::random::<u32>());
    let password = format!("{:032x}", rand::random::<u128>());
    let mut command = Command::new("docker");
    command.args(["run", "--rm", "--interactive", "--name", &name]);
    command.args(["--publish", "127.0.0.1::3306", "--env", "MARIADB_ROOT_PASSWORD"]);
    command.args(["--entrypoint", "sh", &image(), "-c", SCRIPT]);
    command.env("MARIADB_ROOT_PASSWORD", &password);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let child = command.spawn().map_err(|error| format!("docker cannot be run: {error}"))?;
    let mut container = Container { name, child };
    let until = Instant::now() + START_TIMEOUT;
    let options = loop {
        if let Ok(text) = docker(&["port", &container.name, "3306/tcp"])
            && let Some(port) =
                text.lines().next().and_then(|line| line.rsplit(':').next()?.parse().ok())
        {
            let options = mariadb::local(port, "root", &password);
            if options.connect().await.is_ok() {
                break options;
            }
        }
        if Instant::now() >= until || matches!(container.child.try_wait(), Ok(Some(_))) {
            return Err(format!(
                "the container of {} does not start: try `docker run --rm {0}`, or set \
                 {IMAGE_VARIABLE}",
                image()
            ));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let mut database = mariadb::create_database(options, "a container").await?;
    database.place = Place::Container(container);
    Ok(database)
}
