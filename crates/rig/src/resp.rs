//! RESP, the protocol of Redis: replies, and a minimal client for tests: blocking, with a new
//! connection for every exchange. `node.rs` calls the client, to check whether a server is up and
//! for the commands of tests; `scan.rs` and `decode.rs` are the parser, which the network uses too.
//! The rig has its own implementation, so that it can check the library without depending on the
//! library's client.

pub(crate) mod decode;
pub(crate) mod scan;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use scan::{Grammar, Scan, Scanner};

/// No reply that a test asks for is larger, but another program behind a port could send more.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// A reply of a master. All types of RESP2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RespValue {
    /// A status such as `OK` or `PONG`.
    Status(String),
    /// An error of the server, with its code: `NOSCRIPT No matching script.`
    Error(String),
    /// A number.
    Integer(i64),
    /// A value.
    Bulk(Vec<u8>),
    /// Nothing there.
    Nil,
    /// Several.
    Array(Vec<RespValue>),
}

impl RespValue {
    /// The text of a status or a value; none for all others, so that an error cannot be mistaken
    /// for a text.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Status(text) => Some(Cow::Borrowed(text)),
            Self::Bulk(bytes) => Some(String::from_utf8_lossy(bytes)),
            _ => None,
        }
    }
}

/// Sends commands over a new connection, and returns the reply to each.
pub(crate) fn exchange(
    address: SocketAddr,
    password: Option<&str>,
    timeout: Duration,
    commands: &[&[&[u8]]],
) -> io::Result<Vec<RespValue>> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;

    let mut bytes = Vec::new();
    if let Some(password) = password {
        encode(&[b"AUTH", password.as_bytes()], &mut bytes);
    }
    for command in commands {
        encode(command, &mut bytes);
    }
    stream.write_all(&bytes)?;

    let mut replies =
        Replies { stream, scanner: Scanner::new(Grammar::Replies), bytes: Vec::new() };
    let mut read = || {
        replies.next().map_err(|error| match error.kind() {
            // The error of a socket's timeout reads "resource temporarily unavailable".
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                io::Error::new(io::ErrorKind::TimedOut, format!("silent for {timeout:?}"))
            }
            _ => error,
        })
    };
    if password.is_some() {
        read()?; // If it was refused, so are the commands, with the reason.
    }
    commands.iter().map(|_| read()).collect()
}

pub(crate) fn encode(command: &[&[u8]], out: &mut Vec<u8>) {
    out.extend(format!("*{}\r\n", command.len()).bytes());
    for part in command {
        out.extend(format!("${}\r\n", part.len()).bytes());
        out.extend(*part);
        out.extend(b"\r\n");
    }
}

struct Replies {
    stream: TcpStream,
    scanner: Scanner,
    bytes: Vec<u8>,
}

impl Replies {
    fn next(&mut self) -> io::Result<RespValue> {
        let mut chunk = [0; 16 * 1024];
        loop {
            match self.scanner.scan(&self.bytes) {
                Scan::Complete(length) => {
                    let reply = decode::reply(&self.bytes[..length]);
                    self.bytes.drain(..length);
                    return Ok(reply);
                }
                Scan::More if self.bytes.len() < MAX_BYTES => {}
                Scan::More | Scan::Strange => {
                    let start = String::from_utf8_lossy(&self.bytes[..self.bytes.len().min(80)]);
                    let what = format!("not RESP, or too much of it: {start:?}");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
            }
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.bytes.extend(&chunk[..count]),
            }
        }
    }
}
