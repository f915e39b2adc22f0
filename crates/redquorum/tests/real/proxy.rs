//! A TCP proxy in front of one master that behaves like a faulty network: it loses data, delays it,
//! and breaks one side of a connection while the other lives on.
//!
//! An [`Ill`] affects the connections that are open; later ones are healthy. The master's side of
//! an affected connection stays open until the proxy is dropped. So only the library can make the
//! master close it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use redquorum_rig::Masters;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// The fault of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ill {
    /// None.
    Healthy,
    /// Data from the master is lost.
    Mute,
    /// Data in both directions is lost.
    BlackHole,
    /// Data from the client is held back until [`Ill::Late`].
    Held,
    /// The client's side is reset, the master's side stays open; data that is held back stays so.
    Cut,
    /// Data that was held back now reaches the master; the client's side is reset.
    Late,
    /// The client's side is reset at the next data from the master, which is lost.
    CutAtAnswer,
}

pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

struct Shared {
    master: SocketAddr,
    accepted: AtomicU64,
    /// The number of bytes that reached the master.
    passed: AtomicU64,
    /// One channel for each group of open connections; new connections join the last group.
    ills: Mutex<Vec<watch::Sender<Ill>>>,
}

impl Proxy {
    pub(crate) async fn start(masters: &Masters, node: usize) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            master: (Ipv4Addr::LOCALHOST, masters.port(node)).into(),
            accepted: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            ills: Mutex::new(vec![watch::Sender::new(Ill::Healthy)]),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone())).abort_handle();
        Self { port, shared, accepting }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    pub(crate) fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::SeqCst)
    }

    /// Applies a fault to the open connections. The returned handle can make it worse.
    pub(crate) fn strike(&self, ill: Ill) -> Struck {
        let mut ills = self.shared.ills.lock().expect("no panic under the lock");
        let struck = ills.last().expect("never empty").clone();
        struck.send_replace(ill);
        ills.push(watch::Sender::new(Ill::Healthy));
        Struck(struck)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The connections that got their fault together.
pub(crate) struct Struck(watch::Sender<Ill>);

impl Struck {
    pub(crate) fn become_worse(&self, ill: Ill) {
        self.0.send_replace(ill);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Aborted with this task, and so with the proxy.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        let ill = {
            let ills = shared.ills.lock().expect("no panic under the lock");
            ills.last().expect("never empty").subscribe()
        };
        let Ok(master) = TcpStream::connect(shared.master).await else { continue };
        master.set_nodelay(true).expect("no delay");
        client.set_nodelay(true).expect("no delay");
        connections.spawn(carry(client, master, ill, shared.clone()));
    }
}

async fn carry(
    client: TcpStream,
    mut master: TcpStream,
    mut ill: watch::Receiver<Ill>,
    shared: Arc<Shared>,
) {
    enum Event {
        Struck,
        Up(usize),
        Down(usize),
    }
    let mut client = Some(client);
    let (mut up, mut down) = (vec![0; 65536], vec![0; 65536]);
    let mut held = Vec::new();
    loop {
        let event = tokio::select! {
            changed = ill.changed() => if changed.is_ok() { Event::Struck } else { return },
            count = read(&mut client, &mut up) => Event::Up(count),
            count = master.read(&mut down) => Event::Down(count.unwrap_or(0)),
        };
        // Read last, so that data which comes after a fault is never treated as if it came before.
        let ill_now = *ill.borrow_and_update();
        if matches!(ill_now, Ill::Cut | Ill::Late) {
            reset(client.take());
        }
        match (event, ill_now) {
            (Event::Struck, Ill::Late) => {
                // The write fails if the master killed the connection, which the tests hope for.
                let _ = master.write_all(&held).await;
                held.clear();
            }
            // A regular end: a healthy network closes the other side too.
            (Event::Up(0) | Event::Down(0), Ill::Healthy) => return,
            (Event::Up(0), _) => client = None,
            // The master killed the connection.
            (Event::Down(0), _) => return reset(client.take()),
            (Event::Up(count), Ill::Held) => held.extend_from_slice(&up[..count]),
            (Event::Up(count), Ill::Healthy | Ill::Mute | Ill::CutAtAnswer) => {
                shared.passed.fetch_add(count as u64, Ordering::SeqCst);
                if master.write_all(&up[..count]).await.is_err() {
                    return reset(client.take());
                }
            }
            (Event::Down(_), Ill::CutAtAnswer) => reset(client.take()),
            (Event::Down(count), Ill::Healthy | Ill::Held) => {
                if let Some(client) = &mut client {
                    // If the client is gone, the next read returns zero.
                    let _ = client.write_all(&down[..count]).await;
                }
            }
            _ => {}
        }
    }
}

/// Reads from the client. Returns zero at its end, and never returns without a client.
async fn read(client: &mut Option<TcpStream>, into: &mut [u8]) -> usize {
    match client {
        Some(client) => client.read(into).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

fn reset(client: Option<TcpStream>) {
    if let Some(client) = client {
        // Best effort: setting the option fails on a broken connection.
        let _ = client.set_zero_linger();
    }
}
