//! Guard: how a lock protects itself from masters that forget.
//!
//! A master that forgets a key would let a rival in while the first holder still believes that it
//! holds. No lease is granted or extended for longer than `max_ttl`. So every lease that a master
//! may have forgotten is over at most one `max_ttl` later. A master counts for grants only while it
//! shows a *boot marker*. The marker is a key that names the server process. It says that a client
//! has watched this process remember for a whole *quarantine*.
//!
//! * Three events make a master distrusted. A restart gives the process another run id. `FLUSHALL`
//!   removes the marker. A replica that takes over has the marker of its master.
//! * A client watches a master with a *probation key*, whose value is used only once. A client that
//!   has seen the same value for a whole quarantine knows that the master forgot nothing in
//!   between, and may replace the probation key by the marker. A watch by the clock alone is not
//!   enough: a marker can come and go between two looks, and leaves no trace of leases that were
//!   granted under it.
//! * A master stays trusted over a restart if its marker and its settings both say that it syncs
//!   every write: such a master forgets nothing by a restart.
//!
//! A master whose *clock* jumps ahead drops keys too early, although it forgets nothing. With a
//! clock bound ([`Guard::with_clock_bound`]) the guard also watches the clock: `link/offsets.rs`.
//!
//! The marker also has the [`Fingerprint`] of the set of masters. Another fingerprint means that
//! this lock shares a master with other locks, but not all masters, so that two quorums need not
//! meet. Such a vote is not only unknown: it [refuses](crate::Cause::refuses) the whole attempt.
//!
//! [`link`](crate::Link) has the rules for the votes of a distrusted master. `docs/safety.md` has
//! the reasons, and `docs/reference.md` the faults that the guard sees and those that it does not
//! see.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use crate::bad_option::{BadOption, MAX_TTL};
use crate::fingerprint::Fingerprint;
use crate::lock_config::Drift;
use crate::time::millis;

/// The guard adds this to the longest lease and its drift: the resolution by which operators
/// measure.
const RESERVE: Duration = Duration::from_secs(2);

/// The longest marker that the guard accepts, in bytes.
pub(crate) const MAX_MARKER: usize = 256;

/// The word in the marker of a master that was seen to sync every write.
const DURABLE: &str = "always";

/// The prefix of the word for a clock bound. The bound in milliseconds follows.
const CLOCK: &str = "clock=";
/// The prefix of the word for the set of masters. Its fingerprint follows.
const MASTERS_ID: &str = "masters=";

/// The identity of a master's process, from `INFO server`. It changes with every restart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunId(pub Arc<str>);

/// How a lock protects itself from masters that forget. Made by [`Guard::new`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Guard {
    max_ttl: Duration,
    quarantine: Duration,
    clock: Option<Duration>,
    salt: u64,
    masters_id: Option<Fingerprint>,
}

impl Guard {
    /// A guard for locks whose leases never have a longer TTL than `max_ttl`, whichever client
    /// takes them.
    ///
    /// `salt` is a random number: probation keys of different links must have different values.
    ///
    /// # Errors
    /// [`BadOption::TtlTooLong`] if `max_ttl` is above the longest TTL.
    pub fn new(max_ttl: Duration, drift: Drift, salt: u64) -> Result<Self, BadOption> {
        if max_ttl > MAX_TTL {
            return Err(BadOption::TtlTooLong { ttl: max_ttl });
        }
        // `MAX_TTL` bounds it, so whole milliseconds fit. It is rounded as TTLs are.
        let max_ttl = Duration::from_millis(millis(max_ttl));
        let quarantine = max_ttl.saturating_add(drift.of(max_ttl)).saturating_add(RESERVE);
        Ok(Self { max_ttl, quarantine, clock: None, salt, masters_id: None })
    }

    /// Returns the guard with a clock bound: it also distrusts a master whose clock may have gained
    /// more than `bound` while a lease can have been alive.
    ///
    /// A smaller gain is not noticed, so every lease ends earlier by `bound`
    /// ([`LockConfig::with_clock_bound`](crate::LockConfig::with_clock_bound)). The bound must be
    /// the same for all clients, and the marker contains it. It is rounded down to milliseconds.
    ///
    /// # Errors
    /// [`BadOption::ClockBound`] unless 1 ms ≤ `bound` < `max_ttl`.
    pub fn with_clock_bound(self, bound: Duration) -> Result<Self, BadOption> {
        if bound < Duration::from_millis(1) || bound >= self.max_ttl {
            return Err(BadOption::ClockBound { bound, max_ttl: self.max_ttl });
        }
        let bound = Duration::from_millis(millis(bound));
        Ok(Self { clock: Some(bound), ..self })
    }

