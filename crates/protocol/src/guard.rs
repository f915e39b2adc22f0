//! Guard: what a lock does about masters that forget.
//!
//! A master that forgets a key would let a rival in while the first holder still believes. What it
//! may have forgotten is over one `max_ttl` later at the latest: no lease is granted or extended
//! for longer. So a master counts for grants only while it shows a *marker*, a key that says of which
//! process it is, and that somebody has watched this process remember for a whole *quarantine*.
//!
//! * A restart gives the process another run id, `FLUSHALL` takes the marker away, and a replica
//!   that takes over has the marker of its master: in each case it is distrusted.
//! * Watching is done with a key of its own, the *vigil*, which holds a name that is given once.
//!   Whoever has seen the same vigil for a whole quarantine knows that nothing was forgotten
//!   between, and may turn it into the marker. A watch by the clock alone would not do: a marker that
//!   comes and goes while one looks away leaves no trace of leases that were granted under it.
//! * One that says with its marker and its settings that it syncs every write forgets nothing by a
//!   restart, and keeps its trust.
//!
//! What becomes of a distrusted master's votes stands in [`link`](crate::Link); `docs/safety.md`
//! has what this defends, and what remains.

use alloc::format;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use crate::link::RunId;
use crate::terms::{BadOption, Drift, MAX_TTL};

/// What is added to the longest lease and its drift: the resolution of what operators measure by.
const RESERVE: Duration = Duration::from_secs(2);

/// The longest marker that is taken for one, in bytes.
pub(crate) const MAX_MARKER: usize = 256;

/// The word of a marker whose master was seen to sync every write.
const DURABLE: &str = "always";

/// How a lock guards itself against masters that forget. Made by [`Guard::new`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Guard {
    max_ttl: Duration,
    quarantine: Duration,
    salt: u64,
}

impl Guard {
    /// A guard for locks whose leases never have a longer TTL than `max_ttl`, whoever takes them.
    ///
    /// `salt` is a random number: vigils of different links must have different names.
    ///
    /// # Errors
    /// [`BadOption::TtlTooLong`] if `max_ttl` is above the longest TTL.
    pub fn new(max_ttl: Duration, drift: Drift, salt: u64) -> Result<Self, BadOption> {
        if max_ttl > MAX_TTL {
            return Err(BadOption::TtlTooLong { ttl: max_ttl });
        }
        // Bounded by MAX_TTL, so whole milliseconds fit. Rounded as TTLs are.
        let max_ttl = Duration::from_millis(u64::try_from(max_ttl.as_millis()).unwrap_or(u64::MAX));
        let quarantine = max_ttl.saturating_add(drift.of(max_ttl)).saturating_add(RESERVE);
        Ok(Self { max_ttl, quarantine, salt })
    }

    /// The longest TTL.
    pub const fn max_ttl(self) -> Duration {
        self.max_ttl
    }

    /// How long a master must be seen to remember: `max_ttl` + its drift + 2 s.
    pub const fn quarantine(self) -> Duration {
        self.quarantine
    }

    /// The name of a vigil: never the same twice.
    pub(crate) fn vigil(self, count: u64) -> Arc<str> {
        Arc::from(format!("{:016x}.{count}", self.salt))
    }

    /// How long a vigil is kept that nobody ends.
    pub(crate) fn vigil_ms(self) -> u64 {
        u64::try_from(self.quarantine.as_millis()).unwrap_or(u64::MAX).saturating_mul(2)
    }

    /// What a master of this process is to be marked with; `durable` as in [`judge`](Self::judge).
    pub fn marker(self, run_id: &RunId, durable: bool) -> Arc<str> {
        let durable = if durable { " always" } else { "" };
        Arc::from(format!("{} {}{durable}", run_id.0, self.max_ttl.as_millis()))
    }

    /// Whether a master with this marker, of this process, is to be trusted; `durable`: it says that it
    /// syncs every write.
    ///
    /// # Errors
    /// Why not.
    pub fn judge(
        self,
        boot: Option<&str>,
        run_id: Option<&RunId>,
        durable: bool,
    ) -> Result<(), Distrust> {
        // It could not be marked as this process, either.
        let else_if_named = |why| Err(if run_id.is_none() { Distrust::Nameless } else { why });
        let Some(boot) = boot.filter(|text| !text.is_empty()) else {
            return else_if_named(Distrust::Unmarked);
        };
        let Some(marker) = Marker::read(boot) else { return else_if_named(Distrust::Garbled) };
        if marker.max_ttl != self.max_ttl {
            return Err(Distrust::OtherMaxTtl { marked: marker.max_ttl, ours: self.max_ttl });
        }
        match run_id {
            Some(run_id) if marker.run_id == &*run_id.0 => Ok(()),
            _ if durable && marker.durable => Ok(()),
            _ => else_if_named(Distrust::Restarted),
        }
    }
}

