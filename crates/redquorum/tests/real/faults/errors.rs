//! Error replies of the installed server, and how the library classifies them.

use redquorum_protocol::wire::{ErrorKind, KNOWN_ERRORS, KNOWN_VERSIONS, KnownError};
use redquorum_rig::{Masters, find_server, trials::Case};

use crate::raw::Raw;
use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![errors_are_worded_as_in_the_table]
}

/// The commands that put a master into the state for an error, and that end this state.
fn state(known: &KnownError) -> (&'static str, &'static str) {
    let states = [
        ("'read-only'", ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE")),
        (
            "'no replicas'",
            ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
        ),
        ("'out of memory'", ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0")),
    ];
    let state = states.iter().find(|(word, _)| known.command.contains(word));
    state.map_or(("PING", "PING"), |(_, state)| *state)
}

/// The error that a command provokes, with its `-`.
async fn provoked(masters: &Masters, locker: &mut Raw, known: &KnownError) -> String {
    if known.kind == ErrorKind::Busy {
        done(masters, 1, "CONFIG SET lua-time-limit 1");
        Raw::connect(masters.port(1)).send("EVAL \"while true do end\" 0");
        let mut error = String::new();
        eventually("the script runs", || {
            error = locker.ask(known.command);
            error != "+none"
        })
        .await;
        done(masters, 1, "SCRIPT KILL");
        eventually("the script has ended", || locker.ask(known.command) == "+none").await;
        return error;
    }
    let (harm, heal) = state(known);
    done(masters, 1, harm);
    let error = locker.ask(known.command);
    done(masters, 1, heal);
    error
}

/// Replaces the names of scripts as in the table.
fn without_names(error: &str) -> String {
    let is_sha1 =
        |word: &str| word.len() == 40 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = error.split_inclusive([' ', '_', ',', ')']).map(|word| {
        let name = word.trim_end_matches([',', ')']);
        if is_sha1(name) { word.replace(name, "<sha1>") } else { word.to_owned() }
    });
    words.collect()
}

async fn errors_are_worded_as_in_the_table() {
    let server = find_server().unwrap();
    let version = server.version().rsplit_once('.').unwrap().0.to_owned();
    let masters = own(1);
    done(&masters, 1, "RPUSH list x");
    let rights = "resetkeys ~r ~list -@all +eval +evalsha +pttl +set +type";
    done(&masters, 1, &format!("ACL SETUSER locker on >pw {rights}"));
    let mut locker = Raw::connect(masters.port(1));
    assert_eq!(locker.ask("AUTH locker pw"), "+OK");
    for known in KNOWN_ERRORS {
        let line = provoked(&masters, &mut locker, known).await;
        let error = line.strip_prefix('-').unwrap_or_else(|| panic!("{}: {line}", known.command));
        assert_eq!(ErrorKind::of(error.as_bytes()), known.kind, "{}: {error}", known.command);
        let mut texts = known.texts.iter();
        let text = texts.find(|(versions, _)| versions.split(' ').any(|known| known == version));
        // For a version that is not in the table, only the kinds are known.
        assert_eq!(text.is_some(), KNOWN_VERSIONS.contains(&&*version), "{version}");
        if let Some((_, text)) = text {
            assert_eq!(without_names(error), text.trim_end(), "{}", known.command);
        }
    }
}
