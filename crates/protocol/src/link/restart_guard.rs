//! Restart guard: the guard of one link. It decides whether grants of the master count, and
//! watches a distrusted master until they do. With a clock bound it goes on watching: a trusted
//! clock can step.
//!
//! [`guard`](crate::guard) has the rules of trust. This module decides when to look, and what to
//! conclude from the replies.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::offsets::Offsets;
use crate::guard::{Distrust, Guard, RunId};
use crate::reading::Reading;
use crate::time::Time;
use crate::vote::{Cause, Reply};
use crate::wire::{Command, ErrorKind, Greeting};

/// How many markers a link remembers that its master no longer shows.
const MAX_SUPERSEDED: usize = 8;

/// How often the link looks at a distrusted master. Another client may have watched it for longer.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct RestartGuard {
    guard: Guard,
    run_id: Option<RunId>,
    durable: bool,
    trust: Trust,
    /// The readings of the master's clock, if the guard watches clocks.
    offsets: Option<Offsets>,
    /// How many probation keys this link has begun. Each has a value of its own.
    probations: u64,
    /// When to look next; `None` while a look is under way, and where none is needed.
    look: Option<Time>,
    /// Markers that the master has shown to this link and then no longer, or in a process that may
    /// have changed data without keeping them. If one comes back in another process, it comes from
    /// older data.
    superseded: Vec<Arc<str>>,
    /// Whether the client permits to mark the master. It sees all masters, and this guard only one.
    may_mark: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Trust {
    /// The master shows this boot marker, and admits the clients of this lock. Grants are made only
    /// while it does. The text is that of a marker [for this lock
    /// alone](Guard::as_admitting_us).
    Marked(Arc<str>),
    Distrusted(Distrust, Option<Probation>),
}

/// A probation key, and since when this link has seen it without a gap.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Probation {
    name: Arc<str>,
    since: Time,
}

impl RestartGuard {
    pub(super) fn new(guard: Guard) -> Self {
        let trust = Trust::Distrusted(Distrust::Unmarked, None);
        let offsets = Offsets::new(guard);
        Self {
            guard,
            run_id: None,
            durable: false,
            trust,
            offsets,
            probations: 0,
            look: None,
            superseded: Vec::new(),
            may_mark: true,
        }
    }

    /// Takes the handshake of a new connection: to the same process or another one, with all of its
    /// data or none.
    ///
    /// A probation goes on in the same process: what the process forgot meanwhile, the probation
    /// key shows at the next look.
    pub(super) fn greeted(&mut self, now: Time, greeting: &Greeting) {
        let is_same = self.run_id.is_some() && self.run_id == greeting.run_id;
        if let Some(offsets) = self.offsets.as_mut().filter(|_| !is_same) {
            offsets.restarted();
        }
        self.run_id.clone_from(&greeting.run_id);
        self.durable = greeting.durable;
        let boot = greeting.boot.clone().map(|boot| self.guard.as_admitting_us(boot));
        self.supersede(boot.as_ref());
        if !is_same {
            self.trust = Trust::Distrusted(Distrust::Unmarked, None);
        }
        let kept = match &self.trust {
            Trust::Distrusted(_, probation) => probation.clone(),
            Trust::Marked(_) => None,
        };
        self.check(greeting.boot.clone(), kept);
        // Look at the clock before any vote, so that a later step is seen.
        let looks = !self.is_trusting() || self.offsets.is_some();
        self.look = looks.then_some(now);
    }

    /// The boot marker that every grant must rely on, or why nothing may be granted at all.
    pub(super) fn marker(&self, now: Time) -> Result<Arc<str>, Cause> {
        match &self.trust {
            Trust::Marked(marker) => match self.offsets.as_ref().and_then(|it| it.stepped(now)) {
                Some((why, left)) => Err(Cause::Distrusted { why, left: Some(left) }),
                None => Ok(marker.clone()),
            },
            Trust::Distrusted(why, probation) => {
                Err(self.cause(now, why.clone(), probation.as_ref()))
            }
        }
    }

    /// What a master must show for an extension of a lease that it has, or why it may not be
    /// extended there.
    pub(super) fn admission(&self) -> Result<Option<Arc<str>>, Cause> {
        match &self.trust {
            Trust::Distrusted(why, _) if why.admits_no_client() => {
                Err(Cause::Distrusted { why: why.clone(), left: None })
            }
            _ => Ok(self.guard.admission()),
        }
    }

