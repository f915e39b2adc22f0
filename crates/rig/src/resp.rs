//! A Redis client that is just enough for tests: RESP2, blocking, a new connection for every
//! exchange. Called by `node.rs`, to see whether a server is up and for the commands of tests. The
//! rig has it so that it can judge the library without being built on the library's client.

use std::{
    borrow::Cow,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// No reply that a test asks for is larger; what is not Redis behind a port could be.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// What a master replied. Complete: RESP2 has no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
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
    Array(Vec<Reply>),
}

impl Reply {
    /// The text of a status or a value; nothing for all others, so that an error cannot be taken
    /// for one.
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
) -> io::Result<Vec<Reply>> {
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

    let mut reader = BufReader::new(stream.take(MAX_BYTES));
    let read = |reader: &mut _| {
        decode(reader).map_err(|error| match error.kind() {
            // A socket's timeout calls itself "resource temporarily unavailable".
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                io::Error::new(io::ErrorKind::TimedOut, format!("silent for {timeout:?}"))
            }
            _ => error,
        })
    };
    if password.is_some() {
        read(&mut reader)?; // If it was refused, so are the commands, with the reason.
    }
    commands.iter().map(|_| read(&mut reader)).collect()
}

fn encode(command: &[&[u8]], out: &mut Vec<u8>) {
    out.extend(format!("*{}\r\n", command.len()).bytes());
    for part in command {
        out.extend(format!("${}\r\n", part.len()).bytes());
        out.extend(*part);
        out.extend(b"\r\n");
    }
}

fn decode(reader: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    let line = String::from_utf8_lossy(line.strip_suffix(b"\r\n").unwrap_or(b"")).into_owned();
    let strange = || io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: {line:?}"));
    let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::UnexpectedEof)?;
    let number = || rest.parse::<i64>().map_err(|_| strange());
    Ok(match kind {
        "+" => Reply::Status(rest.to_owned()),
        "-" => Reply::Error(rest.to_owned()),
        ":" => Reply::Integer(number()?),
        "$" => match u64::try_from(number()?) {
            Err(_) => Reply::Nil,
            Ok(length) => {
                let mut bytes = Vec::new();
                reader.take(length.saturating_add(2)).read_to_end(&mut bytes)?;
                Reply::Bulk(bytes.strip_suffix(b"\r\n").ok_or_else(strange)?.to_vec())
            }
        },
        "*" => match u64::try_from(number()?) {
            Err(_) => Reply::Nil,
            Ok(count) => {
                Reply::Array((0..count).map(|_| decode(reader)).collect::<Result<_, _>>()?)
            }
        },
        _ => return Err(strange()),
    })
}
