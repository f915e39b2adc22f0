//! What a master has on disk it has again after a kill or a stop, and its keys did not stop ageing.

use std::{thread, time::Duration};

use redquorum_rig::{Masters, Persistence, Reply, trials::Case};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: with_an_append_only_file_keys_survive_a_kill_and_a_stop,
        with_masters: without_persistence_nothing_survives,
        with_masters: keys_go_on_ageing_while_their_master_is_down,
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
        assert_eq!(masters.ask(1, "DBSIZE").unwrap(), Reply::Integer(2), "{persistence:?}");
    }
}

fn without_persistence_nothing_survives() {
    let masters = master(Persistence::None);
    set(&masters, "SET key value");
    masters.stop(1).unwrap();
    masters.restart(1).unwrap();
    assert_eq!(masters.ask(1, "DBSIZE").unwrap(), Reply::Integer(0));
}

fn keys_go_on_ageing_while_their_master_is_down() {
    let masters = master(Persistence::AofAlways);
    set(&masters, "SET short value PX 300");
    set(&masters, "SET long value PX 60000");
    masters.kill(1).unwrap();
    thread::sleep(Duration::from_millis(350));
    masters.restart(1).unwrap();
    assert_eq!(masters.ask(1, "GET short").unwrap(), Reply::Nil);
    let left = masters.ask(1, "PTTL long").unwrap();
    assert!(matches!(left, Reply::Integer(1..=59_650)), "{left:?}");
}

fn the_directives_are_those_of_the_persistence() {
    for (persistence, append, sync) in [
        (Persistence::None, "no", "everysec"),
        (Persistence::AofEverysec, "yes", "everysec"),
        (Persistence::AofAlways, "yes", "always"),
    ] {
        // The last call counts.
        let builder = Masters::builder().count(1).persistence(Persistence::AofAlways);
        let masters = builder.persistence(persistence).start().unwrap();
        for (directive, value) in [("appendonly", append), ("appendfsync", sync)] {
            let reply = masters.ask(1, &format!("CONFIG GET {directive}")).unwrap();
            let expected = [directive, value].map(|text| Reply::Bulk(text.into()));
            assert_eq!(reply, Reply::Array(expected.into()), "{persistence:?}");
        }
    }
}
