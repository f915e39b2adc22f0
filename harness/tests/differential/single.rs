//! Cases that random steps do not reach, or not exactly. Each is one fact of Redis on which the
//! model relies.

use std::thread::{sleep, spawn};
use std::time::Duration;

use redquorum_protocol::wire::{Command, KEEP};
use redquorum_protocol::{Key, Position, Token, Waiter, WaiterId, WakeUp};
use redquorum_redis_model::{Close, Event, Persistence, Request, Server, ServerReply, Value};
use redquorum_rig::trials::{Case, Talk, eventually, with_masters};
use redquorum_rig::{ClockChange, Masters};

use crate::compare::alike;
use crate::model::received;
use crate::plan::{Leave, key};
use crate::real::Socket;

pub(crate) fn all() -> Vec<Case> {
    vec![
        with_masters("of_a_long_queue_a_reset_leaves_one_read", one_read),
        with_masters("while_it_loads_the_same_is_refused", loading),
        with_masters("a_demoted_master_reads_and_writes_nothing", demoted),
        with_masters("a_replica_has_absolute_expiry_and_no_scripts", replica),
        with_masters("a_connection_that_is_closed_is_subscribed_until_that_is_read", ends),
        with_masters("an_id_of_an_earlier_run_may_be_anyones", ids),
    ]
}

const WAITER: Waiter = Waiter { inbox: 7, waiter_id: WaiterId::new(1) };

const TOKEN: Token = Token::new([7; 20]);

fn lock(command: Command) -> Request {
    Request::Lock(command)
}

fn set(key: Key, ttl_ms: u64) -> Request {
    lock(Command::Set { key, token: TOKEN, ttl_ms, fair: false, fence: None })
}

fn many(count: u64) -> Vec<Request> {
    let set = |number: u64| set(number.to_be_bytes().as_slice().into(), 60_000);
    (0..count).map(set).collect()
}

fn reply(socket: &mut Socket) -> ServerReply {
    socket.read().unwrap_or_else(|_| panic!("no reply"))
}

const CREATED: ServerReply = ServerReply::Value(Value::OK);

const fn integer(number: i64) -> ServerReply {
    ServerReply::Value(Value::Integer(number))
}

fn greeting(socket: &mut Socket) -> u64 {
    socket.write(vec![Request::Hello]);
    match socket.read() {
        Ok(ServerReply::Greeting(greeting)) => greeting.client_id.unwrap(),
        _ => panic!("no greeting"),
    }
}

fn server() -> Server {
    Server::new(1, Persistence::None)
}

/// 4 000 commands of 84 bytes wait in the buffer of a paused master when their client closes. The
/// length of a read depends on the earlier use of the connection. The model takes the shortest.
fn one_read() {
    let masters = Masters::builder().count(1).config("protected-mode", "no").start().unwrap();
    for accepted in [true, false] {
        for how in [Leave::Half, Leave::Reset] {
            let mut talk = Talk::connect(masters.port(1));
            talk.ask("FLUSHALL");
            let connect = || Socket::connect(masters.port(1)).unwrap();
            let mut early = accepted.then(connect);
            if let Some(socket) = &mut early {
                greeting(socket);
            }
            masters.pause(1).unwrap();
            let mut socket = early.unwrap_or_else(connect);
            socket.write(many(4000));
            // Waits until all bytes have arrived: a reset discards the rest.
            sleep(Duration::from_millis(300));
            let mut left = socket.close(how);
            masters.resume(1).unwrap();
            if let Some(socket) = &mut left {
                (0..4000).for_each(|_| assert_eq!(reply(socket), CREATED));
            }
            let count: usize = Talk::connect(masters.port(1)).ask("DBSIZE")[1..].parse().unwrap();
            let model = model_of_many(if how == Leave::Half { Close::Fin } else { Close::Reset });
            match how {
                Leave::Half => assert_eq!((count, model), (4000, 4000)),
                _ => assert!(model <= count && count < 2 * model + 100, "{model} {count}"),
            }
        }
    }
}

