//! Tests of the model, without a real server. `tests/differential` shows that Redis does the same.

mod life;
mod queue;

use std::sync::Arc;

use redquorum_protocol::wire::{BOOT, Command, Greeting, Hello, parse};
use redquorum_protocol::{
    Cause, Fence, Holder, Key, MAX_NUMBER, Position, Reply, Token, Waiter, WaiterId, WakeUp,
};

use crate::*;

const MS: Wall = 1_000_000;
const PTTL: &[&[u8]] = &[b"PTTL", b"r"];
const GET: &[&[u8]] = &[b"GET", b"r"];

fn key() -> Key {
    Arc::from(&b"r"[..])
}

fn token(number: u8) -> Token {
    Token::new([number; 20])
}

fn set(number: u8, ttl_ms: u64) -> Request {
    Request::Lock(Command::Set {
        key: key(),
        token: token(number),
        ttl_ms,
        fair: false,
        fence: None,
    })
}

fn delete(number: u8) -> Request {
    let (token, wake_up) = (token(number), WakeUp::None);
    Request::Lock(Command::Delete { key: key(), token, wake_up, leave: None })
}

/// A fencing counter with a TTL of one second.
fn fence(number: u64) -> Fence {
    Fence { number, memory_ms: 1000 }
}

fn grant(number: u8, hint: u64) -> Request {
    let fence = Some(fence(hint));
    Request::Lock(Command::Set { key: key(), token: token(number), ttl_ms: 10, fair: false, fence })
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
    client_id(server, connection);
    connection
}

fn client_id(server: &mut Server, connection: Connection) -> u64 {
    match ask(server, connection, 0, Request::Hello) {
        ServerReply::Greeting(greeting) => greeting.client_id.unwrap(),
        other => panic!("{other:?}"),
    }
}

fn ask(server: &mut Server, connection: Connection, wall: Wall, request: Request) -> ServerReply {
    server.deliver(connection, request);
    match &served(server, connection, wall)[..] {
        [Event::Message(to, reply)] if *to == connection => reply.clone(),
        other => panic!("{other:?}"),
    }
}

fn served(server: &mut Server, connection: Connection, wall: Wall) -> Vec<Event> {
    let mut out = Vec::new();
    server.serve(wall, connection, &mut out);
    out
}

/// The reply to a command of the lock, as a client reads it.
fn read(server: &mut Server, connection: Connection, wall: Wall, request: Request) -> Reply {
    let (Request::Lock(command) | Request::Mutant(command, _)) = &request else { panic!() };
    let expect = command.expect();
    match ask(server, connection, wall, request) {
        ServerReply::Value(value) => value.read(expect),
        other => panic!("{other:?}"),
    }
}

