//! Faults in which masters lose data, in virtual time: commands that clear them, power losses, and
//! lagging replicas that take over. Also counters that a fault sets.

use std::sync::Arc;

use redquorum_protocol::MAX_NUMBER;
use redquorum_protocol::wire::counter_of;
use redquorum_redis_model::{Server, Wall};

use super::process::ClientProcess;
use super::world::{Instant, World};
use crate::orchestrator::Input;
use redquorum_scenario::client_protocol::FENCING_COUNTER_TTL;
use redquorum_scenario::history::{Event, Ns, Window};
use redquorum_scenario::{Ahead, NodeFault, Persistence};

impl<P: ClientProcess> World<P> {
    /// Cuts a master's power. Of its file, only the synced part remains.
    pub(super) fn lose_power(&mut self, fault: usize, node: usize) {
        let until = match self.scenario.cluster.persistence {
            Persistence::None => Window { from: Ns::MIN, to: Ns::MIN },
            Persistence::AofAlways => Window { from: Ns::MAX, to: Ns::MAX },
            Persistence::AofEverysec => self.about(self.masters[node].synced),
        };
        let mut events = Vec::new();
        self.masters[node].server.power_loss(&mut events);
        self.heed(node, &mut events);
        self.kept(fault, node, until);
    }

    /// Injects a fault that needs a command, on a master that executes commands or on its replica.
    pub(super) fn forget_at(
        &mut self,
        fault: usize,
        node_fault: &NodeFault,
        node: usize,
    ) -> Result<(), String> {
        let (now, wall) = (self.now, self.wall(node));
        let master = &mut self.masters[node];
        // A replica that lags holds its data, whatever its master does. One without lag has exactly
        // what its master reports as sent.
        let on_replica = node_fault.needs_replicas();
        if on_replica && master.failed_over {
            return Err(format!("master {} has failed over already", node + 1));
        }
        let replies = master.server.is_up() && !master.server.is_paused();
        let replica_lags = on_replica && master.lags.is_some();
        if !replies && !replica_lags {
            return Err(format!("master {} does not answer", node + 1));
        }
        if master.server.is_replica() && !matches!(node_fault, NodeFault::Demote { .. }) {
            return Err(format!("master {} is demoted and refuses writes", node + 1));
        }
        match node_fault {
            NodeFault::Demote { .. } => master.server.demote(),
            NodeFault::Counter { resource, ahead, .. } => {
                set_counter(&mut master.server, wall, resource.as_bytes(), *ahead);
            }
            NodeFault::Flush { .. } => master.server.flush_all(),
            NodeFault::Evict { .. } => master.server.evict_all(),
            NodeFault::Lag { .. } => {
                master.lags.get_or_insert_with(|| (master.server.replicate(), now));
            }
            NodeFault::Failover { .. } => self.fail_over(fault, node),
            other => unreachable!("{other:?} needs no command"),
        }
        Ok(())
    }

    fn fail_over(&mut self, fault: usize, node: usize) {
        let now = self.now;
        let master = &mut self.masters[node];
        let (replica, since) =
            master.lags.take().unwrap_or_else(|| (master.server.replicate(), now));
        let mut events = Vec::new();
        master.server.fail_over(replica, &mut events);
        master.failed_over = true;
        self.heed(node, &mut events);
        let until = self.about(since);
        self.kept(fault, node, until);
    }

    /// A command that was executed at that very instant may count as before or after it.
    fn about(&self, at: Instant) -> Window {
        let at = self.ns(at);
        Window { from: at - 1, to: at }
    }

    fn kept(&mut self, fault: usize, node: usize, until: Window) {
        self.direct(Input::Recorded(Event::Kept { fault: fault + 1, node: node + 1, until }));
    }
}

/// Sets the fencing counter of a resource ahead. A counter that is further ahead stays there.
fn set_counter(server: &mut Server, wall: Wall, resource: &[u8], ahead: Ahead) {
    let number = match ahead {
        Ahead::By(by) => {
            let by = u64::try_from(by.0.as_micros()).unwrap_or(u64::MAX);
            (wall / 1000).saturating_add(by).min(MAX_NUMBER)
        }
        fixed => fixed.number().unwrap_or(MAX_NUMBER),
    };
    let key = counter_of(resource);
    let text = |bytes: &Arc<[u8]>| str::from_utf8(bytes).ok()?.parse().ok();
    let number = server.value(wall, &key).and_then(text).unwrap_or(0).max(number);
    let memory_ms = u64::try_from(FENCING_COUNTER_TTL.as_millis()).unwrap_or(u64::MAX);
    server.set(wall, &key, number.to_string().as_bytes(), Some(memory_ms));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_set_ahead_and_never_back() {
        const MS: Wall = 1_000_000;
        let mut server = Server::new(1, Persistence::None);
        let mut set = |wall, ahead| {
            set_counter(&mut server, wall, b"r", ahead);
            let text = server.value(wall, &counter_of(b"r")).expect("it is set");
            str::from_utf8(text).unwrap().parse::<u64>().unwrap()
        };
        let second = Ahead::By("1s".parse().unwrap());
        assert_eq!(set(5 * MS, second), 1_005_000);
        assert_eq!(set(4 * MS, second), 1_005_000, "the clock was set back");
        assert_eq!(set(6 * MS, second), 1_006_000);
        assert_eq!(set(6 * MS, Ahead::Last), MAX_NUMBER - 1);
        assert_eq!(set(6 * MS, second), MAX_NUMBER - 1);
        assert_eq!(set(6 * MS, Ahead::End), MAX_NUMBER);
        assert_eq!(set(6 * MS, Ahead::Last), MAX_NUMBER);
    }
}
