use alloc::vec;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::effect::MAX_NUMBER;
use crate::token::HolderName;
use crate::waiter::WaiterId;

fn key() -> impl Strategy<Value = Key> {
    prop::collection::vec(any::<u8>(), 1..20).prop_map(Key::from)
}

fn token() -> impl Strategy<Value = Token> {
    let name = prop::option::of("[^\\p{Cc}]{1,10}");
    (any::<[u8; 20]>(), any::<bool>(), name).prop_map(|(random, shared, name)| {
        let token = Token::new(random);
        let token = if shared { token.shared() } else { token };
        name.map_or(token, |name| token.named(HolderName::new(&name).expect("40 bytes")))
    })
}

fn fence() -> impl Strategy<Value = Fence> {
    (0..=MAX_NUMBER, any::<u64>()).prop_map(|(number, memory_ms)| Fence { number, memory_ms })
}

fn waiter() -> impl Strategy<Value = Waiter> {
    (any::<u64>(), any::<u64>())
        .prop_map(|(inbox, id)| Waiter { inbox, waiter_id: WaiterId::new(id) })
}

fn text() -> impl Strategy<Value = Arc<str>> {
    "[ -~]{1,40}".prop_map(Arc::from)
}

/// Any command of a lock.
fn command() -> impl Strategy<Value = Command> {
    let grant = || (key(), token(), any::<u64>(), any::<bool>(), prop::option::of(fence()));
    prop_oneof![
        grant().prop_map(|(key, token, ttl_ms, fair, fence)| {
            Command::Set { key, token, ttl_ms, fair, fence }
        }),
        (grant(), text()).prop_map(|((key, token, ttl_ms, fair, fence), marker)| {
            Command::Guarded { key, token, ttl_ms, fair, fence, marker }
        }),
        (grant(), prop::option::of(text())).prop_map(
            |((key, token, ttl_ms, repair, fence), marker)| {
                // A marker of one byte is a flag.
                let marker = marker.filter(|marker| marker.len() > 1);
                let repair = repair || marker.is_some();
                Command::Keep { key, token, ttl_ms, repair, marker, fence }
            }
        ),
        (text(), text(), prop::option::of(text()), any::<u64>(), prop::option::of(text()))
            .prop_map(|(run_id, marker, begin, probation_ms, ended)| {
                Command::Watch { run_id: RunId(run_id), marker, begin, probation_ms, ended }
            }),
        text().prop_map(|marker| Command::Initialize { marker }),
        (key(), token(), fence()).prop_map(|(key, token, fence)| Command::Certify {
            key,
            token,
            fence
        }),
        (
            key(),
            token(),
            select(&[WakeUp::First, WakeUp::Quiet, WakeUp::Count][..]),
            prop::option::of(waiter())
        )
            .prop_map(|(key, token, wake_up, leave)| {
                Command::Delete { key, token, wake_up, leave }
            }),
        (key(), token()).prop_map(|(key, token)| {
            Command::Delete { key, token, wake_up: WakeUp::None, leave: None }
        }),
        (
            key(),
            waiter(),
            prop_oneof![
                Just(Position::Any),
                Just(Position::Last),
                (1..=MAX_NUMBER).prop_map(Position::NotBefore),
                (0..=MAX_NUMBER).prop_map(Position::At)
            ]
        )
            .prop_map(|(key, waiter, position)| Command::Enqueue { key, waiter, position }),
        (key(), waiter(), any::<bool>()).prop_map(|(key, waiter, wake)| Command::Dequeue {
            key,
            waiter,
            wake
        }),
        Just(Command::Hello),
        any::<u64>().prop_map(|inbox| Command::Subscribe { inbox }),
        any::<u64>().prop_map(|client_id| Command::Kill { client_id }),
        select(scripts(true).collect::<Vec<_>>()).prop_map(Command::Load),
        Just(Command::Probe),
    ]
}

