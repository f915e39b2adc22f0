//! One end of a connection. Called by `connection.rs` and `lane.rs`.

use std::{
    io::{self, IoSlice, Read, Write},
    net::{Shutdown, SocketAddr},
    time::Duration,
};

use mio::{Interest, Registry, Token, net::TcpStream};
use socket2::SockRef;

/// Its fields hold the system's latest report, because the system reports readiness only once.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    pub(super) connected: bool,
    /// Whether there may be more to read.
    pub(super) readable: bool,
    /// Whether there is no room to write.
    blocked: bool,
    /// Whether the other side will send no more.
    pub(super) ended: bool,
    /// Whether writing failed: the other side is gone. Data that it sent before may still be here.
    pub(super) broken: bool,
}

impl Socket {
    pub(super) fn connecting(
        address: SocketAddr,
        token: Token,
        registry: &Registry,
    ) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        // On loopback it is connected by now. A later check would make the delivery of the first
        // message depend on the order of events.
        let connected = stream.peer_addr().is_ok();
        Self::new(stream, connected, token, registry)
    }

    pub(super) fn new(
        mut stream: TcpStream,
        connected: bool,
        token: Token,
        registry: &Registry,
    ) -> io::Result<Self> {
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        // The call fails on a socket that is already dead, which reading will show.
        let _dead = stream.set_nodelay(true);
        let readable = connected;
        Ok(Self { stream, connected, readable, blocked: false, ended: false, broken: false })
    }

    /// Handles the system's report of a change. An error means that it could not connect.
    pub(super) fn changed(&mut self, event: &mio::event::Event) -> io::Result<()> {
        if !self.connected {
            if let Some(error) = self.stream.take_error()? {
                return Err(error);
            }
            if self.stream.peer_addr().is_err() {
                return Ok(());
            }
            self.connected = true;
        }
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.blocked &= !event.is_writable();
        // It is not read any more, so reading cannot show the error.
        self.broken |= event.is_error() && self.ended;
        Ok(())
    }

    pub(super) fn can_write(&self) -> bool {
        self.connected && !self.blocked && !self.broken
    }

    /// Reads what has arrived. `None`: nothing for now.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let result = self.stream.read(into);
        unless_blocked(result, || self.readable = false)
    }

    /// Writes as much as there is room for. `None`: there is no room now.
    pub(super) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let result = self.stream.write_vectored(slices);
        unless_blocked(result, || self.blocked = true)
    }

    pub(super) fn finish(&self) {
        // If it is already dead, reading shows it.
        let _dead = self.stream.shutdown(Shutdown::Write);
    }

    /// Closes it with RST instead of FIN.
    pub(super) fn reset(self) {
        // Without it the drop closes the socket in the usual way, which is close enough.
        let _closed = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

fn unless_blocked(result: io::Result<usize>, block: impl FnOnce()) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            block();
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
