//! Proxies that close each connection at a greatest age, as load balancers and firewalls do.

use std::io::{self, copy};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{sleep, spawn};
use std::time::Duration;

use rand::RngExt as _;

/// The greatest age of a connection, in milliseconds. Each connection has one between these.
const AGES: std::ops::Range<u64> = 2_000..8_000;

/// One proxy for each master. They run until the program ends.
pub(crate) struct Proxies {
    pub(crate) urls: Vec<String>,
    recycled: Arc<AtomicU64>,
}

impl Proxies {
    pub(crate) fn start(masters: impl Iterator<Item = SocketAddr>) -> io::Result<Self> {
        let mut all = Self { urls: Vec::new(), recycled: Arc::default() };
        for master in masters {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            all.urls.push(format!("redis://{}", listener.local_addr()?));
            let recycled = all.recycled.clone();
            spawn(move || {
                for client in listener.incoming().filter_map(Result::ok) {
                    let recycled = recycled.clone();
                    // If the master is down, the drop of `client` ends the connection.
                    spawn(move || drop(pass(&client, master, &recycled)));
                }
            });
        }
        Ok(all)
    }

    /// How many connections were closed because of their age.
    pub(crate) fn recycled(&self) -> u64 {
        self.recycled.load(Relaxed)
    }
}

/// Passes on the bytes of a connection in both directions, until its greatest age.
fn pass(client: &TcpStream, master: SocketAddr, recycled: &AtomicU64) -> io::Result<()> {
    let server = TcpStream::connect(master)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = [client, &server];
    for (from, to) in [(client, &server), (&server, client)] {
        from.set_nodelay(true)?;
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        let is_over = is_over.clone();
        spawn(move || {
            // The end of the one connection ends the other, whatever the reason.
            drop(copy(&mut from, &mut to));
            drop(to.shutdown(Shutdown::Both));
            is_over.store(true, Relaxed);
        });
    }
    sleep(Duration::from_millis(rand::rng().random_range(AGES)));
    if !is_over.load(Relaxed) {
        recycled.fetch_add(1, Relaxed);
    }
    ends.into_iter().try_for_each(|end| end.shutdown(Shutdown::Both))
}
