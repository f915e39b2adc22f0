//! A connection to a real master. Requests are bytes, and the library's code reads the replies.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use redquorum_harness::sim::server::{Request, ServerReply};
use redquorum_protocol::wire::{
    Command, Expect, Frame, Greeting, Hello, is_unasked, parse, woken, write_command,
};
use redquorum_protocol::{Reply, Token};

use crate::plan::Leave;

/// The limit for a reply on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Socket {
    stream: TcpStream,
    bytes: Vec<u8>,
    /// The requests without a reply.
    asked: VecDeque<Request>,
}

/// A reply, before the names of the two worlds are made comparable.
pub(crate) enum Said {
    ServerReply(ServerReply),
    /// The identity of the connection and of the master.
    Greeting(Greeting),
}

/// The master closed the connection.
pub(crate) struct Gone;

impl Socket {
    pub(crate) fn connect(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, bytes: Vec::new(), asked: VecDeque::new() })
    }

    /// Writes all requests at once. The next read shows a closed connection.
    pub(crate) fn write(&mut self, requests: Vec<Request>) {
        let mut bytes = Vec::new();
        requests.iter().for_each(|request| encode(request, &mut bytes));
        self.asked.extend(requests);
        drop(self.stream.write_all(&bytes));
    }

    pub(crate) fn waits(&self) -> bool {
        !self.asked.is_empty()
    }

    /// The next reply, or a push message before it.
    pub(crate) fn read(&mut self) -> Result<Said, Gone> {
        if let Some(Request::Hello) = self.asked.front() {
            self.asked.pop_front();
            return self.read_hello();
        }
        self.fill()?;
        if let Some(woken) = self.first(unasked) {
            self.take(|_| ());
            return Ok(Said::ServerReply(woken));
        }
        let request = self.asked.pop_front().expect("something was asked");
        Ok(self.take(|frame| Said::ServerReply(reply(&request, frame))))
    }

    /// A push message that has already arrived. The connection must have no other bytes to read.
    pub(crate) fn overhear(&mut self) -> Result<Option<ServerReply>, Gone> {
        while !self.is_whole() {
            self.stream.set_nonblocking(true).unwrap();
            let received = self.receive();
            self.stream.set_nonblocking(false).unwrap();
            if !received? {
                return Ok(None);
            }
        }
        Ok(Some(self.take(unasked).expect("a reply to no request")))
    }

    fn read_hello(&mut self) -> Result<Said, Gone> {
        let (hello, mut greeting) = (Hello::default(), Greeting::default());
        let handshake = hello.handshake(true);
        let mut unfit = false;
        for index in 0..handshake.answers() {
            unfit |= self.frame(|frame| handshake.read(index, frame, &mut greeting))?.is_err();
        }
        Ok(if unfit {
            Said::ServerReply(ServerReply::Error("unfit"))
        } else {
            Said::Greeting(greeting)
        })
    }

    fn frame<T>(&mut self, with: impl FnOnce(&Frame<'_>) -> T) -> Result<T, Gone> {
        self.fill()?;
        Ok(self.take(with))
    }

    fn fill(&mut self) -> Result<(), Gone> {
        while !self.is_whole() {
            assert!(self.receive()?, "no answer within {PATIENCE:?}");
        }
        Ok(())
    }

    fn is_whole(&self) -> bool {
        parse(&self.bytes, usize::MAX).expect("Redis's protocol").is_some()
    }

    fn first<T>(&self, with: impl FnOnce(&Frame<'_>) -> T) -> T {
        with(&parse(&self.bytes, usize::MAX).unwrap().expect("complete").0)
    }

    fn take<T>(&mut self, with: impl FnOnce(&Frame<'_>) -> T) -> T {
        let value = self.first(with);
        let (_, used) = parse(&self.bytes, usize::MAX).unwrap().expect("complete");
        self.bytes.drain(..used);
        value
    }

    /// Reads some bytes. Returns whether any arrived.
    fn receive(&mut self) -> Result<bool, Gone> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(Gone),
            Ok(count) => {
                self.bytes.extend(&chunk[..count]);
                Ok(true)
            }
            Err(error) if silent(&error) => Ok(false),
            Err(_) => Err(Gone),
        }
    }

    /// Closes the connection. Returns `None` if nothing more can arrive.
    pub(crate) fn close(self, how: Leave) -> Option<Self> {
        match how {
            Leave::Half => {
                drop(self.stream.shutdown(Shutdown::Write));
                return Some(self);
            }
            Leave::Whole => {}
            Leave::Reset => {
                let socket = socket2::SockRef::from(&self.stream);
                socket.set_linger(Some(Duration::ZERO)).unwrap();
            }
        }
        None
    }
}

fn silent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn encode(request: &Request, out: &mut Vec<u8>) {
    match request {
        Request::Lock(command) => command.encode(out),
        Request::Lax(command, script_mutant) => script_mutant.encode(command, out),
        Request::Hello => Hello::default().handshake(true).encode(out),
        Request::Del(key) => write_command(out, &[b"DEL", key]),
        Request::PExpire(key, ttl_ms) => {
            write_command(out, &[b"PEXPIRE", key, ttl_ms.to_string().as_bytes()]);
        }
        Request::Get(key) => write_command(out, &[b"GET", key]),
        Request::Pttl(key) => write_command(out, &[b"PTTL", key]),
        Request::Time => write_command(out, &[b"TIME"]),
        Request::FlushAll => write_command(out, &[b"FLUSHALL"]),
        Request::ScriptFlush => write_command(out, &[b"SCRIPT", b"FLUSH"]),
    }
}

fn reply(request: &Request, frame: &Frame<'_>) -> ServerReply {
    match (request, frame) {
        (Request::Lock(command) | Request::Lax(command, _), frame) => {
            ServerReply::Reply(read(command, frame))
        }
        (Request::Del(_), Frame::Integer(1)) => ServerReply::Reply(Reply::Deleted),
        (Request::PExpire(..), Frame::Integer(1)) => ServerReply::Reply(Reply::Kept),
        (Request::Del(_) | Request::PExpire(..), Frame::Integer(0)) => {
            ServerReply::Reply(Reply::Absent)
        }
        (Request::Get(_), Frame::Null) => ServerReply::Value(None),
        (Request::Get(_), Frame::Bulk(value)) => {
            ServerReply::Value(Some(Token::from_slice(value).expect("only tokens are written")))
        }
        (Request::Pttl(_), Frame::Integer(left)) => ServerReply::Pttl(*left),
        (Request::Time, Frame::Array(parts)) => match parts.as_slice() {
            [Frame::Bulk(seconds), Frame::Bulk(micros)] => {
                ServerReply::Time((number(seconds) * 1_000_000 + number(micros)) * 1000)
            }
            other => panic!("TIME: {other:?}"),
        },
        (Request::FlushAll | Request::ScriptFlush, Frame::Simple(b"OK")) => ServerReply::Ok,
        (_, Frame::Error(text)) if text.starts_with(b"LOADING") => ServerReply::Error("LOADING"),
        (request, frame) => panic!("{request:?} was answered with {frame:?}"),
    }
}

/// The reply for a push message of the master.
fn unasked(frame: &Frame<'_>) -> Option<ServerReply> {
    let woken = || woken(frame).unwrap_or_else(|| panic!("unasked: {frame:?}"));
    is_unasked(frame).then(|| ServerReply::Woken(woken()))
}

fn read(command: &Command, frame: &Frame<'_>) -> Reply {
    let expect: Expect = command.expect();
    expect.read(frame)
}

fn number(digits: &[u8]) -> u64 {
    str::from_utf8(digits).unwrap().parse().unwrap()
}
