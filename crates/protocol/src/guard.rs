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
//! A master whose *clock* jumps ahead drops keys too early, and does not forget by it. With a clock bound
//! ([`Guard::with_clock_bound`]) its clock is watched, too: `link/offsets.rs`.
//!
//! The marker also has the [`Fingerprint`] of the set of masters. One that has another says that this
//! lock and others share a master and not all of them, so that two quorums need not meet: such a vote is no
//! mere unknown, it [refuses](crate::Cause::refuses) the whole attempt.
//!
//! What becomes of a distrusted master's votes stands in [`link`](crate::Link); `docs/safety.md`
//! has what this defends, and what remains.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use crate::fingerprint::Fingerprint;
use crate::link::RunId;
use crate::terms::{BadOption, Drift, MAX_TTL};

/// What is added to the longest lease and its drift: the resolution of what operators measure by.
const RESERVE: Duration = Duration::from_secs(2);

/// The longest marker that is taken for one, in bytes.
pub(crate) const MAX_MARKER: usize = 256;

/// The word of a marker whose master was seen to sync every write.
const DURABLE: &str = "always";

/// How the word starts of a marker whose locks look at clocks, before the bound in milliseconds.
const CLOCK: &str = "clock=";
/// What the word of a marker begins with that tells for which set of masters it was made.
const FLEET: &str = "fleet=";

/// How a lock guards itself against masters that forget. Made by [`Guard::new`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Guard {
    max_ttl: Duration,
    quarantine: Duration,
    clock: Option<Duration>,
    salt: u64,
    fleet: Option<Fingerprint>,
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
        Ok(Self { max_ttl, quarantine, clock: None, salt, fleet: None })
    }

    /// The same guard, which also distrusts masters whose clocks may have gained more than `bound` while
    /// a lease can have been alive.
    ///
    /// What they gain less is not noticed, so `bound` is deducted from every lease
    /// ([`Terms::with_clock_bound`](crate::Terms::with_clock_bound)): it must be the same for all clients,
    /// and stands in the marker. Rounded down to milliseconds.
    ///
    /// # Errors
    /// [`BadOption::ClockBound`] unless 1 ms ≤ `bound` < `max_ttl`.
    pub fn with_clock_bound(self, bound: Duration) -> Result<Self, BadOption> {
        if bound < Duration::from_millis(1) || bound >= self.max_ttl {
            return Err(BadOption::ClockBound { bound, max_ttl: self.max_ttl });
        }
        let bound = Duration::from_millis(u64::try_from(bound.as_millis()).unwrap_or(u64::MAX));
        Ok(Self { clock: Some(bound), ..self })
    }

    /// What a master's clock may gain unnoticed, if clocks are looked at.
    pub const fn clock_bound(self) -> Option<Duration> {
        self.clock
    }

    /// How long ago the oldest lease may have begun that is alive: `max_ttl` + its drift.
    pub const fn window(self) -> Duration {
        self.quarantine.saturating_sub(RESERVE)
    }

    /// The same guard of a lock over this set of masters: a marker for another set, or for none, is not
    /// trusted. Without it, markers say nothing of the set and are not asked.
    #[must_use]
    pub const fn over(self, fleet: Fingerprint) -> Self {
        Self { fleet: Some(fleet), ..self }
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
        let fleet = self.fleet.map_or_else(String::new, |fleet| format!(" {FLEET}{fleet}"));
        let durable = if durable { " always" } else { "" };
        let clock = self.clock.map(|bound| format!(" {CLOCK}{}", bound.as_millis()));
        let clock = clock.unwrap_or_default();
        Arc::from(format!("{} {}{fleet}{durable}{clock}", run_id.0, self.max_ttl.as_millis()))
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
        if marker.clock != self.clock {
            return Err(Distrust::OtherClockBound { marked: marker.clock, ours: self.clock });
        }
        if let Some(ours) = self.fleet.filter(|_| marker.fleet != self.fleet) {
            return Err(Distrust::OtherFleet { marked: marker.fleet, ours });
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
    clock: Option<Duration>,
    fleet: Option<Fingerprint>,
}

impl<'a> Marker<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let mut words = text.split(' ');
        let (run_id, max_ttl) = (words.next()?, words.next()?.parse().ok()?);
        let max_ttl = Duration::from_millis(max_ttl);
        let mut marker = Self { run_id, max_ttl, durable: false, clock: None, fleet: None };
        for word in words {
            if word == DURABLE {
                marker.durable = true;
            } else if let Some(bound) = word.strip_prefix(CLOCK) {
                marker.clock = Some(Duration::from_millis(bound.parse().ok()?));
            } else if let Some(fleet) = word.strip_prefix(FLEET) {
                marker.fleet = Fingerprint::read(fleet);
            }
        }
        (!run_id.is_empty()).then_some(marker)
    }
}

