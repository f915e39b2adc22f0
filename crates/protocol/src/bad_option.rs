//! The bounds of times, and options that are out of range, with what to do about them.

use core::fmt;
use core::time::Duration;

use crate::quorum::MAX_NODES;

/// The longest name of a connection, in bytes.
pub(crate) const MAX_CLIENT_NAME: usize = 128;

/// The longest name of a holder, in bytes.
pub const MAX_HOLDER_NAME: usize = 40;

/// The longest name of a shard, in bytes.
const MAX_SHARD_NAME: usize = 64;

/// The longest TTL: a day. To hold a lock longer, extend the lease.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest time for which masters keep a fencing counter: ten years.
pub const MAX_FENCING_COUNTER_TTL: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// An option that is out of its range, or two options that do not fit together. The message names
/// the option and a correct value.
#[expect(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum BadOption {
    /// A lock needs at least one master.
    NoMasters,
    /// More masters than a lock can have.
    TooManyMasters { masters: usize },
    /// The lock moves to the masters that it has.
    MovesToItself,
    /// The lock has a name for one of the two sets of a move, and none for the other.
    MoveHalfNamed,
    /// Shards, and masters of no shard.
    MastersBesideShards,
    /// Shards, where one lock is built.
    Sharded,
    /// The name of a shard is empty, too long, or has other characters than letters, digits, `-`,
    /// `_` and `.`.
    ShardName,
    /// Two shards have the same name.
    ShardTwice,
    /// The resource has no name.
    ResourceEmpty,
    /// The name of the resource, with the prefix, starts with `redquorum:`.
    ResourceReserved,
    /// The name of the resource, with the prefix, is too long for a key: in bytes.
    ResourceTooLong { length: usize, longest: usize },
    /// The node timeout is below a millisecond.
    NodeTimeoutTooShort { node_timeout: Duration },
    /// The connect timeout is below the node timeout.
    ConnectTimeoutTooShort { connect_timeout: Duration, node_timeout: Duration },
    /// The TTL is above [`MAX_TTL`].
    TtlTooLong { ttl: Duration },
    /// TTL and lock delay together are above [`MAX_TTL`].
    LockDelayTooLong { ttl: Duration, lock_delay: Duration },
    /// The TTL, with the lock delay, is above the longest TTL on which the guard of this lock
    /// relies.
    TtlAboveGuard { ttl: Duration, lock_delay: Duration, max_ttl: Duration },
    /// The bound of the clock guard is not in whole milliseconds, or not below the longest TTL.
    ClockBound { bound: Duration, max_ttl: Duration },
    /// A clock guard without a guard.
    ClockBoundWithoutGuard,
    /// Nothing would be left of the TTL after the drift, one node timeout and what a clock may gain
    /// unnoticed. The TTL is rounded down to milliseconds.
    TtlBelowClockBound { ttl: Duration, bound: Duration, drift: Duration, node_timeout: Duration },
    /// The drift of this TTL is below the resolution with which Redis expires keys.
    DriftTooSmall { drift: Duration },
    /// The memory of fencing counters is shorter than TTL + lock delay, or above
    /// [`MAX_FENCING_COUNTER_TTL`].
    FencingCounterTtl { memory: Duration, ttl: Duration },
    /// The fixed or first pause between attempts is below a millisecond.
    PauseTooShort { pause: Duration },
    /// The longest pause between attempts is shorter than the first one.
    PausesShrink { initial: Duration, max: Duration },
    /// The multiplier of pauses would make them shorter.
    Multiplier { percent: u32 },
    /// Nothing would be left of the TTL, rounded down to milliseconds, after the drift and one node
    /// timeout.
    TtlTooShort { ttl: Duration, drift: Duration, node_timeout: Duration },
    /// Redis does not take this name for connections, or would not show it as one word.
    ClientName,
    /// The name of the holder is empty, too long, or has control characters.
    HolderName,
    /// An owner asks for a fencing token, but holds the resource without one.
    HeldUnfenced,
    /// An owner asks for an exclusive lease, but holds a shared one.
    HeldShared,
    /// A fencing token for a shared lease.
    SharedFenced,
}

