//! What a client process knows about the leases of its clients: who has which, whether an extension
//! is in flight, which deadline was reported last, and whether a loss was.
//!
//! [`ClientLeases`] has the rules that every client of this repository follows, whatever calls its
//! lock: the built-in client, which calls the library, and the client machine of the simulation. It
//! sends nothing and reads no clock. Its methods return what the harness must be told.
//!
//! A lease stays here, held or lost, until it is released or the client is granted the resource
//! anew. So a holder that does not check can go on with its steps and its release as if nothing had
//! happened. Scenarios exist to show the effects of that.

use redquorum_protocol::Outcome;

use crate::client_protocol::{Call, ClientReply, FailureReason, Notice, RequestError};
use crate::name::Name;

/// A client and a resource.
pub type LeaseKey = (Name, Name);

/// See the [module](self). `L` is a lease as its owner calls it, and `D` a deadline as the lock
/// measures it.
#[derive(Clone, Debug)]
pub struct ClientLeases<L, D>(Vec<LeaseRecord<L, D>>);

/// One lease.
#[derive(Clone, Debug)]
pub struct LeaseRecord<L, D> {
    key: LeaseKey,
    /// The lease as its owner calls it.
    pub lease: L,
    /// The deadline that was reported last, and its stamp.
    reported: (D, i64),
    /// Whether the deadline may move without a request.
    is_watched: bool,
    extending: Option<Call>,
    /// Why the lease is no longer held, once that was reported. A loss is final.
    lost: Option<RequestError>,
}

impl<L, D> Default for ClientLeases<L, D> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<L, D: Copy + PartialEq> ClientLeases<L, D> {
    /// The lease that a client holds, or held.
    ///
    /// # Errors
    /// The client has none.
    pub fn find(&mut self, key: &LeaseKey) -> Result<&mut LeaseRecord<L, D>, RequestError> {
        self.0.iter_mut().find(|record| record.key == *key).ok_or_else(|| none(key))
    }

    /// The lease with this property.
    pub fn find_by(&mut self, is: impl Fn(&L) -> bool) -> Option<&mut LeaseRecord<L, D>> {
        self.0.iter_mut().find(|record| is(&record.lease))
    }

    /// The lease whose owner makes an acquire. Only an acquire `again` has the owner of an earlier
    /// one. Any other has a new owner, so that a second acquire of the same resource is refused.
    pub fn reentered(&self, key: &LeaseKey, again: bool) -> Option<&L> {
        self.0.iter().find(|record| again && record.key == *key).map(|record| &record.lease)
    }

    /// Adds a lease that was granted, with its deadline and the stamp of that. Call this before the
    /// reply, since the next request may be about the lease. Returns the lease that it replaces: it
    /// was lost and never released.
    pub fn insert(&mut self, key: LeaseKey, lease: L, reported: (D, i64)) -> Option<L> {
        let old = self.position(&key).map(|place| self.0.remove(place).lease);
        let (is_watched, extending, lost) = (false, None, None);
        self.0.push(LeaseRecord { key, lease, reported, is_watched, extending, lost });
        old
    }

    /// Removes a lease that is to be released, and returns it with the reply to its extension in
    /// flight, which that ends.
    ///
    /// # Errors
    /// The client has none.
    pub fn remove(
        &mut self,
        key: &LeaseKey,
        at_ns: i64,
    ) -> Result<(L, Option<ClientReply>), RequestError> {
        let place = self.position(key).ok_or_else(|| none(key))?;
        let mut record = self.0.remove(place);
        let cancelled = record.cancel_extension(at_ns);
        Ok((record.lease, cancelled))
    }

    /// Removes all leases: their owner is gone.
    pub fn take_all(&mut self) -> Vec<L> {
        self.0.drain(..).map(|record| record.lease).collect()
    }

    /// The lease whose extension in flight is that of this request.
    pub fn extending(&mut self, request: u64) -> Option<&mut LeaseRecord<L, D>> {
        let mut records = self.0.iter_mut();
        records.find(|record| record.extending.is_some_and(|call| call.id == request))
    }

    fn position(&self, key: &LeaseKey) -> Option<usize> {
        self.0.iter().position(|record| record.key == *key)
    }
}

fn none((client, resource): &LeaseKey) -> RequestError {
    RequestError::new(FailureReason::Lost, format!("{client} has no lease of {resource}"))
}

impl<L, D: Copy + PartialEq> LeaseRecord<L, D> {
    /// Whether the lease is held, as far as was reported.
    ///
    /// # Errors
    /// It was lost, and why.
    pub fn held(&self) -> Result<(), RequestError> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    /// Begins an extension.
    ///
    /// # Errors
    /// Another one is in flight.
    pub fn extend(&mut self, call: Call) -> Result<(), RequestError> {
        if self.extending.is_some() {
            let text = "an extension is under way: await its reply";
            return Err(RequestError::new(FailureReason::Error, text));
        }
        self.extending = Some(call);
        Ok(())
    }

