//! What the model is for, and what random steps do not reach. All else is compared with a real
//! server in the harness's `tests/differential`.

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
    Request::Lock(Command::Keep {
        key: key(),
        token: token(number),
        ttl_ms,
        repair,
        marker: None,
        fence: None,
    })
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
    let value = Key::from(token(1).as_bytes());
    assert_eq!(server.keys().collect::<Vec<_>>(), [(&key(), Some(&value), last)]);
    assert_eq!(reply_to(&mut server, c, last, PTTL), Value::Integer(0));
    assert_eq!(reply_to(&mut server, c, last, GET), Value::Bulk(value));
    replies(&mut server, c, last, set(2, 10), Reply::Taken(Holder::NotAsked));
    assert_eq!(reply_to(&mut server, c, last + 1, PTTL), Value::Integer(-2));
    assert_eq!(locks(&server), 0, "the look at it deleted it");
    replies(&mut server, c, last + 1, set(2, 10), Reply::Created);
    assert!(server.evict(&key()) && !server.evict(&key()));
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
    let keep = Command::Keep {
        key: set,
        token,
        ttl_ms: 1,
        repair: true,
        marker: None,
        fence: Some(fence),
    };
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
