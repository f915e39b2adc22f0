//! Keys: what a driver has left on the masters.

use std::time::{Duration, Instant};

use redquorum_rig::{Masters, Reply, RigError};

use super::talker::Fault;

/// The masters, and which of them are dead.
pub(super) struct Keys {
    masters: Masters,
    dead: Vec<usize>,
}

/// A key on one master.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: String,
    /// Nothing if it is no string.
    pub(super) value: Option<Vec<u8>>,
    /// Milliseconds; nothing if it never expires.
    pub(super) ttl_ms: Option<u64>,
}

impl Keys {
    pub(super) const fn new(masters: Masters) -> Self {
        Self { masters, dead: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.masters.len()
    }

    pub(super) fn quorum(&self) -> usize {
        self.len() / 2 + 1
    }

    /// The keys on each master that lives whose name holds that of the resource.
    pub(super) fn of(&self, resource: &str) -> Result<Vec<Vec<Key>>, Fault> {
        let living = (1..=self.len()).filter(|node| !self.dead.contains(node));
        living.map(|node| self.on(node, resource)).collect()
    }

    fn on(&self, node: usize, resource: &str) -> Result<Vec<Key>, Fault> {
        let Reply::Array(names) = self.command(node, &[b"KEYS", b"*"])? else {
            return Ok(Vec::new());
        };
        let mut keys = Vec::new();
        for name in names {
            let Reply::Bulk(bytes) = name else { continue };
            let name = String::from_utf8_lossy(&bytes).into_owned();
            if !name.contains(resource) {
                continue;
            }
            let value = match self.command(node, &[b"GET", &bytes])? {
                Reply::Bulk(value) => Some(value),
                // Expired meanwhile.
                Reply::Nil => continue,
                _ => None,
            };
            let ttl_ms = match self.command(node, &[b"PTTL", &bytes])? {
                Reply::Integer(-2) => continue,
                Reply::Integer(left) => u64::try_from(left).ok(),
                _ => None,
            };
            keys.push(Key { name, value, ttl_ms });
        }
        Ok(keys)
    }

    fn command(&self, node: usize, command: &[&[u8]]) -> Result<Reply, Fault> {
        self.masters.command(node, command).map_err(|error| broken(&error))
    }

    /// Waits until no master has a key of the resource, and says how many have one still.
    pub(super) fn gone(&self, resource: &str, within: Duration) -> Result<usize, Fault> {
        let until = Instant::now() + within;
        loop {
            let left = self.of(resource)?.iter().filter(|keys| !keys.is_empty()).count();
            if left == 0 || Instant::now() >= until {
                return Ok(left);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills so many that no quorum is left.
    pub(super) fn kill_a_majority(&mut self) -> Result<usize, Fault> {
        for node in 1..=self.quorum() {
            self.masters.kill(node).map_err(|error| broken(&error))?;
            self.dead.push(node);
        }
        Ok(self.dead.len())
    }

    /// Starts the dead again.
    pub(super) fn restart(&mut self) -> Result<(), Fault> {
        for node in std::mem::take(&mut self.dead) {
            self.masters.restart(node).map_err(|error| broken(&error))?;
        }
        Ok(())
    }
}

fn broken(error: &RigError) -> Fault {
    Fault::Environment(error.to_string())
}
