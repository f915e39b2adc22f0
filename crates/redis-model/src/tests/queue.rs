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
    let [positions, lapses] = queue_of(&key());
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
