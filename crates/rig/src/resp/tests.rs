//! Tests of the parser: what it understands, and that it neither panics nor depends on how bytes
//! arrive.

use proptest::prelude::*;

use super::{
    RespValue,
    Unparsed::{self, Incomplete, Strange},
    encode, reply, request,
};

/// The length of each frame, and why there is no further one, as the bytes arrive in these pieces.
fn frames(requests: bool, pieces: &[&[u8]]) -> (Vec<usize>, Unparsed) {
    let (mut buffer, mut lengths) = (Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let length = match requests {
                true => request(&buffer).map(|(_, length)| length),
                false => reply(&buffer).map(|(_, length)| length),
            };
            match length {
                Ok(length) => {
                    assert!(length > 0 && length <= buffer.len());
                    buffer.drain(..length);
                    lengths.push(length);
                }
                Err(Incomplete) => break,
                Err(Strange) => return (lengths, Strange),
            }
        }
    }
    (lengths, Incomplete)
}

fn cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

fn write(reply: &RespValue) -> Vec<u8> {
    match reply {
        RespValue::Status(text) => format!("+{text}\r\n").into_bytes(),
        RespValue::Error(text) => format!("-{text}\r\n").into_bytes(),
        RespValue::Integer(number) => format!(":{number}\r\n").into_bytes(),
        RespValue::Bulk(bytes) => {
            [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
        }
        RespValue::Nil => b"$-1\r\n".to_vec(),
        RespValue::Array(values) => {
            let header = format!("*{}\r\n", values.len()).into_bytes();
            header.into_iter().chain(values.iter().flat_map(write)).collect()
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
    const PIECES: &str = "* $ % | > ~ = ! #t _ : + - \r\n \n \r 1 2 -1 0 9223372036854775807 \
                          99999999999999999999 PING";
    let piece = prop_oneof![
        prop::sample::select(PIECES.split(' ').collect::<Vec<_>>())
            .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn replies_are_read_as_they_were_written(sent in replies()) {
        let bytes = write(&sent);
        prop_assert_eq!(reply(&bytes), Ok((sent, bytes.len())));
    }

    #[test]
    fn requests_are_read_as_they_were_written(
        sent in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..6),
    ) {
        let mut bytes = Vec::new();
        encode(&sent.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut bytes);
        prop_assert_eq!(request(&bytes), Ok((sent, bytes.len())));
    }

    #[test]
    fn the_result_does_not_depend_on_the_pieces(
        sent in prop::collection::vec(replies(), 0..4),
        garbage in garbage(),
        cuts in prop::collection::vec(any::<usize>(), 0..20),
        requests in any::<bool>(),
    ) {
        let bytes = [sent.iter().flat_map(write).collect(), garbage].concat();
        prop_assert_eq!(frames(requests, &cut(&bytes, &cuts)), frames(requests, &[&bytes]));
    }
}

#[test]
fn resp3_types_become_resp2_types() {
    let number = RespValue::Integer;
    let status = |text: &str| RespValue::Status(text.to_owned());
    for (frame, expected) in [
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
        assert_eq!(reply(frame.as_bytes()), Ok((expected, frame.len())), "{frame:?}");
    }
}

#[test]
fn inline_commands_are_words_up_to_the_end_of_the_line() {
    let bytes = b"SET  key value\r\nPING\n\r\n";
    assert_eq!(frames(true, &[bytes]), (vec![16, 5, 2], Incomplete));
    let words = ["SET", "key", "value"].map(|word| word.as_bytes().to_vec());
    assert_eq!(request(bytes), Ok((words.to_vec(), 16)));
    assert_eq!(request(b"\r\n"), Ok((Vec::new(), 2)));
}

#[test]
fn bytes_that_are_not_resp_are_strange() {
    let deep = "*1\r\n".repeat(1000);
    for bytes in ["?\r\n", ":x\r\n", "*1\n", "$1\r\nabc\r\n", "$x\r\n", "#x\r\n", "\r\n", &deep] {
        assert_eq!(reply(bytes.as_bytes()), Err(Strange), "{bytes:?}");
    }
    let long = "x".repeat(70_000);
    for bytes in ["*1\r\n:1\r\n", "*1\r\n$-1\r\n", "*1\r\n*1\r\n", "*x\r\n", &long] {
        assert_eq!(request(bytes.as_bytes()), Err(Strange), "{bytes:?}");
    }
}