fn model_of_many(how: Close) -> usize {
    let mut server = server();
    let connection = server.connect().unwrap();
    many(4000).into_iter().for_each(|request| server.deliver(connection, request));
    server.close(connection, how);
    server.serve(0, connection, &mut Vec::new());
    server.keys().count()
}

/// While it loads, Redis replies between two pieces of its file.
fn loading() {
    let masters = Masters::builder()
        .count(1)
        .config("enable-debug-command", "yes")
        .config("loading-process-events-interval-bytes", "1024")
        .start()
        .unwrap();
    let mut talk = Talk::connect(masters.port(1));
    let mut socket = Socket::connect(masters.port(1)).unwrap();
    greeting(&mut socket);
    socket.write(many(1000));
    (0..1000).for_each(|_| assert_eq!(reply(&mut socket), CREATED));
    // The delay for each key, in microseconds.
    talk.ask("CONFIG SET key-load-delay 3000");
    let reload = spawn(move || talk.ask("DEBUG RELOAD"));
    let mut server = server();
    server.set_loading(true);
    let connection = server.connect().unwrap();
    let mut subscriber = Socket::connect(masters.port(1)).unwrap();
    let subscription = server.connect().unwrap();
    let requests = [
        lock(Command::Hello),
        lock(Command::Subscribe { inbox: WAITER.inbox }),
        set(key(0), 10),
        delete(WakeUp::First, Some(WAITER)),
        delete(WakeUp::None, None),
        lock(Command::Keep {
            key: key(0),
            token: TOKEN,
            ttl_ms: 10,
            repair: true,
            marker: None,
            fence: None,
        }),
        stand(Position::Last),
        lock(Command::Dequeue { key: key(0), waiter: WAITER, wake: true }),
        lock(Command::Probe),
        lock(Command::Load(KEEP)),
        lock(Command::Kill { client_id: u64::MAX >> 1 }),
        Request::words(&[b"GET", &key(0)]),
        Request::words(&[b"PTTL", &key(0)]),
        Request::words(&[b"FLUSHALL"]),
    ];
    // Waits until the load has begun.
    let mut other = Talk::connect(masters.port(1));
    while !other.ask("PING").starts_with("-LOADING") {
        assert!(!reload.is_finished(), "it loads too fast to be seen");
    }
    for request in requests {
        // A subscribed connection gets no second greeting.
        let listens = matches!(request, Request::Lock(Command::Hello | Command::Subscribe { .. }));
        let (socket, connection) =
            if listens { (&mut subscriber, subscription) } else { (&mut socket, connection) };
        socket.write(vec![request.clone()]);
        server.deliver(connection, request.clone());
        let mut out = Vec::new();
        server.serve(0, connection, &mut out);
        let [Event::Message(_, model)] = &out[..] else { panic!("{out:?}") };
        let real = reply(socket);
        assert!(alike(&real, &received(model)), "{request:?}: {real:?} {model:?}");
    }
    socket.write(vec![Request::Hello]);
    assert_eq!(reply(&mut socket), ServerReply::Value(Value::Error(b"unfit".into())));
    assert!(other.ask("PING").starts_with("-LOADING"), "it was over too early");
    other.ask("CONFIG SET key-load-delay 0");
    reload.join().unwrap();
}

