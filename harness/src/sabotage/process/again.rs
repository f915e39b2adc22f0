//! Again: a client that acquires what it holds, and the handles that it has then. As the library does it.

use redquorum_protocol::Input;

use super::super::lease::{Asked, Lease, Whose};
use super::{Around, Process};
use crate::talk::Why;

/// What an acquire asks for.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Wanted {
    /// 0: what the options say, and the deadline of a lease that is held stands.
    pub(in super::super) ttl_ms: u64,
    pub(in super::super) wait_ms: u64,
}

impl Process {
    /// The owner of a lease asks for another handle. Whether that is seen to; if not, it has none, and
    /// asks as anybody.
    pub(super) fn reenter(
        &mut self,
        id: u64,
        whose: &Whose,
        wanted: Wanted,
        around: &mut Around<'_>,
    ) -> bool {
        let held = self.held.iter().find(|(held, _)| held == whose);
        let Some(number) = held.map(|(_, number)| *number) else { return false };
        let asked = (id, around.stamp());
        let before = self.lease(number).map_or(0, |lease| lease.handles());
        self.advance(number, Input::Reenter, around);
        let Some(lease) = self.lease(number) else { return false };
        if !lease.claim.lets_in(before) {
            // It may be by this that the lease is found to be over.
            self.attend(number, around);
            return false;
        }
        if wanted.ttl_ms == 0 {
            lease.reentered(asked, around);
            return true;
        }
        let terms = self.terms(wanted.ttl_ms).ok();
        let busy = self.lease(number).is_some_and(|lease| lease.is_extending());
        let Some(terms) = terms.filter(|_| !busy) else {
            self.advance(number, Input::Release, around);
            around.refuse(id, Why::Error);
            return true;
        };
        let rounds = self.lease(number).map(|lease| lease.rounds());
        self.advance(number, Input::Prolong(terms), around);
        if let Some(lease) = self.lease(number) {
            if rounds == Some(lease.rounds()) {
                lease.reentered(asked, around);
            } else {
                lease.prolong(asked, wanted);
            }
        }
        self.attend(number, around);
        true
    }

    /// A handle could not have the TTL that it was asked for, and is given back. If the lease is over,
    /// its owner asks as anybody.
    pub(super) fn not_prolonged(
        &mut self,
        number: u64,
        (asked, wanted, why): (Asked, Wanted, Why),
        around: &mut Around<'_>,
    ) {
        let whose = self.lease(number).map(|lease| lease.whose.clone());
        self.advance(number, Input::Release, around);
        match whose {
            Some(whose) if why == Why::Lost => self.acquire(asked.0, whose, wanted, around),
            _ => around.answer(asked, Err(why), |_| ()),
        }
    }

    /// A request for another handle is given up.
    pub(super) fn cancel_prolonging(&mut self, request: u64, around: &mut Around<'_>) {
        let cancelled =
            |(_, lease): &mut (u64, Lease)| lease.cancel_prolonging(request).then_some(());
        let found = self.leases.iter_mut().position(|lease| cancelled(lease).is_some());
        if let Some(place) = found {
            let number = self.leases[place].0;
            self.advance(number, Input::Release, around);
            around.refuse(request, Why::Cancelled);
        }
    }

    /// Whether there are other handles than the one that is released.
    pub(super) fn count_down(&mut self, id: u64, number: u64, around: &mut Around<'_>) -> bool {
        if self.lease(number).is_none_or(|lease| lease.handles() < 2) {
            return false;
        }
        let from = around.stamp();
        self.advance(number, Input::Release, around);
        if let Some(lease) = self.lease(number) {
            let left = lease.handles();
            let result = if lease.is_held(around.clocks) { Ok(()) } else { Err(Why::Lost) };
            around.answer((id, from), result, |answer| answer.handles = Some(left.into()));
        }
        self.attend(number, around);
        true
    }
}
