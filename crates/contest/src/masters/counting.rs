//! A connection of redquorum to a master that counts the commands on the wire.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use redis::{ConnectionAddr, IntoConnectionInfo};
use redquorum::connect::{Connecting, Connection, Hello, Node};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// The address of a master.
pub(crate) struct Counting {
    host: String,
    port: u16,
    hello: Hello,
    commands: Arc<AtomicU64>,
}

impl Counting {
    /// A master by its URL, whose commands are added to the count.
    pub(crate) fn new(url: &str, commands: &Arc<AtomicU64>) -> Result<Self, String> {
        let info = url.into_connection_info().map_err(|error| error.to_string())?;
        let ConnectionAddr::Tcp(host, port) = info.addr() else {
            return Err(format!("{url} is not supported: the contest connects by redis:// only"));
        };
        let settings = info.redis_settings();
        let hello = Hello {
            username: settings.username().map(ToOwned::to_owned),
            password: settings.password().map(ToOwned::to_owned),
            database: u32::try_from(settings.db()).unwrap_or(0),
        };
        Ok(Self { host: host.clone(), port: *port, hello, commands: commands.clone() })
    }
}

impl Node for Counting {
    fn name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    fn hello(&self) -> Hello {
        self.hello.clone()
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
            stream.set_nodelay(true)?;
            let (frames, commands) = (Frames::default(), self.commands.clone());
            Ok(Box::new(Counted { stream, frames, commands }) as Box<dyn Connection>)
        })
    }
}

struct Counted {
    stream: TcpStream,
    frames: Frames,
    commands: Arc<AtomicU64>,
}

impl Connection for Counted {
    fn abort(&mut self) {
        self.stream.abort();
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(length)) = written {
            let count = self.frames.count(&bytes[..length]);
            self.commands.fetch_add(count, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Counts commands in a stream of RESP arrays of bulk strings, which may be cut anywhere.
#[derive(Debug, Default)]
struct Frames {
    /// The line that has begun, without its end.
    line: Vec<u8>,
    /// The bytes of a bulk string that are still to come, its line end included.
    skip: usize,
}

impl Frames {
    /// How many commands begin in these bytes.
    fn count(&mut self, mut bytes: &[u8]) -> u64 {
        let mut commands = 0;
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                self.line.extend(bytes);
                return commands;
            };
            self.line.extend(&bytes[..end]);
            bytes = &bytes[end + 1..];
            match self.line.first() {
                Some(b'*') => commands += 1,
                Some(b'$') => {
                    let digits = std::str::from_utf8(&self.line[1..]).unwrap_or_default();
                    self.skip = digits.trim_end().parse::<usize>().map_or(0, |length| length + 2);
                }
                _ => {}
            }
            self.line.clear();
        }
        commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_wherever_the_stream_is_cut() {
        let stream =
            b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$6\r\n*1\r\n$1\r\n*1\r\n$4\r\nPING\r\n";
        for cut in 0..stream.len() {
            let mut frames = Frames::default();
            let count = frames.count(&stream[..cut]) + frames.count(&stream[cut..]);
            assert_eq!(count, 3, "cut at {cut}");
        }
    }
}
