//! The program itself: where it runs no scenario, `search` from the command line to the files that
//! it writes, and `run --watch` until Ctrl-C. The test of the latter waits for the program's lines.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use crate::{folder, history, text};
use redquorum_checker::check;
use redquorum_harness::report::Out;
use redquorum_scenario::history::History;

pub(crate) fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redquorum-chaos"));
    command.current_dir(folder).env_remove("GITHUB_ACTIONS").stdin(Stdio::null());
    command
}

pub(crate) fn ask<S: AsRef<OsStr>>(folder: &Path, words: &[S]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = program(folder).args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (status.code().unwrap(), text(&stdout), text(&stderr))
}

#[test]
fn help_and_version_exit_with_0() {
    let folder = folder("help");
    for words in [&["--help"][..], &["--version"], &["help", "run"], &["run", "--help"]] {
        let (code, stdout, _) = ask(&folder, words);
        assert_eq!(code, 0, "{words:?}");
        assert!(stdout.contains("redquorum-chaos"), "{stdout}");
    }
    assert!(ask(&folder, &["--help"]).1.contains("130  interrupted"));
}

#[test]
fn completions_and_the_manual_name_every_command() {
    let folder = folder("completions");
    let (_, help, _) = ask(&folder, &["--help"]);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = listed
        .map_while(|line| line.split_whitespace().next())
        .filter(|it| *it != "help")
        .collect();
    assert!(commands.contains(&"search") && commands.contains(&"man"), "{commands:?}");
    for words in [&["completions", "bash"][..], &["completions", "zsh"], &["man"]] {
        let (code, stdout, _) = ask(&folder, words);
        assert_eq!(code, 0, "{words:?}");
        for command in &commands {
            // The manual escapes hyphens.
            assert!(stdout.replace("\\-", "-").contains(command), "{words:?} lacks {command}");
        }
    }
    assert_eq!(ask(&folder, &["completions", "cmd"]).0, 64);
}

