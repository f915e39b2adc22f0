//! A test for each row of the table of exit codes, and for what a command gets.

use std::fs::OpenOptions;
use std::io::Read;
use std::process::Stdio;

use nix::sys::signal::Signal;
use redquorum_rig::trials::{Case, eventually};
use redquorum_rig::{Masters, RespValue};

use crate::support::{Folder, Process, bare, ended, exec, holder, redquorum};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: the_code_is_that_of_the_command,
        with_masters: a_command_that_cannot_be_started_has_the_codes_of_env,
        with_masters: a_taken_resource_is_75_or_what_the_caller_says,
        with_masters: a_signal_ends_the_wait,
        with_masters: a_command_runs_for_max_hold_at_most,
        with_masters: a_lease_that_is_lost_stops_the_command,
        plain: masters_that_are_not_there_are_69,
        plain: wrong_options_are_64_and_name_the_remedy,
        with_masters: options_come_from_a_file_the_environment_and_the_command_line,
        with_masters: a_command_knows_its_lease,
        with_masters: output_that_cannot_be_written_is_71_and_harms_no_command,
        with_masters: holder_answers_by_its_code,
    ]
}

fn the_code_is_that_of_the_command() {
    let masters = Masters::start(3).unwrap();
    for (script, code) in [("exit 0", 0), ("exit 1", 1), ("exit 255", 255), ("kill -9 $$", 137)] {
        assert_eq!(exec(&masters, &["r", "--", "sh", "-c", script]).0, code, "{script}");
    }
    // One that closes what it got.
    let closes = "exec <&- >&- 2>&-; exit 4";
    assert_eq!(exec(&masters, &["r", "--", "sh", "-c", closes]), (4, String::new(), String::new()));
    assert_eq!(holder(&masters, "r"), "r: free");
}

fn a_command_that_cannot_be_started_has_the_codes_of_env() {
    let masters = Masters::start(3).unwrap();
    for tied in [&[][..], &["--die-with-parent"]] {
        for (command, code, words) in
            [("no-such-command", 127, "no command"), ("/etc/passwd", 126, "cannot be executed")]
        {
            let (found, _, text) = exec(&masters, &[tied, &["r", "--", command]].concat());
            assert_eq!(found, code, "{command}");
            assert!(text.contains(words) && text.contains("= help: "), "{text}");
        }
    }
    assert_eq!(holder(&masters, "r"), "r: free");
}

fn a_taken_resource_is_75_or_what_the_caller_says() {
    let masters = Masters::start(3).unwrap();
    let mut other = redquorum(&masters);
    let mut other =
        Process::start(other.args(["exec", "--name", "billing-7", "r", "--", "sleep", "600"]));
    eventually("it is held", || holder(&masters, "r").starts_with("r: held by \"billing-7\""));
    let (code, _, text) = exec(&masters, &["-n", "r", "--", "true"]);
    assert_eq!(code, 75);
    assert!(text.contains("held by \"billing-7\""), "{text}");
    assert_eq!(
        exec(&masters, &["-q", "-n", "-E", "0", "r", "--", "true"]),
        (0, String::new(), String::new())
    );
    assert_eq!(exec(&masters, &["--wait", "50ms", "r", "--", "true"]).0, 75);
    assert_eq!(exec(&masters, &["-n", "--shared", "r", "--", "true"]).0, 75);
    // All or none.
    assert_eq!(exec(&masters, &["-n", "s", "r", "--", "true"]).0, 75);
    assert_eq!(holder(&masters, "s"), "s: free");
    other.signal(Signal::SIGTERM);
    assert_eq!(other.code(), 143, "the command got the signal");
    assert_eq!(holder(&masters, "r"), "r: free");
}

