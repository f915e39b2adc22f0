//! Masters in containers, for machines with a container engine and without `redis-server`, or for
//! the same version everywhere: [`Builder::containers`](crate::Builder::containers), if the feature
//! `containers` is on. testcontainers starts the containers and removes them. The rig calls the
//! `docker` command for all other requests: pauses, kills, restarts, and the removal of containers
//! that a killed process left behind.
//!
//! # Differences from processes
//!
//! - **The port changes at every restart**: ask [`Masters::address`](crate::Masters::address) for
//!   each connection.
//! - The engine's own proxy stands before each master: it may accept a connection, and close it
//!   again, before the server is up.
//! - A method takes tens to hundreds of milliseconds.
//! - After `kill -9` and other ends of the process without a drop, the engine keeps the containers
//!   until the next start or [`sweep`] of any process, which removes those of dead processes.

#[cfg(feature = "containers")]
mod launch;
mod sweep;

use std::{
    env, fmt, fs,
    net::{Ipv4Addr, SocketAddr},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread::{self, sleep},
    time::{Duration, Instant},
};

#[cfg(feature = "containers")]
use self::launch::launch;
pub(crate) use self::sweep::Directory;
pub use self::sweep::sweep;
use crate::{
    Builder, RigError,
    host::{Host, Signal},
    lock,
    node::Node,
    replica::value,
    server::is_set,
};

/// The environment variable that names the image of the masters, if the caller names none.
pub const IMAGE_VARIABLE: &str = "REDQUORUM_REDIS_IMAGE";

/// The environment variable that, set to `1`, turns "no containers: skipped" into a failure.
pub const REQUIRE_VARIABLE: &str = "REDQUORUM_REQUIRE_CONTAINERS";

/// A public image. Its full version ensures that all runs use the same one.
const OFFICIAL: &str = "redis:7.2.4";

/// The image that `just image` builds where no image can be pulled.
const LOCAL: &str = "redquorum-redis:local";

/// An engine of this machine answers within milliseconds, unless its socket is just starting it.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A killed process ends within milliseconds; the rest is for an engine that is busy.
const TIMEOUT_WITH_KILL: Duration = Duration::from_secs(20);

/// The port of the server within its container.
const PORT: u16 = 6379;

/// Whether missing containers are a failure and not a reason to skip: [`REQUIRE_VARIABLE`] is set,
/// and not to `0`.
pub fn required() -> bool {
    is_set(REQUIRE_VARIABLE)
}

/// Finds the image, or pulls it, and returns its name. Use it to check beforehand whether a start
/// can succeed. The engine is the one that the `docker` command uses: `DOCKER_HOST` names it.
///
/// # Errors
///
/// - [`RigError::NoContainers`]: this build has no containers.
/// - [`RigError::NoEngine`]: no engine answers within two seconds, or it is on another machine.
/// - [`RigError::NoImage`]: the image is not there, and cannot be pulled.
pub fn prepare(image: Option<&str>) -> Result<String, RigError> {
    check_engine()?;
    Ok(find_image(image.map(str::to_owned))?.0)
}

/// The directory that contains the directories of the nodes, the nodes, and the name of the image.
pub(crate) type Started = (Option<Directory>, Vec<Node>, Option<String>);

/// Starts a container for each of these numbers, all at the same time.
pub(crate) fn start(
    plan: &Arc<Builder>,
    numbers: impl Iterator<Item = usize>,
    image: Option<String>,
) -> Result<Started, RigError> {
    sweep()?;
    let (image, id) = find_image(image)?;
    let directory = Directory::new()?;
    let mut nodes = Vec::new();
    for (index, number) in (1..).zip(numbers) {
        let dir = directory.path().join(index.to_string());
        let doing = format!("make {}", dir.display());
        fs::create_dir(&dir).map_err(|error| failed(&doing, error))?;
        let name = format!("redquorum-{}-{index}", directory.name());
        let launch = Mutex::new(Some(launch(plan, &name, &id, &dir, directory.path())));
        let (port, removal) = (Mutex::new(0), Mutex::new(None));
        let container = Container { number, name, port, launch, removal };
        nodes.push(Node::new(plan, number, dir, container)?);
    }
    // All of them, so that none is created after another has failed.
    let launched: Vec<Result<(), RigError>> = thread::scope(|scope| {
        let launches: Vec<_> =
            nodes.iter().map(|node| scope.spawn(|| node.host.launch())).collect();
        let panicked = |_| Err(failed("start a master", "its thread panicked"));
        launches.into_iter().map(|launch| launch.join().unwrap_or_else(panicked)).collect()
    });
    launched.into_iter().collect::<Result<(), _>>()?;
    Ok((Some(directory), nodes, Some(image)))
}

