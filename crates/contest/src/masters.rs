//! The Redis masters under test: processes of the rig, servers of the user, or masters in memory.

use std::{
    env, io,
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use redis::{Client, ConnectionAddr, IntoConnectionInfo};
use redquorum::{connect::Node, memory};
use redquorum_rig::{SERVER_VARIABLE, find_server};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet, block_in_place},
};
use url::Url;

use crate::results::Server;

const COUNT: usize = 5;

#[derive(Debug, Clone)]
pub(crate) enum Source {
    Processes,
    Memory,
    Remote(Vec<String>),
}

impl Source {
    /// Chooses, checks and describes; the notes are for the header.
    ///
    /// # Errors
    ///
    /// A master of the user does not reply.
    pub(crate) async fn choose(
        urls: Option<Vec<String>>,
    ) -> Result<(Self, Server, Vec<String>), String> {
        let server = |product: &str, version: &str, place: &str| Server {
            product: product.to_owned(),
            version: version.to_owned(),
            place: place.to_owned(),
        };
        if let Some(urls) = urls {
            let version = check(&urls).await?;
            let mut notes = Vec::new();
            if urls.len() < COUNT {
                notes.push(format!("{} masters: redquorum is meant for {COUNT}", urls.len()));
            }
            return Ok((
                Self::Remote(urls),
                server("Redis", &version, "servers of the user"),
                notes,
            ));
        }
        match block_in_place(find_server) {
            Ok(found) => {
                Ok((Self::Processes, server("Redis", found.version(), "private processes"), vec![]))
            }
            // A server that the user named is not replaced.
            Err(error) if redquorum_rig::required() || env::var_os(SERVER_VARIABLE).is_some() => {
                Err(error.to_string())
            }
            Err(_) => {
                let note = "redis-server is not installed (Debian: apt-get install redis-server): \
                            masters in memory serve, which know the commands of redquorum only";
                Ok((Self::Memory, server("redquorum", "", "in memory"), vec![note.to_owned()]))
            }
        }
    }
}

/// Queries the version of every server of the user; returns that of the first.
async fn check(urls: &[String]) -> Result<String, String> {
    let mut first = None;
    for (index, url) in urls.iter().enumerate() {
        let number = index + 1;
        let wrong = |why: String| format!("master {number} of --masters cannot be used: {why}");
        let client = Client::open(url.as_str())
            .map_err(|error| wrong(format!("{error}: use redis://[USER:PASSWORD@]HOST:PORT")))?;
        socket_address(url).map_err(wrong)?;
        let query = async {
            let mut connection = client.get_multiplexed_async_connection().await?;
            redis::cmd("INFO").arg("server").query_async::<String>(&mut connection).await
        };
        let info = match tokio::time::timeout(Duration::from_secs(3), query).await {
            Ok(result) => result.map_err(|error| wrong(error.to_string()))?,
            Err(_) => return Err(wrong("it does not reply within 3 s: is it up?".to_owned())),
        };
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        first.get_or_insert_with(|| version.unwrap_or_default().trim().to_owned());
    }
    first.ok_or_else(|| "--masters needs at least one URL".to_owned())
}

/// The address of a master, for the network.
fn socket_address(url: &str) -> Result<SocketAddr, String> {
    let info = url.into_connection_info().map_err(|error| error.to_string())?;
    let ConnectionAddr::Tcp(host, port) = info.addr() else {
        return Err("the contest connects by redis:// only".to_owned());
    };
    let found =
        (host.as_str(), *port).to_socket_addrs().map_err(|error| format!("{host}: {error}"));
    found?.next().ok_or_else(|| format!("{host} has no address"))
}

/// The same URL with another host and port.
pub(crate) fn redirected(url: &str, to: SocketAddr) -> Result<String, String> {
    let mut url: Url = url.parse().map_err(|error| format!("{url}: {error}"))?;
    let moved = url.set_ip_host(to.ip()).and_then(|()| url.set_port(Some(to.port())));
    moved.map_err(|()| format!("{url} has no host"))?;
    Ok(url.into())
}

