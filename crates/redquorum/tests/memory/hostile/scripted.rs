//! A master over a pipe in memory that follows a script: it replies well, badly or not at all.
//!
//! Shared by the other files of this test. Good masters come from `redquorum::memory`.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redquorum::connect::{Connecting, Connection, Hello, Node};
use redquorum_protocol::wire::{DELETE, Frame, QUEUE, parse, scripts};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// After this many commands or connections a master stops replying. Virtual time stands still while
/// a client spins, so without this limit a test for spinning would never end.
pub(crate) const MOST: usize = 50_000;

/// The reaction of a scripted master to one command or to a new connection.
#[derive(Clone, Debug)]
pub(crate) enum Reaction {
    /// Replies as Redis does.
    Well,
    /// Replies as Redis does, one byte at a time, with this pause before each.
    Slowly(Duration),
    /// Sends the reply of Redis twice.
    Twice,
    /// Sends these bytes.
    Bytes(Vec<u8>),
    /// Sends these bytes over and over, as long as the client reads them.
    Endless(Vec<u8>),
    /// Sends these bytes and ends the connection.
    Last(Vec<u8>),
    /// Does not reply to this command.
    Nothing,
    /// Replies to nothing on this connection from this command on: a black hole.
    Swallow,
    /// Refuses the connection.
    Refuse,
    /// Never establishes the connection.
    Hang,
    /// Panics in the node itself.
    Panic,
}

impl Reaction {
    const fn is_well(&self) -> bool {
        matches!(self, Self::Well | Self::Slowly(_) | Self::Twice)
    }

    pub(crate) fn line(text: &str) -> Self {
        Self::Bytes(format!("{text}\r\n").into_bytes())
    }
}

/// A command as the script gets it: its arguments.
pub(crate) type Args<'a> = [&'a [u8]];

/// Whether a command belongs to the handshake of a new connection.
pub(crate) fn is_greeting(args: &Args<'_>) -> bool {
    matches!(
        args,
        [b"AUTH" | b"SELECT" | b"INFO" | b"CONFIG" | b"GETRANGE", ..]
            | [b"SCRIPT", b"LOAD", _]
            | [b"CLIENT", b"ID"]
    )
}

type Script = dyn Fn(Option<&Args<'_>>) -> Reaction + Send + Sync;

/// The master. Clones share its state.
#[derive(Clone)]
pub(crate) struct Scripted {
    name: Arc<str>,
    hello: Hello,
    script: Arc<Script>,
    seen: Arc<Seen>,
}

/// Figures of the master for the test to read.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) connects: AtomicUsize,
    pub(crate) commands: AtomicUsize,
    keys: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
}

impl Seen {
    pub(crate) fn connects(&self) -> usize {
        self.connects.load(Ordering::Relaxed)
    }

    pub(crate) fn commands(&self) -> usize {
        self.commands.load(Ordering::Relaxed)
    }
}

impl Scripted {
    /// A master that asks `script` about each new connection (`None`) and each command.
    pub(crate) fn new(
        name: &str,
        script: impl Fn(Option<&Args<'_>>) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            hello: Hello::default(),
            script: Arc::new(script),
            seen: Arc::default(),
        }
    }

    /// Sets the handshake that clients of this master send.
    pub(crate) fn with_hello(mut self, hello: Hello) -> Self {
        self.hello = hello;
        self
    }

    pub(crate) fn seen(&self) -> Arc<Seen> {
        self.seen.clone()
    }

    async fn serve(self, id: usize, mut pipe: DuplexStream) -> io::Result<()> {
        let first = (self.script)(None);
        if !self.act(first, b"", &mut pipe).await? {
            return Ok(());
        }
        let mut incoming = Vec::new();
        let mut swallowing = false;
        while pipe.read_buf(&mut incoming).await? > 0 {
            let mut used = 0;
            while let Ok(Some((Frame::Array(args), length))) = parse(&incoming[used..], usize::MAX)
            {
                used += length;
                if self.seen.commands.fetch_add(1, Ordering::Relaxed) >= MOST {
                    return std::future::pending().await;
                }
                let bulk =
                    |arg: &Frame<'_>| if let Frame::Bulk(b) = arg { b.to_vec() } else { vec![] };
                let args: Vec<Vec<u8>> = args.iter().map(bulk).collect();
                let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
                let reaction = (self.script)(Some(&args));
                swallowing |= matches!(reaction, Reaction::Swallow);
                if !swallowing {
                    let well =
                        if reaction.is_well() { self.execute(id, &args) } else { Vec::new() };
                    if !self.act(reaction, &well, &mut pipe).await? {
                        return Ok(());
                    }
                }
            }
            incoming.drain(..used);
        }
        Ok(())
    }

