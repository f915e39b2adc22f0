//! The two kinds of masters that a plan runs on.

use std::sync::Arc;
use std::time::Duration;

use redquorum::memory::Masters as InMemory;
use redquorum::{Backoff, Builder, Redlock};
use redquorum_rig::{Masters as Servers, RespValue};

use crate::plan::{Process, Trouble};
use crate::proxy::{Meter, Proxy};

#[derive(Clone)]
pub(crate) enum Masters {
    /// In memory, behind proxies, under Tokio's paused clock.
    Memory(InMemory, Vec<Arc<Meter>>),
    /// `redis-server`s on loopback. Each process logs in as a user of its own.
    Real(Arc<Servers>),
}

impl Masters {
    pub(crate) fn in_memory(count: usize) -> Self {
        Self::Memory(InMemory::new(count), (0..count).map(|_| Meter::new()).collect())
    }

    pub(crate) fn real(count: usize) -> Self {
        Self::Real(Arc::new(Servers::start(count).expect("masters")))
    }

    /// How much later than in theory events may come: machines stall in real time.
    pub(crate) const fn slack(&self) -> Duration {
        Duration::from_millis(if let Self::Memory(..) = self { 500 } else { 8_000 })
    }

    pub(crate) const fn node_timeout(&self) -> Duration {
        Duration::from_millis(if let Self::Memory(..) = self { 100 } else { 1_000 })
    }

    pub(crate) fn process(&self, process: &Process, latency: u64, seed: u64) -> Builder {
        let builder = match self {
            Self::Memory(masters, meters) => {
                let (trouble, troubled) = process.trouble;
                let proxy = |(meter, number): (&Arc<Meter>, usize)| Proxy {
                    inner: Arc::new(masters.node(number)),
                    next: Arc::new(masters.node(number % meters.len() + 1)),
                    meter: meter.clone(),
                    forbidden: process.forbidden,
                    // A name that leads elsewhere costs two votes, of which three masters have one
                    // to spare.
                    trouble: match trouble {
                        Trouble::Misleads(_) if number > 1 => Trouble::None,
                        _ if number > troubled => Trouble::None,
                        trouble => trouble,
                    },
                    latency,
                    seed: seed + number as u64,
                };
                let builder = Redlock::builder().tokio_clock_for_tests();
                builder.masters(meters.iter().zip(1..).map(proxy))
            }
            Self::Real(masters) => {
                let user = format!("user{}", process.forbidden.join(""));
                let denied = process.forbidden.iter().map(|word| format!(" -{word}"));
                let denied: String = denied.collect();
                let rules = format!("ACL SETUSER {user} on >secret ~* &* +@all{denied}");
                Redlock::builder().masters((1..=masters.len()).map(|number| {
                    masters.ask(number, &rules).expect("a user");
                    let (port, database) = (masters.port(number), process.database);
                    format!("redis://{user}:secret@127.0.0.1:{port}/{database}")
                }))
            }
        };
        let builder = builder.node_timeout(self.node_timeout()).fair(process.fair);
        if process.spins {
            builder.wake_ups(false).retry(Backoff::Fixed(Duration::from_millis(1)))
        } else {
            builder
        }
    }

    /// Publishes a message of this length to each channel that a lock subscribes to.
    pub(crate) fn publish(&self, bytes: usize) {
        let message = vec![b'.'; bytes];
        let masters = match self {
            Self::Memory(_, meters) => {
                return meters.iter().for_each(|meter| meter.publish(message.clone()));
            }
            Self::Real(masters) => masters,
        };
        for number in 1..=masters.len() {
            let channels = masters.ask(number, "PUBSUB CHANNELS redquorum:*");
            let Ok(RespValue::Array(channels)) = channels else { panic!("{channels:?}") };
            for channel in channels {
                let RespValue::Bulk(channel) = channel else { panic!("{channel:?}") };
                masters.command(number, &[b"PUBLISH", &channel, &message]).expect("it is sent");
            }
        }
    }

    /// Sets the key with a foreign value where it is free, until it expires.
    pub(crate) fn occupy(&self, key: &[u8], ttl: Duration) {
        match self {
            Self::Memory(masters, meters) => {
                let free = (1..=meters.len()).filter(|it| masters.value(*it, key).is_none());
                free.for_each(|number| masters.set(number, key, "foreign", Some(ttl)));
            }
            Self::Real(masters) => {
                let ttl = ttl.as_millis().to_string();
                let set = [b"SET", key, b"foreign", b"NX", b"PX", ttl.as_bytes()];
                for number in 1..=masters.len() {
                    masters.command(number, &set).expect("a reply");
                }
            }
        }
    }

    /// The keys that are left: in memory each, shortened; of a server each database that has keys.
    pub(crate) fn keys(&self) -> Vec<String> {
        match self {
            Self::Memory(masters, meters) => {
                let keys = (1..=meters.len()).flat_map(|number| masters.keys(number));
                keys.map(|key| short(&key)).collect()
            }
            Self::Real(masters) => {
                let keyspace = |number| masters.ask(number, "INFO keyspace").expect("a reply");
                let info = (1..=masters.len()).map(keyspace);
                let texts = info.map(|info| info.text().expect("a text").into_owned());
                let text = texts.collect::<Vec<_>>().concat();
                text.lines().filter(|line| line.starts_with("db")).map(str::to_owned).collect()
            }
        }
    }
}

pub(crate) fn short(name: &[u8]) -> String {
    let start = &name[..name.len().min(40)];
    format!("{} ({} B)", start.escape_ascii(), name.len())
}
