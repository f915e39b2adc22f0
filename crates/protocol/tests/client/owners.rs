//! Re-entry: which request of an owner gets a handle, waits, extends first or asks the masters.

use redquorum_protocol::{Cause, Extension, OwnerId, Reentry};

use super::*;

const ONE: OwnerId = OwnerId(1);
const TWO: OwnerId = OwnerId(2);

impl Desk {
    fn request(&mut self, owner: OwnerId, ttl: Option<Duration>, wait: Duration) -> ClaimId {
        let terms = LockConfig::new(NODES, TTL, Drift::default(), NODE_TIMEOUT).unwrap();
        self.request_on(ttl.map_or(terms, |ttl| terms.with_ttl(ttl).unwrap()), owner, ttl, wait)
    }

    fn request_on(
        &mut self,
        terms: LockConfig,
        owner: OwnerId,
        ttl: Option<Duration>,
        wait: Duration,
    ) -> ClaimId {
        let reentry = Some(Reentry { owner, extend: ttl.is_some() });
        let request = AcquireRequest { terms, wait, explain: false, fair: true, reentry, seed: () };
        self.act(|client, cx| client.acquire(Key::from(b"r".as_slice()), request, cx))
    }

    /// A lease of this owner.
    fn owned(&mut self, owner: OwnerId) -> ClaimId {
        let id = self.request(owner, None, Duration::ZERO);
        self.serve(free);
        self.collect(id);
        id
    }

    fn take(&mut self, id: ClaimId) -> Option<ClaimId> {
        self.act(|client, cx| client.take_handle(id, cx))
    }

    fn handles(&self, id: ClaimId) -> u32 {
        self.client.hold(id).unwrap().handles()
    }

    fn deadline(&self, id: ClaimId) -> Time {
        self.client.hold(id).unwrap().deadline()
    }

    fn writes_nothing(&self) -> bool {
        self.written.iter().all(Vec::is_empty)
    }
}

fn down(_: &Command) -> Reply {
    Reply::Unknown(Cause::Silent)
}

#[test]
fn an_owner_gets_a_handle_of_its_lease_and_no_master_is_asked() {
    let mut desk = Desk::new();
    let lease = desk.owned(ONE);
    let again = desk.request(ONE, None, TTL);
    assert!(desk.writes_nothing());
    assert_eq!(desk.look(again), "reentered");
    assert_eq!((desk.take(again), desk.look(again).as_str()), (Some(lease), "gone"));
    assert_eq!(desk.handles(lease), 2);
    // Another owner asks the masters.
    desk.request(TWO, None, Duration::ZERO);
    assert!(!desk.writes_nothing());
    assert_eq!(desk.handles(lease), 2);
}

#[test]
fn a_lease_past_its_deadline_gets_no_handle() {
    let mut desk = Desk::new();
    let lease = desk.owned(ONE);
    desk.now = desk.deadline(lease);
    let new = desk.request(ONE, None, Duration::ZERO);
    desk.serve(free);
    desk.collect(new);
    assert_eq!((desk.handles(lease), desk.handles(new)), (1, 1));
    // The next handle is of the new lease, also once the old one is given back.
    desk.act(|client, cx| client.cancel(lease, cx));
    let again = desk.request(ONE, None, Duration::ZERO);
    assert_eq!(desk.take(again), Some(new));
}

#[test]
fn a_handle_that_its_caller_does_not_take_is_given_back() {
    let mut desk = Desk::new();
    let lease = desk.owned(ONE);
    let [ready, extends] = [None, Some(2 * TTL)].map(|ttl| desk.request(ONE, ttl, TTL));
    assert_eq!(desk.handles(lease), 3);
    for id in [ready, extends] {
        desk.act(|client, cx| client.cancel(id, cx));
        assert_eq!(desk.take(id), None);
    }
    assert_eq!((desk.handles(lease), desk.client.owned_resources()), (1, 1));
    desk.act(|client, cx| client.cancel(lease, cx));
    assert_eq!(desk.client.owned_resources(), 0);
}

