//! One Redis in memory with the few commands of the locks on one master: keys with a TTL, their
//! scripts, and channels.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use redquorum_protocol::wire::{Frame, parse};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::AbortHandle,
};

use super::memory::listen;

type Inbox = mpsc::UnboundedSender<Vec<u8>>;

#[derive(Default)]
struct State {
    keys: HashMap<Vec<u8>, (Vec<u8>, Instant)>,
    /// Scripts by their SHA-1.
    scripts: HashMap<Vec<u8>, String>,
    channels: HashMap<Vec<u8>, Vec<(u64, Inbox)>>,
    last_connection: u64,
    /// How often it was restarted. A connection of before executes nothing.
    restarts: u64,
}

/// A server on a port of loopback; its drop ends it.
pub(super) struct Single {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    restarts: watch::Sender<u64>,
    listener: AbortHandle,
}

impl Single {
    pub(super) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (state, restarts) = (Arc::<Mutex<State>>::default(), watch::Sender::new(0));
        let (served, restarted) = (state.clone(), restarts.clone());
        let listener = listen(listener, move |stream| {
            let (state, mut restarted) = (served.clone(), restarted.subscribe());
            async move {
                tokio::select! {
                    _ended = serve(stream, &state) => {}
                    _restarted = restarted.changed() => {}
                }
            }
        });
        Ok(Self { address, state, restarts, listener })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections and forgets everything.
    pub(super) fn restart(&self) {
        {
            let mut state = locked(&self.state);
            let restarts = state.restarts + 1;
            *state = State { restarts, ..State::default() };
        }
        self.restarts.send_modify(|restarts| *restarts += 1);
    }
}

impl Drop for Single {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(mut stream: TcpStream, state: &Mutex<State>) -> io::Result<()> {
    let (inbox, mut messages) = mpsc::unbounded_channel();
    let (id, restarts) = {
        let mut state = locked(state);
        state.last_connection += 1;
        (state.last_connection, state.restarts)
    };
    let (mut incoming, mut outgoing) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            read = stream.read_buf(&mut incoming) => if read? == 0 { break },
            Some(message) = messages.recv() => outgoing.extend(message),
        }
        let mut used = 0;
        while let Ok(Some((Frame::Array(words), length))) = parse(&incoming[used..], usize::MAX) {
            let words: Vec<&[u8]> = words
                .iter()
                .map(|word| if let Frame::Bulk(bytes) = word { *bytes } else { &[] })
                .collect();
            let mut state = locked(state);
            if state.restarts != restarts {
                return Ok(());
            }
            execute(&mut state, (id, &inbox), &words, &mut outgoing);
            used += length;
        }
        incoming.drain(..used);
        stream.write_all(&outgoing).await?;
        outgoing.clear();
    }
    locked(state).channels.values_mut().for_each(|all| all.retain(|(other, _)| *other != id));
    Ok(())
}

fn execute(state: &mut State, (id, inbox): (u64, &Inbox), words: &[&[u8]], out: &mut Vec<u8>) {
    let name = words.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
    match (name.as_slice(), &words[1..]) {
        (b"SET", [key, value, _nx, _px, ttl]) => {
            out.extend(if state.set(key, value, ttl) { b"+OK\r\n".as_slice() } else { b"$-1\r\n" });
        }
        (b"SCRIPT", [_load, source]) => {
            let source = String::from_utf8_lossy(source).into_owned();
            let hash = redis::Script::new(&source).get_hash().to_owned();
            bulk(out, hash.as_bytes());
            state.scripts.insert(hash.into_bytes(), source);
        }
        (b"EVALSHA", [hash, _count, key, token, rest @ ..]) => {
            let Some(source) = state.scripts.get(*hash) else {
                return out.extend(b"-NOSCRIPT No matching script.\r\n");
            };
            if source.contains("'PTTL'") {
                // The wake-up lock's acquire.
                if state.set(key, token, rest.first().copied().unwrap_or(b"0")) {
                    out.extend(b"$-1\r\n");
                } else {
                    let left = state.keys[*key].1.saturating_duration_since(Instant::now());
                    out.extend(format!(":{}\r\n", left.as_millis()).into_bytes());
                }
            } else {
                // A release, which publishes if it is given a channel.
                let ours = state.live(key).is_some_and(|value| value == *token);
                if ours {
                    state.keys.remove(*key);
                    if let Some(channel) = rest.first() {
                        state.publish(channel);
                    }
                }
                out.extend(format!(":{}\r\n", u8::from(ours)).into_bytes());
            }
        }
        (b"SUBSCRIBE", channels) => {
            for channel in channels {
                let all = state.channels.entry(channel.to_vec()).or_default();
                all.push((id, inbox.clone()));
                message(out, b"subscribe", channel, b":1\r\n");
            }
        }
        (b"UNSUBSCRIBE", channels) => {
            for channel in channels {
                let all = state.channels.entry(channel.to_vec()).or_default();
                all.retain(|(other, _)| *other != id);
                message(out, b"unsubscribe", channel, b":0\r\n");
            }
        }
        (b"CLIENT" | b"PING" | b"SELECT", _) => out.extend(b"+OK\r\n"),
        _ => out.extend(b"-ERR unknown command\r\n"),
    }
}

impl State {
    fn live(&mut self, key: &[u8]) -> Option<&[u8]> {
        let (value, expires) = self.keys.get(key)?;
        (Instant::now() < *expires).then_some(value)
    }

    fn set(&mut self, key: &[u8], value: &[u8], ttl: &[u8]) -> bool {
        let ttl = std::str::from_utf8(ttl).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        let free = self.live(key).is_none();
        if free {
            let expires = Instant::now() + Duration::from_millis(ttl);
            self.keys.insert(key.to_vec(), (value.to_vec(), expires));
        }
        free
    }

    fn publish(&self, channel: &[u8]) {
        for (_, inbox) in self.channels.get(channel).into_iter().flatten() {
            let mut text = Vec::new();
            message(&mut text, b"message", channel, b"$1\r\n0\r\n");
            // A connection that has just ended gets nothing.
            let _sent = inbox.send(text);
        }
    }
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(format!("${}\r\n", bytes.len()).into_bytes());
    out.extend(bytes);
    out.extend(b"\r\n");
}

fn message(out: &mut Vec<u8>, kind: &[u8], channel: &[u8], last: &[u8]) {
    out.extend(b"*3\r\n");
    bulk(out, kind);
    bulk(out, channel);
    out.extend(last);
}