/// The program and its version, as a master reports them. Valkey reports the version of Redis that
/// it is compatible with, and then its own.
pub(crate) fn server(node: &Node) -> Result<String, RigError> {
    let info = node.info("server")?;
    let valkey = value(&info, "valkey_version").map(|version| format!("valkey-server {version}"));
    let redis = || format!("redis-server {}", value(&info, "redis_version").unwrap_or("unknown"));
    Ok(valkey.unwrap_or_else(redis))
}

/// Starts a container, in a thread without a runtime.
type Launch = Box<dyn FnOnce() -> Result<Removal, String> + Send>;

/// Removes a container, in a thread without a runtime.
type Removal = Box<dyn FnOnce() + Send>;

/// A container. Its name stays the same over restarts.
struct Container {
    number: usize,
    name: String,
    /// On this machine's loopback. It changes at each start.
    port: Mutex<u16>,
    /// The first start.
    launch: Mutex<Option<Launch>>,
    removal: Mutex<Option<Removal>>,
}

impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port, .. } = self;
        f.debug_struct("Container").field("name", name).field("port", port).finish_non_exhaustive()
    }
}

impl Container {
    fn docker(&self, verb: &str, args: &[&str]) -> Result<String, String> {
        docker(&[&[verb], args, &[&self.name]].concat())
    }

    fn inspect(&self, format: &str) -> Result<String, RigError> {
        let found = self.docker("inspect", &["--format", format]);
        found.map_err(|why| self.failed("look at", &why))
    }

    fn runs(&self) -> Result<bool, RigError> {
        Ok(self.inspect("{{.State.Running}}")? == "true")
    }

    fn failed(&self, verb: &str, why: &str) -> RigError {
        failed(&format!("{verb} master {}", self.number), why)
    }

    /// Asks for the port of this start.
    fn find_port(&self) -> Result<u16, RigError> {
        let format = format!(
            "{{{{range (index .NetworkSettings.Ports \"{PORT}/tcp\")}}}}{{{{.HostPort}}}} {{{{end}}}}"
        );
        let ports = self.inspect(&format)?;
        // A server that ended at once has none.
        Ok(ports.split(' ').find_map(|port| port.parse().ok()).unwrap_or(0))
    }
}

impl Host for Container {
    fn address(&self) -> SocketAddr {
        let mut port = lock(&self.port);
        if *port == 0 {
            *port = self.find_port().unwrap_or(0);
        }
        (Ipv4Addr::LOCALHOST, *port).into()
    }

    fn inside(&self) -> Result<SocketAddr, RigError> {
        let found = self.inspect("{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}")?;
        let address = found.split(' ').find_map(|address| address.parse::<Ipv4Addr>().ok());
        address.map(|address| (address, PORT).into()).ok_or_else(|| RigError::Replica {
            node: self.number,
            why: "its master has no address in a network of the engine".to_owned(),
        })
    }