/// The reply to another command.
fn reply_to(server: &mut Server, connection: Connection, wall: Wall, words: &[&[u8]]) -> Value {
    match ask(server, connection, wall, Request::words(words)) {
        ServerReply::Value(value) => value,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn replies(server: &mut Server, connection: Connection, wall: Wall, of: Request, reply: Reply) {
    assert_eq!(read(server, connection, wall, of), reply);
}

#[track_caller]
fn is_refused(reply: &Reply, why: &str) {
    assert!(
        matches!(reply, Reply::Unknown(Cause::Error(text)) if text.starts_with(why)),
        "{reply:?}"
    );
}

/// How many keys of locks there are.
fn locks(server: &Server) -> usize {
    server.keys().filter(|(key, ..)| !key.starts_with(b"redquorum:")).count()
}

#[test]
fn a_key_is_there_until_the_end_of_its_last_millisecond() {
    let (mut server, c) = server();
    replies(&mut server, c, 999_999, set(1, 10), Reply::Created);
    let last = 11 * MS - 1;
    let value = Key::from(&token(1).as_bytes()[..]);
    assert_eq!(server.keys().collect::<Vec<_>>(), [(&key(), Some(&value), last)]);
    assert_eq!(reply_to(&mut server, c, last, PTTL), Value::Integer(0));
    assert_eq!(reply_to(&mut server, c, last, GET), Value::Bulk(value));
    replies(&mut server, c, last, set(2, 10), Reply::Taken(Holder::NotAsked));
    assert_eq!(reply_to(&mut server, c, last + 1, PTTL), Value::Integer(-2));
    assert_eq!(locks(&server), 0, "the look at it deleted it");
}

#[test]
fn an_expired_key_that_no_command_has_read_comes_back_with_the_clock() {
    let (mut server, c) = server();
    ask(&mut server, c, 0, set(1, 10));
    assert_eq!(locks(&server), 1);
    assert_eq!(reply_to(&mut server, c, 5 * MS, PTTL), Value::Integer(5));
    server.tick(10 * MS);
    assert_eq!(locks(&server), 1);
    server.tick(11 * MS);
    assert_eq!(reply_to(&mut server, c, 0, GET), Value::Null);
}

#[test]
fn keep_never_shortens_a_ttl_and_repairs_only_on_request() {
    let (mut server, c) = server();
    replies(&mut server, c, 0, keep(1, 10, false), Reply::Absent);
    replies(&mut server, c, 0, keep(1, 10, true), Reply::Created);
    replies(&mut server, c, 0, keep(1, 5, true), Reply::Kept);
    assert_eq!(reply_to(&mut server, c, 0, PTTL), Value::Integer(10));
    replies(&mut server, c, 2 * MS, keep(1, 10, false), Reply::Kept);
    assert_eq!(reply_to(&mut server, c, 2 * MS, PTTL), Value::Integer(10));
    let theirs = Reply::Taken(Holder::Lease { token: token(1), left_ms: 9 });
    replies(&mut server, c, 3 * MS, keep(2, 10, true), theirs.clone());
    replies(&mut server, c, 3 * MS, delete(2), theirs);
    replies(&mut server, c, 3 * MS, delete(1), Reply::Deleted);
    replies(&mut server, c, 3 * MS, delete(1), Reply::Absent);
}

#[test]
fn counters_grow_with_grants_follow_hints_no_further_than_the_clock_and_are_forgotten_in_time() {
    let (mut server, c) = server();
    replies(&mut server, c, 0, grant(1, 7), Reply::Granted { number: 7 });
    replies(&mut server, c, 0, grant(2, 9), Reply::Taken(Holder::NotAsked));
    replies(&mut server, c, 0, certify(1, 6), Reply::Certified { number: 7 });
    replies(&mut server, c, 0, certify(1, 8), Reply::Certified { number: 8 });
    let theirs = Reply::Taken(Holder::Lease { token: token(1), left_ms: 10 });
    replies(&mut server, c, 0, certify(2, 100), theirs);
    replies(&mut server, c, 0, delete(1), Reply::Deleted);
    replies(&mut server, c, 0, certify(1, 100), Reply::Absent);
    replies(&mut server, c, 0, grant(2, 0), Reply::Granted { number: 9 });
    replies(&mut server, c, 0, delete(2), Reply::Deleted);
    // The hint is bounded to one second ahead of 1970, and not a microsecond more.
    replies(&mut server, c, 0, grant(3, u64::MAX), Reply::Granted { number: 1_000_000 });
    replies(&mut server, c, 0, certify(3, MAX_NUMBER), Reply::Certified { number: MAX_NUMBER });
    replies(&mut server, c, 0, delete(3), Reply::Deleted);
    is_refused(&read(&mut server, c, 0, grant(4, 0)), "FENCE");
    replies(&mut server, c, 0, delete(4), Reply::Absent);
    replies(&mut server, c, 1001 * MS, grant(4, 5), Reply::Granted { number: 5 });
}

#[test]
fn a_repair_is_a_grant_and_an_extension_remembers_the_counter_anew() {
    let (mut server, c) = server();
    let fenced = |number, repair, least| {
        let (key, token, fence) = (key(), token(number), Some(fence(least)));
        Request::Lock(Command::Keep { key, token, ttl_ms: 10, repair, fence })
    };
    replies(&mut server, c, 0, fenced(1, true, 40), Reply::Created);
    replies(&mut server, c, 0, certify(1, 0), Reply::Certified { number: 40 });
    replies(&mut server, c, 0, delete(1), Reply::Deleted);
    replies(&mut server, c, 0, fenced(1, true, 40), Reply::Created);
    replies(&mut server, c, 0, certify(1, 0), Reply::Certified { number: 41 });
    for second in 1..4 {
        let at = second * 600 * MS;
        replies(&mut server, c, at, fenced(1, true, 40), Reply::Created);
        replies(&mut server, c, at + MS, fenced(1, false, 40), Reply::Kept);
    }
    replies(&mut server, c, 1801 * MS, certify(1, 0), Reply::Certified { number: 44 });
}

#[test]
fn scripts_are_known_from_their_load_to_a_flush_or_a_restart() {
    let (mut server, c) = server();
    let unknown = Reply::Unknown(Cause::NoScript);
    reply_to(&mut server, c, 0, &[b"SCRIPT", b"FLUSH"]);
    replies(&mut server, c, 0, delete(1), unknown.clone());
    // In the order of `SCRIPTS`: each script with a command that calls it and no other.
    let calls = [
        (delete(1), Reply::Absent),
        (keep(1, 1, false), Reply::Absent),
        (grant(1, 5), Reply::Granted { number: 5 }),
        (certify(1, 6), Reply::Certified { number: 6 }),
    ];
    for (load, (wake_up, reply)) in Command::load_scripts(false).zip(calls) {
        replies(&mut server, c, 0, wake_up.clone(), unknown.clone());
        replies(&mut server, c, 0, Request::Lock(load), Reply::Alive);
        replies(&mut server, c, 0, wake_up, reply);
    }
    server.kill(&mut Vec::new());
    server.start(0);
    let c = server.connect().unwrap();
    replies(&mut server, c, 0, delete(1), unknown);
}

#[test]
fn a_paused_master_executes_later_what_arrived_even_for_a_client_that_is_gone() {
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
        assert!(!server.has_connection(c) && server.waiting().eq([late]));
        let refused = Event::Message(late, ServerReply::Value(Value::Null));
        assert_eq!(served(&mut server, late, 0), [refused]);
    }
}

#[test]
fn of_a_connection_that_was_reset_one_read_is_executed_and_of_one_that_was_closed_all() {
    for (how, all) in [(Close::Fin, true), (Close::Reset, false)] {
        let (mut server, c) = server();
        server.pause();
        for number in 0..400_u64 {
            let key = Arc::from(&number.to_le_bytes()[..]);
            let command =
                Command::Set { key, token: token(1), ttl_ms: 1000, fair: false, fence: None };
            server.deliver(c, Request::Lock(command));
        }
        server.close(c, how);
        server.resume();
        served(&mut server, c, 0);
        let executed = locks(&server);
        assert!(if all { executed == 400 } else { (100..250).contains(&executed) }, "{executed}");
    }
}

#[test]
fn client_kill_drops_a_connection_with_what_it_had_sent() {
    let (mut server, old) = server();
    let new = greeted(&mut server);
    let client_id = client_id(&mut server, old);
    server.pause();
    server.deliver(old, set(1, 1000));
    server.deliver(new, Request::Lock(Command::Kill { client_id }));
    server.resume();
    let reply = ServerReply::Value(Value::Integer(1));
    let killed = [Event::Dropped(old), Event::Message(new, reply)];
    assert_eq!(served(&mut server, new, 0), killed);
    assert_eq!(served(&mut server, old, 0), []);
    assert_eq!(locks(&server), 0);
}

#[test]
fn a_client_that_kills_its_own_connection_gets_a_reply_and_keeps_it() {
    let (mut server, c) = server();
    let client_id = client_id(&mut server, c);
    replies(&mut server, c, 0, Request::Lock(Command::Kill { client_id }), Reply::Alive);
    replies(&mut server, c, 0, set(1, 1000), Reply::Created);
}

#[test]
fn without_memory_nothing_is_created_and_all_else_goes_on() {
    let (mut server, c) = server();
    ask(&mut server, c, 0, set(1, 1000));
    server.set_out_of_memory(true);
    is_refused(&read(&mut server, c, 0, set(2, 1000)), "OOM ");
    is_refused(&read(&mut server, c, 0, Request::Lock(Command::Probe)), "OOM ");
    replies(&mut server, c, 0, keep(1, 2000, true), Reply::Kept);
    replies(&mut server, c, 0, delete(1), Reply::Deleted);
    is_refused(&read(&mut server, c, 0, keep(1, 2000, true)), "OOM ");
    server.set_out_of_memory(false);
    replies(&mut server, c, 0, keep(1, 2000, true), Reply::Created);
    assert!(server.evict(&key()) && !server.evict(&key()));
}

#[test]
fn while_it_loads_it_executes_only_commands_about_time_and_connections() {
    let (mut server, c) = server();
    server.set_loading(true);
    for request in [set(1, 1000), delete(1), keep(1, 1, true), Request::Lock(Command::Probe)] {
        is_refused(&read(&mut server, c, 0, request), "LOADING ");
    }
    let reply = ask(&mut server, c, 0, Request::Hello);
    assert!(matches!(reply, ServerReply::Value(Value::Error(_))), "{reply:?}");
    let time = reply_to(&mut server, c, 3_000_001_234, &[b"TIME"]);
    assert_eq!(time, Value::Array(vec![Value::bulk("3"), Value::bulk("1")]));
    replies(&mut server, c, 0, Request::Lock(Command::Kill { client_id: 99 }), Reply::Alive);
}

#[test]
fn bad_ttls_are_refused_with_the_errors_of_redis() {
    let (mut server, c) = server();
    for (ttl_ms, why) in [
        (0, "ERR invalid expire time in 'set' command"),
        (u64::MAX, "ERR value is not an integer or out of range"),
    ] {
        is_refused(&read(&mut server, c, 0, set(1, ttl_ms)), why);
    }
}

#[test]
fn a_handshake_of_single_commands_is_the_one_request_of_the_simulator() {
    for persistence in [Persistence::None, Persistence::AofEverysec, Persistence::AofAlways] {
        let (mut server, c) = with(persistence);
        server.set(0, BOOT, b"a 1000", None);
        let hello = Hello::default();
        let (mut bytes, mut greeting) = (Vec::new(), Greeting::default());
        let handshake = hello.handshake(true);
        handshake.encode(&mut bytes);
        for index in 0..handshake.replies() {
            let (request, length) = Request::parse(&bytes).unwrap().unwrap();
            bytes.drain(..length);
            let mut reply = Vec::new();
            ask(&mut server, c, 0, request).encode(&mut reply);
            let (frame, _) = parse(&reply, usize::MAX).unwrap().unwrap();
            handshake.read(index, &frame, &mut greeting).unwrap();
        }
        assert!(bytes.is_empty());
        assert_eq!(ask(&mut server, c, 0, Request::Hello), ServerReply::Greeting(greeting));
    }
}

#[test]
fn keys_of_other_programs_are_taken_and_may_have_another_type_or_no_expiry() {
    let (mut server, c) = server();
    server.set(0, b"r", b"another's", Some(7));
    replies(&mut server, c, 0, delete(1), Reply::Taken(Holder::Foreign { left_ms: 7 }));
    server.set(0, b"r", b"another's", None);
    replies(&mut server, c, 0, keep(1, 10, true), Reply::Taken(Holder::NoExpiry));
    let (waiter, position) = (Waiter { inbox: 0, waiter_id: WaiterId::new(1) }, Position::Last);
    let enqueue =
        |key: &[u8]| Request::Lock(Command::Enqueue { key: Key::from(key), waiter, position });
    replies(
        &mut server,
        c,
        0,
        enqueue(b"r"),
        Reply::Place { number: 1, ahead: 0, holder: Some(Holder::NoExpiry) },
    );
    // The positions of a queue as the key of a lock, and a text as the positions.
    let set = Key::from(&b"redquorum:queue:r"[..]);
    let (token, fence) = (token(1), fence(1));
    let keep = Command::Keep { key: set, token, ttl_ms: 1, repair: true, fence: Some(fence) };
    replies(&mut server, c, 0, Request::Lock(keep), Reply::Taken(Holder::WrongType));
    server.set(0, b"redquorum:queue:s", b"no set", None);
    replies(&mut server, c, 0, enqueue(b"s"), Reply::NoQueue);
    server.set(0, b"redquorum:fence:r", b"no number", None);
    server.set(0, b"r", b"", Some(0));
    is_refused(&read(&mut server, c, MS, grant(1, 1)), "FENCE");
}

#[test]
fn a_script_mutant_leaves_out_its_check() {
    let (mut server, c) = server();
    let script_mutant = |request, script_mutant| match request {
        Request::Lock(command) => Request::Mutant(command, script_mutant),
        other => other,
    };
    // A hint of an hour, while the clock shows 5 ms.
    let hour = 3_600_000_000;
    let unclamped = script_mutant(grant(1, hour), ScriptMutant::Unclamped);
    replies(&mut server, c, 5 * MS, unclamped, Reply::Granted { number: hour });
    let another = script_mutant(certify(2, hour + 7), ScriptMutant::Uncompared);
    replies(&mut server, c, 5 * MS, another, Reply::Certified { number: hour + 7 });
    server.set(20 * MS, b"redquorum:fence:r", MAX_NUMBER.to_string().as_bytes(), None);
    let endless = script_mutant(grant(3, 0), ScriptMutant::Endless);
    replies(&mut server, c, 20 * MS, endless, Reply::Granted { number: MAX_NUMBER });
}