fn a_signal_ends_the_wait() {
    let masters = Masters::start(3).unwrap();
    let mut other = redquorum(&masters);
    let mut other = Process::start(other.args(["exec", "r", "--", "sleep", "600"]));
    eventually("it is held", || holder(&masters, "r") != "r: free");
    // Others may be ignored where tests run in the background, and stay so.
    for (sent, code) in [(Signal::SIGTERM, 143), (Signal::SIGUSR1, 138)] {
        let mut waits = redquorum(&masters);
        let mut waits =
            Process::start(waits.args(["exec", "--wait", "1h", "--fair", "r", "--", "true"]));
        eventually("it waits", || waiting(&masters) == 1);
        let (_, text, _) = ended(redquorum(&masters).args(["holder", "r"]).output().unwrap());
        assert!(text.lines().nth(1).unwrap().ends_with(", 1 waiting"), "{text}");
        waits.signal(sent);
        assert_eq!(waits.code(), code);
        assert_eq!(waiting(&masters), 0);
    }
    other.signal(Signal::SIGUSR1);
    assert_eq!(other.code(), 138);
}

fn a_command_runs_for_max_hold_at_most() {
    let masters = Masters::start(3).unwrap();
    let (code, _, text) = exec(&masters, &["--max-hold", "200ms", "r", "--", "sleep", "600"]);
    assert_eq!(code, 124);
    assert!(text.contains("--max-hold is over: SIGTERM"), "{text}");
    // One that ignores the signal.
    let ignores = "trap '' TERM; for i in $(seq 600); do sleep 0.1; done";
    let words = ["--ttl", "1s", "--max-hold", "200ms", "r", "--", "sh", "-c", ignores];
    let (code, _, text) = exec(&masters, &words);
    assert_eq!(code, 124);
    assert!(text.contains("SIGKILL"), "{text}");
}

fn a_lease_that_is_lost_stops_the_command() {
    let masters = Masters::start(3).unwrap();
    let mut command = redquorum(&masters);
    command.args(["exec", "--ttl", "1s", "r", "--", "sleep", "600"]).stderr(Stdio::piped());
    let mut other = Process::start(&mut command);
    eventually("it is held", || holder(&masters, "r") != "r: free");
    for master in 1..=3 {
        masters.ask(master, "DEL r").unwrap();
    }
    assert_eq!(other.code(), 74);
    let mut text = String::new();
    other.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(text.contains("lost") && text.contains("SIGKILL"), "{text}");
}

fn masters_that_are_not_there_are_69() {
    let mut command = bare();
    let options =
        ["--masters", "redis://127.0.0.1:1,redis://127.0.0.1:2", "--connect-timeout", "100ms"];
    command.arg("exec").args(options).args(["--wait", "100ms", "r", "--", "true"]);
    let (code, _, text) = ended(command.output().unwrap());
    assert_eq!(code, 69);
    assert!(text.contains("no quorum") && text.contains("redquorum doctor"), "{text}");
    let mut command = bare();
    assert_eq!(ended(command.arg("holder").args(options).arg("r").output().unwrap()).0, 69);
}

