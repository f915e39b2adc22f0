//! The kinds of bad masters, as one table that every test of this directory runs through.

use std::time::Duration;

use super::scripted::{Args, Reaction, Scripted, is_greeting};

pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// A word that the report must contain about such a master; `None` if it grants anyway.
    pub(crate) cause: Option<&'static str>,
    at: At,
    reaction: Reaction,
}

#[derive(Clone, Copy)]
enum At {
    Connect,
    Greeting,
    Load,
    Set,
    Eval,
    /// Every command after the handshake.
    Commands,
    All,
}

impl At {
    fn meets(self, args: Option<&Args<'_>>) -> bool {
        match (self, args) {
            (Self::Connect, None) => true,
            (Self::Connect, Some(_)) | (_, None) => false,
            (Self::All, _) => true,
            (Self::Greeting, Some(args)) => is_greeting(args),
            (Self::Load, Some(args)) => args[0] == b"SCRIPT",
            (Self::Set, Some(args)) => args[0] == b"SET",
            (Self::Eval, Some(args)) => args[0] == b"EVALSHA",
            (Self::Commands, Some(args)) => !is_greeting(args),
        }
    }
}

impl Kind {
    pub(crate) fn master(&self, number: usize) -> Scripted {
        let (at, reaction) = (self.at, self.reaction.clone());
        Scripted::new(&format!("bad-{number}"), move |args| {
            if at.meets(args) { reaction.clone() } else { Reaction::Well }
        })
    }
}

const HTTP: &str = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";

const ERRORS: [(&str, &str); 9] = [
    ("-LOADING Redis is loading the dataset in memory", "LOADING"),
    ("-READONLY You can't write against a read only replica.", "READONLY"),
    ("-OOM command not allowed when used memory > 'maxmemory'.", "OOM"),
    ("-NOAUTH Authentication required.", "NOAUTH"),
    ("-NOPERM this user has no permissions to run the command", "NOPERM"),
    ("-MISCONF Redis is configured to save RDB snapshots", "MISCONF"),
    ("-BUSY Redis is busy running a script.", "BUSY"),
    ("-NOSCRIPT No matching script. Please use EVAL.", "scripts were flushed"),
    ("-", "error"),
];

pub(crate) fn kinds() -> Vec<Kind> {
    let bytes = |text: &str| Reaction::Bytes(text.as_bytes().to_vec());
    let last = |text: &str| Reaction::Last(text.as_bytes().to_vec());
    let not_redis = "not the Redis protocol";
    let mut kinds = Vec::new();
    let mut add = |name, at, reaction, cause| kinds.push(Kind { name, cause, at, reaction });

    let connect = At::Connect;
    add("refuses connections", connect, Reaction::Refuse, Some("connection refused"));
    add("never lets a connection come up", connect, Reaction::Hang, Some("connect timeout"));
    add("has a node that panics", connect, Reaction::Panic, Some("panicked"));
    add("closes at once", connect, last(""), Some("closed by the master"));
    add("speaks first", connect, bytes("+HELLO\r\n"), Some("not Redis's"));
    add("speaks HTTP first", connect, bytes(HTTP), Some(not_redis));

    let greeting = At::Greeting;
    add("greets with garbage", greeting, Reaction::Bytes(vec![0, 255, 10, 13]), Some(not_redis));
    add("greets with HTTP", greeting, bytes(HTTP), Some(not_redis));
    add("greets with half a reply", greeting, bytes("$999\r\nrun_id"), Some("connect timeout"));
    add("greets twice", greeting, Reaction::Twice, Some("not Redis's"));
    add("greets with 100 MB", greeting, bytes("$104857600\r\n"), Some("too long"));
    add("greets without end", greeting, Reaction::Endless(b"+x".repeat(500)), Some("too long"));
    add("greets with a wrong type", greeting, bytes("*0\r\n"), Some("not Redis's"));
    add("greets with nothing", greeting, Reaction::Nothing, Some("connect timeout"));
    add("breaks in the greeting", greeting, last("$99\r\nrun"), Some("closed by the master"));
    add("greets with LOADING", greeting, Reaction::line(ERRORS[0].0), Some("LOADING"));
    add("greets with NOAUTH", greeting, Reaction::line(ERRORS[3].0), Some("password is needed"));
    let sha = format!("${}\r\n{}\r\n", 40, "0".repeat(40));
    add("loads another script", At::Load, bytes(&sha), Some("script was not loaded"));

    let garbage = Some("not Redis's");
    for (at, cause) in [(At::Set, garbage), (At::Commands, garbage), (At::Eval, None)] {
        add("answers with garbage", at, Reaction::Bytes(vec![0, 255, 10, 13]), cause);
        add("answers with HTTP", at, bytes(HTTP), cause);
        add("announces 100 MB", at, bytes("$104857600\r\n"), cause);
        add("announces a million elements", at, bytes("*1000000\r\n"), cause);
        add("answers without end", at, Reaction::Endless(b"+x".repeat(500)), cause);
        add("answers with a wrong type", at, bytes("*1\r\n*1\r\n:1\r\n"), cause);
        add("answers QUEUED", at, bytes("+QUEUED\r\n"), cause);
        add("answers with too large a number", at, bytes(":99999999999999999999\r\n"), cause);
    }
    let silent = Some("no reply within the node timeout");
    let broken = Some("connection broke");
    for (at, granting) in [(At::Set, false), (At::Commands, false), (At::Eval, true)] {
        let unless = |cause| if granting { None } else { cause };
        add("answers with half a reply", at, bytes("$5\r\nab"), unless(silent));
        add("answers nothing", at, Reaction::Nothing, unless(silent));
        add("swallows everything", at, Reaction::Swallow, unless(silent));
        add("hangs up", at, last(""), unless(broken));
        add("hangs up in a reply", at, last("$5\r\nab"), unless(broken));
        add(
            "hangs up after an error",
            at,
            last("-ERR upstream failure\r\n"),
            unless(Some("upstream")),
        );
        add("hangs up after garbage", at, last("x"), unless(garbage));
        for (error, cause) in ERRORS {
            add(error, at, Reaction::line(error), unless(Some(cause)));
        }
    }
    let long = format!("-ERR {}", "x".repeat(60_000));
    add("answers with a long error", At::Commands, Reaction::line(&long), Some("ERR xxx"));
    add("answers everything twice", At::Commands, Reaction::Twice, None);
    add("answers slowly", At::Commands, Reaction::Slowly(Duration::from_millis(1)), None);
    add("does everything slowly", At::All, Reaction::Slowly(Duration::from_micros(100)), None);
    kinds
}