    /// Ends the extension in flight, if there is one, and returns its reply: the request was
    /// cancelled, or the lease is released.
    pub fn cancel_extension(&mut self, at_ns: i64) -> Option<ClientReply> {
        let call = Call { from_ns: at_ns, ..self.extending.take()? };
        Some(call.reply(at_ns, Err(FailureReason::Cancelled.into())))
    }

    /// Ends the extension in flight, if there is one, and returns its reply: the new deadline, with
    /// its stamp, or why there is none. A reply that the lease is lost comes with the notice of the
    /// loss. The library leaves it to its caller to stop at this point, and a correct caller stops.
    pub fn extended(
        &mut self,
        at_ns: i64,
        result: Result<(D, i64), RequestError>,
    ) -> Option<(ClientReply, Option<Notice>)> {
        let call = self.extending.take()?;
        let lost = result.as_ref().err().filter(|error| error.why == FailureReason::Lost);
        let notice = lost.and_then(|error| self.lose(at_ns, error.text.clone()));
        let deadline_ns = result.as_ref().ok().map(|deadline| self.report(*deadline));
        let reply = call.reply(at_ns, result.map(drop));
        Some((ClientReply { deadline_ns, ..reply }, notice))
    }

    /// Records a loss, and returns its notice. A loss is announced once.
    pub fn lose(&mut self, at_ns: i64, text: Option<String>) -> Option<Notice> {
        if self.lost.is_some() {
            return None;
        }
        self.lost = Some(RequestError { why: FailureReason::Lost, text });
        let (client, resource) = self.key.clone();
        Some(Notice::Lost { client, resource, at_ns })
    }

    /// From now on, the deadline may move without a request, and each move is reported: the lease
    /// is kept alive, or a request for another handle was given up and its round goes on. Returns
    /// whether that is new.
    pub fn watch(&mut self) -> bool {
        self.lost.is_none() && !std::mem::replace(&mut self.is_watched, true)
    }

    /// Reports a watched deadline if it moved. A lost lease has no deadline.
    pub fn moved(&mut self, at_ns: i64, deadline: (D, i64)) -> Option<Notice> {
        if !self.is_watched || self.lost.is_some() || deadline.0 == self.reported.0 {
            return None;
        }
        let (client, resource) = self.key.clone();
        let deadline_ns = self.report(deadline);
        Some(Notice::Extended { client, resource, at_ns: Some(at_ns), deadline_ns })
    }

    /// The stamp of a deadline that a reply reports. The same deadline always has the same stamp;
    /// otherwise it would seem to move.
    pub fn report(&mut self, deadline: (D, i64)) -> i64 {
        if deadline.0 != self.reported.0 {
            self.reported = deadline;
        }
        self.reported.1
    }
}

/// The result of a release, as the reply has it.
///
/// # Errors
/// The lease was no longer held, or too few masters replied.
pub fn release_result(outcome: Outcome, text: Option<String>) -> Result<(), RequestError> {
    let why = match outcome {
        Outcome::Released | Outcome::StillHeld | Outcome::Left => return Ok(()),
        Outcome::AlreadyGone => FailureReason::Lost,
        _ => FailureReason::NoQuorum,
    };
    Err(RequestError { why, text })
}

