//! `redquorum bench-masters`: a line for each master, the options that follow, and JSON.

use redquorum_rig::trials::Case;
use redquorum_rig::{Masters, cases};
use serde_json::Value;

use crate::program::{bare, ended};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: each_master_and_each_option_has_a_line,
        with_masters: without_a_quorum_there_is_no_advice,
        plain: a_measurement_that_is_too_short_is_refused,
    ]
}

/// The exit code, standard output and standard error.
fn bench(urls: &[String], options: &[&str]) -> (i32, String, String) {
    let mut command = bare();
    command.args(["bench-masters", "--masters", &urls.join(",")]).args(options);
    ended(command.output().unwrap())
}

fn each_master_and_each_option_has_a_line() {
    let masters = Masters::builder().count(3).password("hunter2").start().unwrap();
    let urls = masters.urls();
    let (code, printed, stderr) = bench(&urls, &["--for", "1s"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{printed}");
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 3 + 3, "{printed}");
    for (index, line) in lines[..3].iter().enumerate() {
        let begin = format!("master {}  127.0.0.1:{}  ", index + 1, masters.port(index + 1));
        assert!(line.starts_with(&begin), "{line}");
        let has = |part: &&str| line.contains(part);
        assert!([" p50, ", " p99, ", " max of ", "; clock ", " ppm; no errors"].iter().all(has));
    }
    for (line, option) in lines[3..].iter().zip(["--node-timeout", "--ttl", "--drift-ppm"]) {
        assert!(line.starts_with(option), "{line}");
    }
    assert!(!printed.contains("hunter2"));

    // Masters in this machine share its clock.
    let (code, json, _) = bench(&urls, &["--for", "1s", "--json", "--ttl", "30s"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, json["schema"].as_u64()), (0, Some(1)), "{json}");
    let all = json["masters"].as_array().unwrap();
    assert_eq!(all.len(), 3);
    for master in all {
        let of = |part: &str, figure: &str| master[part][figure].as_f64().unwrap();
        assert!(of("round_trips", "count") > 20.0, "{json}");
        assert!(of("round_trips", "p50_ms") <= of("round_trips", "max_ms"), "{json}");
        assert!(of("clock", "ahead_ms").abs() < 50.0 + of("clock", "ahead_error_ms"), "{json}");
        assert!(master["clock"]["rate"]["ppm"].is_f64(), "{json}");
    }
    let ttl = &json["advice"].as_array().unwrap()[1];
    assert_eq!((ttl["option"].as_str(), ttl["value"].as_str()), (Some("ttl"), Some("30s")));
}

fn without_a_quorum_there_is_no_advice() {
    let masters = Masters::start(3).unwrap();
    masters.kill(1).unwrap();
    let (code, printed, _) = bench(&masters.urls(), &["--for", "1s"]);
    assert_eq!(code, 0, "{printed}");
    assert!(printed.lines().next().unwrap().contains("no answer; "), "{printed}");
    masters.kill(2).unwrap();
    let (code, printed, stderr) = bench(&masters.urls(), &["--for", "1s"]);
    assert_eq!((code, printed.lines().count()), (69, 3), "{printed}");
    assert!(stderr.contains("1 of 3 masters answered"), "{stderr}");
}

fn a_measurement_that_is_too_short_is_refused() {
    let urls = ["redis://127.0.0.1:1".to_owned()];
    let (code, _, stderr) = bench(&urls, &["--for", "10ms"]);
    assert!(code == 64 && stderr.contains("at least 1s"), "{code} {stderr}");
}