/// The command that a server reads in these bytes, with a word more if there is one.
fn parsed(bytes: &[u8], further: Option<&[u8]>) -> Option<Command> {
    let Ok(Some((Frame::Array(parts), _))) = crate::wire::parse(bytes, usize::MAX) else {
        panic!("a command is an array")
    };
    let words = parts.iter().map(|part| match part {
        Frame::Bulk(word) => *word,
        other => panic!("{other:?}"),
    });
    Command::parse(&words.chain(further).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn a_command_is_read_as_it_was_written(command in command()) {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        prop_assert_eq!(parsed(&bytes, Some(b"more")), None);
        prop_assert_eq!(parsed(&bytes, None), Some(command));
    }
}

#[test]
fn a_plain_acquire_is_one_set_nx_px() {
    let token = Token::new(*b"01234567890123456789");
    let key = Arc::from(&b"r"[..]);
    let set = Command::Set { key, token, ttl_ms: 10_000, fair: false, fence: None };
    let text: &[u8] = b"*6\r\n$3\r\nSET\r\n$1\r\nr\r\n$20\r\n01234567890123456789\r\n\
        $2\r\nNX\r\n$2\r\nPX\r\n$5\r\n10000\r\n";
    let mut out = Vec::new();
    set.encode(&mut out);
    assert_eq!(out, text);
    // Its reply does not show that the master has the scripts.
    assert_eq!(set.script(), None);
}

#[test]
fn a_plain_release_sends_the_token_alone() {
    let (key, token) = (Arc::from(&b"r"[..]), Token::new(*b"01234567890123456789"));
    let release = Command::Delete { key, token, wake_up: WakeUp::First, leave: None };
    let start = b"*5\r\n$7\r\nEVALSHA\r\n$40\r\n";
    let end = b"\r\n$1\r\n1\r\n$1\r\nr\r\n$20\r\n01234567890123456789\r\n";
    let mut out = Vec::new();
    release.encode(&mut out);
    assert_eq!(out, [start, QUEUE.sha1.as_bytes(), end].concat());
}

#[test]
fn an_answer_that_does_not_fit_its_command_is_garbage() {
    let garbage = Reply::Unknown(Cause::Garbage);
    let frames = [
        Frame::Simple(b"QUEUED"),
        Frame::Integer(7),
        Frame::Bulk(b"x"),
        Frame::Array(Vec::from([Frame::Integer(1)])),
    ];
    for expect in [
        Expect::Set,
        Expect::Keep,
        Expect::Hello,
        Expect::Subscribe,
        Expect::Load(KEEP),
        Expect::Probe,
    ] {
        for frame in &frames {
            assert_eq!(expect.read(frame), garbage, "{expect:?} {frame:?}");
        }
    }
    assert_eq!(Expect::Set.read(&Frame::Integer(1)), garbage);
    assert_eq!(Expect::Delete.read(&Frame::Integer(i64::MIN)), garbage);
    assert_eq!(Expect::Delete.read(&Frame::Null), garbage);
}

#[test]
fn a_probe_distinguishes_refused_writes_from_a_forbidden_key() {
    let read = |text: &'static str| Expect::Probe.read(&Frame::Error(text.as_bytes()));
    for key in [
        "NOPERM this user has no permissions to access one of the keys used as arguments",
        "NOPERM No permissions to access a key",
    ] {
        assert_eq!(read(key), Reply::Alive, "{key}");
    }
    for refusal in [
        "NOPERM this user has no permissions to run the 'set' command",
        "READONLY You can't write against a read only replica.",
        "MOVED 1 127.0.0.1:1",
        "OOM command not allowed when used memory > 'maxmemory'.",
    ] {
        let why = Reply::Unknown(Cause::Error(Arc::from(refusal)));
        assert_eq!(read(refusal), why, "{refusal}");
    }
    assert_eq!(Expect::Probe.read(&Frame::Null), Reply::Alive);
}

#[test]
fn errors_are_bounded_and_printable() {
    let long = [b"ERR \x1b[31m\r\n\xff".to_vec(), alloc::vec![b'x'; 100_000]].concat();
    let Reply::Unknown(Cause::Error(text)) = Expect::Set.read(&Frame::Error(&long)) else {
        panic!()
    };
    assert!(text.len() < 400);
    assert!(!text.chars().any(char::is_control));
}

/// A command of each form that a lock writes.
fn forms(key: &Key) -> Vec<Command> {
    let (key, token, marker) = (|| key.clone(), Token::new([7; 20]), || Arc::from("a 3000"));
    let waiter = Waiter { inbox: 0xfe, waiter_id: WaiterId::new(9) };
    let (probation_ms, run_id) = (20_000, || RunId(Arc::from("a")));
    let mut all = Vec::from([
        Command::Initialize { marker: marker() },
        Command::Certify { key: key(), token, fence: Fence { number: 5, memory_ms: 60_000 } },
        Command::Hello,
        Command::Subscribe { inbox: 0xfe },
        Command::Kill { client_id: 3 },
        Command::Probe,
    ]);
    for (flag, fence) in [
        (false, None),
        (true, None),
        (false, Some(Fence { number: 5, memory_ms: 60_000 })),
        (true, Some(Fence { number: 0, memory_ms: 1 })),
    ] {
        all.push(Command::Set { key: key(), token, ttl_ms: 10, fair: flag, fence });
        let keep =
            |repair, marker| Command::Keep { key: key(), token, ttl_ms: 10, repair, marker, fence };
        all.extend([keep(flag, None), keep(true, Some(marker()))]);
        let marker = marker();
        all.push(Command::Guarded { key: key(), token, ttl_ms: 10, fair: flag, fence, marker });
    }
    for (begin, ended) in [(None, None), (Some("x.1"), None), (Some("x.2"), Some("x.1"))] {
        let [begin, ended] = [begin, ended].map(|name| name.map(Arc::from));
        let marker = marker();
        all.push(Command::Watch { run_id: run_id(), marker, begin, probation_ms, ended });
    }
    for wake_up in [WakeUp::First, WakeUp::Quiet, WakeUp::Count] {
        for leave in [None, Some(waiter)] {
            all.push(Command::Delete { key: key(), token, wake_up, leave });
        }
    }
    all.push(Command::Delete { key: key(), token, wake_up: WakeUp::None, leave: None });
    for position in [Position::Any, Position::Last, Position::NotBefore(4), Position::At(4)] {
        all.push(Command::Enqueue { key: key(), waiter, position });
    }
    all.extend([false, true].map(|wake| Command::Dequeue { key: key(), waiter, wake }));
    all.extend(scripts(true).map(Command::Load));
    all
}

#[test]
fn each_form_of_a_command_is_read_as_it_was_written_and_as_long_as_it_says() {
    for command in forms(&Key::from(vec![b'r'; 1_000])) {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        assert_eq!(parsed(&bytes, None), Some(command.clone()));
        assert_eq!(parsed(&bytes, Some(b"more")), None, "{command:?}");
        let (length, hint) = (bytes.len(), command.size_hint());
        assert!((length..=2 * length + 320).contains(&hint), "{length}, {hint}: {command:?}");
    }
}

#[test]
fn each_reply_is_read_by_the_command_that_it_answers() {
    use Frame::{Array, Bulk, Error, Integer, Map, Null, Push, Simple};
    let (token, value) = (Token::new([7; 20]), &[7; 20][..]);
    let lease = Holder::Lease { token, left_ms: 9 };
    let marked = |boot: &str, name: &str| {
        let text = |text: &str| (!text.is_empty()).then(|| Arc::from(text));
        Reply::Marked { boot: text(boot), probation: text(name) }
    };
    let freed = |waiters, denied| Reply::Freed { waiters, denied };
    let taken = Reply::Taken(Holder::NotAsked);
    let [grant, fenced] = [false, true].map(|fenced| Expect::Grant { fenced });
    let guarded = Expect::Guarded { fenced: false };
    for (expect, frame, reply) in [
        (Expect::Set, Simple(b"OK"), Reply::Created),
        (Expect::Set, Null, taken.clone()),
        (grant, Integer(0), taken.clone()),
        (grant, Integer(1), Reply::Created),
        (grant, Integer(-1), Reply::Taken(Holder::Waiter)),
        (grant, Integer(-2), Reply::Unknown(Cause::Garbage)),
        (fenced, Integer(0), taken),
        (fenced, Integer(1), Reply::Granted { number: 1 }),
        (guarded, Array(vec![Integer(1), Integer(5)]), Reply::Created.stamped(5)),
        (guarded, Array(vec![Bulk(b"b 1"), Integer(5)]), marked("b 1", "").stamped(5)),
        (
            Expect::Watch,
            Array(vec![Bulk(b"b 1"), Bulk(b"x.1"), Integer(5)]),
            marked("b 1", "x.1").stamped(5),
        ),
        (Expect::Initialize, Simple(b"OK"), Reply::Initialized),
        (Expect::Initialize, Null, marked("", "")),
        (Expect::Keep, Integer(0), Reply::Absent),
        (Expect::Keep, Integer(1), Reply::Kept),
        (Expect::Keep, Integer(2), Reply::Created),
        (Expect::Keep, Array(vec![Integer(1), Integer(5)]), Reply::Kept.stamped(5)),
        (Expect::Keep, Array(vec![Integer(2), Integer(5)]), Reply::Created.stamped(5)),
        (Expect::Keep, Array(vec![Bulk(b"b 1"), Integer(5)]), marked("b 1", "").stamped(5)),
        (Expect::Keep, Array(vec![Integer(9), Bulk(value)]), Reply::Taken(lease)),
        (Expect::Certify, Integer(8), Reply::Certified { number: 8 }),
        (Expect::Delete, Integer(1), Reply::Deleted),
        (Expect::Delete, Integer(2), freed(1, false)),
        (Expect::Delete, Integer(4), freed(3, false)),
        (Expect::Delete, Integer(-1), freed(0, true)),
        (Expect::Delete, Integer(-4), freed(3, true)),
        (Expect::Delete, Array(vec![Integer(-1), Bulk(b"x")]), Reply::Taken(Holder::NoExpiry)),
        (
            Expect::Enqueue,
            Array(vec![Integer(3), Integer(2)]),
            Reply::Place { number: 3, ahead: 2, holder: None },
        ),
        (
            Expect::Enqueue,
            Array(vec![Integer(3), Integer(2), Integer(9)]),
            Reply::Place { number: 3, ahead: 2, holder: Some(Holder::WrongType) },
        ),
        (
            Expect::Enqueue,
            Array(vec![Integer(3), Integer(2), Integer(9), Bulk(value)]),
            Reply::Place { number: 3, ahead: 2, holder: Some(lease) },
        ),
        (Expect::Enqueue, Array(vec![Integer(0), Integer(2)]), Reply::NoQueue),
        (Expect::Dequeue, Integer(0), Reply::Alive),
        (Expect::Hello, Map(vec![]), Reply::Alive),
        (Expect::Subscribe, Push(vec![Bulk(b"subscribe"), Bulk(b"c"), Integer(1)]), Reply::Alive),
        (Expect::Kill, Integer(1), Reply::Alive),
        (Expect::Kill, Error(b"ERR No such client"), Reply::Alive),
        (Expect::Load(KEEP), Bulk(KEEP.sha1.as_bytes()), Reply::Alive),
        (Expect::Probe, Null, Reply::Alive),
        (Expect::Keep, Error(b"WRONGTYPE x"), Reply::Taken(Holder::WrongType)),
        (Expect::Enqueue, Error(b"WRONGTYPE x"), Reply::NoQueue),
        (Expect::Dequeue, Error(b"NOPERM x"), Reply::NoQueue),
        (Expect::Delete, Error(b"NOSCRIPT x"), Reply::Unknown(Cause::NoScript)),
        (Expect::Kill, Error(b"BUSY x"), Reply::Unknown(Cause::Error(Arc::from("BUSY x")))),
    ] {
        assert_eq!(expect.read(&frame), reply, "{expect:?} {frame:?}");
    }
}
