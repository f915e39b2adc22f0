//! Tests of the model, without a real server. `tests/differential` shows that Redis does the same.

mod life;

use std::sync::Arc;

use redquorum_protocol::wire::Expect;
use redquorum_protocol::{Cause, Fence, Holder, MAX_NUMBER, WakeUp};

use crate::mutants::ScriptMutant;
use crate::scenario::Ahead;

use super::*;

const MS: Wall = 1_000_000;

fn key() -> Key {
    Arc::from(&b"r"[..])
}

fn token(number: u8) -> Token {
    Token::new([number; 20])
}

fn set(number: u8, ttl_ms: u64) -> Request {
    Request::Lock(Command::Set { key: key(), token: token(number), ttl_ms, fence: None })
}

fn delete(number: u8) -> Request {
    let (token, call) = (token(number), WakeUp::None);
    Request::Lock(Command::Delete { key: key(), token, call, leave: None })
}

/// A fencing counter with a TTL of one second.
fn fence(number: u64) -> Fence {
    Fence { number, memory_ms: 1000 }
}

fn grant(number: u8, hint: u64) -> Request {
    let fence = Some(fence(hint));
    Request::Lock(Command::Set { key: key(), token: token(number), ttl_ms: 10, fence })
}

fn certify(number: u8, least: u64) -> Request {
    Request::Lock(Command::Certify { key: key(), token: token(number), fence: fence(least) })
}

fn keep(number: u8, ttl_ms: u64, repair: bool) -> Request {
    Request::Lock(Command::Keep { key: key(), token: token(number), ttl_ms, repair, fence: None })
}

fn server() -> (Server, Connection) {
    with(Persistence::None)
}

fn with(persistence: Persistence) -> (Server, Connection) {
    let mut server = Server::new(1, persistence);
    let connection = greeted(&mut server);
    (server, connection)
}

fn greeted(server: &mut Server) -> Connection {
    let connection = server.connect().unwrap();
    assert!(matches!(ask(server, connection, 0, Request::Hello), ServerReply::Greeting { .. }));
    connection
}

fn ask(server: &mut Server, connection: Connection, wall: Wall, request: Request) -> ServerReply {
    server.deliver(connection, request);
    match &served(server, connection, wall)[..] {
        [Event::ServerReply(to, reply)] if *to == connection => reply.clone(),
        other => panic!("{other:?}"),
    }
}

fn served(server: &mut Server, connection: Connection, wall: Wall) -> Vec<Event> {
    let mut out = Vec::new();
    server.serve(wall, connection, &mut out);
    out
}

#[track_caller]
fn answers(server: &mut Server, connection: Connection, wall: Wall, of: Request, answer: Reply) {
    assert_eq!(ask(server, connection, wall, of), ServerReply::Reply(answer));
}

#[test]
fn a_key_is_there_until_the_end_of_its_last_millisecond() {
    let (mut server, c) = server();
    answers(&mut server, c, 999_999, set(1, 10), Reply::Created);
    let last = 11 * MS - 1;
    assert_eq!(server.keys().collect::<Vec<_>>(), [(&key(), token(1), last)]);
    assert_eq!(ask(&mut server, c, last, Request::Pttl(key())), ServerReply::Pttl(0));
    assert_eq!(ask(&mut server, c, last, Request::Get(key())), ServerReply::Value(Some(token(1))));
    answers(&mut server, c, last, set(2, 10), Reply::Taken(Holder::NotAsked));
    assert_eq!(ask(&mut server, c, last + 1, Request::Pttl(key())), ServerReply::Pttl(-2));
    assert_eq!(server.keys().count(), 0, "the look at it deleted it");
}

#[test]
fn what_expired_unseen_comes_back_with_the_clock_and_what_was_seen_does_not() {
    let (mut server, c) = server();
    ask(&mut server, c, 0, set(1, 10));
    assert_eq!(server.keys().count(), 1);
    assert_eq!(ask(&mut server, c, 5 * MS, Request::Pttl(key())), ServerReply::Pttl(5));
    server.tick(10 * MS);
    assert_eq!(server.keys().count(), 1);
    server.tick(11 * MS);
    assert_eq!(ask(&mut server, c, 0, Request::Get(key())), ServerReply::Value(None));
}

