//! Power losses, and lagging replicas that take over. Only `inject.rs` calls this module.
//!
//! The run records which commands a master has kept, so that the checker need not guess: all that
//! it had executed before an instant, and nothing after it.

use std::sync::Mutex;

use redquorum_rig::{Masters, Persisted, RigError};

use super::Injector;
use crate::mutex::unpoisoned;
use redquorum_scenario::history::{Event, Ns, Window};
use redquorum_simulator::orchestrator::Input;

/// A master may decide to sync up to this long before the disk starts to sync. Writes within this
/// time may be in the file or not. The time covers a hand-over between two threads on a busy
/// machine.
const HAND_OVER: Ns = 250_000_000;

impl Injector {
    pub(super) fn power_loss(&self, fault: usize, nodes: &[usize]) -> Result<(), String> {
        let all = Mutex::new(Vec::new());
        let done = self.each(nodes, |rig, node| {
            let kept = rig.power_loss(node)?;
            unpoisoned(&all).push((node, kept));
            Ok::<_, RigError>(())
        });
        for (node, kept) in std::mem::take(&mut *unpoisoned(&all)) {
            let until = match kept {
                Persisted::Everything => Window { from: Ns::MAX, to: Ns::MAX },
                Persisted::Until(stamp) => {
                    let to = self.clock.stamp(i64::try_from(stamp).unwrap_or(i64::MAX));
                    Window { from: to.saturating_sub(HAND_OVER), to }
                }
                _ => Window { from: Ns::MIN, to: Ns::MIN },
            };
            self.kept_until(fault, node, until);
        }
        done
    }

    pub(super) fn lag(&mut self, nodes: &[usize]) -> Result<(), String> {
        let from = self.clock.now();
        let done = self.each(nodes, Masters::lag);
        let cut = Window { from, to: self.clock.now() };
        if done.is_ok() {
            for node in nodes {
                self.lags.entry(*node).or_insert(cut);
            }
        }
        done
    }

    pub(super) fn catch_up(&mut self, nodes: &[usize]) -> Result<(), String> {
        for node in nodes {
            self.lags.remove(node);
        }
        self.each(nodes, Masters::catch_up)
    }

    pub(super) fn fail_over(&self, fault: usize, nodes: &[usize]) -> Result<(), String> {
        let from = self.clock.now();
        let done = self.each(nodes, Masters::fail_over);
        let now = Window { from, to: self.clock.now() };
        for node in nodes {
            self.network.upstream(*node, Some(self.cluster.address(*node)));
            self.kept_until(fault, *node, self.lags.get(node).copied().unwrap_or(now));
        }
        done
    }

    fn kept_until(&self, fault: usize, node: usize, until: Window) {
        self.report(Input::Recorded(Event::Kept { fault: fault + 1, node, until }));
    }
}