/// A master that follows a server that it cannot reach. Requests that write nothing succeed.
fn demoted() {
    let masters = Masters::builder().count(1).start().unwrap();
    let mut talk = Talk::connect(masters.port(1));
    let mut socket = Socket::connect(masters.port(1)).unwrap();
    greeting(&mut socket);
    let mut server = server();
    let connection = server.connect().unwrap();
    let mut play = |server: &mut Server, request: &Request| {
        socket.write(vec![request.clone()]);
        server.deliver(connection, request.clone());
        let mut out = Vec::new();
        server.serve(0, connection, &mut out);
        let [Event::Message(_, model)] = &out[..] else { panic!("{out:?}") };
        let real = reply(&mut socket);
        assert!(alike(&real, &received(model)), "{request:?}: {real:?} {model:?}");
        matches!(&real, ServerReply::Value(Value::Error(text)) if text.starts_with(b"READONLY "))
    };
    let keep = |number| {
        let (key, ttl_ms) = (key(number), 60_000);
        lock(Command::Keep { key, token: TOKEN, ttl_ms, repair: true, marker: None, fence: None })
    };
    let scripts = redquorum_protocol::wire::SCRIPTS.map(|script| lock(Command::Load(script)));
    let keys = [set(key(0), 10_000), set(key(1), 60_000)];
    assert!(!scripts.iter().chain(&keys).any(|request| play(&mut server, request)));
    for round in 0..2 {
        assert!(talk.ask("REPLICAOF 127.0.0.1 1").starts_with("+OK"));
        server.demote();
        for (request, is_refused) in [
            (set(key(0), 10_000), true),
            (set(key(2), 10_000), true),
            (keep(0), true),
            (keep(2), true),
            (lock(Command::Probe), true),
            (delete(WakeUp::First, Some(WAITER)), true),
            (delete(WakeUp::None, None), true),
            (stand(Position::Last), true),
            (lock(Command::Dequeue { key: key(0), waiter: WAITER, wake: true }), true),
            (Request::words(&[b"GET", &key(1)]), false),
            (Request::words(&[b"GET", &key(2)]), false),
        ] {
            assert_eq!(play(&mut server, &request), is_refused, "{round}: {request:?}");
        }
        assert!(talk.ask("REPLICAOF NO ONE").starts_with("+OK"));
        server.promote();
    }
    let after = [keep(1), set(key(2), 10_000), delete(WakeUp::First, Some(WAITER))];
    assert!(!after.iter().any(|request| play(&mut server, request)));
}

fn replica() {
    let masters = Masters::builder().count(2).clocks().start().unwrap();
    masters.set_clock(2, ClockChange::forward(Duration::from_secs(20))).unwrap();
    let mut master = Socket::connect(masters.port(1)).unwrap();
    greeting(&mut master);
    let mut replica = Talk::connect(masters.port(2));
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", masters.port(1)));
    eventually("the replica follows", || {
        replica.ask("INFO replication").contains("master_link_status:up")
    });
    master.write(vec![set(key(0), 10_000), set(key(1), 60_000)]);
    (0..2).for_each(|_| assert_eq!(reply(&mut master), CREATED));
    eventually("the replica has both keys", || replica.ask("DBSIZE") == ":2");
    replica.ask("REPLICAOF NO ONE");
    let mut promoted = Socket::connect(masters.port(2)).unwrap();
    promoted.write(vec![
        Request::words(&[b"GET", &key(0)]),
        Request::words(&[b"PTTL", &key(1)]),
        lock(Command::Keep {
            key: key(1),
            token: TOKEN,
            ttl_ms: 1,
            repair: false,
            marker: None,
            fence: None,
        }),
    ]);
    // Expiry is an absolute time, and this clock is twenty seconds ahead.
    assert_eq!(reply(&mut promoted), ServerReply::Value(Value::Null));
    let left = reply(&mut promoted);
    assert!(matches!(left, ServerReply::Value(Value::Integer(1..=40_000))), "{left:?}");
    let unknown = reply(&mut promoted);
    let code = b"NOSCRIPT ";
    assert!(
        matches!(&unknown, ServerReply::Value(Value::Error(text)) if text.starts_with(code)),
        "{unknown:?}"
    );
}

fn listen() -> Vec<Request> {
    vec![lock(Command::Hello), lock(Command::Subscribe { inbox: WAITER.inbox })]
}

fn delete(wake_up: WakeUp, leave: Option<Waiter>) -> Request {
    lock(Command::Delete { key: key(0), token: TOKEN, wake_up, leave })
}

fn stand(position: Position) -> Request {
    lock(Command::Enqueue { key: key(0), waiter: WAITER, position })
}

