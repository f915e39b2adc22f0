use alloc::vec;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::effect::MAX_NUMBER;
use crate::waiter::WaiterId;

fn key() -> impl Strategy<Value = Key> {
    prop::collection::vec(any::<u8>(), 1..20).prop_map(Key::from)
}

fn token() -> impl Strategy<Value = Token> {
    any::<[u8; 20]>().prop_map(Token::new)
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
        grant().prop_map(|(key, token, ttl_ms, repair, fence)| {
            Command::Keep { key, token, ttl_ms, repair, fence }
        }),
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
}

#[test]
fn a_plain_release_sends_the_token_alone() {
    let (key, token) = (Arc::from(&b"r"[..]), Token::new(*b"01234567890123456789"));
    let release = Command::Delete { key, token, wake_up: WakeUp::First, leave: None };
    let start = b"*5\r\n$7\r\nEVALSHA\r\n$40\r\n";
    let end = b"\r\n$1\r\n1\r\n$1\r\nr\r\n$20\r\n01234567890123456789\r\n";
    let mut out = Vec::new();
    release.encode(&mut out);
    assert_eq!(out, [start, DELETE.sha1.as_bytes(), end].concat());
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
