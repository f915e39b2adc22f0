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
//! While a lock moves to other masters, a marker names the clients that its master
//! [admits](Admitted). The marker changes from step to step of the move, but the process and its
//! memory do not. So a client looks at the marker [as it would be for this
//! client](Guard::as_admitting_us) alone. Grants, repairs and extensions are refused by a master
//! that does not admit the client: else a lease of the old masters could be extended for ever.
//!
//! [`link`](crate::Link) has the rules for the votes of a distrusted master. `docs/safety.md` has
//! the reasons, and `docs/reference.md` the faults that the guard sees and those that it does not
//! see.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::bad_option::{BadOption, MAX_TTL};
use crate::fingerprint::{Admitted, Fingerprint, MastersId};
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
    masters_id: Option<MastersId>,
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

    /// Returns the guard of a lock over these masters: it distrusts a marker that does not admit
    /// its clients. Without masters, the guard ignores those of a marker, and writes none into its
    /// own.
    #[must_use]
    pub const fn over(self, masters_id: MastersId) -> Self {
        Self { masters_id: Some(masters_id), ..self }
    }

    /// The masters that the lock is over, if it compares them.
    pub const fn masters_id(self) -> Option<MastersId> {
        self.masters_id
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

    /// The marker as it would be if it admitted the clients of this lock alone. A marker that does
    /// not admit them stays as it is.
    pub(crate) fn as_admitting_us(self, marker: Arc<str>) -> Arc<str> {
        let Some(ours) = self.masters_id else { return marker };
        match Marker::read(&marker).and_then(|it| it.admitted) {
            Some(admitted) if admitted.admits(ours) => {
                Arc::from(with_admitted(&marker, Admitted::only(ours)))
            }
            _ => marker,
        }
    }

    /// What a master must admit for an extension, as a part of a marker.
    pub(crate) fn admission(self) -> Option<Arc<str>> {
        Some(Arc::from(format!("- {MASTERS_ID}{}", self.masters_id?)))
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
        if let Some(ours) = self.masters_id
            && !marker.admitted.is_some_and(|admitted| admitted.admits(ours))
        {
            let marked = marker.admitted;
            let is_step = |admitted: Admitted| {
                let moves = |it: &MastersId| matches!(it, MastersId::Moving { .. });
                let theirs = admitted.each().find(moves);
                let one_move = theirs.is_some() != moves(&ours);
                one_move && admitted.each().any(|each| each.is_related_to(ours))
            };
            return Err(match marked.filter(|it| is_step(*it)) {
                Some(marked) => Distrust::OtherStep { marked, ours },
                None => Distrust::OtherMasters { marked, ours },
            });
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
    admitted: Option<Admitted>,
}

impl<'a> Marker<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let mut words = text.split(' ');
        let (run_id, max_ttl) = (words.next()?, words.next()?.parse().ok()?);
        let max_ttl = Duration::from_millis(max_ttl);
        let mut marker = Self { run_id, max_ttl, durable: false, clock: None, admitted: None };
        for word in words {
            if word == DURABLE {
                marker.durable = true;
            } else if let Some(bound) = word.strip_prefix(CLOCK) {
                marker.clock = Some(Duration::from_millis(bound.parse().ok()?));
            } else if let Some(admitted) = word.strip_prefix(MASTERS_ID) {
                marker.admitted = Admitted::read(admitted);
            }
        }
        (!run_id.is_empty()).then_some(marker)
    }
}

/// The clients that a marker admits, if it names any.
pub fn admitted_by(marker: &str) -> Option<Admitted> {
    Marker::read(marker)?.admitted
}

/// This marker of a master, for these clients instead of those that it admits. The process and its
/// memory are the same.
pub fn with_admitted(marker: &str, admitted: Admitted) -> String {
    let words = marker.split(' ').map(|word| match word.starts_with(MASTERS_ID) {
        true => format!("{MASTERS_ID}{admitted}"),
        false => String::from(word),
    });
    words.collect::<Vec<_>>().join(" ")
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
    OtherMasters { marked: Option<Admitted>, ours: MastersId },
    /// It is at a step of a move to other masters at which it does not admit this lock's clients.
    OtherStep { marked: Admitted, ours: MastersId },
    /// Permissions forbid `INFO`, so its process cannot be distinguished from another one.
    Nameless,
    /// It cannot be watched: it replied with this error.
    Unwatched(Arc<str>),
}

impl Distrust {
    /// Whether the master does not admit this lock's clients, not even for the leases that they
    /// have.
    pub const fn admits_no_client(&self) -> bool {
        matches!(self, Self::OtherMasters { .. } | Self::OtherStep { .. })
    }

