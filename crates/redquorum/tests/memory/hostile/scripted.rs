//! A master over a pipe in memory that follows a script: it replies well, badly or not at all.
//!
//! Shared by the other files of this test. Good masters come from `redquorum::memory`.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redquorum::connect::{Connecting, Connection, Hello, Node};
use redquorum_protocol::wire::{Frame, parse};
use redquorum_redis_model::{Connection as Id, Event, Persistence, Request, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// After this many commands or connections a master stops replying. Virtual time stands still while
/// a client spins, so without this limit a test for spinning would never end.
pub(crate) const MOST: usize = 50_000;

/// The reaction of a scripted master to one command or to a new connection.
#[derive(Clone, Debug)]
pub(crate) enum Reaction {
    Well,
    /// Replies as Redis does, one byte at a time, with this pause before each.
    Slowly(Duration),
    Twice,
    Bytes(Vec<u8>),
    /// Sends these bytes over and over, as long as the client reads them.
    Endless(Vec<u8>),
    /// Sends these bytes and ends the connection.
    Last(Vec<u8>),
    Nothing,
    /// Replies to nothing on this connection from this command on: a black hole.
    Swallow,
    Refuse,
    Hang,
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
            | [b"CLIENT", b"ID" | b"SETNAME" | b"SETINFO", ..]
    )
}

type Script = dyn Fn(Option<&Args<'_>>) -> Reaction + Send + Sync;

#[derive(Clone)]
pub(crate) struct Scripted {
    name: Arc<str>,
    hello: Hello,
    script: Arc<Script>,
    seen: Arc<Seen>,
}

/// The model behind the script, and figures of the master for the test to read.
pub(crate) struct Seen {
    connects: AtomicUsize,
    commands: AtomicUsize,
    server: Mutex<Server>,
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
            seen: Arc::new(Seen {
                connects: AtomicUsize::new(0),
                commands: AtomicUsize::new(0),
                server: Mutex::new(Server::new(1, Persistence::None)),
            }),
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

    async fn serve(self, id: Id, mut pipe: DuplexStream) -> io::Result<()> {
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
                let command = &incoming[used..used + length];
                used += length;
                if self.seen.commands.fetch_add(1, Ordering::Relaxed) >= MOST {
                    return std::future::pending().await;
                }
                let bulk = |arg| if let Frame::Bulk(bytes) = arg { bytes } else { b"".as_slice() };
                let args: Vec<&[u8]> = args.into_iter().map(bulk).collect();
                let reaction = (self.script)(Some(&args));
                swallowing |= matches!(reaction, Reaction::Swallow);
                if !swallowing {
                    let well =
                        if reaction.is_well() { self.execute(id, command, &args) } else { vec![] };
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

    /// The reply of Redis. Time stands still for the model: no test waits for a key to expire.
    fn execute(&self, id: Id, command: &[u8], args: &Args<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        match args {
            [b"AUTH" | b"SELECT", ..] => bytes.extend(b"+OK\r\n"),
            // It subscribes no connection, unless its script does.
            [b"HELLO", ..] => bytes.extend(b"-ERR unknown command\r\n"),
            [b"INFO", ..] => {
                let info = format!("run_id:{}\r\nmaster_replid2:00\r\n", self.name);
                bytes.extend(format!("${}\r\n{info}\r\n", info.len()).into_bytes());
            }
            _ => {
                let mut events = Vec::new();
                let mut server = self.seen.server.lock().unwrap();
                server.deliver(id, Request::parse(command).unwrap().unwrap().0);
                server.serve(0, id, &mut events);
                for event in events {
                    if let Event::Message(to, reply) = event
                        && to == id
                    {
                        reply.encode(&mut bytes);
                    }
                }
            }
        }
        bytes
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
            if self.seen.connects.fetch_add(1, Ordering::Relaxed) >= MOST {
                return std::future::pending().await;
            }
            match (self.script)(None) {
                Reaction::Refuse => return Err(io::ErrorKind::ConnectionRefused.into()),
                Reaction::Hang => std::future::pending().await,
                Reaction::Panic => panic!("a node of the caller's own that panics"),
                _ => {}
            }
            let id = self.seen.server.lock().unwrap().connect().expect("it is up");
            let (ours, theirs) = duplex(64 * 1024);
            tokio::spawn(self.clone().serve(id, theirs));
            Ok(Box::new(ours) as Box<dyn Connection>)
        })
    }
}