#[test]
fn keep_never_shortens_and_repairs_only_when_asked_to() {
    let (mut server, c) = server();
    answers(&mut server, c, 0, keep(1, 10, false), Reply::Absent);
    answers(&mut server, c, 0, keep(1, 10, true), Reply::Created);
    answers(&mut server, c, 0, keep(1, 5, true), Reply::Kept);
    assert_eq!(ask(&mut server, c, 0, Request::Pttl(key())), ServerReply::Pttl(10));
    answers(&mut server, c, 2 * MS, keep(1, 10, false), Reply::Kept);
    assert_eq!(ask(&mut server, c, 2 * MS, Request::Pttl(key())), ServerReply::Pttl(10));
    let theirs = Reply::Taken(Holder::Lease { token: token(1), left_ms: 9 });
    answers(&mut server, c, 3 * MS, keep(2, 10, true), theirs.clone());
    answers(&mut server, c, 3 * MS, delete(2), theirs);
    answers(&mut server, c, 3 * MS, delete(1), Reply::Deleted);
    answers(&mut server, c, 3 * MS, delete(1), Reply::Absent);
}

#[test]
fn counters_grow_with_grants_follow_hints_no_further_than_the_clock_and_are_forgotten_in_time() {
    let (mut server, c) = server();
    answers(&mut server, c, 0, grant(1, 7), Reply::Granted { number: 7 });
    answers(&mut server, c, 0, grant(2, 9), Reply::Taken(Holder::NotAsked));
    answers(&mut server, c, 0, certify(1, 6), Reply::Certified { number: 7 });
    answers(&mut server, c, 0, certify(1, 8), Reply::Certified { number: 8 });
    let theirs = Reply::Taken(Holder::Lease { token: token(1), left_ms: 10 });
    answers(&mut server, c, 0, certify(2, 100), theirs);
    answers(&mut server, c, 0, delete(1), Reply::Deleted);
    answers(&mut server, c, 0, certify(1, 100), Reply::Absent);
    answers(&mut server, c, 0, grant(2, 0), Reply::Granted { number: 9 });
    answers(&mut server, c, 0, delete(2), Reply::Deleted);
    // The hint is bounded to one second ahead of 1970, and not a microsecond more.
    answers(&mut server, c, 0, grant(3, u64::MAX), Reply::Granted { number: 1_000_000 });
    answers(&mut server, c, 0, certify(3, MAX_NUMBER), Reply::Certified { number: MAX_NUMBER });
    answers(&mut server, c, 0, delete(3), Reply::Deleted);
    let ask = ask(&mut server, c, 0, grant(4, 0));
    assert!(matches!(ask, ServerReply::Reply(Reply::Unknown(Cause::Error(_)))), "{ask:?}");
    answers(&mut server, c, 0, delete(4), Reply::Absent);
    answers(&mut server, c, 1001 * MS, grant(4, 5), Reply::Granted { number: 5 });
}

#[test]
fn a_repair_is_a_grant_and_an_extension_remembers_the_counter_anew() {
    let (mut server, c) = server();
    let fenced = |number, repair, least| {
        let (key, token, fence) = (key(), token(number), Some(fence(least)));
        Request::Lock(Command::Keep { key, token, ttl_ms: 10, repair, fence })
    };
    answers(&mut server, c, 0, fenced(1, true, 40), Reply::Created);
    answers(&mut server, c, 0, certify(1, 0), Reply::Certified { number: 40 });
    answers(&mut server, c, 0, delete(1), Reply::Deleted);
    answers(&mut server, c, 0, fenced(1, true, 40), Reply::Created);
    answers(&mut server, c, 0, certify(1, 0), Reply::Certified { number: 41 });
    for second in 1..4 {
        let at = second * 600 * MS;
        answers(&mut server, c, at, fenced(1, true, 40), Reply::Created);
        answers(&mut server, c, at + MS, fenced(1, false, 40), Reply::Kept);
    }
    answers(&mut server, c, 1801 * MS, certify(1, 0), Reply::Certified { number: 44 });
}