#[test]
fn one_request_of_an_owner_asks_and_the_others_share_its_lease() {
    let mut desk = Desk::new();
    let first = desk.request(ONE, None, TTL);
    let written = desk.written.clone();
    let others = [(); 3].map(|()| desk.request(ONE, None, TTL));
    assert_eq!(desk.written, written, "they send nothing");
    others.iter().for_each(|id| assert_eq!(desk.look(*id), "queued"));
    desk.serve(free);
    others.iter().for_each(|id| assert_eq!(desk.look(*id), "queued", "it is not collected"));
    desk.changed.clear();
    desk.collect(first);
    assert!(others.iter().all(|id| desk.changed.contains(id)), "they are notified");
    for (before, id) in (1..).zip(others) {
        assert_eq!((desk.handles(first), desk.look(id).as_str()), (before, "reentered"));
        assert_eq!(desk.take(id), Some(first));
    }
}

#[test]
fn if_the_request_that_asks_has_no_lease_the_next_one_asks() {
    for gives_up in [false, true] {
        let mut desk = Desk::new();
        let first = desk.request(ONE, None, Duration::ZERO);
        let second = desk.request(ONE, None, TTL);
        assert_eq!(desk.look(second), "queued");
        desk.changed.clear();
        if gives_up {
            desk.act(|client, cx| client.cancel(first, cx));
        } else {
            desk.serve(taken);
            assert_eq!(desk.look(first), format!("acquiring: {:?}", Some(Failure::Taken)));
        }
        assert!(desk.changed.contains(&second), "it is notified");
        desk.serve(free);
        assert_eq!(desk.look(second), "acquiring: None");
        desk.serve(free);
        desk.collect(second);
    }
}

#[test]
fn a_request_waits_for_another_one_of_its_owner_for_at_least_a_node_timeout() {
    for (wait, waits) in [(Duration::ZERO, NODE_TIMEOUT), (3 * NODE_TIMEOUT, 3 * NODE_TIMEOUT)] {
        let mut desk = Desk::new();
        desk.request(ONE, None, TTL);
        let second = desk.request(ONE, None, wait);
        desk.now = desk.now.plus(waits - MS);
        assert_eq!(desk.look(second), "queued");
        desk.now = desk.now.plus(MS);
        assert_eq!(desk.client.look_again_at(second, desk.now), desk.now);
        assert_eq!(desk.look(second), format!("over: {:?}", Failure::Taken));
    }
}

#[test]
fn a_request_with_a_ttl_extends_the_lease_only_if_that_moves_the_deadline_to_a_later_time() {
    let mut desk = Desk::new();
    let lease = desk.owned(ONE);
    let deadline = desk.deadline(lease);
    let shorter = desk.request(ONE, Some(TTL / 2), TTL);
    assert_eq!((desk.take(shorter), desk.deadline(lease)), (Some(lease), deadline));
    assert!(desk.writes_nothing());
    let longer = desk.request(ONE, Some(2 * TTL), TTL);
    assert_eq!((desk.take(longer), desk.look(longer).as_str()), (None, "extending"));
    desk.changed.clear();
    desk.serve(free);
    assert!(desk.changed.contains(&longer), "it is notified");
    assert_eq!(desk.look(longer), "reentered");
    assert_eq!((desk.take(longer), desk.handles(lease)), (Some(lease), 3));
    assert!(desk.deadline(lease) > deadline);
}

#[test]
fn a_failed_extension_takes_nothing_away() {
    let mut desk = Desk::new();
    let lease = desk.owned(ONE);
    let deadline = desk.deadline(lease);
    let longer = desk.request(ONE, Some(2 * TTL), TTL);
    desk.serve(down);
    assert!(desk.look(longer).starts_with("refused: NotExtended(NoQuorum"));
    assert_eq!((desk.handles(lease), desk.deadline(lease)), (1, deadline));
    // Without a TTL, the owner gets its handle.
    let again = desk.request(ONE, None, TTL);
    assert_eq!(desk.take(again), Some(lease));
}

