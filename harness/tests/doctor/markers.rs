//! Markers, and `--init`.

use std::time::Duration;

use redquorum_rig::trials::Case;
use redquorum_rig::{Masters, Persistence, RespValue, cases};

use crate::diagnosis::{Diagnosis, examine, name};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: init_marks_new_masters_once_and_a_lock_with_a_guard_trusts_them,
        with_masters: init_leaves_a_marker_of_an_earlier_process_alone,
        with_masters: init_marks_for_a_clock_guard_and_another_one_is_an_error,
        with_masters: markers_of_another_set_of_masters_are_an_error_and_name_it,
        with_masters: init_marks_none_if_a_master_is_down_or_named_twice,
    ]
}

const GUARD: [&str; 2] = ["--max-ttl", "30s"];
const INIT: [&str; 3] = ["--max-ttl", "30s", "--init"];

fn masters(persistence: Persistence) -> Masters {
    Masters::builder().count(3).persistence(persistence).start().unwrap()
}

fn guarded(urls: &[String]) -> redquorum::Builder {
    redquorum::Redlock::builder().masters(urls).restart_guard(Duration::from_secs(30))
}

/// Whether a lock gets a lease in one attempt.
fn is_granted(builder: redquorum::Builder) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match builder.build().await.unwrap().try_acquire("r").await {
            Ok(lease) => {
                let _ = lease.expect("no other client").release().await;
                true
            }
            Err(_) => false,
        }
    })
}

fn levels(diagnosis: &Diagnosis, check: &str) -> Vec<String> {
    let own = diagnosis.findings.iter().filter(|found| found.check == check);
    own.map(|found| found.level.clone()).collect()
}

fn init_marks_new_masters_once_and_a_lock_with_a_guard_trusts_them() {
    let masters = masters(Persistence::AofAlways);
    let urls = masters.urls();
    let (code, diagnosis) = examine(&urls, &GUARD);
    assert_eq!(
        (code, levels(&diagnosis, "marker")),
        (0, vec!["warn".to_owned(); 3]),
        "{diagnosis:#?}"
    );
    let (code, diagnosis) = examine(&urls, &INIT);
    assert_eq!((code, diagnosis.bad()), (0, vec![]), "{diagnosis:#?}");
    assert!(diagnosis.findings.iter().any(|found| found.text.starts_with("it is marked now")));
    let marker = masters.ask(1, "GET redquorum:boot").unwrap();
    let (code, diagnosis) = examine(&urls, &INIT);
    assert_eq!((code, diagnosis.bad()), (0, vec![]), "{diagnosis:#?}");
    assert_eq!(levels(&diagnosis, "init"), ["ok"; 3]);
    assert_eq!(masters.ask(1, "GET redquorum:boot").unwrap(), marker);

    // The library agrees: its guard trusts these masters.
    assert!(is_granted(guarded(&urls)));
}

fn init_leaves_a_marker_of_an_earlier_process_alone() {
    let masters = masters(Persistence::AofEverysec);
    let urls = masters.urls();
    assert_eq!(examine(&urls, &INIT).0, 0);
    let before = masters.ask(2, "GET redquorum:boot").unwrap();
    masters.kill(2).unwrap();
    masters.restart(2).unwrap();
    let (code, diagnosis) = examine(&urls, &INIT);
    assert_eq!(code, 1);
    let master = name(&urls[1]);
    diagnosis.has("error", "init", Some(&master), "not marked", "DEL redquorum:boot");
    diagnosis.has("warn", "marker", Some(&master), "it was restarted", "watches it for");
    assert_eq!(masters.ask(2, "GET redquorum:boot").unwrap(), before);
}