#[test]
fn wrong_usage_exits_with_64_and_a_suggestion() {
    let folder = folder("usage");
    let table: [(&[&str], &str); 28] = [
        (&["search", "--for", "soon"], "write a number with a unit"),
        (&["search", "--for", "1s", "--runs", "1"], "cannot be used with"),
        (&["search", "--nodes", "10"], "1..=9"),
        (&["search", "--mutant", "unknown"], "there is no mutant"),
        (&["search", "--defended"], "--faults"),
        (&["search", "--on", "all"], "name one with --on"),
        (&["search", "--on", "process", "--outside"], "search with --on sim"),
        (&["search", "--on", "process", "--require-coverage"], "search with --on sim"),
        (&["search", "--on", "process", "--histories", "-"], "search with --on sim"),
        (&["search", "--faults", "1", "--histories", "-"], "cannot be used with"),
        (&["search", "--client", "mine"], "add --on process"),
        (&["search", "--faults", "1", "--runs", "5"], "cannot be used with"),
        (&["--out", "x", "list"], "write `list` first"),
        (&["--seed", "1", "search", "--runs", "1"], "write `search` first"),
        (&["--sed", "1"], "'--seed'"),
        (&["--jobs", "0"], "1..=64"),
        (&["--repeat", "0"], "0 is not in 1.."),
        (&["--backend", "docker"], "container"),
        (&["--without-fault", "0"], "0 is not in 1.."),
        (&["lst"], "did you mean `list`?"),
        (&["one-holder"], "`--filter one-holder` runs those"),
        (&["no-such-thing.toml"], "there is no file and no scenario `no-such-thing.toml`"),
        (&["--filter", "clokc"], "did you mean `clock`?"),
        (&["clock-step-one-holder", "--without-fault", "9"], "there is no fault 9 to leave out"),
        (&["one-server-twice", "--quorum", "1"], "can have a quorum of 1"),
        (&["check", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        (&["model-check", "--only", "nothing"], "there are: rivals,"),
        (&["clock-step-one-holder/no"], "has no variant `no`"),
    ];
    for (words, part) in table {
        let (code, _, stderr) = ask(&folder, words);
        assert_eq!(code, 64, "{words:?}: {stderr}");
        assert!(stderr.contains(part), "{words:?}: {stderr}");
    }
}

/// Five grants protect from one stepped clock. The grant of a single server does not.
#[test]
fn a_quorum_of_one_is_checked_on_one_master() {
    let folder = folder("quorum");
    let words = ["clock-step-one-holder/full-grant", "--backend", "sim"];
    let (code, stdout, _) = ask(&folder, &words);
    assert_eq!(code, 0, "{stdout}");
    let (code, stdout, _) = ask(&folder, &[&words[..], &["--quorum", "1"]].concat());
    assert_eq!(code, 1, "{stdout}");
    for part in [
        "c1 was granted by master 1 (margin 1)",
        " --backend sim --quorum 1\n",
        "  mutual-exclusion, clock.step, 1: clock-step-one-holder/full-grant\n",
    ] {
        assert!(stdout.contains(part), "{part:?} is not in\n{stdout}");
    }
    // The only master of the clients is one of two of five that are out of memory.
    let words = ["masters-full", "--backend", "sim", "--quorum", "1"];
    let (code, stdout, _) = ask(&folder, &words);
    assert_eq!(code, 0, "{stdout}");
    let why = "skipped: fault 1 (node.full) leaves no quorum of the masters that clients know with \
               --quorum 1 (masters-full/two)";
    assert!(stdout.contains(why), "{stdout}");
}

#[test]
fn an_invalid_scenario_exits_with_64_before_any_run() {
    let folder = folder("wrong");
    fs::write(folder.join("good.toml"), text("good")).unwrap();
    fs::write(folder.join("bad.toml"), text("bad").replace("acquire L", "aquire L")).unwrap();
    let (code, stdout, stderr) = ask(&folder, &["good.toml", "bad.toml"]);
    assert_eq!((code, stdout.as_str()), (64, ""));
    assert!(stderr.contains("--> bad.toml:6:12"), "{stderr}");
    assert!(stderr.contains("did you mean `acquire`?"), "{stderr}");
    // No colours without a terminal.
    assert!(!stderr.contains('\x1b'), "{stderr}");
    fs::write(folder.join("latin.toml"), b"name = \"caf\xe9\"").unwrap();
    fs::create_dir(folder.join("empty")).unwrap();
    let (code, _, stderr) = ask(&folder, &["latin.toml", "empty", "good.toml", "./good.toml"]);
    assert_eq!(code, 64);
    for part in [
        "latin.toml is not UTF-8 text",
        "no scenario lies in empty",
        "two scenarios are called `good`",
    ] {
        assert!(stderr.contains(part), "{stderr}");
    }
    // On GitHub the place is marked in the file.
    let output = program(&folder).arg("bad.toml").env("GITHUB_ACTIONS", "true").output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.starts_with("::error file=bad.toml,line=6,title="), "{stdout}");
}

#[test]
fn expected_violations_are_explained_on_request() {
    let folder = folder("explain");
    let words = ["clock-step-one-holder/three-of-five", "--backend", "sim"];
    let (code, brief, _) = ask(&folder, &words);
    let (same, full, _) = ask(&folder, &[&words[..], &["--explain"]].concat());
    assert_eq!((code, same), (0, 0));
    for part in ["c2 was granted by masters 1, 2, 3", "      breaks |  ", "      c2     |  "] {
        assert!(full.contains(part) && !brief.contains(part), "{part}: {full}");
    }
}

#[test]
fn paths_need_not_be_utf8() {
    let folder = folder("bytes");
    let odd = folder.join(OsStr::from_bytes(b"d\xe9pot"));
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join("good.toml"), text("good")).unwrap();
    let (code, stdout, stderr) = ask(&folder, &["list".as_ref(), odd.as_os_str()]);
    assert!(code == 0 && stdout.starts_with("good "), "{stdout}{stderr}");
    fs::write(odd.join(OsStr::from_bytes(b"b\xe9.toml")), text("b")).unwrap();
    let (code, _, stderr) = ask(&folder, &["list".as_ref(), odd.as_os_str()]);
    assert!(code == 64 && stderr.contains("the scenario is called `b`"), "{stderr}");
    let (code, _, stderr) = ask(&folder, &[OsStr::from_bytes(b"\xff")]);
    assert!(code == 64 && stderr.contains("there is no file"), "{stderr}");
}

