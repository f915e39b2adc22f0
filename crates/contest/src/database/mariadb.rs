//! MariaDB: a private server in a temporary directory, a container of the engine's command line, or
//! a database on a server of the user.

use std::{
    env, fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use redquorum_rig::{
    Process,
    containers::{docker, remove},
};
use sqlx::{
    ConnectOptions, Connection, Row, mysql::MySqlConnectOptions, mysql::MySqlDatabaseError,
};

use super::{Database, Place, Product, Target, temporary_path};
use crate::results::Server;

const OLDEST: [(&str, (u32, u32)); 2] = [("MariaDB", (10, 5)), ("MySQL", (8, 0))];
const START_TIMEOUT: Duration = Duration::from_secs(30);
const IMAGE_VARIABLE: &str = "REDQUORUM_MARIADB_IMAGE";
const IMAGE: &str = "mariadb:11.4";
/// An image may have to be pulled.
const CONTAINER_TIMEOUT: Duration = Duration::from_secs(180);
/// Ends with the server, and with the input. Of a command in the background the shell would close
/// the input.
const SCRIPT: &str = "exec 3<&0; docker-entrypoint.sh mariadbd --max-connections=300 & server=$!; \
                      (cat <&3 >/dev/null; kill -9 $server) & wait $server";

/// Finds a program of MariaDB. Servers are in `sbin`, which is not on the `PATH` of most users.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let others = ["/usr/sbin", "/usr/local/sbin", "/usr/local/bin"].map(PathBuf::from);
    let mut files = env::split_paths(&path).chain(others).map(|dir| dir.join(name));
    files.find(|file| file.is_file())
}

