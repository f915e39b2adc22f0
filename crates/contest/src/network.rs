//! A proxy in front of a server that adds latency, follows a server that moves, and can break a
//! connection between a commit and its reply.
//!
//! Threads, not tasks: the timers of the runtime are a millisecond wide, as wide as the latency.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    upstream: Mutex<SocketAddr>,
    delay: Duration,
    ended: AtomicBool,
    /// The number of the commit, counted from now, whose reply is lost; 0: none.
    lose_commit: AtomicU64,
    streams: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Listens on a port of loopback. `delay` is added to each round trip.
    pub(crate) fn start(upstream: SocketAddr, delay: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            delay,
            ended: AtomicBool::new(false),
            lose_commit: AtomicU64::new(0),
            streams: Mutex::default(),
        });
        let accepting = shared.clone();
        spawn(move || accept(&listener, &accepting))?;
        Ok(Self { address, shared })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks all connections; new ones go to this server.
    pub(crate) fn move_to(&self, upstream: SocketAddr) {
        *locked(&self.shared.upstream) = upstream;
        self.shared.close_all();
    }

    /// Forwards the commit of this number, counted from 1 from now on, and breaks its connection
    /// instead of forwarding the reply.
    pub(crate) fn lose_reply_of_commit(&self, number: u64) {
        self.shared.lose_commit.store(number, Ordering::SeqCst);
    }

    pub(crate) fn has_lost_reply(&self) -> bool {
        self.shared.lose_commit.load(Ordering::SeqCst) == 0
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.close_all();
        // Wakes the accepting thread.
        let _woken = TcpStream::connect_timeout(&self.address, Duration::from_millis(100));
    }
}

impl Shared {
    fn close_all(&self) {
        for stream in locked(&self.streams).drain(..) {
            let _closed = stream.shutdown(Shutdown::Both);
        }
    }

    fn loses_reply_of(&self, bytes: &[u8]) -> bool {
        const COMMIT: &[u8] = b"COMMIT";
        if self.lose_commit.load(Ordering::SeqCst) == 0
            || !bytes.windows(COMMIT.len()).any(|window| window == COMMIT)
        {
            return false;
        }
        let counted = |left: u64| left.checked_sub(1);
        self.lose_commit.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted) == Ok(1)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("proxy".to_owned()).stack_size(128 * 1024).spawn(work)?;
    Ok(())
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.ended.load(Ordering::SeqCst) {
            return;
        }
        // A server that is gone ends the connection at once.
        if let Ok(client) = client {
            let _refused = connect(client, shared);
        }
    }
}

fn connect(client: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    let upstream = *locked(&shared.upstream);
    let server = TcpStream::connect_timeout(&upstream, Duration::from_secs(2))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    locked(&shared.streams).extend([client.try_clone()?, server.try_clone()?]);
    let cut = Arc::new(AtomicBool::new(false));
    let (chunks, delayed) = mpsc::channel::<(Instant, Vec<u8>)>();
    let (from_client, from_server) = (client.try_clone()?, server.try_clone()?);
    let (requests, will_cut) = (shared.clone(), cut.clone());
    spawn(move || {
        read_all(from_client, |bytes| {
            if requests.loses_reply_of(bytes) {
                will_cut.store(true, Ordering::SeqCst);
            }
            chunks.send((Instant::now() + requests.delay, bytes.to_vec())).is_ok()
        });
    })?;
    let mut to_server = server;
    spawn(move || {
        for (due, bytes) in delayed {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to_server.write_all(&bytes).is_err() {
                break;
            }
        }
        let _closed = to_server.shutdown(Shutdown::Both);
    })?;
    let mut to_client = client;
    spawn(move || {
        read_all(from_server, |bytes| {
            !cut.load(Ordering::SeqCst) && to_client.write_all(bytes).is_ok()
        });
        let _closed = to_client.shutdown(Shutdown::Both);
    })
}

/// Passes on what comes, until the end or until it is not wanted; then closes the stream.
fn read_all(mut stream: TcpStream, mut pass: impl FnMut(&[u8]) -> bool) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        if !pass(&buffer[..length]) {
            break;
        }
    }
    let _closed = stream.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut buffer = [0; 64];
                    while let Ok(length @ 1..) = stream.read(&mut buffer) {
                        stream.write_all(&buffer[..length]).unwrap();
                    }
                });
            }
        });
        address
    }

    fn request(stream: &mut TcpStream, request: &[u8]) -> io::Result<usize> {
        stream.write_all(request)?;
        let length = stream.read(&mut [0; 64])?;
        if length == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(length) }
    }

    #[test]
    fn a_round_trip_takes_the_delay() {
        let proxy = Proxy::start(echo(), Duration::from_millis(5)).unwrap();
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        let start = Instant::now();
        assert_eq!(request(&mut stream, b"ping").unwrap(), 4);
        assert!(start.elapsed() >= Duration::from_millis(5));
    }

    #[test]
    fn the_reply_of_the_chosen_commit_is_lost_and_no_other() {
        let proxy = Proxy::start(echo(), Duration::ZERO).unwrap();
        proxy.lose_reply_of_commit(2);
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        assert!(request(&mut stream, b"BEGIN").is_ok());
        assert!(request(&mut stream, b"COMMIT").is_ok());
        assert!(request(&mut stream, b"COMMIT").is_err());
        assert!(proxy.has_lost_reply());
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        assert!(request(&mut stream, b"COMMIT").is_ok());
    }
}