/// The set of masters that a marker was made for, if it says so.
pub fn fleet_of(marker: &str) -> Option<Fingerprint> {
    Marker::read(marker)?.fleet
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
    /// It has the marker of a lock with another clock bound, or with none where this one has one.
    OtherClockBound {
        /// What the marker says.
        marked: Option<Duration>,
        /// What this lock says.
        ours: Option<Duration>,
    },
    /// Its clock has gained more than the bound, and may have ended leases too early.
    ClockStepped {
        /// By how much at least.
        by: Duration,
    },
    /// Its answer was too slow to tell that its clock has not.
    ClockUnclear {
        /// By how much at most.
        gained: Duration,
    },
    /// Its clock was not watched for long enough, and may be ahead of another master's by more than half
    /// of the bound.
    ClockAhead {
        /// By how much at most.
        by: Duration,
    },
    /// It has the marker of a lock over another set of masters.
    OtherFleet {
        /// What the marker says; nothing, if it was made before markers said so.
        marked: Option<Fingerprint>,
        /// What this lock says.
        ours: Fingerprint,
    },
    /// Permissions forbid `INFO`, so its process cannot be told from another.
    Nameless,
    /// It cannot be watched: it answered with this error.
    Unwatched(Arc<str>),
}

impl Distrust {
    /// Whether it passes by itself, after a quarantine.
    pub const fn passes(&self) -> bool {
        !matches!(
            self,
            Self::OtherMaxTtl { .. }
                | Self::OtherClockBound { .. }
                | Self::OtherFleet { .. }
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
            Self::OtherFleet { marked, ours } => {
                if let Some(marked) = marked {
                    write!(f, "its marker is of locks over other masters ({marked})")?;
                } else {
                    f.write_str("its marker does not say over which masters its locks are")?;
                }
                write!(
                    f,
                    ", and this lock is over {ours}: give all clients the same list of masters, spelled \
                     alike, or one `fleet` name; if the list was changed on purpose, stop the old clients, \
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
        let plain = Guard::new(MAX, Drift::default(), 1).unwrap();
        let run_id = RunId(Arc::from("a"));
        let clock = plain.with_clock_bound(Duration::from_millis(500)).unwrap();
        let named = Fingerprint::of_name("f");
        for guard in [plain, clock, plain.over(named), clock.over(named)] {
            for durable in [false, true] {
                let marker = guard.marker(&run_id, durable);
                assert!(marker.len() <= MAX_MARKER);
                assert_eq!(guard.judge(Some(&marker), Some(&run_id), false), Ok(()), "{marker}");
                assert_eq!(fleet_of(&marker), guard.fleet);
                let other = Some(&RunId(Arc::from("b")));
                assert_eq!(guard.judge(Some(&marker), other, true).is_ok(), durable);
            }
        }
    }

    #[test]
    fn a_marker_of_another_set_of_masters_is_not_trusted_however_long_it_is_watched() {
        let ours = Fingerprint::of_name("ours");
        let guard = Guard::new(MAX, Drift::default(), 1).unwrap().over(ours);
        let judge = |boot: &str, run_id| {
            guard.judge(Some(boot), Some(&RunId(Arc::from(run_id))), true).unwrap_err()
        };
        let theirs = Fingerprint::of_name("theirs");
        // Of this process or another, durable or not, whatever stands around it.
        for boot in [
            format!("a 30000 fleet={theirs}"),
            format!("a 30000 always fleet={theirs} what=later"),
            format!("a 30000 what=later fleet={theirs} always"),
        ] {
            for run_id in ["a", "b"] {
                let why = judge(&boot, run_id);
                assert_eq!(why, Distrust::OtherFleet { marked: Some(theirs), ours });
                assert!(!why.passes());
                let text = format!("{why}");
                for part in
                    [&*format!("{theirs}"), &format!("{ours}"), "`fleet`", "`redquorum:boot`"]
                {
                    assert!(text.contains(part), "{part}: {text}");
                }
            }
        }
        // One of an earlier version, and one that is no fingerprint.
        for boot in ["a 30000", "a 30000 fleet=x", "a 30000 fleet="] {
            let why = judge(boot, "a");
            assert_eq!(why, Distrust::OtherFleet { marked: None, ours }, "{boot}");
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
            assert_eq!(of(ours).judge(Some(&marker), Some(&run_id), true), wanted, "{marker}");
        }
        assert_eq!(judge("a 30000 clock=x", true), Err(Distrust::Garbled));
    }

    #[test]
    fn a_clock_bound_is_whole_milliseconds_below_the_longest_lease() {
        let guard = Guard::new(MAX, Drift::default(), 1).unwrap();
        let bound = |bound| guard.with_clock_bound(bound).map(Guard::clock_bound);
        assert_eq!(bound(Duration::from_micros(1_999)), Ok(Some(Duration::from_millis(1))));
        for wrong in [Duration::ZERO, Duration::from_micros(999), MAX, Duration::MAX] {
            assert!(matches!(bound(wrong), Err(BadOption::ClockBound { .. })), "{wrong:?}");
        }
        assert_eq!(guard.window(), MAX + Drift::default().of(MAX));
    }
}
