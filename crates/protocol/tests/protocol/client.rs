//! The client of a process: turns of its requests, timers of its leases, and its servers.
//!
//! [`ClientTest`] is a world with one client. Messages travel only when a test says so, and time
//! passes only in between.

use std::time::Duration;

use redquorum_protocol::wire::{Command, Greeting};
use redquorum_protocol::{
    AcquireRequest, Claim, ClaimId, Client, Context, Drift, Failure, Holder, Input, Key, Link,
    LockConfig, NodeId, Progress, Reply, RequestState, RunId, Time, WakeUp,
};

use crate::support::MS;
use crate::world::{Config, World, WorldEvent};

mod marking;
mod owners;

const NODES: usize = 3;
const TTL: Duration = Duration::from_secs(10);
const NODE_TIMEOUT: Duration = Duration::from_millis(50);

fn key(name: &str) -> Key {
    Key::from(name.as_bytes())
}

fn config() -> LockConfig {
    LockConfig::new(NODES, TTL, Drift::default(), NODE_TIMEOUT).unwrap()
}

struct ClientTest {
    world: World,
}

impl ClientTest {
    fn new() -> Self {
        let (masters, clients, node_timeout) = (NODES, 1, NODE_TIMEOUT);
        let config = Config { masters, clients, node_timeout, ..Config::default() };
        let mut test = Self { world: World::new(1, config) };
        test.pass(MS * 1_000);
        test.serve();
        test
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut Client, &mut Context<'_, Claim>) -> R) -> R {
        self.world.act(0, act)
    }

    fn client(&self) -> &Client {
        &self.world.clients[0]
    }

    fn pass(&mut self, length: Duration) {
        self.world.now = self.world.now.plus(length);
    }

    fn acquire(&mut self, name: &str, wait: Duration) -> ClaimId {
        let request = AcquireRequest::for_member(config(), wait, false, ());
        self.act(|client, cx| client.acquire(key(name), request, cx))
    }

    /// Lets all masters reply until no command is left.
    fn serve(&mut self) {
        self.world.deliver();
        self.world.events.retain(|event| !matches!(event, WorldEvent::Wrote(..)));
    }

    /// For each master, the commands that were written and have no reply yet.
    fn written(&self) -> [Vec<&Command>; NODES] {
        let mut written = [const { Vec::new() }; NODES];
        for event in &self.world.events {
            if let WorldEvent::Wrote(_, master, command) = event {
                written[*master].push(command);
            }
        }
        written
    }

    fn writes_nothing(&self) -> bool {
        self.written().iter().all(Vec::is_empty)
    }

    fn has_changed(&self, id: ClaimId) -> bool {
        self.world
            .events
            .iter()
            .any(|event| matches!(event, WorldEvent::Changed(_, of) if *of == id))
    }

    /// Asserts that the next request is written behind the clean-up of the lease before it.
    fn assert_handed_on(&self) {
        for written in self.written() {
            assert!(
                matches!(
                    written[..],
                    [Command::Delete { wake_up: WakeUp::Count, .. }, Command::Set { .. }]
                ),
                "{written:?}"
            );
        }
    }

    /// Another client holds the resource for a minute.
    fn occupy(&mut self, name: &str) {
        self.world.occupy(&key(name), MS * 60_000);
    }

    fn collect(&mut self, id: ClaimId) {
        self.act(|client, cx| client.handle(id, Input::Collect, cx));
        assert!(self.client().hold(id).is_some());
    }

    fn granted(&mut self, key: &str) -> ClaimId {
        let id = self.acquire(key, TTL);
        self.serve();
        self.collect(id);
        id
    }