/// A paused master has one connection that is subscribed and one that deletes. The first is closed
/// with or without a command before the close, and before or after the delete. The master drops a
/// waiter that it cannot wake.
fn ends() {
    let masters = Masters::builder().count(1).clocks().config("protected-mode", "no");
    let masters = masters.start().unwrap();
    for (behind, first, listeners) in [(1, true, 1), (1, false, 1), (0, true, 0), (0, false, 1)] {
        let mut subscriber = Socket::connect(masters.port(1)).unwrap();
        let mut deletes = Socket::connect(masters.port(1)).unwrap();
        greeting(&mut deletes);
        subscriber.write(listen());
        (0..2).for_each(|_| drop(reply(&mut subscriber)));
        deletes.write(vec![set(key(0), 60_000), stand(Position::Last)]);
        assert_eq!(reply(&mut deletes), CREATED);
        let place = reply(&mut deletes);
        assert!(
            matches!(
                &place,
                ServerReply::Value(Value::Array(parts)) if parts[1] == Value::Integer(0)
            ),
            "{place:?}"
        );
        // The master would keep a waiter that has just sent a request.
        masters.set_clock(1, ClockChange::forward(Duration::from_secs(2))).unwrap();
        // After this round trip, neither connection is still in the turn of its earlier commands.
        Talk::connect(masters.port(1)).ask("PING");
        masters.pause(1).unwrap();
        let leave = |mut subscriber: Socket| {
            subscriber.write(vec![lock(Command::Probe); behind]);
            subscriber.close(Leave::Half).unwrap()
        };
        let mut left = if first {
            let left = leave(subscriber);
            deletes.write(vec![delete(WakeUp::First, None)]);
            left
        } else {
            deletes.write(vec![delete(WakeUp::First, None)]);
            leave(subscriber)
        };
        masters.resume(1).unwrap();
        let real = reply(&mut deletes);
        let messages = until_it_ends(&mut left);

        let mut server = server();
        let [subscription, deleter] = [(); 2].map(|()| server.connect().unwrap());
        server.deliver(deleter, Request::Hello);
        server.deliver(deleter, set(key(0), 60_000));
        server.deliver(deleter, stand(Position::Last));
        listen().into_iter().for_each(|request| server.deliver(subscription, request));
        server.turn(0, &[subscription, deleter], &mut Vec::new());
        server.pause();
        (0..behind).for_each(|_| server.deliver(subscription, lock(Command::Probe)));
        server.close(subscription, Close::Fin);
        server.deliver(deleter, delete(WakeUp::First, None));
        server.resume();
        assert_eq!(server.waiting().collect::<Vec<_>>(), [subscription, deleter]);
        let (mut out, turn) =
            (Vec::new(), if first { [subscription, deleter] } else { [deleter, subscription] });
        server.turn(2_000_000_000, &turn, &mut out);
        assert!(!server.has_connection(subscription) && server.waiting().next().is_none());
        let on = |of| {
            let events = out.iter().filter_map(move |event| match event {
                Event::Message(it, reply) => (*it == of).then(|| received(reply)),
                Event::Dropped(_) => None,
            });
            events.collect::<Vec<_>>()
        };
        assert_eq!((&real, on(deleter)), (&integer(1 + listeners), vec![real.clone()]));
        assert_eq!(messages, on(subscription), "{behind} {first}");
        // Without a command, the connection is closed in that turn, and its message is never
        // written.
        assert_eq!(messages.len(), 2 * behind);
    }
}

fn until_it_ends(socket: &mut Socket) -> Vec<ServerReply> {
    let mut messages = Vec::new();
    while socket.waits() {
        messages.push(reply(socket));
    }
    loop {
        match socket.overhear() {
            Ok(Some(woken)) => messages.push(woken),
            Ok(None) => sleep(Duration::from_millis(1)),
            Err(_) => return messages,
        }
    }
}

/// Client ids repeat after a restart, so a link stores the run id with the client id.
fn ids() {
    let masters = Masters::start(1).unwrap();
    let greeted = || greeting(&mut Socket::connect(masters.port(1)).unwrap());
    let before: Vec<u64> = (0..100).map(|_| greeted()).collect();
    masters.restart(1).unwrap();
    let after = greeted();
    assert!(before.windows(2).all(|two| two[0] < two[1]));
    assert!(after < before[99], "{after} {before:?}");
}
