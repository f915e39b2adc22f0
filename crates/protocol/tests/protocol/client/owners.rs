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

#[test]
fn a_request_that_waits_for_another_of_its_owner_for_too_long_is_refused() {
    let mut test = ClientTest::new();
    test.occupy("r");
    let first = test.request(ONE, None, TTL);
    let second = test.request(ONE, None, Duration::ZERO);
    test.serve();
    test.pass(NODE_TIMEOUT - MS);
    assert_eq!(
        (test.look(first).as_str(), test.look(second).as_str()),
        ("acquiring: None", "queued")
    );
    test.pass(MS);
    assert_eq!(test.look(second), "over: Taken");
    // A request in the local queue has no result, either.
    let mut test = ClientTest::new();
    test.granted("r");
    let queued = test.request(ONE, None, TTL);
    let behind = test.request(ONE, None, Duration::ZERO);
    assert_eq!((test.look(queued).as_str(), test.look(behind).as_str()), ("queued", "queued"));
    test.pass(NODE_TIMEOUT);
    assert_eq!(test.look(behind), "over: Taken");
}

#[test]
fn a_request_that_gave_up_waiting_for_its_owner_is_not_informed_and_the_others_are() {
    let mut test = ClientTest::new();
    let first = test.request(ONE, None, TTL);
    let [gone, waits] = [(); 2].map(|()| test.request(ONE, None, TTL));
    test.act(|client, cx| client.cancel(gone, cx));
    test.world.events.clear();
    test.serve();
    assert!(test.has_changed(first));
    test.collect(first);
    assert!(test.has_changed(waits) && !test.has_changed(gone));
    test.look(waits);
    assert_eq!(test.take(waits), Some(first));
}

#[test]
fn an_extension_that_masters_refuse_leaves_the_lease_and_refuses_the_request() {
    let mut test = ClientTest::new();
    let lease = test.owned(ONE);
    let deadline = test.deadline(lease);
    test.world.masters.iter_mut().for_each(|master| master.server.flush_all());
    let longer = test.request(ONE, Some(2 * TTL), TTL);
    test.serve();
    let refused = test.look(longer);
    assert!(refused.starts_with("refused: NotExtended(QuorumGone"), "{refused}");
    assert_eq!((test.handles(lease), test.deadline(lease)), (1, deadline));
}

#[test]
fn a_request_whose_round_is_under_way_waits_for_its_end() {
    let mut test = ClientTest::new();
    let lease = test.owned(ONE);
    let longer = test.request(ONE, Some(2 * TTL), TTL);
    let round = test.client().hold(lease).unwrap().extension();
    assert_eq!(round.1, Extension::Pending);
    // Another handle of the lease changes nothing about the round.
    test.act(|client, cx| client.handle(lease, Input::Reenter, cx));
    for _ in 0..3 {
        assert_eq!(test.look(longer), "extending");
    }
    assert_eq!(test.client().hold(lease).unwrap().extension(), round);
    let next = test.client().look_again_at(longer, test.world.now);
    assert_eq!(next, test.world.now.plus(NODE_TIMEOUT), "the end of its round");
    test.serve();
    assert_eq!(test.look(longer), "reentered");
}

#[test]
fn a_handle_whose_caller_does_not_look_is_given_back_after_half_a_second() {
    for (extend, waits_ms) in [(None, 499), (Some(2 * TTL), 499)] {
        let mut test = ClientTest::new();
        let lease = test.owned(ONE);
        let id = test.request(ONE, extend, TTL);
        test.serve();
        assert_eq!(test.handles(lease), 2);
        test.pass(MS * waits_ms);
        test.act(|client, cx| client.wake_leases(cx));
        assert_eq!(test.handles(lease), 2, "{extend:?}");
        test.pass(MS);
        test.act(|client, cx| client.wake_leases(cx));
        assert_eq!(test.handles(lease), 1, "{extend:?}");
        // The request goes on when its caller looks again.
        test.look(id);
        test.serve();
        test.look(id);
        assert_eq!(test.take(id), Some(lease));
    }
}

#[test]
fn a_request_that_was_set_aside_goes_on_with_the_attempts_that_it_has_made() {
    let mut test = ClientTest::new();
    test.occupy("r");
    let id = test.request(ONE, None, 6 * TTL);
    let attempt = |test: &ClientTest| match test.client().claim(id) {
        Some(Claim::Acquiring(acquire)) => acquire.attempt(),
        other => panic!("{other:?}"),
    };
    for _ in 0..3 {
        test.serve();
        test.world.now = test.client().look_again_at(id, test.world.now);
        test.look(id);
    }
    test.serve();
    let before = attempt(&test);
    assert!(before > 1);
    for _ in 0..20 {
        test.pass(MS * 1_000);
        test.act(|client, cx| client.wake_leases(cx));
        test.serve();
    }
    assert!(test.client().claim(id).is_none(), "its caller does not look");
    assert_eq!(test.look(id), "acquiring: None");
    assert_eq!(
        attempt(&test),
        before + 1,
        "late replies count for no attempt with the same number"
    );
}

#[test]
fn a_request_whose_caller_does_not_look_lets_another_of_its_owner_ask() {
    for others in [false, true] {
        let mut test = ClientTest::new();
        test.occupy("r");
        let first = test.request(ONE, None, 6 * TTL);
        let second = others.then(|| test.request(ONE, None, 6 * TTL));
        test.serve();
        for _ in 0..10 {
            test.pass(MS * 100);
            test.act(|client, cx| client.wake_leases(cx));
            test.serve();
        }
        assert_eq!(test.client().claim(first).is_none(), others);
        if let Some(second) = second {
            assert_eq!(test.look(second), "acquiring: None");
        }
    }
}

#[test]
fn an_extension_that_failed_before_is_none_of_a_request_for_which_the_lease_lives_long_enough() {
    let mut test = ClientTest::new();
    let lease = test.owned(ONE);
    test.act(|client, cx| client.handle(lease, Input::extend(config()), cx));
    test.pass(NODE_TIMEOUT);
    test.act(|client, cx| client.wake_leases(cx));
    assert_eq!(test.client().hold(lease).unwrap().extension().1, Extension::NoQuorum);
    let request = test.request(ONE, Some(TTL / 2), TTL);
    assert_eq!(test.take(request), Some(lease));
}