    /// How much a master's clock may gain unnoticed; `None` if the guard does not watch clocks.
    pub const fn clock_bound(self) -> Option<Duration> {
        self.clock
    }

    /// How long ago the oldest lease that is alive can have begun: `max_ttl` plus its drift.
    pub const fn window(self) -> Duration {
        self.quarantine.saturating_sub(RESERVE)
    }

    /// Returns the guard of a lock over this set of masters: it distrusts a marker for another set,
    /// or for none. Without a set, the guard ignores the set of a marker, and writes none into its
    /// own.
    #[must_use]
    pub const fn over(self, masters_id: Fingerprint) -> Self {
        Self { masters_id: Some(masters_id), ..self }
    }

    /// The longest TTL.
    pub const fn max_ttl(self) -> Duration {
        self.max_ttl
    }

    /// How long a master must be seen to remember: `max_ttl` plus its drift and 2 s.
    pub const fn quarantine(self) -> Duration {
        self.quarantine
    }

    /// The value of a probation key: never the same twice.
    pub(crate) fn probation(self, count: u64) -> Arc<str> {
        Arc::from(format!("{:016x}.{count}", self.salt))
    }

    /// How long the master keeps a probation key that no client ends.
    pub(crate) fn probation_ms(self) -> u64 {
        millis(self.quarantine).saturating_mul(2)
    }

    /// The marker for a master of this process; `durable` has the meaning that it has in
    /// [`check`](Self::check).
    pub fn marker(self, run_id: &RunId, durable: bool) -> Arc<str> {
        let masters_id = self.masters_id.map(|id| format!(" {MASTERS_ID}{id}"));
        let durable = durable.then(|| format!(" {DURABLE}"));
        let clock = self.clock.map(|bound| format!(" {CLOCK}{}", bound.as_millis()));
        let words: String = [masters_id, durable, clock].into_iter().flatten().collect();
        Arc::from(format!("{} {}{words}", run_id.0, self.max_ttl.as_millis()))
    }

    /// Checks whether a master of this process with this marker is trusted. `durable` means that
    /// the master says that it syncs every write.
    ///
    /// # Errors
    /// Why the master is distrusted.
    pub fn check(
        self,
        boot: Option<&str>,
        run_id: Option<&RunId>,
        durable: bool,
    ) -> Result<(), Distrust> {
        // A client could not mark the master as this process, either.
        let else_if_named = |why| Err(if run_id.is_none() { Distrust::Nameless } else { why });
        let Some(boot) = boot.filter(|text| !text.is_empty()) else {
            return else_if_named(Distrust::Unmarked);
        };
        let Some(marker) = Marker::read(boot) else { return else_if_named(Distrust::Garbled) };
        // First, because only this reason refuses the whole attempt: locks over other masters may
        // have another guard as well.
        if let Some(ours) = self.masters_id.filter(|_| marker.masters_id != self.masters_id) {
            return Err(Distrust::OtherMasters { marked: marker.masters_id, ours });
        }
        if marker.max_ttl != self.max_ttl {
            return Err(Distrust::OtherMaxTtl { marked: marker.max_ttl, ours: self.max_ttl });
        }
        if marker.clock != self.clock {
            return Err(Distrust::OtherClockBound { marked: marker.clock, ours: self.clock });
        }
        match run_id {
            Some(run_id) if marker.run_id == &*run_id.0 => Ok(()),
            _ if durable && marker.durable => Ok(()),
            _ => else_if_named(Distrust::Restarted),
        }
    }
}

/// The content of a marker. Further words are for later versions, and are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Marker<'a> {
    run_id: &'a str,
    max_ttl: Duration,
    durable: bool,
    clock: Option<Duration>,
    masters_id: Option<Fingerprint>,
}

impl<'a> Marker<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let mut words = text.split(' ');
        let (run_id, max_ttl) = (words.next()?, words.next()?.parse().ok()?);
        let max_ttl = Duration::from_millis(max_ttl);
        let mut marker = Self { run_id, max_ttl, durable: false, clock: None, masters_id: None };
        for word in words {
            if word == DURABLE {
                marker.durable = true;
            } else if let Some(bound) = word.strip_prefix(CLOCK) {
                marker.clock = Some(Duration::from_millis(bound.parse().ok()?));
            } else if let Some(masters_id) = word.strip_prefix(MASTERS_ID) {
                marker.masters_id = Fingerprint::read(masters_id);
            }
        }
        (!run_id.is_empty()).then_some(marker)
    }
}

