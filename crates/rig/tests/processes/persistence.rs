//! After a kill or a stop, a master has what was on its disk, and its keys did not stop ageing.

use std::{os::unix::fs::MetadataExt, thread, time::Duration};

use redquorum_rig::{
    ClockChange, Masters, Persisted, Persistence, RespValue, RigError, clocks_supported,
    trials::Case,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: with_an_append_only_file_keys_survive_a_kill_and_a_stop,
        with_masters: without_persistence_nothing_survives,
        with_masters: keys_go_on_ageing_while_their_master_is_down,
        with_masters: a_power_loss_takes_what_was_not_synced_and_no_more,
        with_masters: a_power_loss_takes_nothing_of_what_is_synced_before_it_is_answered,
        with_masters: a_power_loss_takes_everything_where_there_is_no_file,
        with_masters: what_was_synced_is_known_only_if_somebody_notes_it,
        with_masters: the_directives_are_those_of_the_persistence,
    ]
}

fn master(persistence: Persistence) -> Masters {
    Masters::builder().count(1).persistence(persistence).start().unwrap()
}

fn set(masters: &Masters, command: &str) {
    assert_eq!(masters.ask(1, command).unwrap().text().unwrap(), "OK");
}

fn with_an_append_only_file_keys_survive_a_kill_and_a_stop() {
    for persistence in [Persistence::AofAlways, Persistence::AofEverysec] {
        let masters = master(persistence);
        set(&masters, "SET killed value");
        masters.kill(1).unwrap();
        masters.restart(1).unwrap();
        assert_eq!(masters.ask(1, "GET killed").unwrap().text().unwrap(), "value");
        set(&masters, "SET stopped value");
        masters.stop(1).unwrap();
        masters.restart(1).unwrap();
        assert_eq!(masters.ask(1, "GET stopped").unwrap().text().unwrap(), "value");
        assert_eq!(masters.ask(1, "DBSIZE").unwrap(), RespValue::Integer(2), "{persistence:?}");
    }
}

fn without_persistence_nothing_survives() {
    let masters = master(Persistence::None);
    set(&masters, "SET key value");
    masters.stop(1).unwrap();
    masters.restart(1).unwrap();
    assert_eq!(masters.ask(1, "DBSIZE").unwrap(), RespValue::Integer(0));
}

fn keys_go_on_ageing_while_their_master_is_down() {
    let masters = master(Persistence::AofAlways);
    set(&masters, "SET short value PX 300");
    set(&masters, "SET long value PX 60000");
    masters.kill(1).unwrap();
    thread::sleep(Duration::from_millis(350));
    masters.restart(1).unwrap();
    assert_eq!(masters.ask(1, "GET short").unwrap(), RespValue::Nil);
    let left = masters.ask(1, "PTTL long").unwrap();
    assert!(matches!(left, RespValue::Integer(1..=59_650)), "{left:?}");
}

fn a_power_loss_takes_what_was_not_synced_and_no_more() {
    if let Err(why) = clocks_supported() {
        return println!("skipped: {why}");
    }
    let builder = Masters::builder().count(1).persistence(Persistence::AofEverysec);
    let masters = builder.syncs().start().unwrap();
    // The clock goes back by an hour, so for an hour it shows no second later than the latest sync.
    set(&masters, "SET first value");
    synced(&masters);
    masters.set_clock(1, ClockChange::back(Duration::from_secs(3600))).unwrap();
    set(&masters, "SET second value");
    let kept = masters.power_loss(1).unwrap();
    assert!(matches!(kept, Persisted::Until(1..)), "{kept:?}");
    masters.restart(1).unwrap();
    assert_eq!(masters.ask(1, "GET first").unwrap().text().unwrap(), "value");
    assert_eq!(masters.ask(1, "GET second").unwrap(), RespValue::Nil);
    // A power loss also takes the data that a kill leaves.
    set(&masters, "SET second value");
    masters.kill(1).unwrap();
    masters.power_loss(1).unwrap();
    masters.restart(1).unwrap();
    assert_eq!(
        masters.ask(1, "KEYS *").unwrap(),
        RespValue::Array(vec![RespValue::Bulk("first".into())])
    );
}

/// Waits until all writes are synced, according to the notes: file and length.
fn synced(masters: &Masters) {
    let file = masters.dir(1).join("appendonlydir/appendonly.aof.1.incr.aof");
    let file = if file.exists() { file } else { masters.dir(1).join("appendonly.aof") };
    let there = std::fs::metadata(file).unwrap();
    let wanted = [there.ino(), there.len()].map(u64::to_ne_bytes).concat();
    let noted = || {
        let notes = std::fs::read(masters.dir(1).join("synced")).unwrap_or_default();
        notes.as_chunks::<24>().0.iter().any(|note| note.starts_with(&wanted))
    };
    while !noted() {
        thread::sleep(Duration::from_millis(10));
    }
}

fn a_power_loss_takes_nothing_of_what_is_synced_before_it_is_answered() {
    let masters = master(Persistence::AofAlways);
    set(&masters, "SET key value");
    assert_eq!(masters.power_loss(1).unwrap(), Persisted::Everything);
    masters.restart(1).unwrap();
    assert_eq!(masters.ask(1, "GET key").unwrap().text().unwrap(), "value");
}

fn a_power_loss_takes_everything_where_there_is_no_file() {
    let masters = master(Persistence::None);
    set(&masters, "SET key value");
    assert_eq!(masters.power_loss(1).unwrap(), Persisted::Nothing);
    masters.restart(1).unwrap();
    assert_eq!(masters.ask(1, "DBSIZE").unwrap(), RespValue::Integer(0));
}

fn what_was_synced_is_known_only_if_somebody_notes_it() {
    let masters = master(Persistence::AofEverysec);
    let error = masters.power_loss(1).unwrap_err();
    assert!(matches!(error, RigError::PowerLoss { node: 1, .. }), "{error}");
    assert!(error.to_string().contains("`syncs`"), "{error}");
}

fn the_directives_are_those_of_the_persistence() {
    for (persistence, append, sync) in [
        (Persistence::None, "no", "everysec"),
        (Persistence::AofEverysec, "yes", "everysec"),
        (Persistence::AofAlways, "yes", "always"),
    ] {
        // The last call decides.
        let builder = Masters::builder().count(1).persistence(Persistence::AofAlways);
        let masters = builder.persistence(persistence).start().unwrap();
        for (directive, value) in [("appendonly", append), ("appendfsync", sync)] {
            let reply = masters.ask(1, &format!("CONFIG GET {directive}")).unwrap();
            let expected = [directive, value].map(|text| RespValue::Bulk(text.into()));
            assert_eq!(reply, RespValue::Array(expected.into()), "{persistence:?}");
        }
    }
}