    fn cause(&self, now: Time, why: Distrust, probation: Option<&Probation>) -> Cause {
        let quarantine = self.guard.quarantine();
        let passed = probation.map_or(Duration::ZERO, |probation| now.since(probation.since));
        let left = quarantine.saturating_sub(passed);
        // A quarantine that has ended, and does not lead to a marker, does not end by itself.
        let passes = why.passes() && (self.may_mark || !left.is_zero());
        Cause::Distrusted { why, left: passes.then_some(left) }
    }

    /// What the marker says that the master shows: that its grants count, or why they do not.
    pub(super) const fn shown(&self) -> Result<(), &Distrust> {
        match &self.trust {
            Trust::Marked(_) => Ok(()),
            Trust::Distrusted(why, _) => Err(why),
        }
    }

    pub(super) const fn permit_marking(&mut self, permitted: bool) {
        self.may_mark = permitted;
    }

    /// When to look; `None` while a look is under way, and where none is needed.
    pub(super) const fn next_look(&self) -> Option<Time> {
        self.look
    }

    pub(super) fn look(&mut self, now: Time) -> Option<Command> {
        self.look.take_if(|time| now >= *time)?;
        let Trust::Distrusted(why, probation) = &self.trust else {
            // A look at the clock of a trusted master changes nothing there.
            return self.offsets.is_some().then(|| self.watch(None, None));
        };
        // A process without a known run id cannot be marked. One that has the marker of locks with
        // other options must not be. The watch goes on while the client permits no marker: the
        // reason for that may end.
        let watches = self.run_id.is_some() && why.passes();
        let may_mark = watches && self.may_mark;
        let over = |it: &&Probation| may_mark && now >= it.since.plus(self.guard.quarantine());
        let ended = probation.as_ref().filter(over).map(|probation| probation.name.clone());
        self.probations += u64::from(watches);
        let begin = watches.then(|| self.guard.probation(self.probations));
        Some(self.watch(begin, ended))
    }

    fn watch(&self, begin: Option<Arc<str>>, ended: Option<Arc<str>>) -> Command {
        let run_id = self.run_id.clone().unwrap_or_else(|| RunId(Arc::from("")));
        let marker = self.guard.marker(&run_id, self.durable);
        let probation_ms = self.guard.probation_ms();
        Command::Watch { run_id, marker, begin, probation_ms, ended }
    }

    /// Returns a look before its time at a trusted master; `None` for a distrusted one, which has
    /// looks anyway.
    pub(super) fn look_again(&self) -> Option<Command> {
        self.is_trusting().then(|| self.watch(None, None))
    }

    /// Reads the master's clock from a reply, if the guard watches clocks. Returns the reading,
    /// and why a grant that came with it does not count; `None` if it counts.
    pub(super) fn read_clock(
        &mut self,
        now: Time,
        sent: Time,
        micros: u64,
    ) -> Option<(Reading, Option<Cause>)> {
        let offsets = self.offsets.as_mut()?;
        let (reading, fit) = offsets.take(now, Reading::new(sent, now, micros));
        let distrusted = |(why, left)| Cause::Distrusted { why, left: Some(left) };
        Some((reading, fit.err().map(distrusted)))
    }

    pub(super) fn looked(&mut self, now: Time, reply: &Reply) {
        match reply {
            Reply::Marked { boot, probation } => {
                let seen = probation.clone().map(|name| Probation { name, since: now });
                self.check(boot.clone(), seen);
            }
            // A busy master refuses every command for a while. That shows nothing about its data.
            Reply::Unknown(Cause::Error(text))
                if ErrorKind::of(text.as_bytes()) == ErrorKind::Busy => {}
            Reply::Unknown(Cause::Error(text)) => {
                self.trust = Trust::Distrusted(Distrust::Unwatched(text.clone()), None);
            }
            _ => {}
        }
        self.look = match &self.trust {
            // Half a `max_ttl` later, so that one reading is always a little older than the longest
            // lease.
            Trust::Marked(_) => self.offsets.as_ref().map(|offsets| {
                let rest = self.guard.max_ttl() / 2;
                now.plus(if offsets.is_fresh(now) { rest } else { rest.min(LOOK) })
            }),
            Trust::Distrusted(_, probation) => {
                let end = probation.as_ref().map(|it| it.since.plus(self.guard.quarantine()));
                // Do not look again at once if the probation key has ended and the master did not
                // accept it.
                let end = end.filter(|end| *end > now).unwrap_or(Time::NEVER);
                Some(now.plus(LOOK).min(end))
            }
        };
    }

