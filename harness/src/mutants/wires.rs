//! Wires: connections to masters. A thread dials each connection and then reads it. The loop
//! writes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use redquorum_protocol::wire::{Greeting, Hello, MAX_REPLY, parse};

/// Timeout of a write, which blocks the loop. No write exceeds what a socket buffers.
const WRITE: Duration = Duration::from_millis(100);

/// An input of the loop.
pub(super) enum Event {
    /// A line from the harness.
    Line(String),
    /// A connection attempt succeeded or failed.
    Dialled { node: usize, epoch: u64, opened: Result<(TcpStream, Greeting), String> },
    /// Bytes from a master.
    Bytes { node: usize, epoch: u64, bytes: Vec<u8> },
    /// A connection broke.
    Closed { node: usize, epoch: u64, why: String },
}

/// An open connection. A thread of its own reads it.
pub(super) struct Wire {
    pub(super) epoch: u64,
    pub(super) stream: TcpStream,
    /// Bytes that have arrived and are not read as replies.
    pub(super) incoming: Vec<u8>,
}

impl Wire {
    /// Writes a command, in bytes. If that fails, the thread that reads reports the end.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        if self.stream.write_all(bytes).is_err() {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // Wakes the thread that reads. A connection that is broken already needs no shutdown.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Delay of the second copy of a SET: longer than a short hold takes until its release.
pub(crate) const AGAIN: Duration = Duration::from_millis(300);

/// Opens a connection in a thread, makes the handshake, and then passes on all bytes that arrive.
pub(super) fn dial(
    url: String,
    (node, epoch): (usize, u64),
    how: (Duration, bool),
    events: Sender<Event>,
) {
    thread::spawn(move || {
        let opened = open(&url, how).map_err(|why| why.to_string());
        let reader = opened.as_ref().ok().and_then(|(stream, _)| stream.try_clone().ok());
        // Sent before any bytes that arrive on the connection.
        let sent = events.send(Event::Dialled { node, epoch, opened });
        if let (Ok(()), Some(stream)) = (sent, reader) {
            read(stream, (node, epoch), &events);
        }
    });
}

/// Sends these bytes once more, later, on a connection of their own, in a thread. Ignores the
/// reply.
pub(super) fn send_again(url: String, bytes: Vec<u8>, limit: Duration) {
    thread::spawn(move || {
        thread::sleep(AGAIN);
        if let Ok((mut stream, _)) = open(&url, (limit, false))
            && stream.write_all(&bytes).is_ok()
        {
            // Waits until the master has replied: before that, it may not have read them.
            let _ = stream.read(&mut [0; 64]);
        }
    });
}

fn read(mut stream: TcpStream, (node, epoch): (usize, u64), events: &Sender<Event>) {
    let mut chunk = [0; 8 * 1024];
    loop {
        let event = match stream.read(&mut chunk) {
            Ok(0) => Event::Closed { node, epoch, why: "closed by the master".to_owned() },
            Ok(count) => Event::Bytes { node, epoch, bytes: chunk[..count].to_vec() },
            Err(why) => Event::Closed { node, epoch, why: why.to_string() },
        };
        let over = matches!(event, Event::Closed { .. });
        if events.send(event).is_err() || over {
            return;
        }
    }
}

/// Connects and makes the handshake. Mutants do not support masters with a password.
fn open(url: &str, (limit, guarded): (Duration, bool)) -> io::Result<(TcpStream, Greeting)> {
    let address = url.strip_prefix("redis://").unwrap_or(url);
    let address = address.split('/').next().unwrap_or_default();
    let address = address.to_socket_addrs()?.next();
    let address = address.ok_or_else(|| io::Error::other("it has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WRITE))?;
    stream.set_read_timeout(Some(limit))?;
    let hello = Hello::default();
    let mut bytes = Vec::new();
    let handshake = hello.handshake(guarded);
    handshake.encode(&mut bytes);
    stream.write_all(&bytes)?;
    let (mut greeting, mut replies) = (Greeting::default(), 0);
    let (mut incoming, mut chunk) = (Vec::new(), [0; 8 * 1024]);
    while replies < handshake.replies() {
        match stream.read(&mut chunk)? {
            0 => return Err(io::Error::other("closed by the master before it answered")),
            count => incoming.extend_from_slice(&chunk[..count]),
        }
        while let Some((frame, used)) = parse(&incoming, MAX_REPLY).map_err(io::Error::other)? {
            let read = handshake.read(replies, &frame, &mut greeting);
            read.map_err(|unfit| io::Error::other(unfit.0.to_string()))?;
            replies += 1;
            incoming.drain(..used);
        }
    }
    stream.set_read_timeout(None)?;
    Ok((stream, greeting))
}
