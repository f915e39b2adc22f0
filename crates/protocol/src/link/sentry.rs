//! Sentry: whether the master of a connection is trusted with grants, and the watch until it is.
//! With a clock bound the watch goes on: a clock that is trusted can step.
//!
//! What makes a master trusted stands in [`guard`](crate::guard). Here is when to look, and what
//! to make of what it says.

use alloc::sync::Arc;
use core::time::Duration;

use super::RunId;
use super::offsets::Offsets;
use crate::guard::{Distrust, Guard};
use crate::reading::Reading;
use crate::time::Time;
use crate::vote::{Answer, Cause};
use crate::wire::{Command, Greeting};

/// How often a distrusted master is looked at: somebody else may have watched it for longer.
const LOOK: Duration = Duration::from_secs(1);

/// The guard of one link.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Sentry {
    guard: Guard,
    run_id: Option<RunId>,
    durable: bool,
    trust: Trust,
    /// What was seen of its clock, if the guard looks at it.
    offsets: Option<Offsets>,
    /// How many vigils were begun: each has a name of its own.
    vigils: u64,
    /// When to look next; `None` while a look is under way, and where none is needed.
    look: Option<Time>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Trust {
    /// It shows this marker: grants are made only while it does.
    Marked(Arc<str>),
    Distrusted(Distrust, Option<Vigil>),
}

/// A vigil, and since when it was seen without a gap.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Vigil {
    name: Arc<str>,
    since: Time,
}

impl Sentry {
    pub(super) fn new(guard: Guard) -> Self {
        let trust = Trust::Distrusted(Distrust::Unmarked, None);
        let offsets = Offsets::new(guard);
        Self { guard, run_id: None, durable: false, trust, offsets, vigils: 0, look: None }
    }

    /// A new connection: to the same process or another, with all that it knew or nothing.
    pub(super) fn greeted(&mut self, now: Time, greeting: &Greeting) {
        let is_same = self.run_id.is_some() && self.run_id == greeting.run_id;
        if let Some(offsets) = self.offsets.as_mut().filter(|_| !is_same) {
            offsets.restarted();
        }
        self.run_id.clone_from(&greeting.run_id);
        self.durable = greeting.durable;
        self.trust = Trust::Distrusted(Distrust::Unmarked, None);
        self.judge(greeting.boot.clone(), None);
        // A clock is looked at before any vote, so that a step is seen that comes after.
        let looks = !self.is_trusting() || self.offsets.is_some();
        self.look = looks.then_some(now);
    }

    /// The marker without which nothing is to be granted, or why nothing is granted at all.
    pub(super) fn marker(&self, now: Time) -> Result<Arc<str>, Cause> {
        match &self.trust {
            Trust::Marked(marker) => match self.offsets.as_ref().and_then(|it| it.stepped(now)) {
                Some((why, left)) => Err(Cause::Distrusted { why, left: Some(left) }),
                None => Ok(marker.clone()),
            },
            Trust::Distrusted(why, vigil) => Err(self.cause(now, why.clone(), vigil.as_ref())),
        }
    }

    fn cause(&self, now: Time, why: Distrust, vigil: Option<&Vigil>) -> Cause {
        let quarantine = self.guard.quarantine();
        let passed = vigil.map_or(Duration::ZERO, |vigil| now.since(vigil.since));
        let left = why.passes().then_some(quarantine.saturating_sub(passed));
        Cause::Distrusted { why, left }
    }

    /// When to look, unless it is looking.
    pub(super) const fn next_look(&self) -> Option<Time> {
        self.look
    }

    /// The look, if it is due.
    pub(super) fn look(&mut self, now: Time) -> Option<Command> {
        self.look.take_if(|time| now >= *time)?;
        let Trust::Distrusted(why, vigil) = &self.trust else { return self.look_at_clock() };
        // Without its name a process cannot be marked, and with another's marker must not be.
        let watches = self.run_id.is_some() && why.passes();
        let begin = if watches {
            self.vigils += 1;
            Some(self.guard.vigil(self.vigils))
        } else {
            None
        };
        let quarantine = self.guard.quarantine();
        let ended = vigil.as_ref().filter(|vigil| watches && now >= vigil.since.plus(quarantine));
        let ended = ended.map(|vigil| vigil.name.clone());
        let run_id = self.run_id.clone().unwrap_or_else(|| RunId(Arc::from("")));
        let marker = self.guard.marker(&run_id, self.durable);
        let vigil_ms = self.guard.vigil_ms();
        Some(Command::Watch { run_id, marker, begin, vigil_ms, ended })
    }

    /// A look before its time at a master that is trusted; `None` at one that is not, which is
    /// looked at anyway.
    pub(super) fn look_again(&self) -> Option<Command> {
        self.is_trusting().then(|| self.bare_look())
    }

    fn look_at_clock(&self) -> Option<Command> {
        self.offsets.is_some().then(|| self.bare_look())
    }

