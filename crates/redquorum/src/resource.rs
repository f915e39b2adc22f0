//! How a resource must check [fencing tokens](crate::Lease::fencing_token), for three kinds of
//! resources.
//!
//! The resource remembers the largest token that it was shown. Its clients do three things in this
//! order:
//!
//! 1. **present**: the resource stores the token if none larger was stored; else it refuses the
//!    client;
//! 2. **read**: the resource accepts only the stored token;
//! 3. **write**: the resource accepts only the stored token.
//!
//! It is not enough to accept writes with rising tokens only. A holder reads and is paused. The
//! next holder reads. The first holder writes: no larger token was seen *in a write*, so the
//! resource accepts it. The second holder writes a value that it computed from the old one, and an
//! update is lost. That is why the client presents the token before it reads, and why reads and
//! writes need the equal token.
//!
//! * In this process: [`Register`].
//! * In Redis, one of the masters of the lock or another: [`REDIS_PRESENT`], [`REDIS_READ`],
//!   [`REDIS_WRITE`].
//! * In a database with SQL:
//!   [`docs/fencing.md`](https://github.com/redquorum/redquorum/blob/main/docs/fencing.md), and
//!   `examples/billing_service.rs`.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The resource was shown a token that is not the stored one. Either a larger token was presented
/// since, because another client has been granted the lease, or this one was never presented. The
/// holder must give up what it was about to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stale {
    /// The token that was shown.
    pub shown: u64,
    /// The largest token that was presented.
    pub largest: u64,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shown > self.largest {
            let Self { shown, .. } = self;
            write!(f, "fencing token {shown} was not presented before it was used")
        } else {
            let Self { shown, largest } = self;
            write!(f, "fencing token {shown} is stale: {largest} was presented since")
        }
    }
}

impl std::error::Error for Stale {}

/// A value in this process that checks fencing tokens.
///
/// ```
/// use redquorum::resource::Register;
///
/// let balance = Register::new(100);
/// balance.present(33)?;
/// let read = balance.read(33)?;
/// balance.present(34)?; // the next holder
/// assert!(balance.write(33, read + 1).is_err());
/// # Ok::<(), redquorum::resource::Stale>(())
/// ```
#[derive(Debug, Default)]
pub struct Register<T> {
    state: Mutex<State<T>>,
}

#[derive(Debug, Default)]
struct State<T> {
    largest: u64,
    value: T,
}

impl<T> Register<T> {
    /// A register to which no token was presented yet.
    pub const fn new(value: T) -> Self {
        Self { state: Mutex::new(State { largest: 0, value }) }
    }

    /// Presents a token, before anything else. The same token may be presented again.
    ///
    /// # Errors
    /// [`Stale`] if a larger token was presented.
    pub fn present(&self, token: u64) -> Result<(), Stale> {
        let mut state = self.lock();
        if token < state.largest {
            return Err(Stale { shown: token, largest: state.largest });
        }
        state.largest = token;
        Ok(())
    }

    /// The value.
    ///
    /// # Errors
    /// [`Stale`] unless this token was presented, and no larger one since.
    pub fn read(&self, token: u64) -> Result<T, Stale>
    where
        T: Clone,
    {
        Ok(self.admitted(token)?.value.clone())
    }

    /// Replaces the value.
    ///
    /// # Errors
    /// [`Stale`] unless this token was presented, and no larger one since.
    pub fn write(&self, token: u64, value: T) -> Result<(), Stale> {
        self.admitted(token)?.value = value;
        Ok(())
    }

    fn admitted(&self, token: u64) -> Result<MutexGuard<'_, State<T>>, Stale> {
        let state = self.lock();
        if state.largest == token {
            Ok(state)
        } else {
            Err(Stale { shown: token, largest: state.largest })
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Only a `Clone` of the caller's type can panic while the lock is held, and it changes
        // nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Presents the token `ARGV[1]` to the resource in the hash `KEYS[1]`, field `fence`. Returns 1, or
/// 0 if a larger one was presented.
pub const REDIS_PRESENT: &str = "\
local largest = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
if tonumber(ARGV[1]) < largest then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
return 1
";

/// Reads the field `value` of the hash `KEYS[1]` under the token `ARGV[1]`. Returns `{1, value}`,
/// or `{0}` unless this token was presented, and no larger one since.
pub const REDIS_READ: &str = "\
if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then return {0} end
return {1, redis.call('HGET', KEYS[1], 'value')}
";

/// Writes `ARGV[2]` to the field `value` of the hash `KEYS[1]` under the token `ARGV[1]`. Returns
/// 1, or 0 unless this token was presented, and no larger one since.
pub const REDIS_WRITE: &str = "\
if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'value', ARGV[2])
return 1
";