#[test]
fn an_unwritable_folder_exits_with_3() {
    let folder = folder("out");
    fs::write(folder.join("file"), "in the way").unwrap();
    let (code, _, stderr) = ask(&folder, &["--out", "file/out"]);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("file/out") && stderr.contains("--out"), "{stderr}");
}

#[test]
fn one_run_at_a_time_writes_to_a_folder() {
    let folder = folder("claimed");
    let words = ["run", "calm", "--backend", "sim", "--out", "out"];
    let first = Out::create(&folder.join("out")).unwrap();
    let (code, _, stderr) = ask(&folder, &words);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("to out: another run writes to this folder"), "{stderr}");
    assert!(stderr.contains("--out"), "{stderr}");
    drop(first);
    assert_eq!(ask(&folder, &words).0, 0);
}

#[test]
fn list_and_schema_have_text_and_json() {
    let folder = folder("list");
    let (code, stdout, _) = ask(&folder, &["list"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("clock-step-one-holder"), "{stdout}");
    assert!(stdout.contains("mutual-exclusion, unfenced-resource violated"), "{stdout}");
    let (code, stdout, _) = ask(&folder, &["list", "--format", "json", "--filter", "one-holder"]);
    let rows: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, rows[0]["name"].as_str()), (0, Some("clock-step-one-holder")));
    assert_eq!(rows[0]["violated"][0], "mutual-exclusion");
    let (code, stdout, _) = ask(&folder, &["schema"]);
    let schema: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, schema["type"].as_str()), (0, Some("object")));
}

#[test]
fn new_writes_a_scenario_once() {
    let folder = folder("new");
    let (code, stdout, _) = ask(&folder, &["new", "my-scenario"]);
    assert!(code == 0 && stdout.starts_with("my-scenario.toml is written"), "{stdout}");
    assert_eq!(ask(&folder, &["list", "my-scenario.toml"]).0, 0);
    let before = fs::read(folder.join("my-scenario.toml")).unwrap();
    let (code, _, stderr) = ask(&folder, &["new", "my-scenario"]);
    assert!(code == 64 && stderr.contains("exists already"), "{stderr}");
    assert_eq!(fs::read(folder.join("my-scenario.toml")).unwrap(), before);
    fs::create_dir(folder.join("scenarios")).unwrap();
    assert_eq!(ask(&folder, &["new", "my-scenario"]).0, 0);
    assert!(folder.join("scenarios/my-scenario.toml").is_file());
    for name in ["", "../x", "X", "a b"] {
        assert_eq!(ask(&folder, &["new", name]).0, 64, "{name}");
    }
}