    fn launch(&self) -> Result<(), RigError> {
        if let Some(launch) = lock(&self.launch).take() {
            let removal = launch().map_err(|why| self.failed("start", &why))?;
            *lock(&self.removal) = Some(removal);
            // testcontainers does not read Docker's contexts, so it may use another engine.
            let fix = "set DOCKER_HOST, so that testcontainers and the docker command use the same engine";
            let found = self.docker("inspect", &["--format", "{{.Id}}"]);
            return found.map(drop).map_err(|why| self.failed("find", &format!("{why}; {fix}")));
        }
        if self.runs()? {
            self.signal(Signal::Kill)?;
        }
        self.docker("start", &[]).map_err(|why| self.failed("start", &why))?;
        *lock(&self.port) = 0;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<bool, RigError> {
        // The engine refuses what is done already. The check comes after the attempt, so that no
        // change can happen between the two.
        let unless = |format: &str, verb: &str, refused: Result<String, String>| match refused {
            Ok(_) => Ok(true),
            Err(_) if !self.runs()? => Ok(false),
            Err(_) if self.inspect(format)? == "true" => Ok(true),
            Err(why) => Err(self.failed(verb, &why)),
        };
        match signal {
            Signal::Look => self.runs(),
            Signal::Pause => unless("{{.State.Paused}}", "pause", self.docker("pause", &[])),
            Signal::Resume => {
                unless("{{not .State.Paused}}", "resume", self.docker("unpause", &[]))
            }
            // Not the engine's own stop, which kills a server that does not end in time.
            Signal::Stop => {
                let resumed = self.signal(Signal::Resume)?;
                if resumed {
                    let sent = self.docker("kill", &["--signal", "TERM"]);
                    sent.map_err(|why| self.failed("stop", &why))?;
                }
                Ok(resumed)
            }
            Signal::Kill => {
                let refused = self.docker("kill", &["--signal", "KILL"]).err();
                let until = Instant::now() + TIMEOUT_WITH_KILL;
                while self.runs()? {
                    if Instant::now() >= until {
                        let (node, within) = (self.number, TIMEOUT_WITH_KILL);
                        let late = RigError::NotStopped { node, within };
                        return Err(refused.map_or(late, |why| self.failed("kill", &why)));
                    }
                }
                Ok(true)
            }
        }
    }

    fn log(&self) -> String {
        let mut command = Command::new("docker");
        let output = command.args(["logs", "--tail", "8", &self.name]).output();
        let texts = output.map(|output| [output.stdout, output.stderr].concat());
        String::from_utf8_lossy(&texts.unwrap_or_default()).trim_end().to_owned()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Some(removal) = lock(&self.removal).take() {
            let _removed = thread::spawn(removal).join();
        }
    }
}

/// Finds the image or pulls it, and returns its name and its id: from here on the name is not
/// resolved again. A named image is used, or an error returned; it is never replaced by another.
fn find_image(named: Option<String>) -> Result<(String, String), RigError> {
    let named = named.or_else(|| env::var(IMAGE_VARIABLE).ok()).filter(|name| !name.is_empty());
    let candidates = match &named {
        Some(name) => vec![name.as_str()],
        None => vec![OFFICIAL, LOCAL],
    };
    let id = |name: &str| docker(&["image", "inspect", "--format", "{{.Id}}", name]);
    for name in &candidates {
        if let Ok(id) = id(name) {
            return Ok(((*name).to_owned(), id));
        }
    }
    let name = candidates[0].to_owned();
    match docker(&["pull", "--quiet", &name]).and_then(|_| id(&name)) {
        Ok(id) => Ok((name, id)),
        Err(why) => Err(RigError::NoImage { image: name, why }),
    }
}

/// Without the feature no container is launched, because [`check_engine`] fails before.
#[cfg(not(feature = "containers"))]
fn launch(_: &Builder, _: &str, _: &str, _: &std::path::Path, _: &std::path::Path) -> Launch {
    Box::new(|| Err(RigError::NoContainers.to_string()))
}

/// Whether containers are built in, and an engine of this machine answers.
pub(crate) fn check_engine() -> Result<(), RigError> {
    if cfg!(not(feature = "containers")) {
        return Err(RigError::NoContainers);
    }
    let named = env::var("DOCKER_HOST").ok();
    let context = || docker(&["context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]);
    let address = named.clone().or_else(|| context().ok()).unwrap_or_default();
    let tried = match named {
        Some(host) => format!("DOCKER_HOST={host}"),
        None => format!("{address}, as DOCKER_HOST is not set"),
    };
    if !is_local(&address) {
        let why = "it is one of another machine, and masters listen on its loopback only";
        return Err(RigError::NoEngine { tried, why: why.to_owned() });
    }
    let answered = ask(&["version", "--format", "{{.Server.Version}}"], Some(TIMEOUT));
    answered.map(drop).map_err(|why| RigError::NoEngine { tried, why })
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

/// Removes a container with its volumes, also one that runs. Returns the output: its name.
///
/// # Errors
///
/// What the engine complains about.
pub fn remove(name: &str) -> Result<String, String> {
    docker(&["rm", "--force", "--volumes", name])
}

/// Runs the `docker` command, and returns its output.
///
/// # Errors
///
/// What the command complains about.
pub fn docker(args: &[&str]) -> Result<String, String> {
    ask(args, None)
}

fn ask(args: &[&str], within: Option<Duration>) -> Result<String, String> {
    let mut command = Command::new("docker");
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("docker cannot be run: {error}"))?;
    let until = within.map(|within| Instant::now() + within);
    // Only a bounded command is polled: its output fits into a pipe.
    while let (Some(until), Some(within), Ok(None)) = (until, within, child.try_wait()) {
        if Instant::now() >= until {
            let _ended = (child.kill(), child.wait());
            return Err(format!("silent for {within:?}"));
        }
        sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let text = |bytes| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// The error of an engine that answers, but fails to execute a request.
fn failed(doing: &str, why: impl ToString) -> RigError {
    RigError::Engine { doing: doing.to_owned(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_of_another_machine_is_detected() {
        for (address, local) in [
            ("unix:///run/docker.sock", true),
            ("tcp://127.0.0.1:2375", true),
            ("tcp://localhost", true),
            ("nonsense", true),
            ("tcp://10.0.0.7:2375", false),
            ("ssh://me@build.example", false),
            ("https://docker:2376", false),
        ] {
            assert_eq!(is_local(address), local, "{address}");
        }
    }
}