/// The set of masters that a marker was made for, if the marker names one.
pub fn masters_id_of(marker: &str) -> Option<Fingerprint> {
    Marker::read(marker)?.masters_id
}

/// Why a master is distrusted: its grants do not count.
#[expect(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Distrust {
    /// It has no marker: it is new, or was restarted without its data.
    Unmarked,
    /// Its marker was there, and is now gone or another one. It was flushed, evicts keys, or took
    /// over another master's data.
    Forgot,
    /// Its marker is of another process, and it is not known to sync every write. It was restarted,
    /// or is a replica that took over.
    Restarted,
    /// The value of its marker is not a marker.
    Garbled,
    /// It has the marker of a lock with another `max_ttl` than this lock's.
    OtherMaxTtl { marked: Duration, ours: Duration },
    /// It has the marker of a lock with another clock bound, or only one of the two locks has a
    /// bound.
    OtherClockBound { marked: Option<Duration>, ours: Option<Duration> },
    /// Its clock has gained more than the bound, by this much at least, and may have ended leases
    /// too early.
    ClockStepped { by: Duration },
    /// Its reply was too slow to exclude that its clock has gained more than the bound: by this
    /// much at most.
    ClockUnclear { gained: Duration },
    /// Its clock was not watched for long enough, and may be ahead of another master's by more than
    /// half of the bound: by this much at most.
    ClockAhead { by: Duration },
    /// It has the marker of a lock over another set of masters, or of none, as those of early
    /// versions.
    OtherMasters { marked: Option<Fingerprint>, ours: Fingerprint },
    /// Permissions forbid `INFO`, so its process cannot be distinguished from another one.
    Nameless,
    /// It cannot be watched: it replied with this error.
    Unwatched(Arc<str>),
}

impl Distrust {
    /// Whether the distrust passes by itself, after a quarantine.
    pub const fn passes(&self) -> bool {
        !matches!(
            self,
            Self::OtherMaxTtl { .. }
                | Self::OtherClockBound { .. }
                | Self::OtherMasters { .. }
                | Self::Nameless
        )
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
            Self::Garbled => f.write_str(
                "the value of `redquorum:boot` is no marker: find out what wrote it, and delete it",
            ),
            Self::OtherMaxTtl { marked, ours } => write!(
                f,
                "its marker is of locks with a guard of {marked:?}, and this lock has {ours:?}: give \
                 all clients the same, then delete `redquorum:boot` where it is wrong"
            ),
            Self::OtherClockBound { marked, ours } => write!(
                f,
                "its marker is of locks with {}, and this lock has {}: give all clients the same, then \
                 delete `redquorum:boot` where it is wrong",
                ClockBound(*marked),
                ClockBound(*ours)
            ),
            Self::ClockStepped { by } => write!(
                f,
                "its clock stepped ahead by {by:.1?}, so leases may have ended too early there: let NTP \
                 slew the clocks of masters"
            ),
            Self::ClockUnclear { gained } => write!(
                f,
                "it answered too slowly to tell that its clock is steady: it may have gained \
                 {gained:.1?}"
            ),
            Self::ClockAhead { by } => write!(
                f,
                "its clock may be ahead of another master's by {by:.1?}, and was not watched for long \
                 enough to tell whether it stepped: keep the clocks of masters in step"
            ),
            Self::OtherMasters { marked, ours } => {
                if let Some(marked) = marked {
                    write!(f, "its marker is of locks over other masters ({marked})")?;
                } else {
                    f.write_str("its marker does not say over which masters its locks are")?;
                }
                write!(
                    f,
                    ", and this lock is over {ours}: give all clients the same list of masters, spelled \
                     alike, or one `masters_id`; if the list was changed on purpose, stop the old clients, \
                     then delete `redquorum:boot` where it is wrong"
                )
            }
            Self::Nameless => {
                f.write_str("INFO is forbidden, so a restart cannot be seen: allow +info")
            }
            Self::Unwatched(text) => write!(f, "it cannot be watched: {text}"),
        }
    }
}

/// A bound in a message.
struct ClockBound(Option<Duration>);

