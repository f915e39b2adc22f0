//! The queue of the waiters for a resource.

use redquorum_protocol::wire::{LAPSE_MS, queue_of};

use super::*;

fn waiter(number: u64) -> Waiter {
    Waiter { inbox: number, waiter_id: WaiterId::new(number) }
}

/// A server on which another program holds the resource: no look wakes a waiter.
fn held() -> (Server, Connection) {
    let (mut server, c) = server();
    server.set(0, &key(), b"another's", None);
    (server, c)
}

/// Requests a position. Returns its number and how many waiters are before it.
fn look(
    server: &mut Server,
    (c, ms): (Connection, u64),
    by: u64,
    position: Position,
) -> (u64, u64) {
    let enqueue = Command::Enqueue { key: key(), waiter: waiter(by), position };
    match read(server, c, ms * MS, Request::Lock(enqueue)) {
        Reply::Place { number, ahead, .. } => (number, ahead),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_position_lapses_unless_it_is_requested_again() {
    let (mut server, c) = held();
    look(&mut server, (c, 0), 1, Position::Last);
    look(&mut server, (c, 4_000), 2, Position::Last);
    look(&mut server, (c, 4_000), 1, Position::Last);
    assert_eq!(look(&mut server, (c, LAPSE_MS - 1), 2, Position::Any), (2, 1));
    assert_eq!(look(&mut server, (c, LAPSE_MS), 2, Position::Any), (2, 0), "a look wrote nothing");
    // Both keys go with the last waiter.
    let queue = server.keys().filter(|(of, ..)| **of != key());
    let ends: Vec<_> = queue.map(|(key, _, end)| (&key[..], end)).collect();
    let last = 2 * LAPSE_MS * MS - 1;
    let [positions, _, lapses] = queue_of(&key());
    assert_eq!(ends, [(&lapses[..], last), (&positions[..], last)]);
}

#[test]
fn where_the_clock_is_set_back_positions_are_requested_anew() {
    let (mut server, c) = held();
    look(&mut server, (c, 100_000), 1, Position::Last);
    look(&mut server, (c, 100_000), 2, Position::Last);
    assert_eq!(look(&mut server, (c, 10), 2, Position::NotBefore(2)), (2, 0));
    assert_eq!(look(&mut server, (c, 10), 1, Position::At(1)), (1, 0));
}

/// Four waiters are in the queue, and the resource is free. Each of them asks at these times, which
/// are in order. Returns how many waiters are before the last one in the end.
fn before_the_last(asks: &[(u64, u64)], end: u64) -> u64 {
    let (mut server, c) = held();
    // Without an inbox, nobody is subscribed: a message wakes none of them.
    let ask = |server: &mut Server, by, ms, position| {
        let waiter = Waiter { inbox: 0, waiter_id: WaiterId::new(by) };
        let enqueue = Command::Enqueue { key: key(), waiter, position };
        match read(server, c, ms * MS, Request::Lock(enqueue)) {
            Reply::Place { ahead, .. } => ahead,
            other => panic!("{other:?}"),
        }
    };
    (1..=4).for_each(|by| _ = ask(&mut server, by, 0, Position::Last));
    server.evict(&key());
    for (by, ms) in asks {
        ask(&mut server, *by, *ms, Position::At(*by));
    }
    ask(&mut server, 4, end, Position::At(4))
}

#[test]
fn several_silent_waiters_are_passed_over_together() {
    // The first waiter is woken at 100 ms, for three seconds.
    assert_eq!(before_the_last(&[(4, 100), (4, 599), (4, 600)], 3_099), 3);
    assert_eq!(before_the_last(&[(4, 100), (4, 599), (4, 600)], 3_100), 0);
    // Its turn has only begun when the last one looks.
    assert_eq!(before_the_last(&[(4, 100), (4, 599)], 3_100), 2);
    // The second waiter is not silent, whether it asks before or after the last one does.
    for asks in [[(4, 100), (2, 500), (4, 600)], [(4, 100), (4, 600), (2, 2_000)]] {
        assert_eq!(before_the_last(&asks, 3_100), 1, "{asks:?}");
    }
    // The first one is not: it asks again, and is woken again.
    assert_eq!(before_the_last(&[(4, 100), (4, 600), (1, 1_000)], 3_100), 1);
    // All have a second and a half, if the turn of the first is shorter.
    assert_eq!(before_the_last(&[(4, 100), (4, 2_500)], 3_999), 2);
    assert_eq!(before_the_last(&[(4, 100), (4, 2_500)], 4_000), 0);
}