#[test]
fn scripts_are_known_from_their_load_to_a_flush_or_a_restart() {
    let (mut server, c) = server();
    let unknown = Reply::Unknown(Cause::NoScript);
    ask(&mut server, c, 0, Request::ScriptFlush);
    answers(&mut server, c, 0, delete(1), unknown.clone());
    // In the order of `SCRIPTS`: each script with a command that calls it and no other.
    let calls = [
        (delete(1), Reply::Absent),
        (keep(1, 1, false), Reply::Absent),
        (grant(1, 5), Reply::Granted { number: 5 }),
        (certify(1, 6), Reply::Certified { number: 6 }),
    ];
    for (load, (call, answer)) in Command::load_scripts(false).zip(calls) {
        answers(&mut server, c, 0, call.clone(), unknown.clone());
        answers(&mut server, c, 0, Request::Lock(load), Reply::Alive);
        answers(&mut server, c, 0, call, answer);
    }
    server.kill(&mut Vec::new());
    server.start(0);
    let c = server.connect().unwrap();
    answers(&mut server, c, 0, delete(1), unknown);
}

#[test]
fn a_paused_master_takes_everything_and_executes_it_later_even_for_a_client_that_is_gone() {
    for how in [Close::Fin, Close::Reset] {
        let (mut server, c) = server();
        server.pause();
        let late = server.connect().unwrap();
        server.deliver(c, set(1, 1000));
        server.deliver(late, set(2, 1000));
        assert_eq!(served(&mut server, c, 0), []);
        server.close(c, how);
        server.deliver(c, delete(1));
        server.resume();
        assert_eq!(server.waiting().collect::<Vec<_>>(), [c, late]);
        let replies = served(&mut server, c, 0).len();
        assert_eq!(replies, usize::from(how == Close::Fin));
        assert!(!server.knows(c) && server.waiting().eq([late]));
        let refused = ServerReply::Reply(Reply::Taken(Holder::NotAsked));
        assert_eq!(served(&mut server, late, 0), [Event::ServerReply(late, refused)]);
    }
}

#[test]
fn of_a_connection_that_was_reset_one_read_is_executed_and_of_one_that_was_closed_all() {
    for (how, all) in [(Close::Fin, true), (Close::Reset, false)] {
        let (mut server, c) = server();
        server.pause();
        for number in 0..400_u64 {
            let key = Arc::from(&number.to_le_bytes()[..]);
            let command = Command::Set { key, token: token(1), ttl_ms: 1000, fence: None };
            server.deliver(c, Request::Lock(command));
        }
        server.close(c, how);
        server.resume();
        served(&mut server, c, 0);
        let executed = server.keys().count();
        assert!(if all { executed == 400 } else { (100..250).contains(&executed) }, "{executed}");
    }
}

#[test]
fn client_kill_drops_a_connection_with_what_it_had_sent() {
    let (mut server, old) = server();
    let new = greeted(&mut server);
    let ServerReply::Greeting { client_id, .. } = ask(&mut server, old, 0, Request::Hello) else {
        panic!()
    };
    server.pause();
    server.deliver(old, set(1, 1000));
    server.deliver(new, Request::Lock(Command::Kill { client_id }));
    server.resume();
    let killed = [Event::Dropped(old), Event::ServerReply(new, ServerReply::Reply(Reply::Alive))];
    assert_eq!(served(&mut server, new, 0), killed);
    assert_eq!(served(&mut server, old, 0), []);
    assert_eq!(server.keys().count(), 0);
}

#[test]
fn who_would_kill_his_own_connection_is_answered_and_spared() {
    let (mut server, c) = server();
    let ServerReply::Greeting { client_id, .. } = ask(&mut server, c, 0, Request::Hello) else {
        panic!()
    };
    answers(&mut server, c, 0, Request::Lock(Command::Kill { client_id }), Reply::Alive);
    answers(&mut server, c, 0, set(1, 1000), Reply::Created);
}

