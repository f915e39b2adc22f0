//! Tests of the parser: what it understands, and that it neither panics nor depends on how bytes
//! arrive.

use proptest::prelude::*;

use super::{
    RespValue, decode, encode,
    scan::{Grammar, Scan, Scanner},
};

/// The length of every frame, or how it ended, if the bytes arrive in these pieces. After each
/// piece the processed bytes are forgotten, as for a frame that is too large to be kept.
fn frames(grammar: Grammar, pieces: &[&[u8]], forgetful: bool) -> (Vec<usize>, Scan) {
    let mut scanner = Scanner::new(grammar);
    let (mut buffer, mut forgotten, mut lengths) = (Vec::new(), 0, Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match scanner.scan(&buffer) {
                Scan::Complete(length) => {
                    assert!(length > 0 && length <= buffer.len());
                    buffer.drain(..length);
                    lengths.push(forgotten + length);
                    forgotten = 0;
                }
                Scan::More => break,
                Scan::Strange => return (lengths, Scan::Strange),
            }
        }
        if forgetful {
            let done = scanner.done_with();
            buffer.drain(..done);
            scanner.forget(done);
            forgotten += done;
        }
    }
    (lengths, if buffer.is_empty() && forgotten == 0 { Scan::Complete(0) } else { Scan::More })
}

fn cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

fn write(reply: &RespValue, out: &mut Vec<u8>) {
    match reply {
        RespValue::Status(text) => out.extend(format!("+{text}\r\n").bytes()),
        RespValue::Error(text) => out.extend(format!("-{text}\r\n").bytes()),
        RespValue::Integer(number) => out.extend(format!(":{number}\r\n").bytes()),
        RespValue::Bulk(bytes) => {
            out.extend(format!("${}\r\n", bytes.len()).bytes());
            out.extend(bytes);
            out.extend(b"\r\n");
        }
        RespValue::Nil => out.extend(b"$-1\r\n"),
        RespValue::Array(values) => {
            out.extend(format!("*{}\r\n", values.len()).bytes());
            values.iter().for_each(|value| write(value, out));
        }
    }
}

fn replies() -> impl Strategy<Value = RespValue> {
    let leaf = prop_oneof![
        "[ -~]{0,20}".prop_map(RespValue::Status),
        "[ -~]{0,20}".prop_map(RespValue::Error),
        any::<i64>().prop_map(RespValue::Integer),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(RespValue::Bulk),
        Just(RespValue::Nil),
    ];
    leaf.prop_recursive(4, 30, 5, |inner| {
        prop::collection::vec(inner, 0..5).prop_map(RespValue::Array)
    })
}

/// Bytes that are almost RESP in many cases.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "*",
            "$",
            "%",
            "|",
            ">",
            "~",
            "=",
            "!",
            "#t",
            "_",
            ":",
            "+",
            "-",
            "\r\n",
            "\n",
            "\r",
            "1",
            "2",
            "-1",
            "0",
            "9223372036854775807",
            "99999999999999999999",
            " ",
            "PING",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn replies_are_read_as_they_were_written_however_they_are_cut(
        sent in prop::collection::vec(replies(), 0..6),
        cuts in prop::collection::vec(any::<usize>(), 0..20),
    ) {
        let mut bytes = Vec::new();
        let mut lengths = Vec::new();
        for reply in &sent {
            let before = bytes.len();
            write(reply, &mut bytes);
            lengths.push(bytes.len() - before);
            prop_assert_eq!(&decode::reply(&bytes[before..]), reply);
        }
        let expected = (lengths, Scan::Complete(0));
        prop_assert_eq!(&frames(Grammar::Replies, &[&bytes], false), &expected);
        for forgetful in [false, true] {
            prop_assert_eq!(&frames(Grammar::Replies, &cut(&bytes, &cuts), forgetful), &expected);
        }
    }

    #[test]
    fn requests_are_read_as_they_were_written(
        sent in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..6),
    ) {
        let mut bytes = Vec::new();
        encode(&sent.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut bytes);
        prop_assert_eq!(decode::words(&bytes), sent);
        let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(
            frames(Grammar::Requests, &pieces, true), (vec![bytes.len()], Scan::Complete(0))
        );
    }

    #[test]
    fn whatever_comes_is_read_alike_in_one_piece_and_in_many(
        bytes in garbage(),
        cuts in prop::collection::vec(any::<usize>(), 0..20),
        requests in any::<bool>(),
    ) {
        let grammar = if requests { Grammar::Requests } else { Grammar::Replies };
        let whole = frames(grammar, &[&bytes], false);
        for forgetful in [false, true] {
            prop_assert_eq!(&frames(grammar, &cut(&bytes, &cuts), forgetful), &whole);
        }
        // Neither of them panics on a frame that is cut short, or on other bytes.
        let _reply = decode::reply(&bytes);
        let _words = decode::words(&bytes);
    }
}

