//! The program, its command line and its JSON output, beside masters that are not there or have a
//! problem: replicas, files, memory, clocks, ends. With the settings in `docs/deploy` it finds
//! nothing wrong, keeps no key, and all files have the same settings.

use std::time::Duration;

use redquorum_rig::trials::{Case, eventually};
use redquorum_rig::{ClockChange, Masters, Persistence, cases, clocks_supported};
use serde::Deserialize;

use crate::program::{bare, ended};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        plain: unreachable_masters_exit_with_69_and_each_is_named,
        plain: wrong_usage_exits_with_64_and_repeats_no_password,
        with_masters: a_replica_a_duplicate_and_masters_that_forget_are_reported,
        with_masters: a_dead_and_a_hung_master_are_distinguished_and_the_quorum_is_gone,
        with_masters: a_wrong_clock_and_a_fast_clock_are_reported,
        with_masters: masters_with_the_documented_settings_have_no_finding_and_keep_no_key,
    ]
}

/// Masters that sync every write.
pub(crate) fn durable(count: usize) -> Masters {
    Masters::builder().count(count).persistence(Persistence::AofAlways).start().unwrap()
}

#[derive(Debug, Deserialize)]
pub(crate) struct Diagnosis {
    schema: u32,
    pub(crate) masters: Vec<Master>,
    pub(crate) findings: Vec<Finding>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Master {
    pub(crate) name: String,
    reached: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Finding {
    pub(crate) level: String,
    pub(crate) master: Option<String>,
    pub(crate) check: String,
    pub(crate) text: String,
    pub(crate) fix: Option<String>,
}

/// Runs `doctor` on masters, with options. Returns the exit code, standard output and standard
/// error.
pub(crate) fn run(urls: &[String], options: &[&str]) -> (i32, String, String) {
    let mut command = bare();
    command.arg("doctor").args(options);
    if !urls.is_empty() {
        command.args(["--masters", &urls.join(",")]);
    }
    ended(command.output().unwrap())
}

/// Runs `doctor` on masters, with options. The node timeout is so long that a busy machine causes
/// no finding.
pub(crate) fn examine(urls: &[String], options: &[&str]) -> (i32, Diagnosis) {
    let patient = ["--json", "--node-timeout", "5s", "--connect-timeout", "5s"];
    let (code, json, stderr) = run(urls, &[&patient, options].concat());
    (code, serde_json::from_str(&json).unwrap_or_else(|why| panic!("{why}: {json} {stderr}")))
}

impl Diagnosis {
    /// The findings that are not ok, as `level check master`.
    pub(crate) fn bad(&self) -> Vec<String> {
        let bad = self.findings.iter().filter(|found| found.level != "ok");
        bad.map(|found| {
            let master = found.master.as_deref().unwrap_or("all");
            format!("{} {} {master}", found.level, found.check)
        })
        .collect()
    }

    /// The one finding of a check that is not ok.
    pub(crate) fn the(&self, check: &str) -> &Finding {
        let bad = |found: &&Finding| found.check == check && found.level != "ok";
        let mut found = self.findings.iter().filter(bad);
        let one = found.next().unwrap_or_else(|| panic!("no finding of {check}: {self:#?}"));
        assert!(found.next().is_none(), "several findings of {check}: {self:#?}");
        one
    }

    /// Checks the only such finding of a check: its level, its master, and words of its text and
    /// remedy.
    #[track_caller]
    pub(crate) fn has(
        &self,
        level: &str,
        check: &str,
        master: Option<&str>,
        text: &str,
        fix: &str,
    ) {
        let found = self.the(check);
        assert!(found.is(level, master, text, fix), "{found:?}");
    }

    /// Checks that one of several such findings of a check is like this.
    #[track_caller]
    pub(crate) fn has_among(
        &self,
        level: &str,
        check: &str,
        master: Option<&str>,
        text: &str,
        fix: &str,
    ) {
        let mut found = self.findings.iter().filter(|found| found.check == check);
        assert!(found.any(|found| found.is(level, master, text, fix)), "{self:#?}");
    }
}

impl Finding {
    fn is(&self, level: &str, master: Option<&str>, text: &str, fix: &str) -> bool {
        (&*self.level, self.master.as_deref()) == (level, master)
            && self.text.contains(text)
            && self.fix.as_deref().is_some_and(|it| it.contains(fix))
    }
}

/// The name of a master in findings.
pub(crate) fn name(url: &str) -> String {
    let rest = url.split_once("://").unwrap().1;
    rest.rsplit_once('@').map_or(rest, |(_, host)| host).to_owned()
}

fn unreachable_masters_exit_with_69_and_each_is_named() {
    // Ports that were free a moment ago.
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let urls = [free(), free()].map(|address| format!("redis://:hunter2@{address}"));
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 69, "{diagnosis:#?}");
    let names: Vec<String> = diagnosis.masters.into_iter().map(|master| master.name).collect();
    assert_eq!(names, urls.each_ref().map(|url| name(url)));

    let page = std::env::temp_dir().join(format!("doctor-{}.html", std::process::id()));
    let (code, text, _) = run(&urls, &["--html", page.to_str().unwrap()]);
    let page = (std::fs::read_to_string(&page), std::fs::remove_file(&page)).0.unwrap();
    assert_eq!(code, 69, "{text}");
    // Both masters have the same finding.
    assert_eq!(text.matches("  error  reachable     each master: it cannot be reached").count(), 1);
    let verdict = "2 masters: 3 errors, 1 warning, 0 ok: a lock on them does not work";
    assert!(text.lines().last().unwrap().starts_with(verdict), "{text}");
    assert!(page.contains(verdict) && !page.contains("hunter2"), "{page}");
}

fn wrong_usage_exits_with_64_and_repeats_no_password() {
    let good = "redis://:hunter2@127.0.0.1:1";
    let again = format!("{good},redis://:other@127.0.0.1:1");
    let table: [(&str, &[&str], &str); 12] = [
        ("", &[], "no masters are named"),
        (good, &["--init"], "add --restart-guard"),
        (good, &["--restart-guard", "30"], "a time such as"),
        (good, &["--restart-guard", "48h"], "at most 86400s"),
        (good, &["--restart-guard", "1us"], "raise the guard"),
        (good, &["--clock-guard", "1s"], "guard"),
        (good, &["--node-timeout", "0s"], "at least 1ms"),
        (good, &["--nodes", "3"], "--nodes"),
        (&again, &[], "masters 1 and 2 are both 127.0.0.1:1"),
        ("redis://:hunter2@host:port", &[], "port"),
        ("redis://hunter2@host", &[], "master 1: "),
        ("rediss://:hunter2@host", &["--tls-ca-file", "/no/such/file"], "/no/such/file"),
    ];
    for (masters, options, part) in table {
        let urls: Vec<String> = masters.split(',').map(str::to_owned).collect();
        let urls = if masters.is_empty() { &[][..] } else { &urls };
        let (code, stdout, stderr) = run(urls, options);
        assert_eq!((code, stdout.as_str()), (64, ""), "{masters} {options:?}: {stderr}");
        let good = stderr.contains(part) && !stderr.contains("hunter2");
        assert!(good, "{masters} {options:?}: {stderr}");
    }
    let many: Vec<String> = (1..=65).map(|port| format!("redis://127.0.0.1:{port}")).collect();
    assert_eq!(run(&many, &[]).0, 64);
    // What the system refuses is another matter.
    let (code, _, stderr) = run(&[good.to_owned()], &["--html", "/no/such/folder/page.html"]);
    assert_eq!(code, 71, "{stderr}");
}

/// One master with each problem. The unit tests of the checks have the other values.
fn a_replica_a_duplicate_and_masters_that_forget_are_reported() {
    let masters = durable(4);
    let follow = format!("REPLICAOF 127.0.0.1 {}", masters.port(1));
    masters.ask(2, &follow).unwrap();
    eventually("the second master follows the first", || {
        masters.info(1, "replication").unwrap().contains("state=online")
    });
    masters.ask(3, "CONFIG SET appendfsync everysec").unwrap();
    masters.ask(3, "CONFIG SET maxmemory-policy volatile-lru").unwrap();
    masters.ask(3, "CONFIG SET maxmemory 100mb").unwrap();
    let again = format!("redis://localhost:{}", masters.port(4));
    let urls = [masters.urls(), vec![again.clone()]].concat();
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    diagnosis.has("warn", "replicas", Some(&name(&urls[0])), "1 replica follows it", "detach");
    diagnosis.has("error", "role", Some(&name(&urls[1])), "it is a replica", "REPLICAOF NO ONE");
    let forgets = Some(name(&urls[2]));
    let forgets = forgets.as_deref();
    diagnosis.has("warn", "persistence", forgets, "`everysec`", "appendfsync always");
    diagnosis.has("error", "eviction", forgets, "volatile-lru", "noeviction");
    let both = format!("{} and {} are one", name(&urls[3]), name(&again));
    diagnosis.has("error", "duplicates", None, &both, "one server has one vote");
    // The other masters are enough for a quorum, and there is no other problem.
    assert_eq!(diagnosis.bad().len(), 5, "{diagnosis:#?}");
}

fn a_dead_and_a_hung_master_are_distinguished_and_the_quorum_is_gone() {
    let masters = durable(3);
    let urls = masters.urls();
    masters.kill(1).unwrap();
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    diagnosis.has("error", "reachable", Some(&name(&urls[0])), "refused", "start it");
    assert_eq!(diagnosis.bad().len(), 1, "a quorum is left: {diagnosis:#?}");
    masters.pause(2).unwrap();
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    diagnosis.has("error", "quorum", None, "1 of 3 masters can vote", "fix the masters");
    let hung = diagnosis.findings.iter().find(|found| {
        found.check == "reachable" && found.master.as_deref() == Some(&name(&urls[1]))
    });
    assert!(hung.unwrap().text.contains("does not answer within"), "{diagnosis:#?}");
    masters.resume(2).unwrap();
}

fn a_wrong_clock_and_a_fast_clock_are_reported() {
    if clocks_supported().is_err() {
        return;
    }
    let builder = Masters::builder().count(3).persistence(Persistence::AofAlways);
    let masters = builder.clocks().start().unwrap();
    let urls = masters.urls();
    masters.set_clock(2, ClockChange::forward(Duration::from_secs(5))).unwrap();
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    diagnosis.has("error", "clock", Some(&name(&urls[1])), "s ahead of this machine's", "NTP");
    let spread = format!("the clock of {} is ", name(&urls[1]));
    diagnosis.has("error", "clock-spread", None, &spread, "NTP");
    masters.set_clock(3, ClockChange::Rate(1.5)).unwrap();
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    diagnosis.has("error", "clock-rate", Some(&name(&urls[2])), "beyond the drift", "NTP");
}

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/deploy");

/// What a machine decides for itself.
const LOCAL: [&str; 6] = ["port", "bind", "protected-mode", "tcp-keepalive", "aclfile", "dir"];

fn masters_with_the_documented_settings_have_no_finding_and_keep_no_key() {
    let read = |file| std::fs::read_to_string(format!("{DEPLOY}/{file}")).unwrap();
    let text = read("master.conf");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let settings: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(' ')).collect();
    let shared = settings.iter().filter(|(name, _)| !LOCAL.contains(name));
    let builder = shared.clone().fold(Masters::builder().count(5), |builder, (name, value)| {
        builder.config(name, value.trim_matches('"'))
    });
    let masters = builder.start().unwrap();
    // The user of the lock, as `users.acl` has it.
    let users = read("users.acl");
    let user = users.lines().find_map(|line| line.strip_prefix("user locks ")).unwrap();
    let urls = (1..=5).map(|node| {
        masters.ask(node, &format!("ACL SETUSER locks {user}")).unwrap();
        format!("redis://locks:CHANGE-ME@127.0.0.1:{}", masters.port(node))
    });
    let urls: Vec<String> = urls.collect();
    let (code, diagnosis) = examine(&urls, &["--prefix", "lock:"]);
    assert_eq!((code, diagnosis.bad()), (0, vec![]), "{diagnosis:#?}");
    assert_eq!((diagnosis.schema, diagnosis.masters.len()), (1, 5));
    assert!(diagnosis.masters.iter().all(|master| master.reached));
    for node in 1..=5 {
        assert_eq!(masters.ask(node, "DBSIZE").unwrap(), redquorum_rig::RespValue::Integer(0));
    }
    let (code, printed, _) = run(&urls, &["--prefix", "lock:"]);
    assert_eq!(code, 0, "{printed}");
    assert!(printed.lines().last().unwrap().starts_with("5 masters: 0 errors, "), "{printed}");
    let places: Vec<usize> = urls.iter().map(|url| printed.find(&name(url)).unwrap()).collect();
    assert!(places.is_sorted(), "{printed}");
    for file in ["compose.yaml", "kubernetes.yaml"] {
        let text = read(file);
        for (name, value) in shared.clone() {
            assert!(text.contains(&format!("--{name} {value}")), "{file} lacks {name} {value}");
        }
    }
}
