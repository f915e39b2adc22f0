//! RESP, the protocol of Redis: its parser, which the network uses too, and a minimal client for
//! tests: blocking, with a new connection for every exchange. `node.rs` calls the client. The rig
//! has its own implementation, so that it can check the library without depending on the library's
//! client.

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    str,
    time::Duration,
};

/// No reply that a test asks for is larger, but another program behind a port could send more.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The limit of Redis for an inline command, and more than any status or error.
const MAX_LINE: usize = 64 * 1024;

/// Deeper than any reply of a server. A limit is necessary, because the parser is recursive.
const MAX_DEPTH: usize = 128;

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

    let mut arrived = Vec::new();
    let mut read = || {
        next_reply(&mut stream, &mut arrived).map_err(|error| match error.kind() {
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

/// Reads until a reply is complete, and takes it from the arrived bytes.
fn next_reply(stream: &mut TcpStream, arrived: &mut Vec<u8>) -> io::Result<RespValue> {
    let mut chunk = [0; 16 * 1024];
    loop {
        match reply(arrived) {
            Ok((reply, length)) => {
                arrived.drain(..length);
                return Ok(reply);
            }
            Err(Unparsed::Incomplete) if arrived.len() < MAX_BYTES => {}
            Err(_) => {
                let start = String::from_utf8_lossy(&arrived[..arrived.len().min(80)]);
                let what = format!("not RESP, or too much of it: {start:?}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => arrived.extend(&chunk[..count]),
        }
    }
}

pub(crate) fn encode(command: &[&[u8]], out: &mut Vec<u8>) {
    out.extend(format!("*{}\r\n", command.len()).bytes());
    for part in command {
        out.extend(format!("${}\r\n", part.len()).bytes());
        out.extend(*part);
        out.extend(b"\r\n");
    }
}

/// Why bytes have no frame at their start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unparsed {
    /// More bytes have to come.
    Incomplete,
    /// They are not RESP.
    Strange,
}

/// A frame at the start of bytes, and its length.
pub(crate) type Parsed<T> = Result<(T, usize), Unparsed>;

/// Parses a reply. RESP3 types become RESP2 types: maps, sets and pushes become an array, booleans
/// a number, a null nothing, all other numbers a status.
pub(crate) fn reply(bytes: &[u8]) -> Parsed<RespValue> {
    let mut frame = Frame { bytes, at: 0 };
    Ok((frame.reply(0)?, frame.at))
}

/// Parses the words of a request: an array of bulk strings, or a line of words. There are none in
/// an empty line, which servers ignore.
pub(crate) fn request(bytes: &[u8]) -> Parsed<Vec<Vec<u8>>> {
    let mut frame = Frame { bytes, at: 0 };
    let line = frame.line()?;
    if line.first() != Some(&b'*') {
        let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        return Ok((words.map(<[u8]>::to_vec).collect(), frame.at));
    }
    // Not with `with_capacity`: the other side controls the count.
    let mut words = Vec::new();
    for _ in 0..number(without_return(line)?)? {
        let line = without_return(frame.line()?)?;
        // No client may send an absent word.
        match (line.first(), usize::try_from(number(line)?)) {
            (Some(b'$'), Ok(length)) => words.push(frame.body(length)?.to_vec()),
            _ => return Err(Unparsed::Strange),
        }
    }
    Ok((words, frame.at))
}

struct Frame<'a> {
    bytes: &'a [u8],
    /// All bytes before this position are parsed.
    at: usize,
}

impl<'a> Frame<'a> {
    /// A line without its `\n`.
    fn line(&mut self) -> Result<&'a [u8], Unparsed> {
        let rest = &self.bytes[self.at..];
        match rest.iter().take(MAX_LINE + 1).position(|&byte| byte == b'\n') {
            Some(end) => {
                self.at += end + 1;
                Ok(&rest[..end])
            }
            None if rest.len() > MAX_LINE => Err(Unparsed::Strange),
            None => Err(Unparsed::Incomplete),
        }
    }

    fn body(&mut self, length: usize) -> Result<&'a [u8], Unparsed> {
        let (body, end) = self.bytes[self.at..].split_at_checked(length).unwrap_or_default();
        match end {
            [b'\r', b'\n', ..] => {
                self.at += length + 2;
                Ok(body)
            }
            [] | [b'\r'] => Err(Unparsed::Incomplete),
            _ => Err(Unparsed::Strange),
        }
    }

    fn reply(&mut self, depth: usize) -> Result<RespValue, Unparsed> {
        let line = without_return(self.line()?)?;
        let (&kind, rest) = line.split_first().ok_or(Unparsed::Strange)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(match kind {
            b'+' | b',' | b'(' => RespValue::Status(text(rest)),
            b'-' => RespValue::Error(text(rest)),
            b':' => RespValue::Integer(number(line)?),
            b'#' if matches!(rest, b"t" | b"f") => RespValue::Integer(i64::from(rest == b"t")),
            b'_' if rest.is_empty() => RespValue::Nil,
            b'$' | b'=' | b'!' | b'*' | b'~' | b'>' | b'%' | b'|' => {
                // A negative length is an absent value.
                let Ok(length) = usize::try_from(number(line)?) else { return Ok(RespValue::Nil) };
                match kind {
                    b'$' => RespValue::Bulk(self.body(length)?.to_vec()),
                    b'!' => RespValue::Error(text(self.body(length)?)),
                    b'=' => {
                        // Three letters of a format and a colon precede the text.
                        let body = self.body(length)?;
                        RespValue::Bulk(body.get(4..).unwrap_or(body).to_vec())
                    }
                    b'|' => {
                        // Attributes precede their value.
                        self.values(length.checked_mul(2), depth)?;
                        self.reply(depth)?
                    }
                    b'%' => RespValue::Array(self.values(length.checked_mul(2), depth)?),
                    _ => RespValue::Array(self.values(Some(length), depth)?),
                }
            }
            _ => return Err(Unparsed::Strange),
        })
    }

    fn values(&mut self, count: Option<usize>, depth: usize) -> Result<Vec<RespValue>, Unparsed> {
        let count = count.filter(|_| depth < MAX_DEPTH).ok_or(Unparsed::Strange)?;
        (0..count).map(|_| self.reply(depth + 1)).collect()
    }
}

/// The number of a line, behind its type.
fn number(line: &[u8]) -> Result<i64, Unparsed> {
    let text = line.get(1..).and_then(|rest| str::from_utf8(rest).ok());
    text.and_then(|text| text.parse().ok()).ok_or(Unparsed::Strange)
}

fn without_return(line: &[u8]) -> Result<&[u8], Unparsed> {
    line.strip_suffix(b"\r").ok_or(Unparsed::Strange)
}