    fn look(&mut self, id: ClaimId) -> String {
        self.act(|client, cx| match client.look(id, cx) {
            Some(RequestState::Queued(_)) => "queued".to_owned(),
            Some(RequestState::Over(why, _)) => format!("over: {why:?}"),
            Some(RequestState::Claim(Claim::Acquiring(it))) => {
                format!("acquiring: {:?}", it.failure())
            }
            Some(RequestState::Claim(Claim::Holding(hold))) => {
                format!("holding: {:?}", hold.lost())
            }
            Some(RequestState::Claim(_)) => "released".to_owned(),
            Some(RequestState::Extending(_)) => "extending".to_owned(),
            Some(RequestState::Reentered(_)) => "reentered".to_owned(),
            Some(RequestState::Refused(why)) => format!("refused: {why:?}"),
            None => "gone".to_owned(),
        })
    }

    fn is_queued(&self, id: ClaimId) -> bool {
        matches!(self.client().standing(id), Some(RequestState::Queued(_)))
    }
}

#[test]
fn the_next_request_is_written_behind_the_release_of_the_one_before() {
    let mut test = ClientTest::new();
    let first = test.granted("r");
    let [second, third] = [TTL, TTL].map(|wait| test.acquire("r", wait));
    assert!(test.is_queued(second) && test.is_queued(third));
    assert!(test.writes_nothing(), "requests in the queue send nothing");
    test.act(|client, cx| client.give_back(first, Input::Release, cx));
    test.assert_handed_on();
    test.serve();
    test.collect(second);
    assert!(test.is_queued(third));
    test.act(|client, cx| client.cancel(third, cx));
    test.act(|client, cx| client.give_back(second, Input::Abandon, cx));
    test.serve();
    assert_eq!(test.client().resources_waited_for(), 0);
    assert_eq!(test.look(second), "gone", "its caller dropped it");
    assert_eq!(test.look(first), "released", "until its caller has the outcome");
}

#[test]
fn a_request_whose_caller_does_not_look_at_it_lets_others_pass() {
    for looks in [true, false] {
        let mut test = ClientTest::new();
        test.occupy("r");
        let first = test.acquire("r", TTL * 6);
        test.serve();
        let second = test.acquire("r", TTL * 6);
        for _ in 0..20 {
            test.pass(MS * 100);
            if looks {
                test.look(first);
            }
            test.act(|client, cx| client.wake_leases(cx));
            test.serve();
        }
        assert_eq!(test.is_queued(second), looks, "the first one looks: {looks}");
    }
}

#[test]
fn a_lease_that_is_not_collected_is_given_up_and_the_next_request_starts() {
    let mut test = ClientTest::new();
    let first = test.acquire("r", TTL);
    test.serve();
    let second = test.acquire("r", TTL);
    assert!(test.has_changed(first) && test.is_queued(second));
    test.pass(MS * 999);
    test.act(|client, cx| client.wake_leases(cx));
    assert!(test.is_queued(second));
    assert_eq!(test.client().leases_wake_at(), test.world.now.plus(MS));
    test.world.now = test.client().leases_wake_at();
    test.act(|client, cx| client.wake_leases(cx));
    assert!(!test.is_queued(second));
    test.serve();
    test.collect(second);
    assert_eq!(test.look(first), "acquiring: None", "it goes on without a turn");
}

#[test]
fn a_clock_that_ran_backwards_ends_leases_and_attempts_and_the_next_request_starts() {
    let mut test = ClientTest::new();
    let held = test.granted("held");
    let waits = test.acquire("held", TTL);
    // Granted, not collected.
    let won = test.acquire("won", Duration::ZERO);
    test.serve();
    // Without replies so far.
    let voting = test.acquire("voting", Duration::ZERO);
    test.act(Client::clock_ran_back);
    assert!([held, won, voting].into_iter().all(|id| test.has_changed(id)));
    test.serve();
    assert_eq!(test.look(held), "holding: Some(ClockRanBack)");
    assert_eq!(test.look(won), "acquiring: Some(TooLate)");
    assert_eq!(test.look(voting), "acquiring: Some(TooLate)");
    // Its attempt began afterwards, and all keys of the others are gone.
    test.collect(waits);
    let again = test.granted("voting");
    assert_eq!(test.look(again), "holding: None");
}

