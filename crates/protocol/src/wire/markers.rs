//! Markers: what a master does with its boot marker and its probation key, for models of masters.
//! The scripts have the same rules in Lua. The harness's differential test compares this model with
//! a real server.

use alloc::sync::Arc;

use super::Command;
use crate::vote::Reply;

/// The boot marker and the probation key of a model master. Times are milliseconds of its own
/// clock.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Markers {
    boot: Option<Arc<str>>,
    /// The probation key, with the last millisecond at which it is there.
    probation: Option<(Arc<str>, u64)>,
}

impl Markers {
    /// The boot marker.
    pub const fn boot(&self) -> Option<&Arc<str>> {
        self.boot.as_ref()
    }

    /// The probation key.
    pub fn probation(&self) -> Option<&Arc<str>> {
        self.probation.as_ref().map(|(name, _)| name)
    }

    /// Sets the boot marker, as any user with write access may.
    pub fn set_boot(&mut self, boot: Option<Arc<str>>) {
        self.boot = boot;
    }

    /// Counts the keys, with those that have expired unseen.
    pub fn len(&self) -> usize {
        usize::from(self.boot.is_some()) + usize::from(self.probation.is_some())
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets a probation key that has expired. Returns whether there was one.
    pub fn expire(&mut self, now: u64) -> bool {
        self.probation.take_if(|(_, last)| now > *last).is_some()
    }

    /// Evicts the keys that have a TTL.
    pub fn evict(&mut self) {
        self.probation = None;
    }

    /// The reply that refuses a grant which relies on `marker`; `None` if the master shows that
    /// marker.
    pub fn refusal(&self, marker: &str) -> Option<Reply> {
        let shown = self.boot.as_deref() == Some(marker);
        (!shown).then(|| Reply::Marked { boot: self.boot.clone(), probation: None })
    }

    /// Executes a [`Command::Watch`] or a [`Command::Initialize`]; returns `None` for any other
    /// command.
    pub fn execute(&mut self, now: u64, command: &Command) -> Option<Reply> {
        match command {
            Command::Watch { run_id, marker, begin, vigil_ms, ended } => {
                self.expire(now);
                let ours = |boot: &Arc<str>| {
                    let rest = boot.strip_prefix(&*run_id.0);
                    !run_id.0.is_empty() && rest.is_some_and(|rest| rest.starts_with(' '))
                };
                if !self.boot.as_ref().is_some_and(ours) {
                    if self.probation().is_some() && self.probation() == ended.as_ref() {
                        self.boot = Some(marker.clone());
                        self.probation = None;
                    } else if let (None, Some(begin)) = (&self.probation, begin) {
                        self.probation = Some((begin.clone(), now.saturating_add(*vigil_ms)));
                    }
                }
                let (boot, probation) = (self.boot.clone(), self.probation().cloned());
                Some(Reply::Marked { boot, probation })
            }
            Command::Initialize { .. } if self.boot.is_some() => {
                Some(Reply::Marked { boot: None, probation: None })
            }
            Command::Initialize { marker } => {
                self.boot = Some(marker.clone());
                Some(Reply::Initialized)
            }
            _ => None,
        }
    }
}
