//! Io: the current connection to one master, and the bytes in transit in both directions.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use redquorum_protocol::wire::{Frame, Hello, MAX_REPLY, Malformed, Skip, parse};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::node::Connection;
use crate::shield::Shield;

const CHUNK: usize = 8 * 1024;

#[derive(Default)]
pub(crate) struct Io {
    connection: Option<(u64, Shield<Box<dyn Connection>>)>,
    /// The handshake of this connection. It contains the password, which no error text may show.
    hello: Hello,
    outgoing: Vec<u8>,
    written: usize,
    /// Why writing failed. After that nothing more is written.
    failed: Option<String>,
    incoming: Vec<u8>,
    filled: usize,
    /// A push message that is longer than any reply, which is skipped as it arrives.
    skip: Option<Skip>,
}

/// Bytes for one connection, and the task that writes them if no caller does.
#[derive(Default)]
pub(crate) struct Outbox {
    pub(crate) epoch: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) driver: Option<Waker>,
    /// The driver has more to do than to write these bytes: a connection to open or to close, or
    /// an earlier timer.
    pub(crate) orders: bool,
}

impl Outbox {
    /// The bytes for this connection. Bytes for an older connection are discarded.
    pub(crate) fn bytes(&mut self, epoch: Option<u64>) -> &mut Vec<u8> {
        if epoch != Some(self.epoch) {
            self.bytes.clear();
        }
        &mut self.bytes
    }
}

impl Io {
    pub(crate) fn take(&mut self, outbox: &mut Outbox) {
        let queued = outbox.bytes(self.epoch());
        if self.outgoing.is_empty() {
            std::mem::swap(&mut self.outgoing, queued);
        } else {
            self.outgoing.append(queued);
        }
    }

    pub(crate) const fn is_written(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Whether the next [`Io::read`] returns an error.
    pub(crate) const fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Writes as much as possible now. The next [`Io::read`] returns the errors.
    pub(crate) fn write(&mut self, cx: &mut Context<'_>) {
        if let Poll::Ready(Err(error)) = self.try_write(cx) {
            self.failed = Some(error.to_string());
        }
    }

    fn try_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some((_, connection)) = &mut self.connection else {
            // These bytes are for a connection that broke: the link handles their commands.
            self.outgoing.clear();
            return Poll::Ready(Ok(()));
        };
        if self.outgoing.is_empty() || self.failed.is_some() {
            return Poll::Ready(Ok(()));
        }
        let mut connection = Pin::new(connection);
        while self.written < self.outgoing.len() {
            let rest = &self.outgoing[self.written..];
            match ready!(connection.as_mut().poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        // Flushes also the bytes that a TLS stream holds back.
        ready!(connection.poll_flush(cx))?;
        self.outgoing.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Reads the available bytes. The error says why no more will come.
    pub(crate) fn read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), String>> {
        let Some((_, connection)) = &mut self.connection else { return Poll::Pending };
        if let Some(why) = self.failed.take() {
            return Poll::Ready(Err(why));
        }
        if self.filled == self.incoming.len() {
            // The parser refuses a long reply well before this buffer becomes large.
            self.incoming.resize((2 * self.filled).max(CHUNK), 0);
        }
        let mut buffer = ReadBuf::new(&mut self.incoming[self.filled..]);
        match Pin::new(connection).poll_read(cx, &mut buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.to_string())),
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                Poll::Ready(Err("closed by the master".into()))
            }
            Poll::Ready(Ok(())) => {
                self.filled += buffer.filled().len();
                Poll::Ready(Ok(()))
            }
        }
    }

    /// The first reply in the buffer after `from`, and its length in bytes.
    pub(crate) fn first(&self, from: usize) -> Result<Option<(Frame<'_>, usize)>, Malformed> {
        let first = parse(&self.incoming[from..self.filled], MAX_REPLY)?;
        Ok(first.map(|(frame, length)| (self.hello.conceal(frame), length)))
    }

    /// The number of bytes after `from` that belong to a push message that is too long. They are
    /// not kept.
    pub(crate) fn skip(&mut self, from: usize) -> Result<usize, Malformed> {
        let bytes = &self.incoming[from..self.filled];
        let Some(mut skip) = self.skip.take().or_else(|| Skip::begin(bytes, MAX_REPLY)) else {
            return Ok(0);
        };
        let (used, done) = skip.pass(bytes)?;
        self.skip = Some(skip).filter(|_| !done);
        Ok(used)
    }

    pub(crate) const fn unread(&self) -> usize {
        self.filled
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.incoming.copy_within(count..self.filled, 0);
        self.filled -= count;
    }

    pub(crate) fn epoch(&self) -> Option<u64> {
        self.connection.as_ref().map(|(epoch, _)| *epoch)
    }

    pub(crate) fn open(
        &mut self,
        epoch: u64,
        connection: Shield<Box<dyn Connection>>,
        hello: Hello,
    ) {
        self.connection = Some((epoch, connection));
        self.hello = hello;
    }

    /// Takes the connection out, with its number, and drops the bytes in transit.
    pub(crate) fn close(&mut self) -> Option<(u64, Shield<Box<dyn Connection>>)> {
        let closed = self.connection.take()?;
        self.outgoing.clear();
        self.written = 0;
        self.failed = None;
        self.filled = 0;
        self.skip = None;
        Some(closed)
    }
}

/// Writes commands to a new connection, and reads this many replies.
pub(crate) async fn exchange(
    connection: &mut (impl AsyncRead + AsyncWrite + Unpin),
    commands: &[u8],
    replies: usize,
    mut read: impl FnMut(usize, &Frame<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    connection.write_all(commands).await.map_err(text)?;
    connection.flush().await.map_err(text)?;
    let (mut incoming, mut count) = (Vec::new(), 0);
    while count < replies {
        if connection.read_buf(&mut incoming).await.map_err(text)? == 0 {
            return Err("closed by the master before it answered".into());
        }
        while let Some((frame, used)) =
            parse(&incoming, MAX_REPLY).map_err(|error| error.to_string())?
        {
            read(count, &frame)?;
            count += 1;
            incoming.drain(..used);
        }
    }
    if incoming.is_empty() { Ok(()) } else { Err("more answers than commands".into()) }
}