#[test]
fn renewals_do_not_fill_the_links_and_all_leases_live_on() {
    const LEASES: usize = 2_000;
    let mut test = ClientTest::new();
    let ids: Vec<_> = (0..LEASES).map(|number| test.granted(&format!("r{number}"))).collect();
    for id in &ids {
        test.act(|client, cx| client.handle(*id, Input::KeepAlive(TTL * 100), cx));
    }
    // All renewals are due at once, as after a suspend.
    test.pass(TTL / 2);
    test.act(|client, cx| client.wake_leases(cx));
    assert_eq!(test.written()[0].len(), 256, "one wake handles one batch");
    assert!(test.client().leases_wake_at() <= test.world.now, "masters can answer more");
    for _ in 0..7 {
        test.act(|client, cx| client.wake_leases(cx));
    }
    let sent = test.written()[0].len();
    assert!((512..=640).contains(&sent), "{sent}");
    assert_eq!(test.client().leases_wake_at(), test.world.now.plus(MS), "it looks again soon");
    for _ in 0..20 {
        test.serve();
        test.pass(MS);
        test.act(|client, cx| client.wake_leases(cx));
    }
    test.serve();
    let renewed =
        |id: &&ClaimId| test.client().hold(**id).unwrap().deadline() > test.world.now.plus(TTL / 2);
    assert_eq!(ids.iter().filter(renewed).count(), LEASES);
}

#[test]
fn one_server_under_two_addresses_votes_once() {
    let mut test = ClientTest::new();
    let [first, second] = [0, 1].map(NodeId::new);
    let [one, two] = [0, 1].map(|at| test.world.masters[at].server.run_id());
    let connect = |test: &mut ClientTest, node, epoch, server: &RunId| {
        test.world.now = test.client().link(node).next_wake().min(test.world.now.plus(TTL));
        test.act(|client, cx| client.wake_link(node, cx));
        let greeting = Greeting { run_id: Some(server.clone()), ..Greeting::default() };
        test.act(|client, cx| client.connected(node, epoch, greeting, cx))
    };
    let close = |test: &mut ClientTest, node, epoch| {
        test.act(|client, cx| client.closed(node, epoch, "reset".into(), 0, cx));
    };
    close(&mut test, second, 1);
    assert_eq!(connect(&mut test, second, 2, &one), Err(first));
    close(&mut test, second, 2);
    assert_eq!(connect(&mut test, second, 3, &two), Ok(()));
    // Two masters may swap their addresses.
    close(&mut test, first, 1);
    assert_eq!(connect(&mut test, first, 2, &two), Err(second));
    close(&mut test, first, 2);
    close(&mut test, second, 3);
    assert_eq!(connect(&mut test, second, 4, &one), Ok(()));
    assert_eq!(connect(&mut test, first, 3, &two), Ok(()));
}

#[test]
fn where_two_addresses_lead_to_one_server_both_are_dialled_again() {
    let mut test = ClientTest::new();
    let [first, second] = [0, 1].map(NodeId::new);
    let one = test.world.masters[0].server.run_id();
    let other = RunId("elsewhere".into());
    let connect = |test: &mut ClientTest, node, epoch, server: &RunId| {
        test.world.now = test.client().link(node).next_wake().min(test.world.now.plus(TTL));
        test.act(|client, cx| client.wake_link(node, cx));
        let greeting = Greeting { run_id: Some(server.clone()), ..Greeting::default() };
        test.act(|client, cx| client.connected(node, epoch, greeting, cx))
    };
    let refuse = |test: &mut ClientTest, epoch| {
        assert_eq!(connect(test, second, epoch, &one), Err(first));
        test.act(|client, cx| client.closed(second, epoch, "a duplicate".into(), 0, cx));
    };
    test.act(|client, cx| client.closed(second, 1, "reset".into(), 0, cx));
    refuse(&mut test, 2);
    // The address of the first one leads where it led.
    assert!(test.client().link(first).awaits(2), "it is in doubt, too");
    assert_eq!(connect(&mut test, first, 2, &one), Ok(()));
    assert_eq!(test.client().link(first).epoch(), Some(1), "its connection stays");
    refuse(&mut test, 3);
    assert_eq!(connect(&mut test, first, 3, &other), Ok(()));
    assert_eq!(test.client().link(first).epoch(), Some(3));
    assert_eq!(connect(&mut test, second, 4, &one), Ok(()), "both are used");
}

