//! Keys: the keys that a driver has left on the masters.

use std::time::{Duration, Instant};

use redquorum_rig::{Masters, RigError};

use super::peer::Fault;
use crate::real::keys::{self, Key};

/// The masters, and the numbers of the dead ones.
pub(super) struct Keys {
    masters: Masters,
    dead: Vec<usize>,
}

impl Keys {
    pub(super) const fn new(masters: Masters) -> Self {
        Self { masters, dead: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.masters.len()
    }

    pub(super) fn urls(&self) -> Vec<String> {
        self.masters.urls()
    }

    pub(super) fn quorum(&self) -> usize {
        self.len() / 2 + 1
    }

    /// The keys on each living master whose name contains that of the resource.
    pub(super) fn of(&self, resource: &str) -> Result<Vec<Vec<Key>>, Fault> {
        let living = (1..=self.len()).filter(|node| !self.dead.contains(node));
        let on = living.map(|node| {
            let mut keys = keys::of(&self.masters, node).map_err(Fault::Environment)?;
            keys.retain(|key| String::from_utf8_lossy(&key.name).contains(resource));
            Ok(keys)
        });
        on.collect()
    }

    /// Waits up to a second until no master has a key of the resource. Returns how many masters
    /// still have one.
    pub(super) fn gone(&self, resource: &str) -> Result<usize, Fault> {
        let until = Instant::now() + Duration::from_secs(1);
        loop {
            let left = self.of(resource)?.iter().filter(|keys| !keys.is_empty()).count();
            if left == 0 || Instant::now() >= until {
                return Ok(left);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills so many masters that no quorum is left.
    pub(super) fn kill_a_majority(&mut self) -> Result<usize, Fault> {
        for node in 1..=self.quorum() {
            self.masters.kill(node).map_err(|error| broken(&error))?;
            self.dead.push(node);
        }
        Ok(self.dead.len())
    }

    /// Restarts the dead masters.
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
