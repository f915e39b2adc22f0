//! Access to the container engine: one runtime for all asynchronous calls, one client, and the
//! engine's data about itself. All other files here call it.

use std::{
    env, fmt,
    future::Future,
    path::{Path, PathBuf},
    sync::{OnceLock, mpsc},
    time::Duration,
};

use bollard::{Docker, errors::Error};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

use crate::RigError;

/// An engine of this machine answers within milliseconds, unless its socket is just starting it.
const PATIENCE: Duration = Duration::from_secs(2);

/// A container engine that answered; from [`engine`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineInfo {
    address: String,
    version: String,
    api: String,
}

impl EngineInfo {
    /// Its address: `unix:///var/run/docker.sock`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its version: `20.10.24`.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// The format of reports: `engine 20.10.24 (API 1.41) at unix:///var/run/docker.sock`.
impl fmt::Display for EngineInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "engine {} (API {}) at {}", self.version, self.api, self.address)
    }
}

/// Asks the container engine for its version, to check whether containers are available. Takes some
/// milliseconds, and at most two seconds.
///
/// The engine is the one that `DOCKER_HOST` names, else the one behind Docker's usual socket.
///
/// # Errors
///
/// - [`RigError::NoEngine`]: no engine answers, or it is on another machine.
pub fn engine() -> Result<EngineInfo, RigError> {
    run(async { Ok(connect().await?.1) })
}

/// A client, and its engine, which has answered.
pub(crate) async fn connect() -> Result<(Docker, EngineInfo), RigError> {
    let (address, tried) = address();
    let missing = |why: String| RigError::NoEngine { tried: tried.clone(), why };
    if !is_local(&address) {
        let why = "it is one of another machine, and masters listen on its loopback only";
        return Err(missing(why.to_owned()));
    }
    // The client of testcontainers, so that starts and all other calls use the same connection.
    let docker = testcontainers::core::client::docker_client_instance()
        .await
        .map_err(|error| missing(error.to_string()))?;
    let version = match timeout(PATIENCE, docker.version()).await {
        Ok(answer) => answer.map_err(|error| missing(error.to_string()))?,
        Err(_) => return Err(missing(format!("silent for {PATIENCE:?}"))),
    };
    let known = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    let info =
        EngineInfo { address, version: known(version.version), api: known(version.api_version) };
    Ok((docker, info))
}

/// Runs a future to its end, also if the caller itself runs within a runtime.
///
/// The whole process has one runtime, which never ends: all sets of containers share the client,
/// and its connections belong to the runtime in which they were made.
pub(crate) fn run<T: Send + 'static>(
    work: impl Future<Output = Result<T, RigError>> + Send + 'static,
) -> Result<T, RigError> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    let build = || Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = RUNTIME
        .get_or_init(|| build().map_err(|error| error.to_string()))
        .as_ref()
        .map_err(|why| failed("start a runtime", why))?;
    let (sender, receiver) = mpsc::sync_channel(1);
    runtime.spawn(async move {
        let _received = sender.send(work.await);
    });
    receiver.recv().unwrap_or_else(|_| Err(failed("wait for a task", "it panicked")))
}

/// The error of an engine that answers, but fails to execute a request.
pub(crate) fn failed(doing: &str, why: impl fmt::Display) -> RigError {
    RigError::Engine { doing: doing.to_owned(), why: why.to_string() }
}

/// Whether the engine reports that the object does not exist (any more).
pub(crate) fn is_missing(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}

/// The engine's address, and its text for an error.
fn address() -> (String, String) {
    match env::var("DOCKER_HOST") {
        Ok(host) => (host.clone(), format!("DOCKER_HOST={host}")),
        Err(_) => {
            let socket = socket();
            (socket.clone(), format!("{socket}, as DOCKER_HOST is not set"))
        }
    }
}

/// The socket that testcontainers looks for. It does not expose the path.
fn socket() -> String {
    let below = |variable: &str, path: &str| Some(PathBuf::from(env::var_os(variable)?).join(path));
    let usual = PathBuf::from("/var/run/docker.sock");
    let places = [
        Some(usual.clone()),
        below("XDG_RUNTIME_DIR", ".docker/run/docker.sock"),
        below("HOME", ".docker/run/docker.sock"),
        below("HOME", ".docker/desktop/docker.sock"),
    ];
    let found = places.into_iter().flatten().find(|path| Path::exists(path));
    format!("unix://{}", found.unwrap_or(usual).display())
}

/// Whether a port that the engine publishes on its loopback is reachable on ours.
fn is_local(address: &str) -> bool {
    let Some((scheme, rest)) = address.split_once("://") else { return true };
    if !matches!(scheme, "tcp" | "http" | "https" | "ssh") {
        return true;
    }
    let host = rest.rsplit('@').next().unwrap_or(rest);
    ["localhost", "127.", "[::1]"].iter().any(|local| host.starts_with(local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_of_another_machine_is_told_from_one_of_this() {
        for local in
            ["unix:///run/docker.sock", "tcp://127.0.0.1:2375", "tcp://localhost", "nonsense"]
        {
            assert!(is_local(local), "{local}");
        }
        for other in ["tcp://10.0.0.7:2375", "ssh://me@build.example", "https://docker:2376"] {
            assert!(!is_local(other), "{other}");
        }
    }

    #[test]
    fn it_runs_within_another_runtime_and_says_when_a_task_panicked() {
        let other = Builder::new_current_thread().build().unwrap();
        assert_eq!(other.block_on(async { run(async { Ok(7) }) }).unwrap(), 7);
        let error = run::<()>(async { std::panic::resume_unwind(Box::new(())) }).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the container engine could not wait for a task: it panicked"
        );
    }
}