#[test]
fn a_lease_under_which_no_work_ran_is_handed_on_like_any_other_and_leaves_nothing() {
    let mut test = ClientTest::new();
    let lease = test.granted("r");
    let next = test.acquire("r", TTL);
    test.act(|client, cx| client.undo(lease, cx));
    assert_eq!(test.look(lease), "gone");
    test.assert_handed_on();
    test.serve();
    test.collect(next);
}

#[test]
fn a_request_is_looked_at_again_when_something_of_it_ends() {
    let mut test = ClientTest::new();
    let next = |test: &ClientTest, id| test.client().look_again_at(id, test.world.now);
    let start = test.world.now;
    let first = test.acquire("r", TTL);
    let second = test.acquire("r", 2 * TTL);
    assert_eq!(next(&test, first), start.plus(NODE_TIMEOUT), "the end of its round");
    assert_eq!(next(&test, second), start.plus(2 * TTL), "the end of its wait");
    test.serve();
    assert_eq!(next(&test, first), Time::NEVER, "it is won: the client gives it up by itself");
    test.collect(first);
    assert_eq!(next(&test, first), test.client().hold(first).unwrap().deadline());
    test.act(|client, cx| client.cancel(first, cx));
    assert_eq!(next(&test, first), Time::NEVER, "it is gone");
    // Nothing happens before that instant.
    test.world.events.clear();
    test.look(second);
    assert!(test.writes_nothing());
}

#[test]
fn each_vote_of_a_master_is_counted_once() {
    let mut test = ClientTest::new();
    let votes = |test: &ClientTest| {
        let votes = test.client().votes(NodeId::new(0));
        (votes.granted, votes.refused, votes.unknown)
    };
    test.granted("a");
    let held = test.granted("b");
    assert_eq!(votes(&test), (2, 0, 0));
    for _ in 0..2 {
        test.act(|client, cx| client.handle(held, Input::extend(config()), cx));
        test.serve();
    }
    assert_eq!(votes(&test), (2, 0, 0), "a key that is kept is no other grant");
    test.occupy("c");
    for _ in 0..2 {
        test.acquire("c", Duration::ZERO);
        test.serve();
    }
    assert_eq!(votes(&test), (2, 2, 0));
    test.act(|client, cx| client.abandon_link(NodeId::new(0), cx));
    for name in ["d", "e", "f"] {
        test.granted(name);
    }
    assert_eq!(votes(&test), (2, 2, 3));
}

#[test]
fn a_link_whose_driver_is_gone_is_asked_nothing_and_the_others_are() {
    let mut test = ClientTest::new();
    assert_eq!(test.client().links().len(), NODES);
    test.act(|client, cx| client.abandon_link(NodeId::new(1), cx));
    let id = test.acquire("r", Duration::ZERO);
    assert_eq!(test.written().map(|commands| commands.len()), [1, 0, 1]);
    test.act(|client, cx| client.probe(NodeId::new(2), 7, cx));
    assert_eq!(test.written()[2].last(), Some(&&Command::Probe));
    test.serve();
    test.collect(id);
    assert!(!test.client().is_shut_down());
    test.act(Client::shut_down);
    assert!(test.client().is_shut_down());
}

