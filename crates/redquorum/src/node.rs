//! Node: how to reach one master, as the smallest trait that does it.

use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

pub use redquorum_protocol::wire::Hello;

/// What [`Node::connect`] returns.
pub type Connecting<'a> =
    Pin<Box<dyn Future<Output = io::Result<Box<dyn Connection>>> + Send + 'a>>;

/// One master: an address that can be connected to.
///
/// URLs and [`redis::Client`]s are nodes already; implement it for anything else that carries
/// Redis's bytes: a tunnel, a proxy, a TLS stack of your own, a test double.
pub trait Node: Send + Sync + 'static {
    /// What reports call it, such as `db1:6379`. Two masters of a lock must have different
    /// names, and no secret belongs into one.
    fn name(&self) -> String;

    /// The user, password and database to log in with, on every new connection before anything
    /// else.
    fn hello(&self) -> Hello {
        Hello::default()
    }

    /// Opens a connection. It is called in the background, never while somebody waits for a
    /// lock, and is dropped after the connect timeout. After an error it is called again, with
    /// pauses of 10 ms to 1 s between.
    fn connect(&self) -> Connecting<'_>;
}

/// A connection to one master: bytes in order, both ways.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {
    /// Called just before the connection is dropped because it is dead: the drop should reset it,
    /// so that what was not delivered yet is thrown away. Nothing breaks where that is not
    /// possible: a late command is killed by its client id.
    fn abort(&mut self) {}
}

impl Connection for tokio::net::TcpStream {
    fn abort(&mut self) {
        // Best effort: a socket that is broken already cannot be set.
        let _ = socket2::SockRef::from(&*self).set_linger(Some(std::time::Duration::ZERO));
    }
}

#[cfg(unix)]
impl Connection for tokio::net::UnixStream {}

#[cfg(feature = "memory")]
impl Connection for tokio::io::DuplexStream {}

#[cfg(feature = "tls")]
impl Connection for tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
    fn abort(&mut self) {
        self.get_mut().0.abort();
    }
}
