//! After a kill, a stop or a power loss, a master has what was on its disk, and its keys did not
//! stop ageing.

use std::{thread, time::Duration};

use redquorum_rig::{
    Builder, ClockChange, Masters, Persisted, Persistence, RespValue, RigError, clocks_supported,
};

use super::{eventually, has, set};

tests![
    the_persistence_decides_which_keys_survive,
    keys_go_on_ageing_while_their_master_is_down,
    a_power_loss_removes_only_data_that_was_not_synced,
];

fn the_persistence_decides_which_keys_survive(builder: Builder) {
    for (persistence, append, sync, kept) in [
        (Persistence::None, "no", "everysec", Some(Persisted::Nothing)),
        (Persistence::AofEverysec, "yes", "everysec", None),
        (Persistence::AofAlways, "yes", "always", Some(Persisted::Everything)),
    ] {
        // The last call decides.
        let builder = builder.clone().count(1).persistence(Persistence::AofAlways);
        let masters = builder.persistence(persistence).start().unwrap();
        for (directive, value) in [("appendonly", append), ("appendfsync", sync)] {
            let reply = masters.ask(1, &format!("CONFIG GET {directive}")).unwrap();
            let expected = [directive, value].map(|text| RespValue::Bulk(text.into()));
            assert_eq!(reply, RespValue::Array(expected.into()), "{persistence:?}");
        }
        let keeps = persistence != Persistence::None;
        for end in [Masters::kill, Masters::stop] {
            set(&masters, 1, "key");
            end(&masters, 1).unwrap();
            masters.restart(1).unwrap();
            assert_eq!(has(&masters, 1, "key"), keeps, "{persistence:?}");
            masters.ask(1, "DEL key").unwrap();
        }
        set(&masters, 1, "key");
        match (masters.power_loss(1), kept) {
            (found, Some(kept)) => {
                assert_eq!(found.unwrap(), kept);
                masters.restart(1).unwrap();
                assert_eq!(has(&masters, 1, "key"), keeps, "{persistence:?}");
            }
            // The synced data is known only if the syncs are recorded.
            (found, None) => {
                let error = found.unwrap_err();
                assert!(matches!(error, RigError::PowerLoss { node: 1, .. }), "{error}");
                assert!(error.to_string().contains("`syncs`"), "{error}");
            }
        }
    }
}

fn keys_go_on_ageing_while_their_master_is_down(builder: Builder) {
    let masters = builder.count(1).persistence(Persistence::AofAlways).start().unwrap();
    masters.ask(1, "SET short value PX 300").unwrap();
    masters.ask(1, "SET long value PX 60000").unwrap();
    masters.kill(1).unwrap();
    thread::sleep(Duration::from_millis(350));
    masters.restart(1).unwrap();
    assert!(!has(&masters, 1, "short"));
    let left = masters.ask(1, "PTTL long").unwrap();
    assert!(matches!(left, RespValue::Integer(1..=59_650)), "{left:?}");
}

fn a_power_loss_removes_only_data_that_was_not_synced(builder: Builder) {
    if let Err(why) = clocks_supported() {
        return println!("skipped: {why}");
    }
    let builder = builder.count(1).persistence(Persistence::AofEverysec);
    let masters = builder.syncs().start().unwrap();
    set(&masters, 1, "first");
    eventually("it is synced", || is_synced(&masters));
    write_unsynced(&masters, "second");
    let kept = masters.power_loss(1).unwrap();
    assert!(matches!(kept, Persisted::Until(1..)), "{kept:?}");
    masters.restart(1).unwrap();
    assert!(has(&masters, 1, "first") && !has(&masters, 1, "second"));
    // A power loss also takes the data that a kill leaves.
    write_unsynced(&masters, "second");
    masters.kill(1).unwrap();
    masters.power_loss(1).unwrap();
    masters.restart(1).unwrap();
    assert!(has(&masters, 1, "first") && !has(&masters, 1, "second"));
}

/// Writes a key that the master does not sync: the clock goes back by an hour, so for an hour it
/// shows no second later than the latest sync or the start.
fn write_unsynced(masters: &Masters, key: &str) {
    let before = cached_clock(masters);
    masters.set_clock(1, ClockChange::back(Duration::from_secs(3600))).unwrap();
    // It syncs by a reading of the clock that it renews ten times a second.
    eventually("it has read the clock again", || cached_clock(masters) < before);
    set(masters, 1, key);
}

/// The reading of the wall clock that the master goes by, in microseconds.
fn cached_clock(masters: &Masters) -> u64 {
    let info = masters.info(1, "server").unwrap();
    let reading = info.lines().find_map(|line| line.strip_prefix("server_time_usec:"));
    reading.expect("every supported server shows it").trim().parse().unwrap()
}

/// Whether all writes are synced, according to the notes: file and length.
fn is_synced(masters: &Masters) -> bool {
    use std::os::unix::fs::MetadataExt;
    let file = masters.dir(1).join("appendonlydir/appendonly.aof.1.incr.aof");
    let file = if file.exists() { file } else { masters.dir(1).join("appendonly.aof") };
    let there = std::fs::metadata(file).unwrap();
    let wanted = [there.ino(), there.len()].map(u64::to_ne_bytes).concat();
    let notes = std::fs::read(masters.dir(1).join("synced")).unwrap_or_default();
    notes.as_chunks::<24>().0.iter().any(|note| note.starts_with(&wanted))
}
