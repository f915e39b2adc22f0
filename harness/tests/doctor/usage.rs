//! The command line, and masters that are not there.

use redquorum_rig::cases;
use redquorum_rig::trials::Case;

use crate::diagnosis::{examine, name, run};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        plain: unreachable_masters_exit_with_3_and_each_is_named,
        plain: wrong_usage_exits_with_64_and_repeats_no_password,
    ]
}

fn unreachable_masters_exit_with_3_and_each_is_named() {
    // Ports that were free a moment ago.
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let urls = [free(), free()].map(|address| format!("redis://:hunter2@{address}"));
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 3, "{diagnosis:#?}");
    let names: Vec<String> = diagnosis.masters.into_iter().map(|master| master.name).collect();
    assert_eq!(names, urls.each_ref().map(|url| name(url)));

    let page = std::env::temp_dir().join(format!("doctor-{}.html", std::process::id()));
    let html = ["--html", page.to_str().unwrap()].map(str::to_owned);
    let (code, text, _) = run(&[&urls[..], &html].concat());
    let page = (std::fs::read_to_string(&page), std::fs::remove_file(&page)).0.unwrap();
    assert_eq!(code, 3, "{text}");
    // Both masters have the same finding.
    assert_eq!(text.matches("  error  reachable     each master: it cannot be reached").count(), 1);
    let verdict = "2 masters: 3 errors, 1 warning, 0 ok: a lock on them does not work";
    assert!(text.lines().last().unwrap().starts_with(verdict), "{text}");
    assert!(page.contains(verdict) && !page.contains("hunter2"), "{page}");
}

fn wrong_usage_exits_with_64_and_repeats_no_password() {
    let good = "redis://:hunter2@127.0.0.1:1";
    let table: [(&[&str], &str); 9] = [
        (&[], "<URL>"),
        (&[good, "--init"], "--max-ttl"),
        (&[good, "--max-ttl", "30"], "with a unit"),
        (&[good, "--max-ttl", "48h"], "at most 24h"),
        (&[good, "--max-ttl", "1us"], "at least 1ms"),
        (&[good, "--node-timeout", "0s"], "with a unit"),
        (&[good, "redis://:hunter2@host:port"], "URL 2: not a Redis URL"),
        (&["rediss://:hunter2@host"], "TLS is not built into this program"),
        (&["redis://hunter2@host"], "a user without a password"),
    ];
    for (words, part) in table {
        let (code, stdout, stderr) = run(words);
        assert_eq!((code, stdout.as_str()), (64, ""), "{words:?}: {stderr}");
        assert!(stderr.contains(part) && !stderr.contains("hunter2"), "{words:?}: {stderr}");
    }
    assert_eq!(run(&vec![good; 65]).0, 64);
}