fn init_marks_for_a_clock_guard_and_another_one_is_an_error() {
    let masters = masters(Persistence::None);
    let urls = masters.urls();
    let (code, diagnosis) =
        examine(&urls, &["--max-ttl", "30s", "--clock-guard", "500ms", "--init"]);
    assert_eq!(
        (code, levels(&diagnosis, "marker")),
        (0, vec!["ok".to_owned(); 3]),
        "{diagnosis:#?}"
    );
    // Without a given clock guard, only differences between masters are reported.
    assert_eq!(examine(&urls, &GUARD).0, 0);
    let (code, diagnosis) = examine(&urls, &["--max-ttl", "30s", "--clock-guard", "1s"]);
    assert_eq!(
        (code, levels(&diagnosis, "marker")),
        (1, vec!["error".to_owned(); 3]),
        "{diagnosis:#?}"
    );
    assert!(is_granted(guarded(&urls).clock_guard(Duration::from_millis(500))));
    masters.ask(1, "DEL redquorum:boot").unwrap();
    assert_eq!(examine(&urls[..1], &INIT).0, 0);
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    diagnosis.has("error", "clock-guards", None, "no clock guard", "the same clock guard");
}

fn init_marks_none_if_a_master_is_down_or_named_twice() {
    let masters = masters(Persistence::None);
    let urls = masters.urls();
    let is_unmarked = |number| masters.ask(number, "GET redquorum:boot").unwrap() == RespValue::Nil;
    let again = [urls.clone(), vec![urls[0].replace("127.0.0.1", "localhost")]].concat();
    let (code, diagnosis) = examine(&again, &INIT);
    assert_eq!(code, 1);
    diagnosis.has_among("error", "init", Some(&name(&urls[1])), "are one server", "the list");
    assert!((1..=3).all(is_unmarked));
    masters.kill(3).unwrap();
    let (code, diagnosis) = examine(&urls, &INIT);
    assert_eq!(code, 1);
    diagnosis.has_among(
        "error",
        "init",
        Some(&name(&urls[1])),
        "could not be looked at",
        "the list",
    );
    assert!((1..=2).all(is_unmarked));
}

fn markers_of_another_set_of_masters_are_an_error_and_name_it() {
    let masters = masters(Persistence::AofAlways);
    let urls = masters.urls();
    // Two lists share the second master, which belongs to the first list.
    assert_eq!(examine(&urls[..2], &INIT).0, 0);
    let (code, diagnosis) = examine(&urls[1..], &INIT);
    assert_eq!(code, 1);
    let shared = name(&urls[1]);
    diagnosis.has_among(
        "error",
        "init",
        Some(&shared),
        "not marked",
        "see the finding about its marker",
    );
    diagnosis.has_among(
        "error",
        "marker",
        Some(&shared),
        "of locks over other masters",
        "--masters-id NAME",
    );
    // It has looked at all masters before it writes, and marks none beside another list's.
    let third = name(&urls[2]);
    diagnosis.has_among(
        "error",
        "init",
        Some(&third),
        &format!("{shared} has another"),
        "the list",
    );
    assert_eq!(masters.ask(3, "GET redquorum:boot").unwrap(), RespValue::Nil);
    // So the lock over the first list goes on.
    assert!(is_granted(guarded(&urls[..2])));
    // Without a guard, the lists are still distinguished.
    assert_eq!(examine(&urls[2..], &INIT).0, 0);
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    diagnosis.has("error", "markers", None, &format!("{} over", name(&urls[2])), "the same list");

    // One name for the set of masters, however their addresses are spelled.
    let named = [&INIT[..], &["--masters-id", "jobs"]].concat();
    (1..=3).for_each(|node| drop(masters.ask(node, "DEL redquorum:boot").unwrap()));
    assert_eq!(examine(&urls, &named).0, 0);
    let spelled = |url: &String| url.replace("127.0.0.1", "localhost");
    let others: Vec<String> = urls.iter().map(spelled).collect();
    assert_eq!(examine(&others, &named).0, 0);
    assert_eq!(examine(&urls, &GUARD).0, 1, "the name counts, not the list");

    // The library agrees: only the lock with that name trusts them.
    assert!(is_granted(guarded(&others).masters_id("jobs")));
    assert!(!is_granted(guarded(&others)));
}
