//! A connection to a real master. Requests are bytes, and the library's code reads the replies.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use redquorum_protocol::wire::{Frame, Greeting, Hello, is_out_of_band, parse};
use redquorum_redis_model::{Request, ServerReply, Value};

use crate::plan::Leave;

/// The limit for a reply on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Socket {
    stream: TcpStream,
    bytes: Vec<u8>,
    /// The requests without a reply.
    asked: VecDeque<Request>,
}

/// The master closed the connection.
pub(crate) struct Gone;

impl Socket {
    pub(crate) fn connect(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { stream, bytes: Vec::new(), asked: VecDeque::new() })
    }

    /// Writes all requests at once. The next read shows a closed connection.
    pub(crate) fn write(&mut self, requests: Vec<Request>) {
        let mut bytes = Vec::new();
        requests.iter().for_each(|request| request.encode(&mut bytes));
        self.asked.extend(requests);
        drop(self.stream.write_all(&bytes));
    }

    pub(crate) fn waits(&self) -> bool {
        !self.asked.is_empty()
    }

    /// The next reply, or a push message before it.
    pub(crate) fn read(&mut self) -> Result<ServerReply, Gone> {
        if let Some(Request::Hello) = self.asked.front() {
            self.asked.pop_front();
            return self.read_hello();
        }
        let (reply, out_of_band) =
            self.frame(|frame| (Value::from(frame), is_out_of_band(frame)))?;
        if !out_of_band {
            self.asked.pop_front().expect("something was asked");
        }
        Ok(ServerReply::Value(reply))
    }

    /// A push message that has already arrived. The connection must have no other bytes to read.
    pub(crate) fn overhear(&mut self) -> Result<Option<ServerReply>, Gone> {
        while !self.is_whole() {
            self.stream.set_nonblocking(true).unwrap();
            let messages = self.receive();
            self.stream.set_nonblocking(false).unwrap();
            if !messages? {
                return Ok(None);
            }
        }
        let (message, out_of_band) = self.take(|frame| (Value::from(frame), is_out_of_band(frame)));
        assert!(out_of_band, "a reply to no request: {message:?}");
        Ok(Some(ServerReply::Value(message)))
    }

    fn read_hello(&mut self) -> Result<ServerReply, Gone> {
        let (hello, mut greeting) = (Hello::default(), Greeting::default());
        let handshake = hello.handshake(true);
        let mut unfit = false;
        for index in 0..handshake.replies() {
            unfit |= self.frame(|frame| handshake.read(index, frame, &mut greeting))?.is_err();
        }
        Ok(if unfit {
            ServerReply::Value(Value::Error(b"unfit".into()))
        } else {
            ServerReply::Greeting(greeting)
        })
    }

    fn frame<T>(&mut self, with: impl FnOnce(&Frame<'_>) -> T) -> Result<T, Gone> {
        self.fill()?;
        Ok(self.take(with))
    }

    fn fill(&mut self) -> Result<(), Gone> {
        while !self.is_whole() {
            assert!(self.receive()?, "no reply within {TIMEOUT:?}");
        }
        Ok(())
    }

    fn is_whole(&self) -> bool {
        parse(&self.bytes, usize::MAX).expect("Redis's protocol").is_some()
    }

    fn take<T>(&mut self, with: impl FnOnce(&Frame<'_>) -> T) -> T {
        let (frame, used) = parse(&self.bytes, usize::MAX).unwrap().expect("complete");
        let value = with(&frame);
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
