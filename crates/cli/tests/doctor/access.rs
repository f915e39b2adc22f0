//! Passwords and permissions; boot markers, and `--init`.

use std::time::Duration;

use crate::diagnosis::{Diagnosis, durable, examine, name, run};
use redquorum_rig::trials::{Case, eventually};
use redquorum_rig::{Masters, Persistence, RespValue, cases};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_user_without_script_load_gets_the_command_to_allow,
        with_masters: the_least_permissions_that_the_docs_name_are_no_error,
        with_masters: a_user_whose_keys_have_a_prefix_is_an_error_without_the_prefix,
        with_masters: a_refused_command_is_named,
        with_masters: wake_ups_need_permission_for_their_channels,
        with_masters: each_permission_of_queues_is_needed,
        with_masters: a_wrong_and_a_missing_password_are_distinguished_and_not_repeated,
        with_masters: init_marks_new_masters_once_and_a_lock_with_a_guard_trusts_them,
        with_masters: init_leaves_a_marker_of_an_earlier_process_alone,
        with_masters: init_marks_for_a_clock_guard_and_another_one_is_an_error,
        with_masters: markers_of_another_set_of_masters_are_an_error_and_name_it,
        with_masters: init_marks_none_if_a_master_is_down_or_named_twice,
    ]
}

/// Creates a user on the masters, and returns the URLs with that user.
fn urls(masters: &Masters, acl: &str) -> Vec<String> {
    let url = |node| {
        masters.ask(node, &format!("ACL SETUSER locks on >hunter2 {acl}")).unwrap();
        format!("redis://locks:hunter2@127.0.0.1:{}", masters.port(node))
    };
    (1..=masters.len()).map(url).collect()
}

fn a_user_without_script_load_gets_the_command_to_allow() {
    let masters = durable(1);
    let urls = urls(&masters, "~* +@all -script|load -config|get");
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    let master = name(&urls[0]);
    let found = diagnosis.findings.iter().find(|found| found.level == "error").unwrap();
    assert_eq!((&*found.check, found.master.as_deref()), ("permissions", Some(&*master)));
    assert!(found.text.starts_with("SCRIPT LOAD is refused (NOPERM"), "{found:?}");
    assert!(found.fix.as_deref().unwrap().contains("+script|load"), "{found:?}");
    diagnosis.has("warn", "persistence", Some(&master), "is unknown", "+config|get");
    // Without scripts, `doctor` also removes the keys of its trials.
    assert_eq!(masters.ask(1, "DBSIZE").unwrap(), redquorum_rig::RespValue::Integer(0));
}

/// The permissions that docs/wire.md lists.
fn least() -> String {
    let docs = include_str!("../../../../docs/wire.md");
    let lines = docs.lines().filter_map(|line| line.strip_prefix("ACL SETUSER locks "));
    let words: Vec<&str> = lines.flat_map(|line| line.split(' ')).collect();
    words.join(" ").strip_prefix("on >password ").expect("the first line").to_owned()
}

/// These permissions are enough for a plain lock with its prefix, and not without the prefix.
fn the_least_permissions_that_the_docs_name_are_no_error() {
    let masters = durable(3);
    let urls = urls(&masters, &least());
    let (code, diagnosis) = examine(&urls, &["--prefix", "lock:"]);
    assert_eq!(code, 0, "{diagnosis:#?}");
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    let asks = |found: &crate::diagnosis::Finding| {
        found.level == "error" && found.fix.as_deref().is_some_and(|fix| fix.contains("--prefix"))
    };
    assert!(diagnosis.findings.iter().any(asks), "{diagnosis:#?}");
}

/// The user of the documents' file of users may touch all of `redquorum:*`, but no lock is there.
fn a_user_whose_keys_have_a_prefix_is_an_error_without_the_prefix() {
    let file = include_str!("../../../../docs/deploy/users.acl");
    let user = file.lines().find_map(|line| line.strip_prefix("user locks on >CHANGE-ME "));
    let masters = durable(3);
    let urls = urls(&masters, user.unwrap());
    let (code, diagnosis) = examine(&urls, &["--prefix", "lock:"]);
    assert_eq!(code, 0, "{diagnosis:#?}");
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    diagnosis.has_among("error", "permissions", Some(&name(&urls[0])), "SET NX PX", "--prefix");
    diagnosis.has("error", "quorum", None, "0 of 3 masters can vote", "cannot vote");
}

fn warned(urls: &[String], options: &[&str]) -> Vec<String> {
    let (_, diagnosis) = examine(urls, options);
    let found = diagnosis.findings.into_iter().filter(|found| found.check == "permissions");
    found.filter(|it| it.level == "warn").map(|it| it.text).collect()
}