pub(crate) struct MasterSet {
    inner: Inner,
    pub(crate) urls: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Verb {
    Kill,
    Pause,
    Resume,
    /// It forgets its keys.
    Restart,
    /// Cuts it off from its replica.
    Lag,
    FailOver,
}

enum Inner {
    Processes(redquorum_rig::Masters),
    Memory(Served),
    Remote,
}

impl MasterSet {
    /// Starts five masters, with replicas if they are wanted.
    pub(crate) async fn start(source: &Source, replicas: bool) -> Result<Self, String> {
        let (inner, urls) = match source {
            Source::Processes => {
                let mut builder = redquorum_rig::Masters::builder().count(COUNT);
                if replicas {
                    builder = builder.replicas();
                }
                let masters =
                    block_in_place(|| builder.start()).map_err(|error| error.to_string())?;
                let urls = masters.urls();
                (Inner::Processes(masters), urls)
            }
            Source::Memory => {
                let served = Served::start(COUNT).await.map_err(|error| error.to_string())?;
                let urls = served.urls();
                (Inner::Memory(served), urls)
            }
            Source::Remote(urls) => (Inner::Remote, urls.clone()),
        };
        Ok(Self { inner, urls })
    }

    pub(crate) fn sockets(&self) -> Result<Vec<SocketAddr>, String> {
        self.urls.iter().map(|url| socket_address(url)).collect()
    }

    /// Does something to the first master, wherever it runs. Servers of the user stay as they are.
    pub(crate) fn first(&self, verb: Verb) -> Result<(), String> {
        match &self.inner {
            // The rig blocks for milliseconds.
            Inner::Processes(masters) => block_in_place(|| match verb {
                Verb::Kill => masters.kill(1),
                Verb::Pause => masters.pause(1),
                Verb::Resume => masters.resume(1),
                Verb::Restart => masters.restart(1),
                Verb::Lag => masters.lag(1),
                Verb::FailOver => masters.fail_over(1),
            })
            .map_err(|error| error.to_string())?,
            Inner::Memory(served) => match verb {
                Verb::Kill => served.masters.kill(1),
                Verb::Pause => served.masters.stop(1),
                Verb::Resume => served.masters.resume(1),
                Verb::Restart => served.masters.restart(1),
                // They have no replicas.
                Verb::Lag | Verb::FailOver => {}
            },
            Inner::Remote => {}
        }
        Ok(())
    }

    /// Kills the first master and promotes its replica; its new address.
    pub(crate) fn fail_over(&self) -> Result<Option<SocketAddr>, String> {
        self.first(Verb::FailOver)?;
        Ok(match &self.inner {
            Inner::Processes(masters) => Some(([127, 0, 0, 1], masters.port(1)).into()),
            _ => None,
        })
    }
}

/// The library's masters in memory, served on ports of loopback: child processes and the network
/// reach them as they reach servers.
struct Served {
    masters: memory::Masters,
    ports: Vec<SocketAddr>,
    listeners: Vec<AbortHandle>,
}

impl Served {
    async fn start(count: usize) -> io::Result<Self> {
        let masters = memory::Masters::new(count);
        let (mut ports, mut listeners) = (Vec::new(), Vec::new());
        for number in 1..=count {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            ports.push(listener.local_addr()?);
            let node: Arc<dyn Node> = Arc::new(masters.node(number));
            listeners.push(listen(listener, move |client| forward(client, node.clone())));
        }
        Ok(Self { masters, ports, listeners })
    }

    fn urls(&self) -> Vec<String> {
        self.ports.iter().map(|address| format!("redis://{address}")).collect()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.listeners.iter().for_each(AbortHandle::abort);
    }
}

/// Serves each connection to a listener in a task, which ends with the listener.
fn listen<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F + Send + 'static) -> AbortHandle
where
    F: Future<Output = ()> + Send + 'static,
{
    let accepting = async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let _nodelay = stream.set_nodelay(true);
            while connections.try_join_next().is_some() {}
            connections.spawn(serve(stream));
        }
    };
    tokio::spawn(accepting).abort_handle()
}

/// Passes on what a client and a master send. A master that is dead ends the connection at once.
async fn forward(mut client: TcpStream, node: Arc<dyn Node>) {
    if let Ok(mut master) = node.connect().await {
        let _ended = copy_bidirectional(&mut client, &mut master).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirected_url_keeps_user_password_and_database() {
        let to = SocketAddr::from(([127, 0, 0, 1], 7));
        let url = |text| redirected(text, to).unwrap();
        assert_eq!(url("redis://db1"), "redis://127.0.0.1:7");
        assert_eq!(url("redis://u:p%40x@db1:6379/3"), "redis://u:p%40x@127.0.0.1:7/3");
    }
}
