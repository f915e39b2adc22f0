//! Finds the `redis-server` program. Called by code that starts masters, and by tests that check
//! whether they can.

use std::{
    env,
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::RigError;

/// The environment variable that names the server program, as a path or a name on the `PATH`.
pub const SERVER_VARIABLE: &str = "REDQUORUM_REDIS_SERVER";

/// The environment variable that, set to `1`, turns "no server: skipped" into a failure.
pub const REQUIRE_VARIABLE: &str = "REDQUORUM_REQUIRE_REDIS";

/// Valkey is Redis to this library. Some systems package only Valkey.
const NAMES: [&str; 2] = ["redis-server", "valkey-server"];

/// A server program that was found, with the version that it reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    path: PathBuf,
    version: String,
}

impl Server {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version, such as `7.0.15`.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// The format of reports: `redis-server 7.0.15 (/usr/bin/redis-server)`.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.path.file_name().unwrap_or_default().display();
        write!(f, "{name} {} ({})", self.version, self.path.display())
    }
}

/// Finds the server: the program that [`SERVER_VARIABLE`] names, else `redis-server`, else
/// `valkey-server` on the `PATH`. The result is cached once a server is found.
///
/// # Errors
///
/// - [`RigError::NoServer`]: there is none, or the variable names something else.
pub fn find_server() -> Result<Server, RigError> {
    static FOUND: OnceLock<Server> = OnceLock::new();
    if let Some(server) = FOUND.get() {
        return Ok(server.clone());
    }
    let server = find(env::var_os(SERVER_VARIABLE).as_deref(), env::var_os("PATH").as_deref())?;
    Ok(FOUND.get_or_init(|| server).clone())
}

/// Whether a missing server is a failure and not a reason to skip: [`REQUIRE_VARIABLE`] is set, and
/// not to `0`.
///
/// Use it on machines that must have a server, where a skipped test would silently never run.
pub fn required() -> bool {
    is_set(REQUIRE_VARIABLE)
}

/// Whether a variable is set, not empty, and not `0`.
pub(crate) fn is_set(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| !value.is_empty() && value != "0")
}

/// [`find_server`] without the environment.
fn find(named: Option<&OsStr>, path: Option<&OsStr>) -> Result<Server, RigError> {
    let missing = |why| RigError::NoServer { why };
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        // No other program is tried: the user would not notice that the tests ran with another one.
        let named = Path::new(named);
        let is_name = named.components().count() == 1;
        let file = if is_name { on_path(named, path).next() } else { Some(named.to_owned()) };
        let file = file.unwrap_or_else(|| named.to_owned());
        return probe(&file).map_err(|why| missing(format!("{SERVER_VARIABLE} is set, but {why}")));
    }
    let mut broken = Vec::new();
    for file in NAMES.iter().flat_map(|name| on_path(Path::new(name), path)) {
        match probe(&file) {
            Ok(server) => return Ok(server),
            Err(why) => broken.push(why),
        }
    }
    if broken.is_empty() {
        broken.push("not on the PATH".to_owned());
    }
    Err(missing(broken.join(", ")))
}

fn on_path(name: &Path, path: Option<&OsStr>) -> impl Iterator<Item = PathBuf> {
    let files: Vec<_> = env::split_paths(path.unwrap_or_default()).map(|d| d.join(name)).collect();
    files.into_iter().filter(|file| file.is_file())
}

/// Asks a program for its version. The error describes what it did instead.
fn probe(file: &Path) -> Result<Server, String> {
    let shown = file.display();
    let output = Command::new(file)
        .arg("--version")
        .output()
        .map_err(|error| format!("{shown} cannot be run: {error}"))?;
    // "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=…"
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
    match version {
        Some(version) => Ok(Server { path: file.to_owned(), version: version.to_owned() }),
        None => Err(format!("{shown} does not say that it is a Redis server")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_missing_server_names_the_fix_and_what_was_tried() {
        let path = env::var("PATH").ok();
        let (path, none) = (path.as_deref(), "not on the PATH");
        for (named, path, reason) in [
            (None, None, none),
            (None, Some(""), none),
            (None, Some("/nowhere"), none),
            // Even if another server is installed.
            (Some("/nowhere/redis-server"), path, "/nowhere/redis-server cannot be run"),
            (Some("no-such-redis-server"), path, "no-such-redis-server cannot be run"),
            #[cfg(unix)]
            (Some("/bin/echo"), None, "/bin/echo does not say that it is a Redis server"),
        ] {
            let error = find(named.map(OsStr::new), path.map(OsStr::new)).unwrap_err();
            let why = error.to_string();
            for part in [
                reason,
                "apt-get install redis-server",
                "brew install redis",
                "or set REDQUORUM_REDIS_SERVER",
            ] {
                assert!(why.contains(part), "{named:?} {path:?}: {why}");
            }
        }
    }
}
