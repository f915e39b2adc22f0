//! Passwords and permissions.

use redquorum_rig::trials::Case;
use redquorum_rig::{Masters, cases};

use crate::diagnosis::{durable, examine, name, run};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_user_without_script_load_gets_the_command_to_allow,
        with_masters: the_least_permissions_that_the_docs_name_are_no_error,
        with_masters: a_user_whose_keys_have_a_prefix_is_an_error_without_the_prefix,
        with_masters: a_refused_command_is_named,
        with_masters: wake_ups_need_permission_for_their_channels,
        with_masters: each_permission_of_queues_is_needed,
        with_masters: a_wrong_and_a_missing_password_are_distinguished_and_not_repeated,
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
    let docs = include_str!("../../../docs/wire.md");
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
    let file = include_str!("../../../docs/deploy/users.acl");
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
const QUEUES: [&str; 8] = [
    "+zadd",
    "+zrem",
    "+zrevrange",
    "+zrank",
    "+zscore",
    "+exists",
    "~redquorum:queue:lock:*",
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
    let (_, printed, stderr) = run(&urls);
    assert!(!format!("{printed}{stderr}{diagnosis:?}").contains("hunter2"), "{printed}{stderr}");
    let (code, printed, _) = run(&masters.urls());
    assert!(code == 0 && !printed.contains("right@"), "{printed}");
}
