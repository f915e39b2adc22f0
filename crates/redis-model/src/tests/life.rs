//! Stops and starts of the process, and what survives them.

use super::*;

#[test]
fn what_is_left_depends_on_persistence_and_on_the_way_it_ended() {
    let ends: [fn(&mut Server, &mut Vec<Event>); 3] =
        [Server::kill, Server::stop, Server::power_loss];
    for (persistence, left) in [
        (Persistence::None, [0, 0, 0]),
        (Persistence::AofEverysec, [2, 2, 1]),
        (Persistence::AofAlways, [2, 2, 2]),
    ] {
        for (end, left) in ends.iter().zip(left) {
            let (mut server, c) = with(persistence);
            let run = server.run_id();
            ask(&mut server, c, 0, set(1, 60_000));
            server.fsync(1000 * MS);
            let key = Arc::from(&b"second"[..]);
            let second =
                Command::Set { key, token: token(2), ttl_ms: 60_000, fair: false, fence: None };
            ask(&mut server, c, 0, Request::Lock(second));
            let mut out = Vec::new();
            end(&mut server, &mut out);
            assert_eq!(out, [Event::Dropped(c)]);
            assert_eq!((server.connect(), locks(&server)), (None, 0));
            server.start(30_000 * MS);
            assert_ne!(server.run_id(), run);
            assert_eq!(locks(&server), left, "{persistence:?}");
        }
    }
}

#[test]
fn a_clock_that_was_set_back_keeps_the_file_from_being_synced() {
    let (mut server, c) = with(Persistence::AofEverysec);
    ask(&mut server, c, 9_000 * MS, set(9, 1));
    ask(&mut server, c, 9_000 * MS, delete(9));
    assert!(server.fsync(9_000 * MS));
    ask(&mut server, c, 2_000 * MS, set(1, 60_000));
    server.fsync(3_000 * MS);
    let mut cut = server.clone();
    cut.power_loss(&mut Vec::new());
    cut.start(3_000 * MS);
    assert_eq!(locks(&cut), 0);
    server.fsync(10_000 * MS);
    server.power_loss(&mut Vec::new());
    server.start(3_000 * MS);
    assert_eq!(locks(&server), 1);
}

#[test]
fn a_replica_that_takes_over_has_the_keys_of_its_snapshot_and_no_scripts() {
    let (mut server, c) = server();
    ask(&mut server, c, 0, set(1, 1000));
    let replica = server.replicate();
    ask(&mut server, c, 0, delete(1));
    let (run, mut out) = (server.run_id(), Vec::new());
    server.fail_over(replica, &mut out);
    assert_eq!(out, [Event::Dropped(c)]);
    assert_ne!(server.run_id(), run);
    let c = server.connect().unwrap();
    replies(&mut server, c, 0, delete(1), Reply::Unknown(Cause::NoScript));
    replies(&mut server, c, 0, set(2, 1000), Reply::Taken(Holder::NotAsked));
}