pub(super) async fn start_private() -> Result<Database, String> {
    let missing = |name: &str| {
        format!("{name} is not installed: apt-get install mariadb-server, or use --database sqlite")
    };
    let server = find_program("mariadbd").ok_or_else(|| missing("mariadbd"))?;
    let install =
        find_program("mariadb-install-db").ok_or_else(|| missing("mariadb-install-db"))?;
    let password = format!("{:032x}", rand::random::<u128>());
    let port = free_port();
    let process = tokio::task::block_in_place(|| {
        launch(&server, &install, port, &password)
            .map_err(|why| format!("MariaDB does not start: {why}"))
    })?;
    let options = local(port, "contest", &password);
    let until = Instant::now() + START_TIMEOUT;
    while options.connect().await.is_err() {
        if Instant::now() >= until || !process.runs().unwrap_or(false) {
            return Err(format!("MariaDB does not start; the end of its log:\n{}", process.log()));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut database = create_database(options, "a private process").await?;
    database.place = Place::Private(process);
    Ok(database)
}

pub(super) fn local(port: u16, user: &str, password: &str) -> MySqlConnectOptions {
    let options = MySqlConnectOptions::new().host("127.0.0.1").port(port);
    options.username(user).password(password).disable_statement_logging()
}

fn launch(server: &Path, install: &Path, port: u16, password: &str) -> std::io::Result<Process> {
    let dir = temporary_path();
    let shown = dir.display();
    let mut args = vec![
        "--no-defaults".to_owned(),
        format!("--datadir={shown}/data"),
        format!("--socket={shown}/socket"),
        format!("--pid-file={shown}/pid"),
        format!("--init-file={shown}/init.sql"),
        format!("--secure-file-priv={shown}"),
        format!("--tmpdir={shown}"),
        format!("--port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--skip-name-resolve".to_owned(),
        "--max-connections=300".to_owned(),
    ];
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        args.push("--user=root".to_owned());
    }
    let process = Process::new(&dir, server, &args)?;
    let mut command = Command::new(install);
    command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    command.arg(format!("--datadir={shown}/data"));
    if is_root {
        command.arg("--user=root");
    }
    // A server that starts removes the temporary tables in its directory, also those of others.
    command.env("TMPDIR", &dir);
    // Out of the terminal's foreground group: Ctrl-C is for the contest.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let output = command.output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(std::io::Error::other(format!("mariadb-install-db failed: {text}")));
    }
    // Without these accounts only the socket, in a directory of this user, needs no password.
    let init = format!(
        "DELETE FROM mysql.global_priv WHERE User <> 'mariadb.sys' AND Host <> 'localhost';\n\
         FLUSH PRIVILEGES;\n\
         CREATE USER 'contest'@'127.0.0.1' IDENTIFIED BY '{password}';\n\
         GRANT ALL ON *.* TO 'contest'@'127.0.0.1';\n"
    );
    fs::write(dir.join("init.sql"), init)?;
    process.launch()?;
    Ok(process)
}

/// A port below the range of outgoing connections that is free at the moment.
fn free_port() -> u16 {
    loop {
        let port = rand::random_range(20_000..32_000);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// The container's first process ends when its input does, which is a pipe of this process: the
/// container is removed in whatever way the contest ends.
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

pub(super) async fn start_container() -> Result<Database, String> {
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
    let until = Instant::now() + CONTAINER_TIMEOUT;
    let options = loop {
        if let Ok(text) = docker(&["port", &container.name, "3306/tcp"])
            && let Some(port) =
                text.lines().next().and_then(|line| line.rsplit(':').next()?.parse().ok())
        {
            let options = local(port, "root", &password);
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
    let mut database = create_database(options, "a container").await?;
    database.place = Place::Container(container);
    Ok(database)
}

/// Checks the server and creates the database, which must not exist.
pub(super) async fn create_database(
    options: MySqlConnectOptions,
    place: &str,
) -> Result<Database, String> {
    let options = options.disable_statement_logging();
    let name = options.get_database().map_or_else(
        || format!("redquorum_contest_{:08x}", rand::random::<u32>()),
        ToOwned::to_owned,
    );
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(format!("{name:?} is not a plain database name: use letters, digits and _"));
    }
    let bare = without_database(&options);
    let connecting = tokio::time::timeout(Duration::from_secs(10), bare.connect());
    let mut connection = match connecting.await {
        Ok(result) => result.map_err(|error| not_connected(&error, &options))?,
        Err(_) => return Err(format!("no server replies at {} within 10 s", place_of(&options))),
    };
    let failed = |error: sqlx::Error| format!("the server refuses a query: {error}");
    let row = sqlx::query("SELECT VERSION()").fetch_one(&mut connection).await.map_err(failed)?;
    let (product, version) = known_version(&row.try_get::<String, _>(0).map_err(failed)?)?;
    let strict =
        "SHOW VARIABLES WHERE Variable_name = 'innodb_snapshot_isolation' AND Value = 'ON'";
    let strict = sqlx::query(strict).fetch_optional(&mut connection).await.map_err(failed)?;
    let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE `{name}`"));
    sqlx::query(create)
        .execute(&mut connection)
        .await
        .map_err(|error| not_created(&error, &name, &options))?;
    let _closed = connection.close().await;
    let note = "innodb_snapshot_isolation is off in the contest's sessions".to_owned();
    let relax_snapshots = strict.is_some();
    let url = options.database(&name).to_url_lossy().into();
    Ok(Database {
        target: Target { product: Product::MariaDb, url, name, relax_snapshots },
        server: Server { product, version, place: place.to_owned() },
        notes: relax_snapshots.then_some(note).into_iter().collect(),
        place: Place::Remote,
    })
}

pub(super) async fn drop_database(target: &Target) -> Result<(), String> {
    let Some(options) = target.options() else { return Ok(()) };
    let work = async {
        let mut connection = without_database(&options).connect().await?;
        sqlx::query("SET SESSION lock_wait_timeout = 10").execute(&mut connection).await?;
        let drop = sqlx::AssertSqlSafe(format!("DROP DATABASE `{}`", target.name));
        sqlx::query(drop).execute(&mut connection).await?;
        connection.close().await
    };
    match tokio::time::timeout(Duration::from_secs(15), work).await {
        Ok(result) => result.map_err(|error: sqlx::Error| error.to_string()),
        Err(_) => Err("the server does not reply".to_owned()),
    }
}

/// The options cannot forget a database's name.
fn without_database(options: &MySqlConnectOptions) -> MySqlConnectOptions {
    let mut url = options.to_url_lossy();
    url.set_path("");
    url.as_str().parse().unwrap_or_else(|_| options.clone())
}

fn place_of(options: &MySqlConnectOptions) -> String {
    format!("{}:{}", options.get_host(), options.get_port())
}

fn code(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?;
    Some(error.try_downcast_ref::<MySqlDatabaseError>()?.number())
}

fn not_connected(error: &sqlx::Error, options: &MySqlConnectOptions) -> String {
    match code(error) {
        Some(1045) => format!("the server refuses user and password of the URL: {error}"),
        Some(1044 | 1049) => format!("the server refuses the connection: {error}"),
        _ => format!(
            "no MariaDB server can be used at {}: {error}: check host and port",
            place_of(options)
        ),
    }
}

fn not_created(error: &sqlx::Error, name: &str, options: &MySqlConnectOptions) -> String {
    match code(error) {
        Some(1007) => format!(
            "the database {name} exists, and the contest uses only a database that it creates: \
             name another one in the URL, or none"
        ),
        Some(1044 | 1142 | 1227) => format!(
            "the user may not create the database {name}: \
             GRANT ALL ON `redquorum\\_contest\\_%`.* TO '{}'@…",
            options.get_username()
        ),
        _ => format!("the database {name} cannot be created: {error}"),
    }
}

/// The product and its version; an error for one that the contest was not written for.
fn known_version(text: &str) -> Result<(String, String), String> {
    let unknown = || {
        format!(
            "the server reports the version {text:?}, which is not supported: \
             use MariaDB 10.5 or newer, or MySQL 8.0 or newer"
        )
    };
    let (product, oldest) = OLDEST[usize::from(!text.contains("MariaDB"))];
    // Servers that speak to old replication clients put 5.5.5- in front.
    let version = text.strip_prefix("5.5.5-").unwrap_or(text);
    let version = version.split('-').next().unwrap_or_default();
    let mut numbers = version.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= oldest => {
            Ok((product.to_owned(), version.to_owned()))
        }
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_are_too_old_or_unknown_are_refused() {
        let known =
            |text| known_version(text).map(|(product, version)| format!("{product} {version}"));
        assert_eq!(known("10.11.14-MariaDB-0+deb12u2").unwrap(), "MariaDB 10.11.14");
        assert_eq!(known("5.5.5-11.4.2-MariaDB").unwrap(), "MariaDB 11.4.2");
        assert_eq!(known("8.4.0").unwrap(), "MySQL 8.4.0");
        for text in ["10.3.1-MariaDB", "5.7.44", "8", "TiDB", ""] {
            assert!(known(text).unwrap_err().contains("MariaDB 10.5 or newer"), "{text}");
        }
    }
}
