//! TCP connections to a host: its name is resolved at each connect, and its addresses are tried in
//! parallel.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The kernel probes a connection that was idle for this long. So firewalls keep it, and a dead one
/// is found before it is needed.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The addresses of a host, in the order in which they are tried.
type Addresses = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Resolves a host and a port to addresses. The default is the resolver of the operating system.
#[derive(Clone)]
pub(crate) struct Lookup(Arc<dyn Fn(String, u16) -> Addresses + Send + Sync>);

impl Default for Lookup {
    fn default() -> Self {
        Self(Arc::new(|host, port| {
            Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
        }))
    }
}

/// Connects to the first address of a host that answers; `limit` is the connect timeout. It keeps
/// no address from an earlier connect: a name may have moved.
pub(crate) async fn connect(
    host: &str,
    port: u16,
    lookup: &Lookup,
    limit: Duration,
) -> io::Result<TcpStream> {
    let addresses = (lookup.0)(host.to_owned(), port).await?;
    let stream = first(&addresses, limit, TcpStream::connect).await?;
    // Disables Nagle's algorithm, which would delay votes.
    stream.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}

/// The longest time for which an address is tried alone, before the next one is tried in parallel
/// (RFC 8305).
const STAGGER: Duration = Duration::from_millis(250);

/// Connects to one of several addresses. The next address is tried when the earlier ones have
/// failed or have had their share of the time. So an address that drops packets does not block the
/// others.
async fn first<T, F>(
    addresses: &[SocketAddr],
    limit: Duration,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<T>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    // The last address has twice the share.
    let shares = u32::try_from(addresses.len()).unwrap_or(u32::MAX).saturating_add(1);
    let share = (limit / shares).min(STAGGER);
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let mut waiting = addresses.iter();
    let mut tries = JoinSet::new();
    loop {
        let next = waiting.next();
        if let Some(address) = next {
            tries.spawn(connect(*address));
        }
        let tried = match next {
            Some(_) => tokio::time::timeout(share, tries.join_next()).await,
            None => Ok(tries.join_next().await),
        };
        match tried {
            Ok(Some(Ok(Ok(connected)))) => return Ok(connected),
            Ok(Some(Ok(Err(error)))) => failed = error,
            // Opening a socket panics in a runtime without I/O.
            Ok(Some(Err(panic))) => resume_unwind(panic.into_panic()),
            Ok(None) => return Err(failed),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::{Mutex, PoisonError};

    use redquorum_rig::{Masters, RespValue, find_server, required};

    use super::*;
    use crate::Redlock;
    use crate::endpoint::{Endpoint, Settings};
    use crate::stats::LinkState;

    #[derive(Clone, Copy)]
    enum Peer {
        Answers,
        Refuses,
        /// Drops every packet.
        Drops,
    }

    /// The address that was connected to, and the time that this took.
    async fn tried(limit: Duration, peers: &'static [Peer]) -> (io::Result<usize>, Duration) {
        let address = |index| SocketAddr::from(([127, 0, 0, 1], index));
        let addresses: Vec<_> = (0..u16::try_from(peers.len()).unwrap()).map(address).collect();
        let connect = |address: SocketAddr| async move {
            let index = usize::from(address.port());
            match peers[index] {
                Peer::Answers => Ok(index),
                Peer::Refuses => Err(io::ErrorKind::ConnectionRefused.into()),
                Peer::Drops => std::future::pending().await,
            }
        };
        let start = tokio::time::Instant::now();
        let timeout = tokio::time::timeout(limit, first(&addresses, limit, connect)).await;
        (timeout.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())), start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_drops_packets_hides_none_behind_it() {
        use Peer::{Answers, Drops, Refuses};
        let ms = Duration::from_millis;
        for (limit, peers, connected, after) in [
            (ms(1000), &[Answers, Drops][..], 0, ms(0)),
            (ms(1000), &[Drops, Answers], 1, ms(250)),
            (ms(1000), &[Refuses, Answers], 1, ms(0)),
            (ms(1000), &[Refuses, Drops, Refuses, Answers], 3, ms(200)),
            // The last address gets its share, even with a short timeout and many addresses.
            (ms(90), &[Drops, Answers], 1, ms(30)),
            (ms(900), &[Drops, Drops, Drops, Drops, Drops, Drops, Drops, Answers], 7, ms(700)),
        ] {
            let (result, took) = tried(limit, peers).await;
            assert_eq!(result.unwrap(), connected);
            // Timers end with whole milliseconds.
            assert!(took >= after && took <= after + ms(8), "{took:?} and not {after:?}");
        }
        let (refused, took) = tried(ms(1000), &[Refuses, Refuses]).await;
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(took, ms(0), "no timeout is waited for");
        assert!(tried(ms(1000), &[]).await.0.is_err());
        let (silent, _) = tried(ms(1000), &[Drops, Refuses]).await;
        assert_eq!(silent.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    /// A resolver whose reply the test changes.
    #[derive(Clone, Default)]
    struct Zone(Arc<Mutex<Option<Vec<SocketAddr>>>>);

    impl Zone {
        fn set(&self, addresses: &[SocketAddr]) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(addresses.to_vec());
        }

        fn lookup(&self) -> Lookup {
            let zone = self.clone();
            Lookup(Arc::new(move |host, port| {
                assert_eq!((host.as_str(), port), ("db1", 6379));
                let reply = zone.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let unknown = || io::Error::new(io::ErrorKind::NotFound, "no such host");
                Box::pin(async move { reply.ok_or_else(unknown) })
            }))
        }
    }

    /// An address at which no server listens.
    fn closed(host: &str) -> Option<SocketAddr> {
        TcpListener::bind((host, 0)).ok()?.local_addr().ok()
    }

    fn has(servers: &Masters, node: usize, key: &str) -> bool {
        servers.command(node, &[b"EXISTS", key.as_bytes()]).unwrap() == RespValue::Integer(1)
    }

    #[tokio::test]
    async fn a_changed_answer_of_the_resolver_is_followed_at_the_next_connect() {
        if find_server().is_err() && !required() {
            eprintln!("NOT TESTED: no redis-server is installed");
            return;
        }
        let servers = Masters::start(2).unwrap();
        let zone = Zone::default();
        let limit = Duration::from_secs(2);
        let settings = Settings { limit, lookup: zone.lookup(), ..Settings::default() };
        let master = Endpoint::from_url("redis://db1").unwrap().with_settings(settings);
        let builder = Redlock::builder().master(master).connect_timeout(limit);
        let lock = builder.node_timeout(Duration::from_secs(1)).build().await.unwrap();
        match &lock.stats().masters[0].state {
            LinkState::Down(why) => assert!(why.contains("no such host"), "{why}"),
            other => panic!("{other:?}"),
        }
        // One name, both address families; only the last address has a server.
        let mut addresses: Vec<_> = ["::1", "127.0.0.1"].into_iter().filter_map(closed).collect();
        addresses.push(servers.address(1));
        zone.set(&addresses);
        let before = lock.acquire("before").await.unwrap();
        assert!(has(&servers, 1, "before"));

        zone.set(&[servers.address(2)]);
        drop(lock.acquire("meanwhile").await.unwrap());
        assert_eq!(lock.stats().masters[0].connected, 1, "the connection stays until it breaks");
        servers.ask(1, "CLIENT KILL TYPE normal").unwrap();
        let after = lock.acquire("after").await.unwrap();
        assert!(has(&servers, 2, "after") && !has(&servers, 1, "after"));
        assert_eq!(lock.stats().masters[0].connected, 2);
        drop((before, after));
    }
}
