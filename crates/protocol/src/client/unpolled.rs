//! Requests whose callers do not look at them, for example futures that were polled once and then
//! not again.
//!
//! **The rule: every state that is not at rest has an instant at which the client itself acts.** At
//! rest, masters keep nothing of a request, and no other request waits for it. The other states are
//! left at these instants, whether or not the caller looks:
//!
//! | a request | until | then |
//! |---|---|---|
//! | asks masters for anything | the leeway after its round | it is set aside |
//! | has won | its lease must be collected | it gives the lease up, and is set aside |
//! | waits, and others wait behind it | the leeway after its next look | it is set aside |
//! | waits, and has positions in queues | these lapse | it is set aside |
//! | holds a lease | its deadline or the end of a round | the lease is lost, or the round ends |
//! | has a handle not taken by its caller | the leeway after its last change | it gives it back |
//!
//! A request that is set aside undoes what it has on masters, as if it were cancelled, and passes
//! its turn on. It goes on with another attempt when its caller looks again.

use alloc::boxed::Box;
use core::time::Duration;

use super::{ClaimId, ClaimMachine, Client, Context, Entry, State};
use crate::claim::{Claim, Input};
use crate::link::Link;
use crate::time::Time;
use crate::wire::LAPSE_MS;

/// The shortest delay after which a caller that does not look at its request counts as
/// unresponsive.
const LEEWAY: Duration = Duration::from_millis(500);

/// How late a caller may look at its request and still count as responsive. Computed once: each
/// reply asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Leeway {
    half: Duration,
    whole: Duration,
}

impl Leeway {
    pub(super) fn of(node_timeout: Duration) -> Self {
        let whole = node_timeout.saturating_mul(4).max(LEEWAY);
        Self { half: whole / 2, whole }
    }

    pub(super) fn after(self, time: Time) -> Time {
        time.plus(self.whole)
    }

    fn half_after(self, time: Time) -> Time {
        time.plus(self.half)
    }
}

impl<C: ClaimMachine> Entry<C, C::Seed> {
    /// The claim that receives replies.
    pub(super) fn machine(&mut self) -> Option<&mut C> {
        match &mut self.state {
            State::Claim(claim) => Some(claim),
            _ => self.aside.as_deref_mut(),
        }
    }

    /// The instant at which the client acts on this request by itself. `None` at rest.
    pub(super) fn ends_at(&self, leeway: Leeway, clocks: C::Clocks) -> Option<Time> {
        let end = match &self.state {
            State::Extending(..) | State::Reentered(_) => {
                let since =
                    if self.waits { self.changed.max(C::now(clocks)) } else { self.changed };
                leeway.after(since)
            }
            State::Claim(claim) => match claim.claim() {
                Claim::Holding(hold) if hold.lost().is_none() => {
                    claim.by_now(clocks, hold.next_end())
                }
                Claim::Acquiring(acquire) if acquire.is_won() => claim.next_wake(clocks),
                Claim::Acquiring(acquire) if acquire.is_waiting() => {
                    let waits = self.queued || acquire.waiter().is_some();
                    let looks = claim.next_wake(clocks).max(C::now(clocks));
                    if waits { leeway.after(looks) } else { Time::NEVER }
                }
                Claim::Acquiring(acquire) if acquire.failure().is_none() => {
                    // In two steps: a process that stood still gives its callers time to look.
                    self.overdue.unwrap_or_else(|| leeway.half_after(claim.next_wake(clocks)))
                }
                _ => Time::NEVER,
            },
            _ => Time::NEVER,
        };
        Some(end).filter(|end| *end != Time::NEVER)
    }

    /// Whether masters keep nothing of it that must end, and no request waits for it by itself. The
    /// request ahead of a queued one has an end.
    fn is_at_rest(&self) -> bool {
        match &self.state {
            State::Waiting | State::Queued | State::Refused(_) | State::Over(..) => {
                !self.holds_turn()
            }
            State::Extending(..) | State::Reentered(_) => false,
            State::Claim(claim) => match claim.claim() {
                Claim::Acquiring(acquire) => acquire.is_at_rest() && !self.holds_turn(),
                Claim::Holding(hold) => hold.lost().is_some(),
                // Its clean-ups are in the ledgers of the links, which have ends of their own.
                Claim::Releasing(_) | Claim::Ended => true,
            },
        }
    }

    /// Whether its turn in the local queue may have come, so that others wait for it.
    const fn holds_turn(&self) -> bool {
        self.queued && !matches!(self.state, State::Queued)
    }
}