#[test]
fn a_request_tells_what_it_has_come_to() {
    let mut test = ClientTest::new();
    let progress = |test: &ClientTest, id| match test.client().standing(id).unwrap().progress() {
        Progress::Pending => "pending".to_owned(),
        Progress::Won(until) => format!("won for {:?}", until.since(test.world.now)),
        Progress::Held => "held".to_owned(),
        Progress::Failed(why, votes, attempts) => {
            format!("{why:?} after {attempts} by {}", votes.votes().len())
        }
        other => format!("{other:?}"),
    };
    let first = test.acquire("r", TTL);
    let waits = test.acquire("r", NODE_TIMEOUT);
    assert_eq!([first, waits].map(|id| progress(&test, id)), ["pending", "pending"]);
    test.serve();
    assert!(progress(&test, first).starts_with("won for 9.89"));
    test.collect(first);
    assert_eq!(progress(&test, first), "held");
    test.pass(NODE_TIMEOUT);
    test.look(waits);
    assert_eq!(progress(&test, waits), "Taken after 0 by 3");
    let votes = test.client().standing(waits).unwrap().progress().refused_by().unwrap();
    let by_first = votes.which(|reply| matches!(reply, Reply::Taken(Holder::Lease { .. })));
    assert!(by_first.len() >= 2, "{votes:?}");
    test.occupy("s");
    let taken = test.acquire("s", Duration::ZERO);
    test.serve();
    assert_eq!(progress(&test, taken), "Taken after 1 by 3");
    test.act(|client, cx| client.give_back(first, Input::Release, cx));
    assert_eq!(progress(&test, first), "Other");
    assert!(test.client().standing(first).unwrap().progress().refused_by().is_none());
}

#[test]
fn a_request_whose_wait_is_over_behind_one_that_has_found_nothing_makes_an_attempt() {
    let mut test = ClientTest::new();
    let first = test.acquire("r", TTL);
    let second = test.acquire("r", NODE_TIMEOUT / 2);
    test.pass(NODE_TIMEOUT / 2);
    assert_eq!(test.look(second), "acquiring: None");
    // One of them is granted, and the other was refused because of it.
    test.serve();
    test.collect(first);
    assert_eq!(test.look(second), format!("acquiring: {:?}", Some(Failure::Taken)));
    // A lost lease is no reason why the next request has none.
    let third = test.acquire("r", TTL * 2);
    test.world.now = test.client().hold(first).unwrap().deadline();
    test.act(|client, cx| client.wake_leases(cx));
    assert!(!test.is_queued(third));
}

#[test]
fn a_handle_that_is_given_back_does_not_pass_the_turn_on() {
    let mut test = ClientTest::new();
    let lease = test.granted("r");
    test.act(|client, cx| client.handle(lease, Input::Reenter, cx));
    let next = test.acquire("r", TTL);
    for turns in [false, true] {
        test.act(|client, cx| client.give_back(lease, Input::Release, cx));
        assert_eq!(!test.is_queued(next), turns);
    }
}

#[test]
fn the_number_of_resources_with_requests_counts_each_once() {
    let mut test = ClientTest::new();
    test.occupy("a");
    test.occupy("b");
    let ids = ["a", "a", "b"].map(|name| test.acquire(name, TTL));
    assert_eq!(test.client().resources_waited_for(), 2);
    for (id, left) in ids.into_iter().zip([2, 1, 0]) {
        test.act(|client, cx| client.cancel(id, cx));
        assert_eq!(test.client().resources_waited_for(), left);
    }
}

#[test]
fn a_request_that_is_cancelled_is_cleaned_up_whatever_it_has() {
    let mut test = ClientTest::new();
    let [asks, holds] = [test.acquire("a", TTL), test.granted("b")];
    test.act(|client, cx| client.handle(holds, Input::Reenter, cx));
    for id in [asks, holds] {
        test.act(|client, cx| client.cancel(id, cx));
        let deletes = |command: &&Command| matches!(command, Command::Delete { .. });
        assert!(test.written().iter().all(|written| written.last().is_some_and(deletes)));
        test.serve();
        assert_eq!(test.look(id), "gone");
    }
    assert_eq!(test.client().links().iter().map(Link::claimed).sum::<usize>(), 0);
}