fn wrong_options_are_64_and_name_the_remedy() {
    let masters = "--masters=redis://:hunter2@127.0.0.1:1";
    for (words, part) in [
        (&["exec", "r", "--", "true"][..], "no masters are named"),
        (&["exec", masters, "r"], "COMMAND"),
        (&["exec", masters, "--ttl", "5 parsecs", "r", "--", "true"], "--ttl: \"5 parsecs\""),
        (&["exec", masters, "--ttl", "1ms", "r", "--", "true"], "too short"),
        (&["exec", masters, "--permits", "2", "r", "s", "--", "true"], "permits of several"),
        (&["exec", masters, "--at-least", "1m", "r", "s", "--", "true"], "--at-least of several"),
        (
            &["exec", masters, "--ttl", "10s", "--term-before", "6s", "r", "--", "true"],
            "do not suit",
        ),
        (&["exec", "--masters", "", "r", "--", "true"], "no masters are named"),
        (
            &["exec", masters, "--term-before", "1s", "--kill-before", "2s", "r", "--", "true"],
            "do not suit",
        ),
        (&["exec", masters, "--config", "/no/such/file", "r", "--", "true"], "cannot be read"),
        (&["exec", masters, "--fair=perhaps", "r", "--", "true"], "not true or false"),
        (&["exec", "--masters=http://:hunter2@db1", "r", "--", "true"], "master 1: "),
        (&["exec", masters, "", "--", "true"], ""),
        (&["exec", masters, "--permits", "0", "r", "--", "true"], "from 1 to 100"),
        (&["holder", masters], "RESOURCE"),
        (&["no-such-command"], "unrecognized"),
    ] {
        let (code, _, text) = ended(bare().args(words).output().unwrap());
        assert_eq!(code, 64, "{words:?}: {text}");
        assert!(text.contains(part) && !text.contains("hunter2"), "{words:?}: {text}");
    }
    let mut command = bare();
    command.env("REDQUORUM_TTLS", "5s").args(["exec", masters, "r", "--", "true"]);
    let (code, _, text) = ended(command.output().unwrap());
    assert_eq!(code, 64);
    assert!(text.contains("REDQUORUM_TTLS is no option"), "{text}");
    // A name of 2 MiB comes from a program: a command line has a limit of its own.
    let long = "x".repeat(100_000);
    let (code, _, text) =
        ended(bare().args(["exec", masters, &long, "--", "true"]).output().unwrap());
    assert!(code == 69 && text.len() < 10_000, "{code} {}", text.len());
}