#[test]
fn check_refuses_files_that_are_no_history() {
    let folder = folder("check");
    let check = |text: &[u8]| {
        fs::write(folder.join("h.jsonl"), text).unwrap();
        ask(&folder, &["check", "h.jsonl"])
    };
    for (bytes, part) in [
        (&b""[..], "it is empty"),
        (b"{}\n", "line 1 is no header"),
        (b"\xff\xfe\n", "h.jsonl is no history"),
        (
            b"{\"schema\":2,\"harness\":\"0.0.9\"}\n",
            "h.jsonl cannot be checked: it has schema 2, from redquorum-chaos 0.0.9, and this",
        ),
    ] {
        let (code, _, stderr) = check(bytes);
        assert!(code == 64 && stderr.contains(part), "{stderr}");
    }
    let scenario = redquorum_scenario::read("good.toml", &text("good")).unwrap();
    let mut bytes = Vec::new();
    history(&scenario, 1).write(&mut bytes).unwrap();
    bytes.extend_from_slice(b"{\"ns\":0}\n");
    let (code, _, stderr) = check(&bytes);
    assert!(code == 64 && stderr.contains("line 3"), "{stderr}");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let folder = folder("pipe");
    for words in [&["schema"][..], &["list"], &["list", "--format", "json"], &["--help"]] {
        let mut command = program(&folder);
        let mut child =
            command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""), "{words:?}");
    }
}

#[test]
fn known_violations_make_no_run_fail_and_new_ones_do() {
    let folder = folder("known");
    let scenario = include_str!("../../../scenarios/clock-step-one-holder.toml");
    let (scenario, _) = scenario.split_once("[expect]").unwrap();
    fs::write(folder.join("steps.toml"), scenario.replace("clock-step-one-holder", "steps"))
        .unwrap();
    let row = |scenario: &str, property: &str, more: &str| {
        format!(
            "[[known]]\nscenario = '{scenario}'\nproperty = '{property}'\nbecause = 'clock.step'\n\
             {more}\n"
        )
    };
    let reason = "reason = 'Kleppmann 2016'";
    let exclusion = row("steps", "mutual-exclusion", reason);
    let both = exclusion.clone() + &row("steps", "unfenced-resource", reason);
    let run = |known: &str, more: &[&str]| {
        fs::write(folder.join("known.toml"), known).unwrap();
        let words = ["steps.toml", "--backend", "sim", "--seed", "1", "--known", "known.toml"];
        ask(&folder, &[&words[..], more].concat())
    };
    let (code, out, _) = run("", &[]);
    assert!(code == 1 && out.contains("mutual-exclusion, clock.step, 1: steps"), "{out}");
    let (code, out, _) = run(&both, &[]);
    assert!(code == 0 && out.contains("known: Kleppmann 2016"), "{out}");
    assert!(out.contains("must hold: 0 do, 1 with known violations"), "{out}");
    let (code, out, _) = run(&exclusion, &[]);
    assert!(code == 1 && out.contains("unfenced-resource, clock.step, 1: steps"), "{out}");
    assert!(!out.contains("mutual-exclusion, clock.step, 1: steps"), "{out}");
    let more = both.clone() + &row("steps", "hygiene", reason);
    let (code, out, _) = run(&more, &[]);
    assert!(code == 2 && out.contains("known: hygiene because of clock.step does not"), "{out}");
    assert_eq!(run(&(more + "sometimes = true"), &[]).0, 0);
    // The fault is left out, so nothing shows.
    assert_eq!(run(&both, &["--without-fault", "2"]).0, 2);
    for (wrong, fix) in [
        (row("step", "hygiene", reason), "did you mean `steps`?"),
        (row("steps", "hygiene", "reason = ' '"), "has no reason"),
        (row("steps", "hygiene", ""), "missing field `reason`"),
        (row("clock-step-one-holder", "mutual-exclusion", reason), "is expected and known"),
        (row("steps", "safety", reason), "unknown variant `safety`"),
        ("[[unknown]]".to_owned(), "unknown field `unknown`"),
    ] {
        let (code, _, err) = run(&wrong, &[]);
        assert!(code == 64 && err.contains(fix), "{err}");
    }
}