impl fmt::Display for ClockBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bound) => write!(f, "a clock guard of {bound:?}"),
            None => f.write_str("no clock guard"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_secs(30);

    fn check(boot: &str, durable: bool) -> Result<(), Distrust> {
        let guard = Guard::new(MAX, Drift::default(), 1).unwrap();
        guard.check(Some(boot), Some(&RunId(Arc::from("a"))), durable)
    }

    #[test]
    fn a_marker_is_trusted_of_this_process_or_where_every_write_is_synced_then_and_now() {
        assert_eq!(check("a 30000", false), Ok(()));
        assert_eq!(check("a 30000 always what=later", false), Ok(()));
        assert_eq!(check("b 30000 always", true), Ok(()));
        assert_eq!(check("b 30000 always", false), Err(Distrust::Restarted));
        // What counts is whether it synced before the restart, not whether it does so since.
        assert_eq!(check("b 30000", true), Err(Distrust::Restarted));
    }

    #[test]
    fn its_own_marker_is_read_back() {
        let plain = Guard::new(MAX, Drift::default(), 1).unwrap();
        let run_id = RunId(Arc::from("a"));
        let clock = plain.with_clock_bound(Duration::from_millis(500)).unwrap();
        let named = Fingerprint::of_name("f");
        for guard in [plain, clock, plain.over(named), clock.over(named)] {
            for durable in [false, true] {
                let marker = guard.marker(&run_id, durable);
                assert!(marker.len() <= MAX_MARKER);
                assert_eq!(guard.check(Some(&marker), Some(&run_id), false), Ok(()), "{marker}");
                assert_eq!(masters_id_of(&marker), guard.masters_id);
                let other = Some(&RunId(Arc::from("b")));
                assert_eq!(guard.check(Some(&marker), other, true).is_ok(), durable);
            }
        }
    }

    #[test]
    fn a_marker_of_another_set_of_masters_is_not_trusted_however_long_it_is_watched() {
        let ours = Fingerprint::of_name("ours");
        let guard = Guard::new(MAX, Drift::default(), 1).unwrap().over(ours);
        let check = |boot: &str, run_id| {
            guard.check(Some(boot), Some(&RunId(Arc::from(run_id))), true).unwrap_err()
        };
        let theirs = Fingerprint::of_name("theirs");
        // Of this process or another, durable or not, with any words around it.
        for boot in [
            format!("a 30000 masters={theirs}"),
            format!("a 30000 always masters={theirs} what=later"),
            format!("a 30000 what=later masters={theirs} always"),
        ] {
            for run_id in ["a", "b"] {
                let why = check(&boot, run_id);
                assert_eq!(why, Distrust::OtherMasters { marked: Some(theirs), ours });
                assert!(!why.passes());
                let text = format!("{why}");
                for part in
                    [&*format!("{theirs}"), &format!("{ours}"), "`masters_id`", "`redquorum:boot`"]
                {
                    assert!(text.contains(part), "{part}: {text}");
                }
            }
        }
        // A marker of an earlier version, and two without a valid fingerprint.
        for boot in ["a 30000", "a 30000 masters=x", "a 30000 masters="] {
            let why = check(boot, "a");
            assert_eq!(why, Distrust::OtherMasters { marked: None, ours }, "{boot}");
            assert!(format!("{why}").contains("does not say"), "{why}");
        }
    }

    #[test]
    fn a_marker_of_locks_that_look_at_clocks_otherwise_is_not_trusted() {
        let plain = Guard::new(MAX, Drift::default(), 1).unwrap();
        let ms = Duration::from_millis;
        let bounds = [None, Some(ms(500)), Some(ms(1000))];
        let run_id = RunId(Arc::from("a"));
        for (ours, marked) in bounds.iter().flat_map(|ours| bounds.map(|marked| (*ours, marked))) {
            let of = |bound: Option<Duration>| {
                bound.map_or(plain, |bound| plain.with_clock_bound(bound).unwrap())
            };
            let marker = of(marked).marker(&run_id, true);
            let wrong = Distrust::OtherClockBound { marked, ours };
            let wanted = if ours == marked { Ok(()) } else { Err(wrong) };
            assert_eq!(of(ours).check(Some(&marker), Some(&run_id), true), wanted, "{marker}");
        }
        assert_eq!(check("a 30000 clock=x", true), Err(Distrust::Garbled));
    }

    #[test]
    fn a_clock_bound_is_at_least_a_millisecond_and_below_the_longest_lease() {
        let guard = Guard::new(MAX, Drift::default(), 1).unwrap();
        let (ms, ns) = (Duration::from_millis(1), Duration::from_nanos(1));
        for (bound, is_allowed) in
            [(Duration::ZERO, false), (ms - ns, false), (ms, true), (MAX - ns, true), (MAX, false)]
        {
            assert_eq!(guard.with_clock_bound(bound).is_ok(), is_allowed, "{bound:?}");
        }
    }
}
