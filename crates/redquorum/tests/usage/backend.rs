//! The two kinds of masters that a plan runs on.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{
    Builder, Redlock,
    connect::{Connecting, Connection, Hello, Node},
};
use tokio::net::TcpStream;

use crate::plan::Process;
use crate::proxy::{Meter, Proxy};

pub(crate) trait Backend: Send + Sync + 'static {
    /// How much later than in theory events may come: machines stall in real time.
    fn slack(&self) -> Duration;
    fn node_timeout(&self) -> Duration;
    /// A builder without masters.
    fn builder(&self) -> Builder;
    /// One master, as this process reaches it. Counted from 1.
    fn node(&self, number: usize, process: &Process) -> Arc<dyn Node>;
    fn meters(&self) -> &[Arc<Meter>];
    fn publish(&self, bytes: usize);
    /// Sets the key with a foreign value where it is free, until it expires.
    fn occupy(&self, key: &[u8], ttl: Duration);
    /// All keys on all masters, shortened.
    fn keys(&self) -> Vec<String>;

    /// The builder of a process's lock.
    fn process(&self, process: &Process, latency: u64, seed: u64) -> Builder {
        let mut builder = self.builder().node_timeout(self.node_timeout()).fair(process.fair);
        for (index, meter) in self.meters().iter().enumerate() {
            let inner = self.node(index + 1, process);
            let forbidden = if meter.is_charged() { process.forbidden } else { &[] };
            let (meter, seed) = (meter.clone(), seed + index as u64);
            builder = builder.master(Proxy { inner, meter, forbidden, latency, seed });
        }
        builder
    }

    /// Commands that all clients have sent to all masters.
    fn commands(&self) -> u64 {
        self.meters().iter().map(|meter| meter.commands()).sum()
    }
}

/// Masters in memory, under Tokio's paused clock.
#[derive(Clone)]
pub(crate) struct Memory {
    pub(crate) masters: Masters,
    meters: Vec<Arc<Meter>>,
}

impl Memory {
    pub(crate) fn new(count: usize) -> Self {
        let meters = (0..count).map(|_| Meter::new(true)).collect();
        Self { masters: Masters::new(count), meters }
    }
}

impl Backend for Memory {
    fn slack(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn node_timeout(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn builder(&self) -> Builder {
        Redlock::builder().tokio_clock_for_tests()
    }

    fn node(&self, number: usize, _: &Process) -> Arc<dyn Node> {
        Arc::new(self.masters.node(number))
    }

    fn meters(&self) -> &[Arc<Meter>] {
        &self.meters
    }

    fn publish(&self, bytes: usize) {
        for meter in &self.meters {
            meter.publish(vec![b'.'; bytes]);
        }
    }

    fn occupy(&self, key: &[u8], ttl: Duration) {
        for number in 1..=self.meters.len() {
            if self.masters.value(number, key).is_none() {
                self.masters.set(number, key, "foreign", Some(ttl));
            }
        }
    }

    fn keys(&self) -> Vec<String> {
        let keys = (1..=self.meters.len()).flat_map(|number| self.masters.keys(number));
        keys.map(|key| short(&key)).collect()
    }
}

/// `redis-server`s on loopback. Each process logs in as a user of its own.
pub(crate) struct Real {
    masters: redquorum_rig::Masters,
    meters: Vec<Arc<Meter>>,
}

impl Real {
    pub(crate) fn start(count: usize) -> Self {
        let masters = redquorum_rig::Masters::start(count).expect("masters");
        let meters = (0..count).map(|_| Meter::new(false)).collect();
        Self { masters, meters }
    }

    fn command(&self, number: usize, words: &[&[u8]]) -> redquorum_rig::RespValue {
        self.masters.command(number, words).expect("a master answers")
    }
}

struct Tcp {
    port: u16,
    hello: Hello,
}

impl Node for Tcp {
    fn name(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn hello(&self) -> Hello {
        self.hello.clone()
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.set_nodelay(true)?;
            io::Result::Ok(Box::new(stream) as Box<dyn Connection>)
        })
    }
}

impl Backend for Real {
    fn slack(&self) -> Duration {
        Duration::from_secs(8)
    }

    fn node_timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn builder(&self) -> Builder {
        Redlock::builder()
    }

    fn node(&self, number: usize, process: &Process) -> Arc<dyn Node> {
        let user = format!("user{}", process.forbidden.join(""));
        let mut rules = vec!["ACL", "SETUSER", &user, "on", ">secret", "~*", "&*", "+@all"];
        let denied: Vec<_> = process.forbidden.iter().map(|word| format!("-{word}")).collect();
        rules.extend(denied.iter().map(String::as_str));
        let rules: Vec<_> = rules.iter().map(|word| word.as_bytes()).collect();
        self.command(number, &rules);
        let hello = Hello {
            username: Some(user),
            password: Some("secret".into()),
            database: process.database,
        };
        Arc::new(Tcp { port: self.masters.port(number), hello })
    }

    fn meters(&self) -> &[Arc<Meter>] {
        &self.meters
    }

    fn publish(&self, bytes: usize) {
        let message = vec![b'.'; bytes];
        for number in 1..=self.meters.len() {
            let channels = self.command(number, &[b"PUBSUB", b"CHANNELS", b"redquorum:*"]);
            let redquorum_rig::RespValue::Array(channels) = channels else { continue };
            for channel in channels {
                let redquorum_rig::RespValue::Bulk(channel) = channel else { continue };
                self.command(number, &[b"PUBLISH", &channel, &message]);
            }
        }
    }

    fn occupy(&self, key: &[u8], ttl: Duration) {
        let ttl = ttl.as_millis().to_string();
        for number in 1..=self.meters.len() {
            self.command(number, &[b"SET", key, b"foreign", b"NX", b"PX", ttl.as_bytes()]);
        }
    }

    fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for number in 1..=self.meters.len() {
            // One line for each database that has keys.
            match self.command(number, &[b"INFO", b"keyspace"]) {
                redquorum_rig::RespValue::Bulk(text) => {
                    let text = String::from_utf8_lossy(&text).into_owned();
                    keys.extend(
                        text.lines().filter(|line| line.starts_with("db")).map(str::to_owned),
                    );
                }
                other => panic!("{other:?}"),
            }
        }
        keys
    }
}

pub(crate) fn short(name: &[u8]) -> String {
    let start = &name[..name.len().min(40)];
    format!("{} ({} B)", start.escape_ascii(), name.len())
}
