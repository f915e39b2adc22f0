//! Arbitrary bytes: no panic, no guess, and the reader accepts what the writer wrote.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use redquorum_protocol::wire::{Expect, Frame, Greeting, Hello, KEEP, MAX_REPLY, Skip, parse};
use redquorum_protocol::{Cause, Reply};

/// Bytes that resemble the protocol more often than random ones would.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        vec(any::<u8>(), 0..6),
        "[-+:$*][-0-9]{0,20}".prop_map(String::into_bytes),
        Just(b"\r\n".to_vec()),
        Just(b"+OK\r\n".to_vec()),
        Just(b"-NOSCRIPT x\r\n".to_vec()),
        Just(b"*2\r\n:-1\r\n$3\r\nabc\r\n".to_vec()),
        Just(b"*2\r\n:1\r\n:17\r\n".to_vec()),
        Just(b"*2\r\n:1\r\n:-17\r\n".to_vec()),
    ];
    vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// A value that is nested as deep as a reply may be.
fn any_frame() -> impl Strategy<Value = Frame<'static>> {
    let bytes = select(vec![&b""[..], b"1", b"OK", b"-1\r", b"\xff\0", b"$2*1"]);
    let leaf = prop_oneof![
        Just(Frame::Null),
        Just(Frame::Bulk(b"\r\n")),
        any::<i64>().prop_map(Frame::Integer),
        bytes.clone().prop_map(Frame::Simple),
        bytes.clone().prop_map(Frame::Error),
        bytes.prop_map(Frame::Bulk),
    ];
    leaf.prop_recursive(4, 64, 4, |inner| {
        let map = vec((inner.clone(), inner.clone()), 0..3);
        let parts = vec(inner, 0..4);
        prop_oneof![
            parts.clone().prop_map(Frame::Array),
            parts.prop_map(Frame::Push),
            map.prop_map(|pairs| Frame::Map(pairs.into_iter().flat_map(|(a, b)| [a, b]).collect())),
        ]
    })
}

const EXPECTS: [Expect; 12] = [
    Expect::Set,
    Expect::Grant { fenced: false },
    Expect::Grant { fenced: true },
    Expect::Keep,
    Expect::Delete,
    Expect::Kill,
    Expect::Load(KEEP),
    Expect::Probe,
    Expect::Guarded { fenced: false },
    Expect::Guarded { fenced: true },
    Expect::Watch,
    Expect::Initialize,
];

proptest! {
    #[test]
    fn any_bytes_are_a_value_or_the_start_of_one_or_refused(bytes in any_bytes()) {
        let Ok(Some((frame, used))) = parse(&bytes, MAX_REPLY) else { return Ok(()) };
        prop_assert!(0 < used && used <= bytes.len());
        for expect in EXPECTS {
            let reply = expect.read(&frame);
            // Only the one right reply is a grant.
            if reply.clone().plain() == Reply::Created {
                let right = match expect {
                    Expect::Set => frame == Frame::Simple(b"OK"),
                    Expect::Grant { fenced: false } => frame == Frame::Integer(1),
                    Expect::Keep => frame == Frame::Integer(2),
                    Expect::Guarded { fenced: false } => matches!(&frame,
                        Frame::Array(parts) if matches!(parts[..], [Frame::Integer(1), Frame::Integer(0..)])),
                    _ => false,
                };
                prop_assert!(right, "{:?} {:?}", expect, frame);
            }
            if let Reply::Unknown(Cause::Error(text)) = reply {
                prop_assert!(text.len() <= 3 * 200 && !text.chars().any(char::is_control));
            }
        }
        let hello = Hello { password: Some("pw".into()), ..Hello::default() };
        for guarded in [false, true] {
            let handshake = hello.handshake(guarded);
            for index in 0..=handshake.replies() {
                let _ = handshake.read(index, &frame, &mut Greeting::default());
            }
        }
    }

    #[test]
    fn a_prefix_of_a_value_is_never_taken_for_a_value(bytes in any_bytes(), cut in any::<usize>()) {
        if let Ok(Some((frame, used))) = parse(&bytes, MAX_REPLY) {
            prop_assert_eq!(parse(&bytes[..cut % used], MAX_REPLY), Ok(None));
            prop_assert_eq!(parse(&bytes[..used], MAX_REPLY), Ok(Some((frame, used))));
        }
    }

    #[test]
    fn a_value_that_is_written_is_read_as_it_was(frame in any_frame()) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        for end in 0..bytes.len() {
            prop_assert_eq!(parse(&bytes[..end], MAX_REPLY), Ok(None));
        }
        prop_assert_eq!(parse(&bytes, MAX_REPLY), Ok(Some((frame, bytes.len()))));
    }
}

/// A push of any values, some of them longer than a reply may be.
fn any_push() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        "[+:#,_(-][0-9a-z]{0,30}\r\n".prop_map(String::into_bytes),
        Just(b"$-1\r\n".to_vec()),
        Just(b"*-1\r\n".to_vec()),
        (0..300_usize, "[$=!]").prop_map(|(length, kind)| {
            [format!("{kind}{length}\r\n").into_bytes(), vec![b'\n'; length], b"\r\n".to_vec()]
                .concat()
        }),
    ];
    let value = leaf.prop_recursive(6, 64, 6, |inner| {
        (vec(inner, 0..6), "[*~>%]").prop_map(|(mut parts, kind)| {
            let mut count = parts.len();
            if kind == "%" {
                count /= 2;
                parts.truncate(2 * count);
            }
            [format!("{kind}{count}\r\n").into_bytes(), parts.concat()].concat()
        })
    });
    vec(value, 0..20)
        .prop_map(|parts| [format!(">{}\r\n", parts.len()).into_bytes(), parts.concat()].concat())
}

proptest! {
    #[test]
    fn a_long_push_is_passed_over_at_every_split_and_nothing_behind_it_is(
        push in any_push(), behind in any_bytes(), split in any::<proptest::sample::Index>(),
        chunk in 1..50_usize,
    ) {
        let bytes = [&push[..], &behind].concat();
        // The limit is shorter than the push itself, so the push is skipped.
        let Some(begun) = Skip::begin(&bytes, 3) else { return Ok(()) };
        let passed = |chunks: &mut dyn Iterator<Item = &[u8]>| {
            let (mut skip, mut passed) = (begun.clone(), 0);
            for chunk in chunks {
                let (used, done) = skip.pass(chunk).expect("it is the protocol");
                passed += used;
                if done {
                    break;
                }
                assert_eq!(used, chunk.len());
            }
            passed
        };
        let (one, two) = bytes.split_at(split.index(bytes.len()));
        prop_assert_eq!(passed(&mut [one, two].into_iter()), push.len());
        prop_assert_eq!(passed(&mut bytes.chunks(chunk)), push.len());
        prop_assert_eq!(passed(&mut [&bytes[..]].into_iter()), push.len());
    }
}
