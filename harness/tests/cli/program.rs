//! The program itself, where it runs no scenario.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{folder, history, text};

fn program(folder: &Path) -> Command {
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
fn help_and_version_are_answers() {
    let folder = folder("help");
    for words in [&["--help"][..], &["--version"], &["help", "run"], &["run", "--help"]] {
        let (code, stdout, _) = ask(&folder, words);
        assert_eq!(code, 0, "{words:?}");
        assert!(stdout.contains("redquorum-chaos"), "{stdout}");
    }
    assert!(ask(&folder, &["--help"]).1.contains("130  interrupted"));
}

#[test]
fn wrong_usage_is_64_and_names_what_is_near() {
    let folder = folder("usage");
    let table: [(&[&str], &str); 15] = [
        (&["--out", "x", "doctor", "redis://127.0.0.1:1"], "write `doctor` first"),
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
        (&["check", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        (&["prove", "--only", "nothing"], "there are: rivals,"),
        (&["clock-step-one-holder/no"], "has no variant `no`"),
    ];
    for (words, part) in table {
        let (code, _, stderr) = ask(&folder, words);
        assert_eq!(code, 64, "{words:?}: {stderr}");
        assert!(stderr.contains(part), "{words:?}: {stderr}");
    }
}

#[test]
fn a_scenario_that_is_wrong_is_64_before_anything_is_run() {
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
    let (code, _, stderr) = ask(&folder, &["latin.toml"]);
    assert!(code == 64 && stderr.contains("latin.toml is not UTF-8 text"), "{stderr}");
    let empty = folder.join("empty");
    fs::create_dir(&empty).unwrap();
    let (code, _, stderr) = ask(&folder, &["empty"]);
    assert!(code == 64 && stderr.contains("no scenario lies in empty"), "{stderr}");
    let (code, _, stderr) = ask(&folder, &["good.toml", "./good.toml"]);
    assert!(code == 64 && stderr.contains("two scenarios are called `good`"), "{stderr}");
}

#[test]
fn on_github_a_wrong_scenario_is_marked_in_its_file() {
    let folder = folder("annotated");
    fs::write(folder.join("bad.toml"), text("bad").replace("acquire L", "aquire L")).unwrap();
    let mut command = program(&folder);
    let output = command.arg("bad.toml").env("GITHUB_ACTIONS", "true").output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.starts_with("::error file=bad.toml,line=6,title="), "{stdout}");
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
fn a_folder_that_cannot_be_written_to_is_3() {
    let folder = folder("out");
    fs::write(folder.join("file"), "in the way").unwrap();
    let (code, _, stderr) = ask(&folder, &["--out", "file/out"]);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("file/out") && stderr.contains("--out"), "{stderr}");
}

#[test]
fn list_shows_the_scenarios_for_people_and_programs() {
    let folder = folder("list");
    let (code, stdout, _) = ask(&folder, &["list"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("clock-step-one-holder"), "{stdout}");
    assert!(stdout.contains("mutual-exclusion, unfenced-resource violated"), "{stdout}");
    let (code, stdout, _) = ask(&folder, &["list", "--format", "json", "--filter", "one-holder"]);
    let rows: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, rows[0]["name"].as_str()), (0, Some("clock-step-one-holder")));
    assert_eq!(rows[0]["violated"][0], "mutual-exclusion");
}

#[test]
fn new_writes_a_scenario_once() {
    let folder = folder("new");
    let (code, stdout, _) = ask(&folder, &["new", "my-lesson"]);
    assert!(code == 0 && stdout.starts_with("my-lesson.toml is written"), "{stdout}");
    assert_eq!(ask(&folder, &["list", "my-lesson.toml"]).0, 0);
    let before = fs::read(folder.join("my-lesson.toml")).unwrap();
    let (code, _, stderr) = ask(&folder, &["new", "my-lesson"]);
    assert!(code == 64 && stderr.contains("exists already"), "{stderr}");
    assert_eq!(fs::read(folder.join("my-lesson.toml")).unwrap(), before);
    fs::create_dir(folder.join("scenarios")).unwrap();
    assert_eq!(ask(&folder, &["new", "my-lesson"]).0, 0);
    assert!(folder.join("scenarios/my-lesson.toml").is_file());
    for name in ["", "../x", "X", "a b"] {
        assert_eq!(ask(&folder, &["new", name]).0, 64, "{name}");
    }
}

#[test]
fn schema_is_json() {
    let (code, stdout, _) = ask(&folder("schema-json"), &["schema"]);
    let schema: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, schema["type"].as_str()), (0, Some("object")));
}

#[test]
fn check_refuses_what_is_no_history() {
    let folder = folder("check");
    let check = |text: &[u8]| {
        fs::write(folder.join("h.jsonl"), text).unwrap();
        ask(&folder, &["check", "h.jsonl"])
    };
    for (bytes, part) in [
        (&b""[..], "it is empty"),
        (b"{}\n", "line 1 is no header"),
        (b"\xff\xfe\n", "h.jsonl is no history"),
    ] {
        let (code, _, stderr) = check(bytes);
        assert!(code == 64 && stderr.contains(part), "{stderr}");
    }
    let scenario = redquorum_harness::scenario::read("good.toml", &text("good")).unwrap();
    let mut bytes = Vec::new();
    history(&scenario, 1).write(&mut bytes).unwrap();
    bytes.extend_from_slice(b"{\"ns\":0}\n");
    let (code, _, stderr) = check(&bytes);
    assert!(code == 64 && stderr.contains("line 3"), "{stderr}");
}

#[test]
fn a_closed_pipe_is_nobodys_error() {
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