#[test]
fn what_only_resp3_has_becomes_what_resp2_has() {
    let number = RespValue::Integer;
    let status = |text: &str| RespValue::Status(text.to_owned());
    for (frame, reply) in [
        ("_\r\n", RespValue::Nil),
        ("#t\r\n", number(1)),
        ("#f\r\n", number(0)),
        (",1.5\r\n", status("1.5")),
        ("(12345678901234567890\r\n", status("12345678901234567890")),
        ("!5\r\nERR x\r\n", RespValue::Error("ERR x".to_owned())),
        ("=5\r\ntxt:x\r\n", RespValue::Bulk(b"x".to_vec())),
        ("%1\r\n+a\r\n:1\r\n", RespValue::Array(vec![status("a"), number(1)])),
        ("~1\r\n:1\r\n", RespValue::Array(vec![number(1)])),
        (">1\r\n:1\r\n", RespValue::Array(vec![number(1)])),
        ("|1\r\n+a\r\n+b\r\n:7\r\n", number(7)),
        ("*-1\r\n", RespValue::Nil),
        ("*0\r\n", RespValue::Array(Vec::new())),
    ] {
        let bytes = frame.as_bytes();
        let expected = (vec![bytes.len()], Scan::Complete(0));
        assert_eq!(frames(Grammar::Replies, &[bytes], false), expected, "{frame:?}");
        assert_eq!(decode::reply(bytes), reply, "{frame:?}");
    }
}

#[test]
fn inline_commands_are_words_up_to_the_end_of_the_line() {
    let bytes = b"SET  key value\r\nPING\n\r\n";
    assert_eq!(frames(Grammar::Requests, &[bytes], false).0, [16, 5, 2]);
    assert_eq!(decode::words(&bytes[..16]), [&b"SET"[..], b"key", b"value"]);
    assert!(decode::words(b"\r\n").is_empty());
}

#[test]
fn what_is_not_resp_is_strange() {
    for strange in ["?\r\n", ":x\r\n", "*1\n", "$1\r\nabc\r\n", "$x\r\n", "#x\r\n", "\r\n"] {
        let (_, end) = frames(Grammar::Replies, &[strange.as_bytes()], false);
        assert_eq!(end, Scan::Strange, "{strange:?}");
    }
    for strange in ["*1\r\n:1\r\n", "*1\r\n$-1\r\n", "*1\r\n*1\r\n", "*x\r\n"] {
        let (_, end) = frames(Grammar::Requests, &[strange.as_bytes()], false);
        assert_eq!(end, Scan::Strange, "{strange:?}");
    }
    let deep = "*1\r\n".repeat(1000);
    assert_eq!(frames(Grammar::Replies, &[deep.as_bytes()], false).1, Scan::Strange);
    assert_eq!(frames(Grammar::Requests, &[&[b'x'; 70_000]], false).1, Scan::Strange);
}

#[test]
fn of_a_frame_that_is_cut_short_the_part_that_is_there_is_decoded() {
    assert_eq!(
        decode::words(b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$9\r\nva"),
        [&b"SET"[..], b"key", b"va"]
    );
    assert_eq!(
        decode::reply(b"*3\r\n:1\r\n$9\r\nva"),
        RespValue::Array(vec![RespValue::Integer(1), RespValue::Bulk(b"va".to_vec())])
    );
}