#[test]
fn inside_the_assumptions_nothing_is_found() {
    let folder = folder("search-inside");
    let (code, stdout, stderr) = ask(&folder, &["search", "--runs", "100", "--seed", "1"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.starts_with("seed     1, "), "{stdout}");
    assert!(stdout.contains("no violation in 100 runs"), "{stdout}");
    // A hundred runs are too few for some coverage goal, and the report shows that.
    assert!(stdout.contains("     never  "), "{stdout}");
    let words = ["search", "--runs", "100", "--seed", "1", "--require-coverage"];
    assert_eq!(ask(&folder, &words).0, 2);
}

#[test]
fn a_mutant_is_found_and_its_file_can_be_run() {
    let folder = folder("search-lie");
    let words = ["search", "--runs", "20", "--seed", "1", "--mutant", "plain-del", "--out", "out"];
    let (code, stdout, stderr) = ask(&folder, &words);
    assert_eq!(code, 1, "{stdout}{stderr}");
    let found = fs::read_dir(folder.join("out/found")).unwrap();
    let files: Vec<_> = found.map(|file| file.unwrap().path()).collect();
    assert!(!files.is_empty(), "{stdout}");
    for file in files {
        let path = file.to_str().unwrap();
        assert!(stdout.contains(file.file_name().unwrap().to_str().unwrap()), "{stdout}");
        // An honest client passes.
        let (code, stdout, stderr) =
            ask(&folder, &["run", path, "--backend", "sim", "--seed", "0"]);
        assert_eq!(code, 0, "{path}: {stdout}{stderr}");
    }
}

#[test]
fn a_find_that_blames_the_guard_of_the_only_client_can_be_run() {
    let folder = folder("search-guard");
    let words = ["search", "--outside", "--seed", "2443841125", "--runs", "1", "--out", "out"];
    let (code, stdout, stderr) = ask(&folder, &words);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let file = "out/found/liveness-max-ttl.toml";
    let (code, stdout, stderr) = ask(&folder, &["run", file, "--backend", "sim", "--seed", "0"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
}

#[test]
fn json_has_a_line_for_each_find_on_any_number_of_threads() {
    let folder = folder("search-json");
    let lines = |jobs: &str| -> Vec<serde_json::Value> {
        let words = "search --outside --runs 100 --seed 250 --format json --jobs";
        let words: Vec<&str> = words.split(' ').chain([jobs]).collect();
        let (code, stdout, stderr) = ask(&folder, &words);
        assert_eq!(code, 0, "{stdout}{stderr}");
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = lines("1");
    let (end, finds) = all.split_last().unwrap();
    assert_eq!((end["event"].as_str(), end["runs"].as_u64()), (Some("end"), Some(100)));
    assert!(!finds.is_empty());
    for find in finds {
        assert!(find["event"] == "find" && find["wrong"] == false, "{find}");
        assert!(folder.join(find["file"].as_str().unwrap()).exists(), "{find}");
    }
    assert_eq!(lines("3").split_last().unwrap().1, finds);
}

#[test]
fn a_stream_has_every_history_and_behind_it_its_verdict() {
    let folder = folder("search-histories");
    let words = ["search", "--outside", "--runs", "40", "--seed", "250", "--histories"];
    let (code, stdout, stderr) = ask(&folder, &[&words[..], &["-"]].concat());
    assert_eq!((code, stderr.as_str()), (0, ""));
    let (mut file, mut seeds, mut violated) = (String::new(), BTreeSet::new(), 0);
    for line in stdout.lines() {
        let Some(verdict) = line.strip_prefix("{\"verdict\":") else {
            file += &format!("{line}\n");
            continue;
        };
        let history = History::read(file.as_bytes()).unwrap();
        let observed = serde_json::to_string(&check(&history).observed).unwrap();
        assert_eq!(verdict, observed + "}");
        violated += usize::from(verdict.contains("violated"));
        seeds.insert(history.header.seed);
        file.clear();
    }
    assert_eq!((file.as_str(), seeds), ("", (250..290).collect()));
    assert!(violated > 0);
    // The same runs in a file, in any order.
    let (code, none, _) = ask(&folder, &[&words[..], &["all.jsonl", "--jobs", "3"]].concat());
    assert_eq!((code, none.as_str()), (0, ""));
    let written = fs::read_to_string(folder.join("all.jsonl")).unwrap();
    assert_eq!(written.len(), stdout.len());
}

#[test]
fn an_exhaustive_search_prints_its_schedules_and_faults() {
    let folder = folder("search-faults");
    let words = ["search", "--nodes", "3", "--faults", "0"];
    let (code, stdout, stderr) = ask(&folder, &words);
    assert_eq!(code, 0, "{stdout}{stderr}");
    for part in ["after c1 granted L", "clock.step: ", "14 schedules of up to 0", "nothing was cut"]
    {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let mutants = ["--mutant", "small-quorum", "--out", "out"];
    let (code, stdout, stderr) = ask(&folder, &[&words[..], &mutants[..]].concat());
    assert_eq!(code, 1, "{stdout}{stderr}");
    assert!(fs::read_dir(folder.join("out/found")).unwrap().count() > 0, "{stdout}");
    let words = ["search", "--nodes", "3", "--faults", "0", "--defended", "--out", "out"];
    let (code, stdout, stderr) = ask(&folder, &words);
    assert_eq!(code, 0, "{stdout}{stderr}");
    for part in [
        "without defences: 14 schedules",
        "with all defences: 14 schedules",
        "| nothing | 13 / 13 | 0 | 0 |",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
}

const WAITS: &str = "waiting for a change; Ctrl-C ends";

/// The program, which ends with the test.
struct Watching {
    child: Child,
    lines: BufReader<ChildStderr>,
}

impl Watching {
    /// The lines of standard error until the program waits for a change.
    fn until_it_waits(&mut self) -> String {
        let mut text = String::new();
        while !text.ends_with(&format!("{WAITS}\n")) {
            let read = self.lines.read_line(&mut text).unwrap();
            assert_ne!(read, 0, "it ended: {text}");
        }
        text
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn each_change_is_named_and_run_and_an_error_is_not_the_end() {
    let folder = folder("watch");
    let file = folder.join("one.toml");
    fs::write(&file, text("one")).unwrap();
    let words = ["run", "--watch", ".", "--backend", "sim", "--format", "json"];
    let mut command: Command = program(&folder);
    let output = fs::File::create(folder.join("stdout")).unwrap();
    let mut child = command.args(words).stdout(output).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap());
    let mut watching = Watching { child, lines };
    let runs = || {
        let text = fs::read_to_string(folder.join("stdout")).unwrap();
        assert!(!text.contains('\x1b'), "standard output is no terminal: {text}");
        let results = text.lines().filter(|line| line.contains(r#""type":"result""#));
        results.count()
    };

    assert_eq!(watching.until_it_waits(), format!("{WAITS}\n"));
    assert_eq!(runs(), 1);

    fs::write(&file, "name = 1\n").unwrap();
    let text_of_error = watching.until_it_waits();
    assert!(text_of_error.contains("Z  ./one.toml changed\n"), "{text_of_error}");
    assert!(text_of_error.contains("error: "), "{text_of_error}");
    assert_eq!(runs(), 1, "nothing was run");

    fs::remove_file(&file).unwrap();
    fs::write(folder.join("two.toml"), text("two")).unwrap();
    let mut changes = watching.until_it_waits();
    while !changes.contains("two.toml is new") {
        // The program may look between the two changes.
        changes += &watching.until_it_waits();
    }
    assert!(changes.contains("Z  ./one.toml is gone\n"), "{changes}");
    assert_eq!(runs(), 2);

    let id = rustix::process::Pid::from_child(&watching.child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert_eq!(watching.child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_missing_file_cannot_be_watched() {
    let folder = folder("unwatched");
    for (words, part) in [
        (&["--watch", "calm"][..], "there is no file or folder calm to watch"),
        (&["--watch"], "<PATH>"),
    ] {
        let (code, _, stderr) = ask(&folder, words);
        assert!(code == 64 && stderr.contains(part), "{stderr}");
    }
}
