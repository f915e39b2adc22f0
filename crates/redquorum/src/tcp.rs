//! TCP connections to a host: its name is resolved at each connect, and its addresses are tried in
//! parallel.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The kernel probes a connection that was idle for this long. So firewalls keep it, and a dead one
/// is found before it is needed.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Connects to the first address of a host that answers; `limit` is the connect timeout. It keeps
/// no address from an earlier connect: a name may have moved.
pub(crate) async fn connect(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let addresses: Vec<_> = tokio::net::lookup_host((host, port)).await?.collect();
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
    use super::*;

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
}
