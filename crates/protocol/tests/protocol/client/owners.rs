//! Re-entry: which request of an owner gets a handle, waits, extends first or asks the masters.

use redquorum_protocol::{Extension, OwnerId, Reentry, Time};

use super::*;

const ONE: OwnerId = OwnerId(1);

impl ClientTest {
    fn request(&mut self, owner: OwnerId, ttl: Option<Duration>, wait: Duration) -> ClaimId {
        let config = ttl.map_or(config(), |ttl| config().with_ttl(ttl).unwrap());
        self.request_on(config, owner, ttl, wait)
    }

    fn request_on(
        &mut self,
        config: LockConfig,
        owner: OwnerId,
        ttl: Option<Duration>,
        wait: Duration,
    ) -> ClaimId {
        let reentry = Some(Reentry { owner, extend: ttl.is_some() });
        let request =
            AcquireRequest { reentry, ..AcquireRequest::for_member(config, wait, false, ()) };
        self.act(|client, cx| client.acquire(key("r"), request, cx))
    }

    /// A lease of this owner.
    fn owned(&mut self, owner: OwnerId) -> ClaimId {
        let id = self.request(owner, None, Duration::ZERO);
        self.serve();
        self.collect(id);
        id
    }

    fn take(&mut self, id: ClaimId) -> Option<ClaimId> {
        self.act(|client, cx| client.take_handle(id, cx))
    }

    fn handles(&self, id: ClaimId) -> u32 {
        self.client().hold(id).unwrap().handles()
    }

    fn deadline(&self, id: ClaimId) -> Time {
        self.client().hold(id).unwrap().deadline()
    }
}

#[test]
fn if_the_request_that_asks_has_no_lease_the_next_one_asks() {
    for gives_up in [false, true] {
        let mut test = ClientTest::new();
        let first = test.request(ONE, None, Duration::ZERO);
        let second = test.request(ONE, None, TTL);
        assert_eq!(test.look(second), "queued");
        test.world.events.clear();
        if gives_up {
            test.act(|client, cx| client.cancel(first, cx));
        } else {
            test.occupy("r");
            test.serve();
            assert_eq!(test.look(first), format!("acquiring: {:?}", Some(Failure::Taken)));
        }
        assert!(test.has_changed(second), "it is notified");
        test.serve();
        test.world.masters.iter_mut().for_each(|master| master.server.flush_all());
        assert_eq!(test.look(second), "acquiring: None");
        test.serve();
        test.collect(second);
    }
}

#[test]
fn a_request_with_a_ttl_extends_the_lease_only_if_that_moves_the_deadline_to_a_later_time() {
    let mut test = ClientTest::new();
    let lease = test.owned(ONE);
    let deadline = test.deadline(lease);
    for no_longer in [TTL / 2, TTL] {
        let request = test.request(ONE, Some(no_longer), TTL);
        assert_eq!((test.take(request), test.deadline(lease)), (Some(lease), deadline));
        assert!(test.writes_nothing());
    }
    let longer = test.request(ONE, Some(2 * TTL), TTL);
    assert_eq!((test.take(longer), test.look(longer).as_str()), (None, "extending"));
    test.world.events.clear();
    test.serve();
    assert!(test.has_changed(longer), "it is notified");
    assert_eq!(test.look(longer), "reentered");
    assert_eq!((test.take(longer), test.handles(lease)), (Some(lease), 4));
    let validity = config().with_ttl(2 * TTL).unwrap().validity();
    assert_eq!(test.deadline(lease), test.world.now.plus(validity));
}

#[test]
fn a_lease_that_is_lost_while_it_is_extended_is_acquired_anew() {
    let mut test = ClientTest::new();
    let lease = test.owned(ONE);
    let (start, wait) = (test.deadline(lease), 2 * NODE_TIMEOUT);
    test.world.now = Time::ZERO.plus(start.since(Time::from_millis(1)));
    let longer = test.request(ONE, Some(2 * TTL), wait);
    test.world.now = start;
    assert_eq!(test.look(longer), "acquiring: None");
    // Its wait counts from its start.
    test.occupy("r");
    test.serve();
    test.pass(wait);
    test.look(longer);
    test.serve();
    assert_eq!(test.look(longer), format!("acquiring: {:?}", Some(Failure::Taken)));
}

#[test]
fn requests_and_holders_that_extend_at_once_do_not_cut_each_other_short() {
    let mut test = ClientTest::new();
    let lease = test.owned(ONE);
    test.act(|client, cx| client.handle(lease, Input::extend(config()), cx));
    let extension = test.client().hold(lease).unwrap().extension().0;
    let [first, second] = [2, 3].map(|times| test.request(ONE, Some(times * TTL), TTL));
    assert_eq!(test.client().hold(lease).unwrap().extension().0, extension, "they wait for it");
    test.serve();
    assert_eq!((test.look(first), test.look(second)), ("extending".into(), "extending".into()));
    // The holder replaces the round of the first request, which then tries again.
    test.act(|client, cx| client.handle(lease, Input::extend(config()), cx));
    for id in [first, second] {
        test.serve();
        test.look(id);
        test.serve();
        assert_eq!(test.look(id), "reentered");
        assert_eq!(test.take(id), Some(lease));
    }
    assert_eq!(test.handles(lease), 3);
}

#[test]
fn a_holder_learns_how_its_extension_ended_after_the_rounds_of_requests() {
    let mut test = ClientTest::new();
    let lease = test.owned(ONE);
    test.act(|client, cx| client.handle(lease, Input::extend(config()), cx));
    let extension = test.client().hold(lease).unwrap().extension().0;
    test.serve();
    for times in [2, 3] {
        let id = test.request(ONE, Some(times * TTL), TTL);
        test.serve();
        assert_eq!(test.look(id), "reentered");
    }
    let ended = test.client().hold(lease).unwrap().ended(extension).map(|(ended, _)| ended);
    assert_eq!(ended, Some(Extension::Extended));
}

#[test]
fn a_client_that_was_shut_down_lets_no_owner_in() {
    let mut test = ClientTest::new();
    let first = test.request(ONE, None, TTL);
    let second = test.request(ONE, None, TTL);
    test.serve();
    test.collect(first);
    test.act(Client::shut_down);
    assert_eq!((test.look(second).as_str(), test.handles(first)), ("queued", 1));
}

#[test]
fn a_handle_that_its_caller_does_not_take_is_given_back() {
    let mut test = ClientTest::new();
    let lease = test.owned(ONE);
    let [ready, extends] = [None, Some(2 * TTL)].map(|ttl| test.request(ONE, ttl, TTL));
    assert_eq!(test.handles(lease), 3);
    for id in [ready, extends] {
        test.act(|client, cx| client.cancel(id, cx));
        assert_eq!(test.take(id), None);
    }
    assert_eq!((test.handles(lease), test.client().owned_resources()), (1, 1));
    test.act(|client, cx| client.cancel(lease, cx));
    assert_eq!(test.client().owned_resources(), 0);
}

#[test]
fn a_lease_past_its_deadline_gets_no_handle() {
    let mut test = ClientTest::new();
    let lease = test.owned(ONE);
    test.world.now = test.deadline(lease);
    let new = test.request(ONE, None, Duration::ZERO);
    test.serve();
    test.collect(new);
    assert_eq!((test.handles(lease), test.handles(new)), (1, 1));
    // The next handle is of the new lease, also once the old one is given back.
    test.act(|client, cx| client.cancel(lease, cx));
    let again = test.request(ONE, None, Duration::ZERO);
    assert_eq!(test.take(again), Some(new));
}