#[test]
fn a_request_that_may_not_wait_asks_at_once_although_others_wait() {
    let mut test = ClientTest::new();
    test.granted("r");
    let waits = test.acquire("r", TTL);
    let hurries = test.acquire("r", Duration::ZERO);
    assert!(test.is_queued(waits) && !test.is_queued(hurries));
    assert!(test.written().iter().all(|written| written.len() == 1));
}

#[test]
fn the_caller_of_a_lease_with_a_watchdog_need_not_look_at_its_renewals() {
    let mut test = ClientTest::new();
    let lease = test.granted("r");
    test.act(|client, cx| client.handle(lease, Input::KeepAlive(10 * TTL), cx));
    let looks = test.client().look_again_at(lease, test.world.now);
    assert_eq!(looks, test.client().hold(lease).unwrap().deadline());
    assert!(test.client().leases_wake_at() < looks, "the client renews it");
}

#[test]
fn a_waiter_whose_caller_does_not_look_keeps_its_turn_until_its_position_lapses() {
    let mut test = ClientTest::new();
    test.occupy("r");
    let first = test.acquire("r", 6 * TTL);
    test.serve();
    let mut turns = Vec::new();
    for _ in 0..2 {
        for _ in 0..10 {
            test.pass(MS * 1_000);
            test.act(|client, cx| client.wake_leases(cx));
            test.serve();
        }
        let next = test.acquire("r", 6 * TTL);
        turns.push(!test.is_queued(next));
        test.act(|client, cx| client.cancel(next, cx));
        test.serve();
    }
    assert_eq!(turns, [false, true], "after ten seconds, and after twenty");
    assert_eq!(test.look(first), "acquiring: None", "it goes on");
}

#[test]
fn a_lease_is_woken_in_time_for_what_ends_first() {
    let mut test = ClientTest::new();
    let lease = test.granted("r");
    let shorter = config().with_ttl(TTL / 2).unwrap();
    test.act(|client, cx| client.handle(lease, Input::extend(shorter), cx));
    let round_ends = test.world.now.plus(NODE_TIMEOUT);
    assert!(test.client().leases_wake_at() <= round_ends);
    test.world.now = round_ends;
    test.act(|client, cx| client.wake_leases(cx));
    let deadline = test.client().hold(lease).unwrap().deadline();
    assert!(deadline < test.world.now.plus(TTL / 2));
    assert!(test.client().leases_wake_at() <= deadline);
}

#[test]
fn one_wake_ends_at_most_256_leases_so_that_the_driver_can_serve_others_in_between() {
    let mut test = ClientTest::new();
    let ids: Vec<_> = (0..300).map(|number| test.granted(&format!("r{number}"))).collect();
    test.pass(TTL);
    for lost in [256, 300] {
        test.act(|client, cx| client.wake_leases(cx));
        let is_lost = |id: &&ClaimId| test.client().hold(**id).unwrap().lost().is_some();
        assert_eq!(ids.iter().filter(is_lost).count(), lost);
    }
}

#[test]
fn a_waiter_is_woken_by_its_masters_if_its_caller_looks_at_it_and_leaves_nothing() {
    for looks in [true, false] {
        let (masters, clients, node_timeout) = (NODES, 1, NODE_TIMEOUT);
        let config = Config { masters, clients, node_timeout, wake_ups: true, ..Config::default() };
        let mut test = ClientTest { world: World::new(1, config) };
        test.pass(MS * 1_000);
        test.serve();
        test.occupy("r");
        let id = test.acquire("r", TTL);
        test.serve();
        let waiter = match test.client().claim(id) {
            Some(Claim::Acquiring(acquire)) => acquire.waiter().expect("it is in the queues"),
            other => panic!("{other:?}"),
        };
        test.pass(MS * 600);
        if looks {
            test.look(id);
            test.serve();
        }
        for node in NodeId::all(2) {
            test.act(|client, cx| client.woken(node, 1, waiter, cx));
        }
        for written in test.written() {
            let sets = written.iter().any(|command| matches!(command, Command::Set { .. }));
            let leaves = written.iter().any(|command| matches!(command, Command::Dequeue { .. }));
            assert_eq!((sets, leaves), (looks, !looks), "others go first: {written:?}");
        }
        test.act(|client, cx| client.cancel(id, cx));
        test.serve();
        let left = (test.client().resources_waited_for(), test.client().link(NodeId::new(0)));
        assert_eq!((left.0, left.1.subscriptions(), left.1.pending_leaves()), (0, 0, 0));
    }
}

