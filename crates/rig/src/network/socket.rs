//! One end of a connection. Called by `connection.rs` and `lane.rs`.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    rc::Rc,
    time::Duration,
};

use socket2::SockRef;
use tokio::{io::Interest, net::TcpStream};

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) stream: Rc<TcpStream>,
    connected: bool,
    /// Whether there is no room to write.
    blocked: bool,
    /// Whether the other side will send no more.
    ended: bool,
    /// Whether the other side is gone. Data that it sent before may still be here.
    pub(super) broken: bool,
}

impl Socket {
    /// Begins to connect, which does not wait.
    pub(super) fn connecting(address: SocketAddr) -> io::Result<Self> {
        // Tokio's own connect waits. Its event loop is mio's.
        let stream = TcpStream::from_std(mio::net::TcpStream::connect(address)?.into())?;
        // On loopback it is connected by now. A later check would make the delivery of the first
        // message depend on the order of events.
        let connected = stream.peer_addr().is_ok();
        Ok(Self { connected, ..Self::accepted(stream) })
    }

    pub(super) fn accepted(stream: TcpStream) -> Self {
        // The call fails on a socket that is already dead, which reading will show.
        let _dead = stream.set_nodelay(true);
        let stream = Rc::new(stream);
        Self { stream, connected: true, blocked: false, ended: false, broken: false }
    }

    /// Looks whether it is connected by now, and whether it can be read or written again.
    pub(super) fn look(&mut self) {
        self.blocked = false;
        // Once it is connected, reading shows an error. It is not read behind its end.
        if !self.connected || self.ended {
            self.broken |= !matches!(self.stream.take_error(), Ok(None));
            // A socket whose both sides have finished has no peer either, and stays what it is.
            self.connected |= self.stream.peer_addr().is_ok();
        }
    }

    pub(super) fn can_read(&self) -> bool {
        self.connected && !self.ended
    }

    pub(super) fn can_write(&self) -> bool {
        self.connected && !self.blocked && !self.broken
    }

    /// The changes to wait for.
    pub(super) fn interest(&self, reads: bool) -> Option<Interest> {
        [
            (reads && self.can_read(), Interest::READABLE),
            (self.blocked || !self.connected, Interest::WRITABLE),
            (self.ended, Interest::ERROR),
        ]
        .into_iter()
        .filter_map(|(waits, interest)| waits.then_some(interest))
        .reduce(|one, other| one | other)
    }

    /// Reads what has arrived. `None`: nothing for now. 0: the other side will send no more.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let read = unless_blocked(self.stream.try_read(into));
        self.ended = matches!(read, Ok(Some(0)));
        read
    }

    /// Writes as much as there is room for. `None`: there is no room now.
    pub(super) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let written = unless_blocked(self.stream.try_write_vectored(slices));
        self.blocked = matches!(written, Ok(None));
        written
    }

    pub(super) fn finish(&self) {
        // If it is already dead, reading shows it.
        let _dead = SockRef::from(&*self.stream).shutdown(std::net::Shutdown::Write);
    }

    /// Closes it with RST instead of FIN.
    pub(super) fn reset(self) {
        // Without it the drop closes the socket in the usual way, which is close enough.
        let _closed = SockRef::from(&*self.stream).set_linger(Some(Duration::ZERO));
    }
}

fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        result => result.map(Some),
    }
}
