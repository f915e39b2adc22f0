//! What a resource must do with [fencing tokens](crate::FencedLease), for three kinds of it.
//!
//! Whatever is protected remembers the largest token that it was shown, and asks for three things in
//! this order:
//!
//! 1. **present**: the token is remembered if none larger was; else the caller is refused;
//! 2. **read**: only for the token that is remembered;
//! 3. **write**: only for the token that is remembered.
//!
//! It is not enough that writes come with rising tokens. A holder reads and is paused; the next one reads;
//! the first writes, with a token that nobody has exceeded *in a write*; the second writes what it made of
//! the old value, and an update is lost. That is why the token is presented before the read, and why
//! reads and writes ask for equality.
//!
//! * In this process: [`Register`].
//! * In Redis (another one than the masters of the lock, or one of them): [`REDIS_PRESENT`],
//!   [`REDIS_READ`], [`REDIS_WRITE`].
//! * In a database with SQL: `docs/fencing.md`, and `examples/fenced_sqlite.rs`.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The resource was shown a token that is not the largest: somebody else has been granted the lease
/// since. Or one that was never presented. Whatever the holder was about to do must be given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stale {
    /// The token that was shown.
    pub shown: u64,
    /// The largest that was presented.
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

/// A value in this process that obeys fencing tokens.
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
    /// A register to which nothing was presented.
    pub const fn new(value: T) -> Self {
        Self { state: Mutex::new(State { largest: 0, value }) }
    }

    /// Shows a token, before anything else. The same one may be presented again.
    ///
    /// # Errors
    /// [`Stale`] if a larger one was presented.
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

    /// Puts another value in its place.
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
        // Nothing panics while it is held but a `Clone` of the caller's, which changes nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Presents the token `ARGV[1]` to the resource in the hash `KEYS[1]`, field `fence`. Answers 1, or 0 if a
/// larger one was presented.
pub const REDIS_PRESENT: &str = "\
local largest = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
if tonumber(ARGV[1]) < largest then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
return 1
";

/// Reads the field `value` of the hash `KEYS[1]` under the token `ARGV[1]`. Answers `{1, value}`, or `{0}`
/// unless this token was presented, and no larger one since.
pub const REDIS_READ: &str = "\
if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then return {0} end
return {1, redis.call('HGET', KEYS[1], 'value')}
";

/// Writes `ARGV[2]` to the field `value` of the hash `KEYS[1]` under the token `ARGV[1]`. Answers 1, or 0
/// unless this token was presented, and no larger one since.
pub const REDIS_WRITE: &str = "\
if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'value', ARGV[2])
return 1
";