#[test]
fn without_memory_nothing_is_created_and_all_else_goes_on() {
    let (mut server, c) = server();
    ask(&mut server, c, 0, set(1, 1000));
    server.set_out_of_memory(true);
    let refused = |reply| match reply {
        ServerReply::Reply(Reply::Unknown(Cause::Error(text))) => text.starts_with("OOM "),
        other => panic!("{other:?}"),
    };
    assert!(refused(ask(&mut server, c, 0, set(2, 1000))));
    assert!(refused(ask(&mut server, c, 0, Request::Lock(Command::Probe))));
    answers(&mut server, c, 0, keep(1, 2000, true), Reply::Kept);
    answers(&mut server, c, 0, delete(1), Reply::Deleted);
    assert!(refused(ask(&mut server, c, 0, keep(1, 2000, true))));
    server.set_out_of_memory(false);
    answers(&mut server, c, 0, keep(1, 2000, true), Reply::Created);
    assert!(server.evict(&key()) && !server.evict(&key()));
}

#[test]
fn while_it_loads_it_knows_only_time_and_connections() {
    let (mut server, c) = server();
    server.set_loading(true);
    for request in [set(1, 1000), delete(1), keep(1, 1, true), Request::Lock(Command::Probe)] {
        let reply = ask(&mut server, c, 0, request);
        assert!(matches!(reply, ServerReply::Reply(Reply::Unknown(Cause::Error(_)))), "{reply:?}");
    }
    assert!(matches!(ask(&mut server, c, 0, Request::Hello), ServerReply::Error(_)));
    assert_eq!(ask(&mut server, c, 1234, Request::Time), ServerReply::Time(1000));
    answers(&mut server, c, 0, Request::Lock(Command::Kill { client_id: 99 }), Reply::Alive);
}

#[test]
fn its_answers_are_those_that_the_wire_reads_from_redis() {
    // Where two readings are compared, a reply that both misread in the same way goes unnoticed.
    let read = |expect: Expect, text: &[u8]| {
        let frame = redquorum_protocol::wire::parse(text, 1000).unwrap().unwrap().0;
        expect.read(&frame)
    };
    let (mut server, c) = server();
    answers(&mut server, c, 0, set(1, 1000), read(Expect::Set, b"+OK\r\n"));
    answers(&mut server, c, 0, set(1, 1000), read(Expect::Set, b"$-1\r\n"));
    let bad = read(Expect::Set, b"-ERR invalid expire time in 'set' command\r\n");
    answers(&mut server, c, 0, set(1, 0), bad);
    let far = read(Expect::Set, b"-ERR value is not an integer or out of range\r\n");
    answers(&mut server, c, 0, set(1, u64::MAX), far);
}

#[test]
fn somebody_sets_a_counter_ahead_and_never_back() {
    let (mut server, c) = server();
    let second = Ahead::By("1s".parse().unwrap());
    server.set_counter(5 * MS, key(), second);
    answers(&mut server, c, 5 * MS, grant(1, 17), Reply::Granted { number: 1_005_001 });
    server.set_counter(5 * MS, key(), second);
    answers(&mut server, c, 5 * MS, certify(1, 17), Reply::Certified { number: 1_005_001 });
    server.set_counter(20 * MS, key(), Ahead::Last);
    answers(&mut server, c, 20 * MS, grant(2, 17), Reply::Granted { number: MAX_NUMBER });
    let refused = ask(&mut server, c, 40 * MS, grant(3, 17));
    assert!(matches!(refused, ServerReply::Reply(Reply::Unknown(Cause::Error(_)))), "{refused:?}");
    assert_eq!(server.keys().count(), 0, "who is refused a number gets no key");
}

#[test]
fn what_a_lax_script_leaves_out_is_not_done() {
    let (mut server, c) = server();
    let script_mutant = |request, script_mutant| match request {
        Request::Lock(command) => Request::Lax(command, script_mutant),
        other => other,
    };
    // A hint of an hour, while the clock shows 5 ms.
    let hour = 3_600_000_000;
    let unclamped = script_mutant(grant(1, hour), ScriptMutant::Unclamped);
    answers(&mut server, c, 5 * MS, unclamped, Reply::Granted { number: hour });
    let another = script_mutant(certify(2, hour + 7), ScriptMutant::Uncompared);
    answers(&mut server, c, 5 * MS, another, Reply::Certified { number: hour + 7 });
    server.set_counter(20 * MS, key(), Ahead::End);
    let endless = script_mutant(grant(3, 0), ScriptMutant::Endless);
    answers(&mut server, c, 20 * MS, endless, Reply::Granted { number: MAX_NUMBER });
}