fn options_come_from_a_file_the_environment_and_the_command_line() {
    let masters = Masters::start(3).unwrap();
    let folder = Folder::new();
    let file = folder.file("lock.toml");
    let text =
        format!("masters = {:?}\nttl = '30s'\nname = 'file'\nprefix = 'p:'\n", masters.urls());
    std::fs::write(&file, text).unwrap();
    let name = |environment: &[(&str, &str)], words: &[&str]| {
        let mut command = bare();
        command.env("REDQUORUM_CONFIG", &file).envs(environment.iter().copied());
        let look = ["r", "--", env!("CARGO_BIN_EXE_redquorum"), "holder", "r"];
        let (code, text, error) =
            ended(command.arg("exec").args(words).args(look).output().unwrap());
        assert_eq!(code, 0, "{error}");
        let named = text.split('"').nth(1).unwrap().to_owned();
        let left: u64 =
            text.split("another ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        (named, left.div_ceil(10_000))
    };
    assert_eq!(name(&[], &[]), ("file".into(), 3));
    assert_eq!(name(&[("REDQUORUM_NAME", "env")], &[]), ("env".into(), 3));
    let all = (&[("REDQUORUM_NAME", "env")][..], &["--name", "line", "--ttl", "10s"][..]);
    assert_eq!(name(all.0, all.1), ("line".into(), 1));
    std::fs::write(&file, "masters = ['redis://:hunter2@db1']\n\nttl-ms = 5\n").unwrap();
    let mut command = bare();
    command.args(["exec", "--config"]).arg(&file).args(["r", "--", "true"]);
    let (code, _, text) = ended(command.output().unwrap());
    assert_eq!(code, 64);
    assert!(text.contains("ttl-ms") && !text.contains("hunter2"), "{text}");
}

fn a_command_knows_its_lease() {
    let masters = Masters::start(3).unwrap();
    let shown = |words: &[&str]| {
        let script = "echo $REDQUORUM_RESOURCE/$REDQUORUM_FENCING_TOKEN/$REDQUORUM_PERMIT; \
                      echo $REDQUORUM_DEADLINE";
        let (code, text, error) = exec(&masters, &[words, &["--", "sh", "-c", script]].concat());
        assert_eq!(code, 0, "{error}");
        let mut lines = text.lines().map(str::to_owned);
        let (lease, deadline) = (lines.next().unwrap(), lines.next().unwrap());
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let left = deadline.parse::<f64>().unwrap() - now;
        assert!((-60.0..10.0).contains(&left), "{left}");
        lease.split('/').map(str::to_owned).collect::<Vec<_>>()
    };
    let token = |text: &str| text.parse::<u64>().unwrap();
    let (first, second) = (shown(&["r"]), shown(&["r"]));
    assert_eq!((&*first[0], &*first[2]), ("r", ""));
    assert!(token(&second[1]) > token(&first[1]), "{first:?} {second:?}");
    assert_eq!(shown(&["--no-fencing", "r"]), ["r", "", ""]);
    assert_eq!(shown(&["--shared", "r"]), ["r", "", ""]);
    let permit = shown(&["--permits", "1", "r"]);
    assert_eq!((&*permit[0], &*permit[2]), ("r:permit:1", "1"));
    let both = shown(&["a", "b"]);
    assert_eq!((&*both[0], both[1].split(',').filter(|text| token(text) > 0).count()), ("a,b", 2));
    // Variables of a lease around it are not those of one inside.
    let inside = ["exec", "--shared", "s", "--", "sh", "-c", "echo $REDQUORUM_FENCING_TOKEN."];
    let words = [&["r", "--", env!("CARGO_BIN_EXE_redquorum")][..], &inside].concat();
    assert_eq!(exec(&masters, &words).1, ".\n");
}

fn output_that_cannot_be_written_is_71_and_harms_no_command() {
    let masters = Masters::start(3).unwrap();
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
    if !std::path::Path::new("/dev/full").exists() {
        return;
    }
    let held = redquorum(&masters).args(["holder", "r"]).stdout(full()).output().unwrap();
    assert_eq!(held.status.code(), Some(71));
    let mut command = redquorum(&masters);
    command.args(["exec", "--max-hold", "1ms", "r", "--", "sleep", "600"]).stderr(full());
    assert_eq!(command.status().unwrap().code(), Some(124));
}

fn holder_answers_by_its_code() {
    let masters = Masters::start(3).unwrap();
    let ask =
        |words: &[&str]| ended(redquorum(&masters).arg("holder").args(words).output().unwrap());
    assert_eq!(ask(&["r"]).0, 1);
    masters.ask(1, "SET r 12345678901234567890 PX 60000").unwrap();
    let (code, text, _) = ask(&["r"]);
    assert!(code == 1 && text.starts_with("r: free"), "one of three is no lease: {text}");
    masters.ask(2, "SET r 12345678901234567890 PX 60000").unwrap();
    let (code, text, _) = ask(&["--json", "s", "r"]);
    assert_eq!(code, 0);
    let answers: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers[0]["state"], "free");
    assert_eq!(
        (&answers[1]["state"], &answers[1]["holder"]["token"]),
        (&"held".into(), &"31323334".into())
    );
    assert_eq!(answers[1]["masters"].as_array().unwrap().len(), 3);
    masters.ask(3, "SET gpu:permit:2 12345678901234567890 PX 60000").unwrap();
    let (_, text, _) = ask(&["--permits", "2", "gpu"]);
    let named: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ')).collect();
    assert!(
        named[0].starts_with("gpu:permit:1: free") && named[1].starts_with("gpu:permit:2: "),
        "{text}"
    );
    let mut watch = redquorum(&masters);
    watch.args(["holder", "--watch", "--every", "5ms", "r"]).stdout(Stdio::piped());
    let mut watch = Process::start(&mut watch);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(watch.stdout.take().unwrap()));
    let mut next = |wanted: &str| lines.any(|line| line.unwrap().starts_with(wanted));
    assert!(next("r: held"));
    for master in 1..=3 {
        masters.ask(master, "DEL r").unwrap();
    }
    assert!(next("r: free"));
}

/// How many wait in the queue of the first master.
fn waiting(masters: &Masters) -> i64 {
    match masters.ask(1, "ZCARD redquorum:queue:r").unwrap() {
        RespValue::Integer(count) => count,
        other => panic!("{other:?}"),
    }
}
