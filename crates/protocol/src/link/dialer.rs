//! Dialer: when a link opens a connection, and the pauses between its attempts.

use core::time::Duration;

use super::types::Bounds;
use crate::time::{Time, nanos};

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Dialer {
    /// The number of the connection that was dialled last.
    epoch: u64,
    state: State,
    /// How many attempts in a row were of no use: they failed, or their connection broke early.
    pub(super) failures: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum State {
    /// No attempt is due: the link is connected.
    #[default]
    Idle,
    Trying,
    At(Time),
}

impl Dialer {
    /// Starts an attempt. Returns its number.
    pub(super) const fn dial(&mut self) -> u64 {
        self.epoch += 1;
        self.state = State::Trying;
        self.epoch
    }

    /// Starts an attempt if a pause is over, or beside an open connection that has just `stalled`.
    pub(super) fn wake(&mut self, now: Time, stalled: bool) -> Option<u64> {
        let due = self.next().map_or(stalled && self.state == State::Idle, |time| now >= time);
        due.then(|| self.dial())
    }

    pub(super) const fn next(&self) -> Option<Time> {
        if let State::At(time) = self.state { Some(time) } else { None }
    }

    pub(super) const fn awaits(&self, epoch: u64) -> bool {
        epoch == self.epoch && matches!(self.state, State::Trying)
    }

    /// The link has a connection that is good. Returns the attempt that was under way.
    pub(super) fn end(&mut self) -> Option<u64> {
        let state = core::mem::take(&mut self.state);
        (state == State::Trying).then_some(self.epoch)
    }

    /// The attempt failed.
    pub(super) fn failed(&mut self, bounds: &Bounds, now: Time, random: u64) {
        self.failures = self.failures.saturating_add(1);
        self.state = State::At(now.plus(self.pause(bounds, random)));
    }

    /// The open connection broke. An attempt that is under way goes on. Otherwise one starts at
    /// once: most connections break by a restart, and masters restart fast. The exception is a
    /// connection that broke before it answered anything: the next one is likely to break, too.
    pub(super) fn broke(&mut self, bounds: &Bounds, now: Time, random: u64) -> Option<u64> {
        if self.state != State::Idle {
            return None;
        }
        self.failed(bounds, now, random);
        (self.failures == 1).then(|| self.dial())
    }

    /// The open connection works, and may be of no use: an attempt starts beside it, after a pause
    /// if the attempt before was of no use, either.
    pub(super) fn try_beside(&mut self, bounds: &Bounds, now: Time) -> Option<u64> {
        if self.state != State::Idle {
            return None;
        }
        if self.failures == 0 {
            return Some(self.dial());
        }
        // The driver adds jitter to each attempt beside an open connection.
        self.state = State::At(now.plus(self.pause(bounds, 0)));
        None
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// The link gave the open connection up. The next attempt does not start at once: a peer that
    /// sends garbage is likely to do so again.
    pub(super) fn gave_up(&mut self, bounds: &Bounds, now: Time) {
        if self.state == State::Idle {
            self.state = State::At(now.plus(bounds.retry_max));
        }
    }

    /// The pause before the next attempt. It doubles with every failure up to the maximum, and its
    /// upper half is random, so that clients do not come back in step.
    fn pause(&self, bounds: &Bounds, random: u64) -> Duration {
        let doubled = 1_u32.checked_shl(self.failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let full = bounds.retry_min.saturating_mul(doubled).min(bounds.retry_max);
        let half = nanos(full) / 2;
        Duration::from_nanos(half + random % (half + 1))
    }
}