/// The result of a release of several leases, from two of them: a loss is worse than too few
/// replies.
///
/// # Errors
/// The worse one.
pub fn worse(
    one: Result<(), RequestError>,
    other: Result<(), RequestError>,
) -> Result<(), RequestError> {
    match (&one, &other) {
        (Ok(()), _) => other,
        (Err(error), Err(RequestError { why: FailureReason::Lost, .. }))
            if error.why != FailureReason::Lost =>
        {
            other
        }
        _ => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Call = Call { id: 7, from_ns: 10 };

    fn key() -> LeaseKey {
        ("c1".into(), "L".into())
    }

    fn one() -> ClientLeases<char, u64> {
        let mut leases = ClientLeases::default();
        assert_eq!(leases.insert(key(), 'a', (100, 1_000)), None);
        leases
    }

    fn lost(text: &str) -> RequestError {
        RequestError::new(FailureReason::Lost, text)
    }

    #[test]
    fn a_request_about_no_lease_is_refused() {
        let mut leases = one();
        assert!(leases.find(&key()).is_ok());
        let other = ("c2".into(), "L".into());
        assert_eq!(leases.find(&other).unwrap_err(), lost("c2 has no lease of L"));
        assert_eq!(leases.remove(&key(), 20), Ok(('a', None)));
        assert_eq!(leases.remove(&key(), 20), Err(lost("c1 has no lease of L")));
    }

    #[test]
    fn only_an_acquire_again_has_the_owner_of_the_lease() {
        let leases = one();
        assert_eq!(leases.reentered(&key(), true), Some(&'a'));
        assert_eq!(leases.reentered(&key(), false), None);
        assert_eq!(leases.reentered(&("c1".into(), "M".into()), true), None);
    }

    #[test]
    fn the_next_grant_replaces_a_lease_that_was_never_released() {
        let mut leases = one();
        assert!(leases.find(&key()).unwrap().lose(20, None).is_some());
        assert_eq!(leases.insert(key(), 'b', (200, 2_000)), Some('a'));
        assert_eq!(leases.find(&key()).unwrap().held(), Ok(()), "the loss was that of the other");
        assert!(leases.find_by(|lease| *lease == 'a').is_none());
    }

    #[test]
    fn one_extension_is_in_flight_at_a_time() {
        let mut leases = one();
        let record = leases.find(&key()).unwrap();
        assert_eq!(record.extend(CALL), Ok(()));
        let refused = record.extend(Call { id: 8, from_ns: 11 }).unwrap_err();
        assert_eq!(refused.why, FailureReason::Error);
        let (reply, notice) = record.extended(20, Ok((200, 2_000))).unwrap();
        assert!(reply.ok && notice.is_none());
        assert_eq!((reply.id, reply.from_ns, reply.at_ns), (7, Some(10), Some(20)));
        assert_eq!(reply.deadline_ns, Some(2_000));
        assert_eq!(record.extended(21, Ok((300, 3_000))), None, "no request waits for it");
        assert_eq!(record.extend(CALL), Ok(()));
    }

    #[test]
    fn a_release_and_a_cancel_end_the_extension_in_flight() {
        let mut leases = one();
        leases.find(&key()).unwrap().extend(CALL).unwrap();
        assert!(leases.extending(8).is_none());
        let record = leases.extending(7).expect("it is in flight");
        let reply = record.cancel_extension(20);
        assert_eq!(reply.as_ref().and_then(|reply| reply.why), Some(FailureReason::Cancelled));
        assert_eq!(record.cancel_extension(20), None);
        record.extend(CALL).unwrap();
        assert_eq!(leases.remove(&key(), 20), Ok(('a', reply)));
    }

    #[test]
    fn a_loss_is_announced_once() {
        let mut leases = one();
        let record = leases.find(&key()).unwrap();
        record.extend(CALL).unwrap();
        let (reply, notice) = record.extended(20, Err(lost("gone"))).unwrap();
        assert_eq!(reply.why, Some(FailureReason::Lost));
        let (client, resource) = key();
        assert_eq!(notice, Some(Notice::Lost { client, resource, at_ns: 20 }));
        assert_eq!(record.lose(30, Some("too late".to_owned())), None);
        assert_eq!(record.held(), Err(lost("gone")), "the first reason stands");
        assert!(!record.watch(), "a lost lease has no deadline");
    }

    #[test]
    fn a_failed_extension_is_no_loss() {
        let mut leases = one();
        let record = leases.find(&key()).unwrap();
        record.extend(CALL).unwrap();
        let failed = RequestError::from(FailureReason::NoQuorum);
        let (reply, notice) = record.extended(20, Err(failed)).unwrap();
        assert_eq!((reply.deadline_ns, notice, record.held()), (None, None, Ok(())));
    }

    #[test]
    fn each_deadline_is_reported_once_while_it_is_watched() {
        let mut leases = one();
        let record = leases.find(&key()).unwrap();
        assert_eq!(record.moved(20, (200, 2_000)), None, "it is not watched");
        assert!(record.watch() && !record.watch());
        assert_eq!(record.moved(20, (100, 1_001)), None, "the same deadline");
        assert_eq!(record.report((100, 1_001)), 1_000, "has the same stamp");
        assert!(record.moved(20, (200, 2_000)).is_some());
        assert_eq!(record.moved(21, (200, 2_000)), None);
        assert_eq!(record.report((300, 3_000)), 3_000);
        assert_eq!(record.moved(22, (300, 3_000)), None, "a reply has reported it");
        assert!(record.lose(30, None).is_some());
        assert_eq!(record.moved(31, (400, 4_000)), None, "it is lost");
    }

    #[test]
    fn the_result_of_several_releases_is_the_worst_one() {
        let gone = || release_result(Outcome::AlreadyGone, Some("gone".to_owned()));
        let unclear = || release_result(Outcome::Unknown, None);
        assert_eq!(worse(Ok(()), Ok(())), Ok(()));
        assert_eq!(worse(Ok(()), unclear()), unclear());
        assert_eq!(worse(unclear(), Ok(())), unclear());
        assert_eq!(worse(unclear(), gone()), Err(lost("gone")));
        assert_eq!(worse(gone(), unclear()), Err(lost("gone")));
        assert_eq!(worse(Err(lost("first")), gone()), Err(lost("first")));
    }
}