    /// Returns whether the connection stays open.
    async fn act(
        &self,
        reaction: Reaction,
        well: &[u8],
        pipe: &mut DuplexStream,
    ) -> io::Result<bool> {
        match reaction {
            Reaction::Well => pipe.write_all(well).await?,
            Reaction::Twice => pipe.write_all(&[well, well].concat()).await?,
            Reaction::Slowly(pause) => {
                for byte in well {
                    tokio::time::sleep(pause).await;
                    pipe.write_all(&[*byte]).await?;
                }
            }
            Reaction::Bytes(bytes) => pipe.write_all(&bytes).await?,
            Reaction::Endless(bytes) => loop {
                pipe.write_all(&bytes).await?;
            },
            Reaction::Last(bytes) => {
                pipe.write_all(&bytes).await?;
                return Ok(false);
            }
            Reaction::Nothing
            | Reaction::Swallow
            | Reaction::Refuse
            | Reaction::Hang
            | Reaction::Panic => {}
        }
        Ok(true)
    }

    /// The reply of Redis. Keys of this master have no TTL: no test waits for one to expire.
    fn execute(&self, id: usize, args: &Args<'_>) -> Vec<u8> {
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len()).into_bytes();
        let mut keys = self.seen.keys.lock().unwrap();
        let held = |keys: &HashMap<Vec<u8>, Vec<u8>>, key: &[u8], token: &[u8]| {
            keys.get(key).map(|value| value == token)
        };
        match args {
            [b"AUTH" | b"SELECT", ..] => b"+OK\r\n".to_vec(),
            [b"CLIENT", b"ID"] => format!(":{id}\r\n").into_bytes(),
            [b"CLIENT", b"KILL", ..] => b":1\r\n".to_vec(),
            [b"INFO", ..] => bulk(&format!("run_id:{}\r\nmaster_replid2:00\r\n", self.name)),
            [b"SCRIPT", b"LOAD", source] => {
                let known = scripts(true).find(|s| s.source.as_bytes() == *source);
                bulk(known.expect("one of the lock's scripts").sha1)
            }
            [b"SET", _, _, b"XX", ..] => b"$-1\r\n".to_vec(),
            [b"SET", key, token, ..] => {
                if keys.contains_key(*key) {
                    return b"$-1\r\n".to_vec();
                }
                keys.insert(key.to_vec(), token.to_vec());
                b"+OK\r\n".to_vec()
            }
            [b"EVALSHA", sha, _, _, _, b"-", ..] if *sha == QUEUE.sha1.as_bytes() => {
                b":0\r\n".to_vec()
            }
            // The first position in the queue.
            [b"EVALSHA", sha, _, key, ..] if *sha == QUEUE.sha1.as_bytes() => {
                let held = keys.contains_key(*key);
                let reply: &[u8] = if held {
                    b"*4\r\n:1\r\n:0\r\n:1000\r\n$1\r\nx\r\n"
                } else {
                    b"*2\r\n:1\r\n:0\r\n"
                };
                reply.to_vec()
            }
            [b"EVALSHA", sha, _, key, token, ..] => match held(&keys, key, token) {
                Some(true) if *sha == DELETE.sha1.as_bytes() => {
                    keys.remove(*key);
                    b":1\r\n".to_vec()
                }
                Some(true) => b":1\r\n".to_vec(),
                Some(false) => b"*2\r\n:1000\r\n$1\r\nx\r\n".to_vec(),
                None => b":0\r\n".to_vec(),
            },
            _ => b"+PONG\r\n".to_vec(),
        }
    }
}

impl Node for Scripted {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn hello(&self) -> Hello {
        self.hello.clone()
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let id = self.seen.connects.fetch_add(1, Ordering::Relaxed) + 1;
            if id >= MOST {
                return std::future::pending().await;
            }
            match (self.script)(None) {
                Reaction::Refuse => return Err(io::ErrorKind::ConnectionRefused.into()),
                Reaction::Hang => std::future::pending().await,
                Reaction::Panic => panic!("a node of the caller's own that panics"),
                _ => {}
            }
            let (ours, theirs) = duplex(64 * 1024);
            tokio::spawn(self.clone().serve(id, theirs));
            Ok(Box::new(ours) as Box<dyn Connection>)
        })
    }
}