/// The permissions without which the script of queues fails.
const QUEUES: [&str; 10] = [
    "+zadd",
    "+zrem",
    "+zrevrange",
    "+zrank",
    "+zscore",
    "+zcount",
    "+exists",
    "~redquorum:queue:lock:*",
    "~redquorum:readers:lock:*",
    "~redquorum:lapse:lock:*",
];

fn each_permission_of_queues_is_needed() {
    let masters = durable(1);
    let least = least();
    let all: Vec<&str> = least.split(' ').collect();
    let about_queues = |acl: &[&str]| {
        let acl = format!("reset on >hunter2 {}", acl.join(" "));
        let warned = warned(&urls(&masters, &acl), &["--prefix", "lock:"]);
        warned.into_iter().find(|text| text.starts_with("the script of queues"))
    };
    assert_eq!(about_queues(&all), None);
    for word in QUEUES {
        let others: Vec<&str> = all.iter().copied().filter(|it| *it != word).collect();
        assert_eq!(others.len() + 1, all.len(), "{word}");
        assert!(about_queues(&others).is_some(), "{word}");
    }
}

/// What `doctor` names if a user may do everything but one thing. No ACL refuses `HELLO`.
const REFUSED: [(&str, &[&str]); 7] = [
    ("-ping", &["PING"]),
    ("-client|id", &["CLIENT ID"]),
    ("-client|kill", &["CLIENT KILL ID"]),
    ("-subscribe", &["SUBSCRIBE"]),
    ("-publish", &["PUBLISH"]),
    ("-zrank", &["the script of queues"]),
    ("-pttl", &["the script of extend", "the scripts of fenced leases", "the script of queues"]),
];

fn a_refused_command_is_named() {
    let masters = durable(1);
    for (forbidden, commands) in REFUSED {
        let acl = format!("reset on >hunter2 ~* &* +@all {forbidden}");
        let (_, diagnosis) = examine(&urls(&masters, &acl), &[]);
        let found = diagnosis.findings.iter().filter(|found| found.check == "permissions");
        let named: Vec<&str> =
            found.map(|found| found.text.split(" is refused (").next().unwrap()).collect();
        assert_eq!(named, commands, "{forbidden}");
    }
}

fn wake_ups_need_permission_for_their_channels() {
    let masters = durable(1);
    let all = "resetchannels ~* +@all -config|get";
    let urls = urls(&masters, &format!("{all} &redquorum:wake:*"));
    let warned = |urls: &[String]| warned(urls, &[]);
    assert_eq!(warned(&urls), Vec::<String>::new());
    let urls = self::urls(&masters, all);
    let warned = warned(&urls);
    assert!(warned.len() == 2 && warned.iter().all(|it| it.contains("channels")), "{warned:?}");
}

fn a_wrong_and_a_missing_password_are_distinguished_and_not_repeated() {
    let masters = Masters::builder().count(2).password("right").start().unwrap();
    let wrong = format!("redis://:hunter2@127.0.0.1:{}", masters.port(1));
    let none = format!("redis://127.0.0.1:{}", masters.port(2));
    let urls = [wrong.clone(), none.clone()];
    let (code, diagnosis) = examine(&urls, &[]);
    // Both masters replied, although with an error.
    assert_eq!(code, 1);
    let of = |url: &str| {
        let own = |found: &&crate::diagnosis::Finding| found.master.as_deref() == Some(&name(url));
        diagnosis.findings.iter().find(own).unwrap()
    };
    assert!(of(&wrong).text.contains("WRONGPASS"), "{diagnosis:#?}");
    assert!(of(&none).text.contains("NOAUTH"), "{diagnosis:#?}");
    assert!(of(&none).fix.as_deref().unwrap().contains("wants a password"));
    let (_, printed, stderr) = run(&urls, &[]);
    assert!(!format!("{printed}{stderr}{diagnosis:?}").contains("hunter2"), "{printed}{stderr}");
    let (code, printed, _) = run(&masters.urls(), &[]);
    assert!(code == 0 && !printed.contains("right@"), "{printed}");
}

const GUARD: [&str; 2] = ["--restart-guard", "30s"];
const INIT: [&str; 3] = ["--restart-guard", "30s", "--init"];

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
    // While a sync is slow, Redis keeps its writes to itself, and a kill would take the marker.
    eventually("the marker is written", || {
        let info = masters.info(2, "persistence").unwrap();
        info.lines().any(|line| line.trim() == "aof_buffer_length:0")
    });
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
        examine(&urls, &["--restart-guard", "30s", "--clock-guard", "500ms", "--init"]);
    assert_eq!(
        (code, levels(&diagnosis, "marker")),
        (0, vec!["ok".to_owned(); 3]),
        "{diagnosis:#?}"
    );
    // Without a given clock guard, only differences between masters are reported.
    assert_eq!(examine(&urls, &GUARD).0, 0);
    let (code, diagnosis) = examine(&urls, &["--restart-guard", "30s", "--clock-guard", "1s"]);
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