impl<C: ClaimMachine> Client<C> {
    /// The next instant at which the client acts by itself, whatever callers do. The driver calls
    /// [`wake_link`](Client::wake_link) and [`wake_leases`](Client::wake_leases) by then.
    ///
    /// Every request that is not at rest has such an instant; debug builds check that here, for the
    /// whole client.
    pub fn acts_at(&self) -> Time {
        debug_assert!(self.claims.keys().all(|id| self.ends_by_itself(*id)));
        debug_assert!(self.queues.started().all(|id| self.has_end(id)), "a queue waits for ever");
        let links = self.links.iter().map(Link::next_wake);
        links.min().unwrap_or(Time::NEVER).min(self.leases_wake_at())
    }

    /// Whether a request is at rest, or the client acts on it at some instant.
    pub(super) fn ends_by_itself(&self, id: ClaimId) -> bool {
        !C::ENDS || self.claims.get(&id).is_none_or(|entry| entry.is_at_rest() || self.has_end(id))
    }

    fn has_end(&self, id: ClaimId) -> bool {
        !C::ENDS || self.claims.get(&id).is_some_and(|entry| entry.timer.end.is_some())
    }

    /// Sets the timers of a request.
    pub(super) fn set_timers(&mut self, id: ClaimId, cx: &Context<'_, C>) {
        if let Some(entry) = self.claims.get_mut(&id) {
            self.timers.set(id, entry, self.leeway, cx);
        }
    }

    /// The instant of a request has come: see [`Entry::ends_at`].
    pub(super) fn end_is_due(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        let (now, leeway) = (cx.now(), self.leeway);
        let Some(entry) = self.claims.get_mut(&id) else { return };
        entry.timer.end = None;
        let next_wake = match &entry.state {
            State::Claim(claim) => claim.next_wake(cx.clocks),
            _ => entry.changed,
        };
        match &entry.state {
            State::Extending(lease, _) | State::Reentered(lease) => {
                let lease = *lease;
                if !entry.waits && now >= leeway.after(next_wake) {
                    return self.return_handle(id, lease, State::Waiting, cx);
                }
            }
            State::Claim(claim) => match claim.claim() {
                Claim::Acquiring(acquire) if acquire.is_won() => {
                    if now >= next_wake {
                        self.drive(id, Input::Wake, cx);
                        return self.set_aside(id, cx);
                    }
                }
                Claim::Acquiring(acquire) if acquire.is_waiting() => {
                    let lapsed = now >= next_wake.plus(Duration::from_millis(LAPSE_MS));
                    let late = now >= leeway.after(next_wake) && self.others_wait(id);
                    if lapsed || late {
                        return self.set_aside(id, cx);
                    }
                }
                Claim::Acquiring(_) => match entry.overdue {
                    _ if now < leeway.half_after(next_wake) => entry.overdue = None,
                    None => entry.overdue = Some(leeway.half_after(now)),
                    Some(until) if now < until => {}
                    Some(_) => return self.set_aside(id, cx),
                },
                _ => return self.drive(id, Input::Wake, cx),
            },
            _ => {}
        }
        self.set_timers(id, cx);
    }

    /// Whether other requests of this process wait for a request.
    fn others_wait(&self, id: ClaimId) -> bool {
        let queued =
            |entry: &Entry<C, C::Seed>| entry.queued && self.queues.has_others(&entry.key, id);
        self.claims.get(&id).is_some_and(|entry| queued(entry)) || self.owner_waits_for(id)
    }

    /// The caller of a request does not look at it: other requests, of this process and of others,
    /// go first. The request goes on without a turn when its caller looks again.
    pub(super) fn set_aside(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        self.drive(id, Input::Yield, cx);
        self.vacate(id, cx);
        let Some(entry) = self.claims.get_mut(&id) else { return };
        entry.overdue = None;
        let State::Claim(claim) = &entry.state else { return };
        let waits = matches!(claim.claim(), Claim::Acquiring(acquire) if acquire.is_waiting());
        if waits
            && entry.request.reentry.is_some()
            && let State::Claim(claim) = core::mem::replace(&mut entry.state, State::Waiting)
        {
            // Another request of the owner may get the lease. Then this one gets a handle of it.
            entry.aside = Some(Box::new(claim));
            self.leave_owner(id, cx);
            self.changed(id, cx);
        }
        self.set_timers(id, cx);
    }

    /// Goes on with the claim of a request that was set aside. Returns whether it has one.
    pub(super) fn resume(&mut self, id: ClaimId, cx: &mut Context<'_, C>) -> bool {
        let Some(entry) = self.claims.get_mut(&id) else { return false };
        let Some(claim) = entry.aside.take() else { return false };
        entry.state = State::Claim(*claim);
        self.drive(id, Input::Wake, cx);
        true
    }
}