    /// Whether the distrust passes by itself, after a quarantine.
    pub const fn passes(&self) -> bool {
        !matches!(
            self,
            Self::OtherMaxTtl { .. }
                | Self::OtherClockBound { .. }
                | Self::OtherMasters { .. }
                | Self::OtherStep { .. }
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
            Self::OtherStep { marked, ours } => {
                write!(f, "its marker admits only {marked}, and this lock is over {ours}: ")?;
                let admits = |set| marked.admits(MastersId::Of(set));
                f.write_str(match *ours {
                    MastersId::Moving { from, .. } if admits(from) => {
                        "the move has not begun there: run `redquorum masters begin`"
                    }
                    MastersId::Moving { .. } => {
                        "the move is over there: build the lock over the new masters alone"
                    }
                    MastersId::Of(set) if marked.each().any(|it| leaves(it, set)) => {
                        "the masters are being replaced: build the lock with `moving_to`, too"
                    }
                    MastersId::Of(_) => {
                        "the move to these masters is not so far: see `redquorum masters plan`"
                    }
                })
            }
            Self::Nameless => {
                f.write_str("INFO is forbidden, so a restart cannot be seen: allow +info")
            }
            Self::Unwatched(text) => write!(f, "it cannot be watched: {text}"),
        }
    }
}

/// Whether clients of these masters move away from this set.
fn leaves(masters_id: MastersId, set: Fingerprint) -> bool {
    matches!(masters_id, MastersId::Moving { from, .. } if from == set)
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
        let named = MastersId::Of(Fingerprint::of_name("f"));
        for guard in [plain, clock, plain.over(named), clock.over(named)] {
            for durable in [false, true] {
                let marker = guard.marker(&run_id, durable);
                assert!(marker.len() <= MAX_MARKER);
                assert_eq!(guard.check(Some(&marker), Some(&run_id), false), Ok(()), "{marker}");
                assert_eq!(admitted_by(&marker), guard.masters_id.map(Admitted::only));
                let other = Some(&RunId(Arc::from("b")));
                assert_eq!(guard.check(Some(&marker), other, true).is_ok(), durable);
            }
        }
    }

    #[test]
    fn a_marker_of_another_set_of_masters_is_not_trusted_however_long_it_is_watched() {
        let ours = MastersId::Of(Fingerprint::of_name("ours"));
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
                let marked = Some(Admitted::only(MastersId::Of(theirs)));
                assert_eq!(why, Distrust::OtherMasters { marked, ours });
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
    fn a_master_admits_the_clients_of_a_step_and_its_marker_is_the_same_to_each() {
        let [from, to, third] = ["a", "b", "c"].map(Fingerprint::of_name);
        let plain = Guard::new(MAX, Drift::default(), 1).unwrap();
        let run_id = RunId(Arc::from("r"));
        let clients = [MastersId::Of(from), MastersId::Moving { from, to }, MastersId::Of(to)];
        for (client, admitted_at) in clients.into_iter().zip([0..=1, 1..=3, 3..=4]) {
            let guard = plain.over(client);
            for step in 0..=4 {
                let admitted = Admitted::at_step(step, from, to);
                let marker = with_admitted(&guard.marker(&run_id, true), admitted);
                assert_eq!(admitted_by(&marker), Some(admitted));
                let checked = guard.check(Some(&marker), Some(&run_id), true);
                let shown = guard.as_admitting_us(Arc::from(&*marker));
                if admitted_at.contains(&step) {
                    assert_eq!((checked, shown), (Ok(()), guard.marker(&run_id, true)));
                    continue;
                }
                assert_eq!(&*shown, marker);
                let why = checked.unwrap_err();
                assert!(why.admits_no_client() && !why.passes());
                // Without a hint of a move, these may be masters of other locks.
                let is_step = !matches!((client, step), (MastersId::Of(_), 0 | 4));
                assert_eq!(matches!(why, Distrust::OtherStep { .. }), is_step, "{why}");
            }
            let other = Admitted::at_step(1, from, third);
            let marker = with_admitted(&guard.marker(&run_id, true), other);
            let checked = guard.check(Some(&marker), Some(&run_id), true);
            assert_eq!(checked.is_ok(), client == MastersId::Of(from));
        }
        let of = |client, step| {
            let (marked, ours) = (Admitted::at_step(step, from, to), client);
            format!("{}", Distrust::OtherStep { marked, ours })
        };
        for (client, step, hint) in [
            (clients[1], 0, "`redquorum masters begin`"),
            (clients[1], 4, "over the new masters alone"),
            (clients[0], 2, "`moving_to`"),
            (clients[2], 1, "not so far"),
        ] {
            assert!(of(client, step).contains(hint), "{}", of(client, step));
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