    /// Turns a reply that does not count into unknown. `clock` is a reason, found in the clock that
    /// came with the reply, why a grant does not count.
    pub(super) fn vote(&mut self, now: Time, reply: Reply, clock: Option<Cause>) -> Reply {
        let cause = match &reply {
            Reply::Marked { boot, .. } => Some(self.refused(now, boot.clone())),
            // The key exists, and is cleaned up as any other. `Kept` has a clock only as a reply to
            // a repair, which may have created the key earlier.
            reply if reply.creates() || *reply == Reply::Kept => clock,
            Reply::Alive => self.marker(now).err(),
            _ => None,
        };
        cause.map_or(reply, Reply::Unknown)
    }

    /// Takes the refusal of a grant: the master's marker is not the trusted one. Returns the cause.
    fn refused(&mut self, now: Time, boot: Option<Arc<str>>) -> Cause {
        let shown = boot.clone().map(|boot| self.guard.as_admitting_us(boot));
        if let Trust::Marked(marker) = &self.trust
            && Some(marker) == shown.as_ref()
        {
            // It answers an earlier request, or is garbage: it says nothing new about the master.
            return self.cause(now, Distrust::Forgot, None);
        }
        self.check(boot, None);
        if self.is_trusting() {
            // Another client has watched the master, or initialized it again: only this vote is
            // lost.
            return Cause::Distrusted { why: Distrust::Forgot, left: Some(Duration::ZERO) };
        }
        self.look.get_or_insert(now);
        match &self.trust {
            Trust::Distrusted(why, probation) => self.cause(now, why.clone(), probation.as_ref()),
            Trust::Marked(_) => unreachable!("it was looked at just now"),
        }
    }

    /// Grants count while the master shows this marker.
    pub(super) fn trust(&mut self, marker: Arc<str>) {
        self.trust = Trust::Marked(marker);
        if self.offsets.is_none() {
            self.look = None;
        }
    }

    /// The marker for initializing the master, if it is new.
    pub(super) fn initial_marker(&self) -> Option<Arc<str>> {
        Some(self.guard.marker(self.run_id.as_ref()?, self.durable))
    }

    fn check(&mut self, boot: Option<Arc<str>>, seen: Option<Probation>) {
        let run_id = self.run_id.as_ref();
        let mut checked = self.guard.check(boot.as_deref(), run_id, self.durable);
        let boot = boot.map(|boot| self.guard.as_admitting_us(boot));
        self.supersede(boot.as_ref());
        let run_id = self.run_id.as_ref();
        if checked.is_ok()
            && let Some(boot) = &boot
            && let Some(index) = self.superseded.iter().position(|it| it == boot)
        {
            if self.guard.check(Some(boot), run_id, false).is_ok() {
                // It names this process, so it was written again.
                self.superseded.swap_remove(index);
            } else {
                checked = Err(Distrust::Restarted);
            }
        }
        if let (Err(Distrust::Restarted), Some(boot)) = (&checked, &boot) {
            self.remember(boot.clone());
        }
        let why = match (checked, boot) {
            (Ok(()), Some(boot)) => return self.trust(boot),
            (Ok(()), None) => unreachable!("nothing is no marker"),
            (Err(why), _) => why,
        };
        let (why, before) = match (&mut self.trust, why) {
            (Trust::Marked(_), Distrust::Unmarked) => (Distrust::Forgot, None),
            (Trust::Marked(_), why) => (why, None),
            // While the marker is gone, remember why.
            (Trust::Distrusted(Distrust::Forgot, probation), Distrust::Unmarked) => {
                (Distrust::Forgot, probation.take())
            }
            (Trust::Distrusted(_, probation), why) => (why, probation.take()),
        };
        // If it is the same probation key as before, the master has forgotten nothing in between.
        let same = |before: &Probation| seen.as_ref().is_some_and(|it| it.name == before.name);
        let probation = before.filter(same).or(seen);
        self.trust = Trust::Distrusted(why, probation);
    }

    /// Remembers the trusted marker if the master no longer shows it.
    fn supersede(&mut self, shown: Option<&Arc<str>>) {
        if let Trust::Marked(marker) = &self.trust
            && Some(marker) != shown
        {
            self.remember(marker.clone());
        }
    }

    fn remember(&mut self, marker: Arc<str>) {
        if self.superseded.contains(&marker) {
            return;
        }
        if self.superseded.len() == MAX_SUPERSEDED {
            self.superseded.remove(0);
        }
        self.superseded.push(marker);
        debug_assert!(self.superseded.len() <= MAX_SUPERSEDED, "it grows without a bound");
    }

    const fn is_trusting(&self) -> bool {
        matches!(self.trust, Trust::Marked(_))
    }
}