#[test]
fn a_lease_that_is_lost_while_it_is_extended_is_acquired_anew() {
    let mut desk = Desk::new();
    let lease = desk.owned(ONE);
    let (start, wait) = (desk.deadline(lease), 2 * NODE_TIMEOUT);
    desk.now = Time::ZERO.plus(start.since(Time::from_millis(1)));
    let longer = desk.request(ONE, Some(2 * TTL), wait);
    desk.now = start;
    assert_eq!(desk.look(longer), "acquiring: None");
    // Its wait counts from its start.
    desk.serve(taken);
    desk.now = desk.now.plus(wait);
    desk.look(longer);
    desk.serve(taken);
    assert_eq!(desk.look(longer), format!("acquiring: {:?}", Some(Failure::Taken)));
}

#[test]
fn requests_and_holders_that_extend_at_once_do_not_cut_each_other_short() {
    let mut desk = Desk::new();
    let terms = LockConfig::new(NODES, TTL, Drift::default(), NODE_TIMEOUT).unwrap();
    let lease = desk.owned(ONE);
    desk.act(|client, cx| client.handle(lease, Input::Extend(terms), cx));
    let extension = desk.client.hold(lease).unwrap().extension().0;
    let [first, second] = [2, 3].map(|times| desk.request(ONE, Some(times * TTL), TTL));
    assert_eq!(desk.client.hold(lease).unwrap().extension().0, extension, "they wait for it");
    desk.serve(free);
    assert_eq!((desk.look(first), desk.look(second)), ("extending".into(), "extending".into()));
    // The holder replaces the round of the first request, which then tries again.
    desk.act(|client, cx| client.handle(lease, Input::Extend(terms), cx));
    for id in [first, second] {
        desk.serve(free);
        desk.look(id);
        desk.serve(free);
        assert_eq!(desk.look(id), "reentered");
        assert_eq!(desk.take(id), Some(lease));
    }
    assert_eq!(desk.handles(lease), 3);
}

#[test]
fn a_holder_learns_how_its_extension_ended_after_the_rounds_of_requests() {
    let mut desk = Desk::new();
    let terms = LockConfig::new(NODES, TTL, Drift::default(), NODE_TIMEOUT).unwrap();
    let lease = desk.owned(ONE);
    desk.act(|client, cx| client.handle(lease, Input::Extend(terms), cx));
    let extension = desk.client.hold(lease).unwrap().extension().0;
    desk.serve(free);
    for times in [2, 3] {
        let id = desk.request(ONE, Some(times * TTL), TTL);
        desk.serve(free);
        assert_eq!(desk.look(id), "reentered");
    }
    let ended = desk.client.hold(lease).unwrap().ended(extension).map(|(ended, _)| ended);
    assert_eq!(ended, Some(Extension::Extended));
}

#[test]
fn a_fencing_token_is_not_given_to_a_lease_that_has_none() {
    let mut desk = Desk::new();
    let lease = desk.owned(ONE);
    let terms = LockConfig::new(NODES, TTL, Drift::default(), NODE_TIMEOUT).unwrap();
    let fenced = terms.with_fencing(60 * TTL).unwrap();
    let id = desk.request_on(fenced, ONE, None, TTL);
    assert_eq!(desk.look(id), "refused: HeldUnfenced");
    assert_eq!((desk.handles(lease), desk.client.hold(lease).unwrap().lost()), (1, None));
}

#[test]
fn a_client_that_was_shut_down_lets_no_owner_in() {
    let mut desk = Desk::new();
    let first = desk.request(ONE, None, TTL);
    let second = desk.request(ONE, None, TTL);
    desk.serve(free);
    desk.collect(first);
    desk.act(Client::shut_down);
    assert_eq!((desk.look(second).as_str(), desk.handles(first)), ("queued", 1));
}
