//! Node: the trait that connects to one master.

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
/// A URL or a `redis::Client` needs no `Node`: see [`IntoMaster`](crate::connect::IntoMaster).
/// Implement it for any other transport of Redis's bytes: a tunnel, a proxy, a TLS stack of your
/// own, a test double.
pub trait Node: Send + Sync + 'static {
    /// The name in reports, such as `db1:6379`. Two masters of a lock must have different names,
    /// and a name must not contain a secret.
    fn name(&self) -> String;

    /// The user, password and database for the log-in, which comes first on every new connection.
    fn hello(&self) -> Hello {
        Hello::default()
    }

    /// Opens a connection. The lock calls it in the background, never while a caller waits for a
    /// lock. It drops the future after the connect timeout. After an error it calls again, after a
    /// pause of 5 ms to 1 s.
    fn connect(&self) -> Connecting<'_>;

    /// Called when the latest [`connect`](Node::connect) led to nothing: it took too long, the
    /// handshake on its connection failed, or that connection is open, and is silent or of no use,
    /// and the lock connects once more beside it. If the node has several addresses, it should
    /// begin with another one next time. Default: does nothing.
    fn failed(&self) {}
}

/// A connection to one master: bytes in order, both ways. A panic of one of its methods, or of its
/// drop, counts as a broken connection. So does a panic of [`Node::connect`].
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {
    /// Called just before the connection is dropped because it is dead. The drop should reset the
    /// connection, so that undelivered bytes are discarded. Where that is not possible, nothing
    /// breaks: the lock kills the old connection by its client id, and late commands with it.
    fn abort(&mut self) {}
}

impl Connection for tokio::net::TcpStream {
    fn abort(&mut self) {
        // Best effort: a socket that is already broken takes no options.
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