    /// The look at a master that is trusted: nothing of it is changed.
    fn bare_look(&self) -> Command {
        let run_id = self.run_id.clone().unwrap_or_else(|| RunId(Arc::from("")));
        let marker = self.guard.marker(&run_id, self.durable);
        let vigil_ms = self.guard.vigil_ms();
        Command::Watch { run_id, marker, begin: None, vigil_ms, ended: None }
    }

    /// What an answer told of the master's clock, if that matters, and whether a grant that came with it
    /// counts.
    pub(super) fn read_clock(
        &mut self,
        now: Time,
        sent: Time,
        micros: u64,
    ) -> Option<(Reading, Result<(), Cause>)> {
        let offsets = self.offsets.as_mut()?;
        let (reading, fit) = offsets.take(now, Reading::new(sent, now, micros));
        let distrusted = |(why, left)| Cause::Distrusted { why, left: Some(left) };
        Some((reading, fit.map_err(distrusted)))
    }

    /// What a look was answered.
    pub(super) fn looked(&mut self, now: Time, answer: &Answer) {
        match answer {
            Answer::Marked { boot, vigil } => {
                self.judge(boot.clone(), vigil.clone().map(|name| Vigil { name, since: now }));
            }
            Answer::Unknown(Cause::Error(text)) => {
                self.trust = Trust::Distrusted(Distrust::Unwatched(text.clone()), None);
            }
            _ => {}
        }
        if let Trust::Marked(_) = &self.trust {
            // Half a lease later, so that there is always one that is a little older than a lease.
            let rest = self.guard.max_ttl() / 2;
            self.look = self
                .offsets
                .as_ref()
                .map(|offsets| now.plus(if offsets.is_fresh(now) { rest } else { rest.min(LOOK) }));
        }
        if let Trust::Distrusted(_, vigil) = &self.trust {
            let end = vigil.as_ref().map(|vigil| vigil.since.plus(self.guard.quarantine()));
            // Not again at once where the end has come and the master would not have it.
            let end = end.filter(|end| *end > now).unwrap_or(Time::NEVER);
            self.look = Some(now.plus(LOOK).min(end));
        }
    }

    /// A grant was refused since the marker is not the one that was trusted. Says why.
    pub(super) fn refused(&mut self, now: Time, boot: Option<Arc<str>>) -> Cause {
        if let Trust::Marked(marker) = &self.trust
            && Some(marker) == boot.as_ref()
        {
            // An answer to an earlier question, or nonsense: nothing is known anew.
            return self.cause(now, Distrust::Forgot, None);
        }
        self.judge(boot, None);
        if self.is_trusting() {
            // Somebody else has watched it, or marked it anew: only this vote is lost.
            return Cause::Distrusted { why: Distrust::Forgot, left: Some(Duration::ZERO) };
        }
        self.look.get_or_insert(now);
        match &self.trust {
            Trust::Distrusted(why, vigil) => self.cause(now, why.clone(), vigil.as_ref()),
            Trust::Marked(_) => unreachable!("it was looked at just now"),
        }
    }

    /// It was marked as new.
    pub(super) fn blessed(&mut self, marker: Arc<str>) {
        self.trust(marker);
    }

    fn trust(&mut self, marker: Arc<str>) {
        self.trust = Trust::Marked(marker);
        if self.offsets.is_none() {
            self.look = None;
        }
    }

    /// What it would be marked with if it were new.
    pub(super) fn blessing(&self) -> Option<Arc<str>> {
        Some(self.guard.marker(self.run_id.as_ref()?, self.durable))
    }

    fn judge(&mut self, boot: Option<Arc<str>>, seen: Option<Vigil>) {
        match (self.guard.judge(boot.as_deref(), self.run_id.as_ref(), self.durable), boot) {
            (Ok(()), Some(boot)) => self.trust(boot),
            (Ok(()), None) => unreachable!("nothing is no marker"),
            (Err(why), _) => {
                let (why, before) = match &mut self.trust {
                    Trust::Marked(_) if why == Distrust::Unmarked => (Distrust::Forgot, None),
                    // Why the marker is gone is remembered while it is.
                    Trust::Distrusted(before, vigil) => match (before, why) {
                        (Distrust::Forgot, Distrust::Unmarked) => (Distrust::Forgot, vigil.take()),
                        (_, why) => (why, vigil.take()),
                    },
                    Trust::Marked(_) => (why, None),
                };
                // The same vigil as before: nothing was forgotten between.
                let vigil = match (before, seen) {
                    (Some(before), Some(seen)) if before.name == seen.name => Some(before),
                    (_, seen) => seen,
                };
                self.trust = Trust::Distrusted(why, vigil);
            }
        }
    }

    const fn is_trusting(&self) -> bool {
        matches!(self.trust, Trust::Marked(_))
    }
}