#[test]
fn an_attempt_whose_caller_does_not_look_lets_others_pass_half_a_second_after_its_end() {
    for (late, looks) in [(0, false), (0, true), (5_000, false), (5_000, true)] {
        let mut test = ClientTest::new();
        let [first, second] = [TTL, TTL].map(|wait| test.acquire("r", wait));
        let first_step = test.world.now.plus(NODE_TIMEOUT + MS * 250);
        assert_eq!(test.client().leases_wake_at(), first_step);
        test.world.now = first_step.plus(MS * late);
        test.act(|client, cx| client.wake_leases(cx));
        test.pass(MS * 249);
        test.act(|client, cx| client.wake_leases(cx));
        assert!(test.is_queued(second), "{late} ms late");
        if looks {
            test.look(first);
        }
        test.pass(MS);
        test.act(|client, cx| client.wake_leases(cx));
        assert_eq!(test.is_queued(second), looks, "{late} ms late");
    }
}

#[test]
fn a_process_that_has_just_released_enqueues_behind_the_waiters_of_others() {
    for others_wait in [false, true] {
        let (masters, clients, node_timeout) = (NODES, 2, NODE_TIMEOUT);
        let (wake_ups, fair) = (true, true);
        let client_config =
            Config { masters, clients, node_timeout, wake_ups, fair, ..Config::default() };
        let mut test = ClientTest { world: World::new(1, client_config) };
        test.pass(MS * 1_000);
        test.serve();
        let lease = test.granted("r");
        if others_wait {
            let request = AcquireRequest::for_member(config(), TTL, false, ());
            test.world.act(1, |client, cx| client.acquire(key("r"), request, cx));
            test.serve();
        }
        test.act(|client, cx| client.give_back(lease, Input::Release, cx));
        test.serve();
        test.acquire("r", TTL);
        let asks_for_the_key =
            |written: &Vec<&Command>| written.iter().any(|it| matches!(it, Command::Set { .. }));
        assert_eq!(!test.written().iter().any(asks_for_the_key), others_wait);
    }
}

#[test]
fn a_request_whose_wait_is_over_behind_a_refused_one_reports_the_same_without_an_attempt() {
    let mut test = ClientTest::new();
    test.occupy("r");
    test.acquire("r", TTL);
    let hurried = test.acquire("r", NODE_TIMEOUT / 2);
    test.serve();
    test.pass(NODE_TIMEOUT / 2);
    assert_eq!(test.look(hurried), "over: Taken");
    assert!(test.writes_nothing());
}

#[test]
fn a_second_connection_that_fails_leaves_the_server_of_the_first_known() {
    let mut test = ClientTest::new();
    let [first, second] = [0, 1].map(NodeId::new);
    let one = test.world.masters[0].server.run_id();
    let leads_to_the_first = |test: &mut ClientTest, epoch| {
        test.act(|client, cx| client.closed(second, epoch - 1, "reset".into(), 0, cx));
        test.world.now = test.client().link(second).next_wake().min(test.world.now.plus(TTL));
        test.act(|client, cx| client.wake_link(second, cx));
        let greeting = Greeting { run_id: Some(one.clone()), ..Greeting::default() };
        test.act(|client, cx| client.connected(second, epoch, greeting, cx))
    };
    assert_eq!(leads_to_the_first(&mut test, 2), Err(first));
    assert!(test.client().link(first).awaits(2));
    test.act(|client, cx| client.closed(first, 2, "refused".into(), 0, cx));
    assert_eq!(leads_to_the_first(&mut test, 3), Err(first), "it is connected to it");
}
