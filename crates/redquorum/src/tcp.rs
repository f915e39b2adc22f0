//! TCP connections to a host: its name is resolved at each connect, and its addresses are tried in
//! parallel.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The kernel probes a connection that was idle for this long. So firewalls keep it, and a dead one
/// is found before it is needed.
const KEEPALIVE: Duration = Duration::from_secs(10);

pub(crate) async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // Disables Nagle's algorithm, which would delay votes.
    stream.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}

/// Which of several ways to a master was tried last, and whether it failed. An address that accepts
/// connections may still lead nowhere: the next dial begins behind it. One that works is kept.
pub(crate) struct LastTried<W>(Mutex<Option<(W, bool)>>);

impl<W> Default for LastTried<W> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<W: Copy + PartialEq> LastTried<W> {
    fn set(&self, to: impl FnOnce(Option<(W, bool)>) -> Option<(W, bool)>) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = to(*last);
    }

    pub(crate) fn tried(&self, way: W) {
        self.set(|_| Some((way, false)));
    }

    pub(crate) fn failed(&self) {
        self.set(|last| last.map(|(way, _)| (way, true)));
    }

    /// Moves the way to begin with to the front. The others follow in their order.
    pub(crate) fn rotate(&self, ways: &mut [W]) {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((way, failed)) = last
            && let Some(at) = ways.iter().position(|other| *other == way)
        {
            ways.rotate_left((at + usize::from(failed)) % ways.len());
        }
    }
}

/// The longest time for which a way is tried alone, before the next one is tried in parallel
/// (RFC 8305).
const STAGGER: Duration = Duration::from_millis(250);

/// Connects by the first of several ways that works; `limit` is the connect timeout. The next way
/// is tried when the earlier ones have failed or have had their share of the time. So one that
/// drops packets, or accepts the connection and stays silent, does not block the others. If none
/// works, returns all errors.
pub(crate) async fn first<T, E, F>(
    tries: impl ExactSizeIterator<Item = F>,
    limit: Duration,
) -> Result<T, Vec<E>>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
{
    // The last one has twice the share.
    let shares = u32::try_from(tries.len()).unwrap_or(u32::MAX).saturating_add(1);
    let share = (limit / shares).min(STAGGER);
    let (mut waiting, mut failures, mut under_way) = (tries, Vec::new(), JoinSet::new());
    loop {
        let tried = if let Some(next) = waiting.next() {
            under_way.spawn(next);
            tokio::time::timeout(share, under_way.join_next()).await
        } else {
            Ok(under_way.join_next().await)
        };
        match tried {
            Ok(Some(Ok(Ok(connected)))) => return Ok(connected),
            Ok(Some(Ok(Err(error)))) => failures.push(error),
            // Opening a socket panics in a runtime without I/O.
            Ok(Some(Err(panic))) => resume_unwind(panic.into_panic()),
            Ok(None) => return Err(failures),
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

    /// The number of the peer that was connected to, and the time that this took.
    async fn tried(limit: Duration, peers: &'static [Peer]) -> (io::Result<usize>, Duration) {
        let tries = peers.iter().enumerate().map(|(index, peer)| async move {
            match peer {
                Peer::Answers => Ok(index),
                Peer::Refuses => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
                Peer::Drops => std::future::pending().await,
            }
        });
        let start = tokio::time::Instant::now();
        let result = match tokio::time::timeout(limit, first(tries, limit)).await {
            Ok(Ok(index)) => Ok(index),
            Ok(Err(errors)) => {
                Err(errors.into_iter().next().unwrap_or(io::ErrorKind::Other.into()))
            }
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        (result, start.elapsed())
    }

    #[test]
    fn the_next_dial_begins_behind_the_way_that_failed_and_with_one_that_worked() {
        let last = LastTried::default();
        let order = || {
            let mut ways = [1, 2, 3];
            last.rotate(&mut ways);
            ways
        };
        last.failed();
        assert_eq!(order(), [1, 2, 3], "nothing was tried");
        last.tried(2);
        assert_eq!(order(), [2, 3, 1]);
        last.failed();
        last.failed();
        assert_eq!(order(), [3, 1, 2]);
        last.tried(3);
        last.failed();
        assert_eq!(order(), [1, 2, 3]);
        last.tried(4);
        assert_eq!(order(), [1, 2, 3], "the name leads elsewhere now");
        last.rotate(&mut []);
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