/// What a marker says. Words behind those that are known are for later versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Marker<'a> {
    run_id: &'a str,
    max_ttl: Duration,
    durable: bool,
}

impl<'a> Marker<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let mut words = text.split(' ');
        let (run_id, max_ttl) = (words.next()?, words.next()?.parse().ok()?);
        let durable = words.any(|word| word == DURABLE);
        let max_ttl = Duration::from_millis(max_ttl);
        (!run_id.is_empty()).then_some(Self { run_id, max_ttl, durable })
    }
}

/// Why a master is distrusted: what it grants does not count.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Distrust {
    /// It has no marker: it is new, or was restarted without its data.
    Unmarked,
    /// Its marker was there, and is gone or another one: it was flushed, or evicts keys, or took
    /// over another's data.
    Forgot,
    /// Its marker is of another process, and it is not known to sync every write: it was restarted, or
    /// is a replica that took over.
    Restarted,
    /// Its marker is not one.
    Garbled,
    /// It has the marker of a lock with another `max_ttl`.
    OtherMaxTtl {
        /// What the marker says.
        marked: Duration,
        /// What this lock says.
        ours: Duration,
    },
    /// Permissions forbid `INFO`, so its process cannot be told from another.
    Nameless,
    /// It cannot be watched: it answered with this error.
    Unwatched(Arc<str>),
}

impl Distrust {
    /// Whether it passes by itself, after a quarantine.
    pub const fn passes(&self) -> bool {
        !matches!(self, Self::OtherMaxTtl { .. } | Self::Nameless)
    }
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmarked => f.write_str("it has no marker, as a new or an empty master has none"),
            Self::Forgot => f.write_str("its marker has changed: it was flushed, or evicts keys"),
            Self::Restarted => {
                f.write_str("it was restarted, or took over, and may have forgotten leases")
            }
            Self::Garbled => f.write_str("its marker `redquorum:boot` is not one"),
            Self::OtherMaxTtl { marked, ours } => write!(
                f,
                "its marker is of locks with a guard of {marked:?}, and this lock has {ours:?}: give \
                 all clients the same, then delete `redquorum:boot` where it is wrong"
            ),
            Self::Nameless => {
                f.write_str("INFO is forbidden, so a restart cannot be seen: allow +info")
            }
            Self::Unwatched(text) => write!(f, "it cannot be watched: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_secs(30);

    fn judge(boot: &str, durable: bool) -> Result<(), Distrust> {
        let guard = Guard::new(MAX, Drift::default(), 1).unwrap();
        guard.judge(Some(boot), Some(&RunId(Arc::from("a"))), durable)
    }

    #[test]
    fn a_quarantine_outlives_the_longest_lease_with_its_drift() {
        let guard = Guard::new(MAX, Drift::default(), 1).unwrap();
        assert_eq!(guard.quarantine(), MAX + Drift::default().of(MAX) + RESERVE);
        assert!(Guard::new(MAX_TTL + Duration::from_millis(1), Drift::default(), 1).is_err());
    }

    #[test]
    fn a_marker_is_trusted_of_this_process_or_where_every_write_is_synced_then_and_now() {
        assert_eq!(judge("a 30000", false), Ok(()));
        assert_eq!(judge("a 30000 always what=later", false), Ok(()));
        assert_eq!(judge("b 30000 always", true), Ok(()));
        assert_eq!(judge("b 30000 always", false), Err(Distrust::Restarted));
        // Whether it synced before the restart is what counts, not whether it does since.
        assert_eq!(judge("b 30000", true), Err(Distrust::Restarted));
    }

    #[test]
    fn what_is_no_marker_is_not_trusted() {
        for garbled in ["a", " 30000", "a -1", "a 1e4", "a  30000"] {
            assert_eq!(judge(garbled, true), Err(Distrust::Garbled), "{garbled}");
        }
        assert_eq!(judge("", true), Err(Distrust::Unmarked));
        assert!(matches!(judge("a 10000", true), Err(Distrust::OtherMaxTtl { .. })));
    }

    #[test]
    fn its_own_marker_is_read_back() {
        let guard = Guard::new(MAX, Drift::default(), 1).unwrap();
        let run_id = RunId(Arc::from("a"));
        for durable in [false, true] {
            let marker = guard.marker(&run_id, durable);
            assert_eq!(guard.judge(Some(&marker), Some(&run_id), false), Ok(()));
        }
    }
}
