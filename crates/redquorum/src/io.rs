//! Io: the current connection to one master, and bytes on their way in both directions.

use std::any::Any;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use redquorum_protocol::wire::{Frame, Hello, MAX_REPLY, Malformed, Skip, parse};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::node::Connection;
use crate::shared::Outbox;

/// How much is read at once.
const CHUNK: usize = 8 * 1024;

/// The current connection, and bytes on their way.
#[derive(Default)]
pub(crate) struct Io {
    connection: Option<(u64, Box<dyn Connection>)>,
    /// What was said on it first: it holds the password that no answer may bring to light.
    hello: Hello,
    outgoing: Vec<u8>,
    written: usize,
    /// Why writing failed: nothing more is written.
    failed: Option<String>,
    incoming: Vec<u8>,
    filled: usize,
    /// A push that is longer than any reply, and is passed over as it comes.
    skip: Option<Skip>,
}

impl Io {
    /// Takes over what is queued for this connection.
    pub(crate) fn take(&mut self, outbox: &mut Outbox) {
        let queued = outbox.bytes(self.epoch());
        if self.outgoing.is_empty() {
            std::mem::swap(&mut self.outgoing, queued);
        } else {
            self.outgoing.append(queued);
        }
    }

    /// Whether nothing is left to be done about what was taken over.
    pub(crate) const fn is_written(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Whether the next [`Io::read`] has bad news.
    pub(crate) const fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Writes what can be written now. What goes wrong is told by the next [`Io::read`].
    pub(crate) fn write(&mut self, cx: &mut Context<'_>) {
        if let Poll::Ready(Err(error)) = self.try_write(cx) {
            self.failed = Some(error.to_string());
        }
    }

    fn try_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some((_, connection)) = &mut self.connection else {
            // Of a connection that broke: its commands are the link's business.
            self.outgoing.clear();
            return Poll::Ready(Ok(()));
        };
        if self.outgoing.is_empty() || self.failed.is_some() {
            return Poll::Ready(Ok(()));
        }
        let mut connection = Pin::new(connection);
        while self.written < self.outgoing.len() {
            let rest = &self.outgoing[self.written..];
            match ready!(guarded(|| connection.as_mut().poll_write(cx, rest)))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        // Also what a TLS stream holds back.
        ready!(guarded(|| connection.poll_flush(cx)))?;
        self.outgoing.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Reads what is there, or says why nothing more will come.
    pub(crate) fn read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), String>> {
        let Some((_, connection)) = &mut self.connection else { return Poll::Pending };
        if let Some(why) = self.failed.take() {
            return Poll::Ready(Err(why));
        }
        if self.filled == self.incoming.len() {
            // The parser refuses an answer long before this grows out of hand.
            self.incoming.resize((2 * self.filled).max(CHUNK), 0);
        }
        let mut buffer = ReadBuf::new(&mut self.incoming[self.filled..]);
        match guarded(|| Pin::new(connection).poll_read(cx, &mut buffer)) {
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

    /// The first answer among the bytes that have come, and how many of them it takes.
    pub(crate) fn first(&self, from: usize) -> Result<Option<(Frame<'_>, usize)>, Malformed> {
        let first = parse(&self.incoming[from..self.filled], MAX_REPLY)?;
        Ok(first.map(|(frame, length)| (self.hello.conceal(frame), length)))
    }

    /// How many of the bytes from there on belong to a push that is too long: nothing of it is kept.
    pub(crate) fn skip(&mut self, from: usize) -> Result<usize, Malformed> {
        let bytes = &self.incoming[from..self.filled];
        let Some(mut skip) = self.skip.take().or_else(|| Skip::begin(bytes, MAX_REPLY)) else {
            return Ok(0);
        };
        let (used, done) = skip.pass(bytes)?;
        self.skip = Some(skip).filter(|_| !done);
        Ok(used)
    }

    /// How many bytes have come that nobody has taken.
    pub(crate) const fn unread(&self) -> usize {
        self.filled
    }

    /// Takes the first bytes away.
    pub(crate) fn consume(&mut self, count: usize) {
        self.incoming.copy_within(count..self.filled, 0);
        self.filled -= count;
    }

    /// The number of the connection that is open.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.connection.as_ref().map(|(epoch, _)| *epoch)
    }

    /// From here on, this is the connection.
    pub(crate) fn open(&mut self, epoch: u64, connection: Box<dyn Connection>, hello: Hello) {
        self.connection = Some((epoch, connection));
        self.hello = hello;
    }

    /// Drops the connection and what was on its way, and gives its number.
    pub(crate) fn close(&mut self, abort: bool) -> Option<u64> {
        let (epoch, mut connection) = self.connection.take()?;
        if abort {
            connection.abort();
        }
        self.outgoing.clear();
        self.written = 0;
        self.failed = None;
        self.filled = 0;
        self.skip = None;
        Some(epoch)
    }
}

/// Polls what may be the caller's own code. If it panics, the connection is broken and nothing else:
/// without its driver, what is owed to the master would never be paid.
pub(crate) fn guarded<T>(poll: impl FnOnce() -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
    let panicked = |panic: Box<dyn Any + Send>| {
        io::Error::other(format!("the node panicked: {}", words(&*panic)))
    };
    catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|panic| Poll::Ready(Err(panicked(panic))))
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words")
}