impl fmt::Display for BadOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMasters => f.write_str("no masters given: name at least one, better five"),
            Self::TooManyMasters { masters } => {
                write!(f, "{masters} masters given: at most {MAX_NODES} are supported")
            }
            Self::MovesToItself => f.write_str(
                "`moving_to` names the masters that the lock has: name the new ones, or leave it out",
            ),
            Self::MoveHalfNamed => f.write_str(
                "`masters_id` and `moving_to_id` name the two sets of a move: give both, or neither",
            ),
            Self::MastersBesideShards => f.write_str(
                "masters of no shard: with shards, give the masters of each shard, and none besides",
            ),
            Self::Sharded => f.write_str(
                "the resources are spread over shards: build them by `build_shards`, or give `masters`",
            ),
            Self::ShardName => write!(
                f,
                "the name of a shard must have 1 to {MAX_SHARD_NAME} letters, digits, `-`, `_` or `.`"
            ),
            Self::ShardTwice => f.write_str("two shards have this name: give each one of its own"),
            Self::ResourceEmpty => f.write_str("the resource is empty: name what is to be locked"),
            Self::ResourceReserved => f.write_str(
                "the resource starts with `redquorum:`, as the lock's own keys do: choose another name or \
                 set a prefix",
            ),
            Self::ResourceTooLong { length, longest } => write!(
                f,
                "the resource is too long: {length} bytes with the prefix, at most {longest} are \
                 supported; lock a hash of it instead"
            ),
            Self::NodeTimeoutTooShort { node_timeout } => {
                write!(f, "node timeout of {node_timeout:?} is too short: set at least 1ms")
            }
            Self::ConnectTimeoutTooShort { connect_timeout, node_timeout } => write!(
                f,
                "connect timeout of {connect_timeout:?} is too short: set at least the node \
                 timeout ({node_timeout:?})"
            ),
            Self::TtlTooLong { ttl } => write!(
                f,
                "ttl of {ttl:?} is too long: set at most {MAX_TTL:?} and extend the lease instead"
            ),
            Self::LockDelayTooLong { ttl, lock_delay } => write!(
                f,
                "lock delay of {lock_delay:?} is too long: with the ttl ({ttl:?}) it may be {MAX_TTL:?} at most"
            ),
            Self::TtlAboveGuard { ttl, lock_delay, max_ttl } if !lock_delay.is_zero() => write!(
                f,
                "ttl of {ttl:?} and lock delay of {lock_delay:?} are together above the guard of this lock, {max_ttl:?}, \
                 which is how long masters that may have forgotten are distrusted: set a shorter ttl or lock delay, \
                 or raise the guard on all clients"
            ),
            Self::TtlAboveGuard { ttl, max_ttl, .. } => write!(
                f,
                "ttl of {ttl:?} is above the guard of this lock, {max_ttl:?}, which is how long masters that \
                 may have forgotten are distrusted: set a shorter ttl and extend the lease, or raise \
                 the guard on all clients"
            ),
            Self::ClockBound { bound, max_ttl } => write!(
                f,
                "clock guard of {bound:?} is out of bounds: set at least 1ms and less than the longest \
                 ttl ({max_ttl:?}), better 500ms to 1s"
            ),
            Self::ClockBoundWithoutGuard => f.write_str(
                "clock guard without a guard, whose longest ttl says how long a clock is to be \
                 watched: set the guard, too",
            ),
            Self::TtlBelowClockBound { ttl, bound, drift, node_timeout } => write!(
                f,
                "ttl of {ttl:?} is too short: it must be longer than the clock guard ({bound:?}) + \
                 drift ({drift:?}) + node timeout ({node_timeout:?}); raise the ttl, or lower the \
                 clock guard on all clients"
            ),
            Self::DriftTooSmall { drift } => write!(
                f,
                "drift of {drift:?} is too small: redis expires keys to within 1ms, so allow at \
                 least that"
            ),
            Self::FencingCounterTtl { memory, ttl } => write!(
                f,
                "fencing memory of {memory:?} is out of bounds: set at least the ttl ({ttl:?}), better \
                 weeks, and at most {MAX_FENCING_COUNTER_TTL:?}"
            ),
            Self::PauseTooShort { pause } => write!(
                f,
                "back-off of {pause:?} is too short: set at least 1ms, or waiters keep the masters busy"
            ),
            Self::PausesShrink { initial, max } => write!(
                f,
                "back-off of at most {max:?} is shorter than its first pause ({initial:?}): set a longer \
                 `max` or a shorter `initial`"
            ),
            Self::Multiplier { percent } => write!(
                f,
                "back-off multiplied by {percent} percent shrinks: set at least 100, or 200 to double it"
            ),
            Self::TtlTooShort { ttl, drift, node_timeout } => write!(
                f,
                "ttl of {ttl:?} is too short: it must be longer than drift ({drift:?}) + node \
                 timeout ({node_timeout:?}); raise the ttl or lower the node timeout"
            ),
            Self::ClientName => write!(
                f,
                "a client name must be one word of ASCII letters, digits and signs, of at most \
                 {MAX_CLIENT_NAME} bytes, since Redis refuses others"
            ),
            Self::HolderName => write!(
                f,
                "a holder's name must be text of 1 to {MAX_HOLDER_NAME} bytes without control \
                 characters, since it is a part of every key's value"
            ),
            Self::HeldUnfenced => f.write_str(
                "this owner holds the resource without a fencing token, and a lease gets none later: ask \
                 for one the first time, or release it before",
            ),
            Self::HeldShared => f.write_str(
                "this owner shares the resource with others, and would wait for itself: release the \
                 shared lease before, or ask for an exclusive one the first time",
            ),
            Self::SharedFenced => f.write_str(
                "a shared lease has no fencing token, since its holders do not exclude each other: ask for \
                 an exclusive lease in order to write, or leave the token out",
            ),
        }
    }
}

impl core::error::Error for BadOption {}

/// Checks the name of a shard.
///
/// # Errors
/// [`BadOption::ShardName`].
pub fn check_shard_name(name: &str) -> Result<(), BadOption> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_name = (1..=MAX_SHARD_NAME).contains(&name.len()) && name.chars().all(is_plain);
    is_name.then_some(()).ok_or(BadOption::ShardName)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lives_for_a_day_at_most_and_a_counter_for_ten_years() {
        let day = 86_400;
        assert_eq!(MAX_TTL, Duration::from_secs(day));
        assert_eq!(MAX_FENCING_COUNTER_TTL, Duration::from_secs(3_650 * day));
    }
}
