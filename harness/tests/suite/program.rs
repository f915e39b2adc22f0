//! The program on real masters, from the command line to the exit code. However it ends, it leaves
//! no process and no folder behind. It runs as a user would run it, each time in a folder of its
//! own.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redquorum_harness::report::ResultFile;
use redquorum_rig::trials::{Case, eventually, processes_with};
use rustix::process::{Pid, Signal, kill_process};

#[path = "../support/folder.rs"]
mod folder;

pub(crate) use folder::folder;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_scenario_comes_out_as_expected_and_again_from_its_history,
        with_masters: a_scenario_whose_fault_is_left_out_notices,
        with_masters: ctrl_c_keeps_what_there_is,
        with_masters: what_new_writes_comes_out_as_expected,
        with_masters: a_short_soak_finds_nothing,
        with_masters: a_search_on_masters_finds_a_mutant_and_nothing_else,
        with_masters: nothing_is_left_after_ctrl_c,
        with_masters: nothing_is_left_after_kill_9,
        plain: without_a_server_it_is_3_and_says_what_to_install,
    ]
}

fn a_scenario_comes_out_as_expected_and_again_from_its_history() {
    let folder = folder("expected");
    // Without the command `run` and a folder for results, which are the defaults.
    let words = ["clock-step-one-holder/full-grant", "--backend", "process", "--seed", "1"];
    let (code, output) = ended(program(&folder, &words));
    assert_eq!(code, Some(0), "{output}");
    let head = format!("seed     1\nlock     redquorum {}\n", env!("CARGO_PKG_VERSION"));
    assert!(output.starts_with(&(head + "backend  process — redis-server ")), "{output}");
    let result = result(&folder.join("chaos-out")).unwrap();
    assert_eq!((result.scenarios.len(), result.finished), (1, true));
    assert_eq!(result.scenarios[0].outcome, "as-expected");
    let history = "chaos-out/clock-step-one-holder.full-grant/history.jsonl";
    let (code, output) = ended(program(&folder, &["check", history]));
    assert_eq!(code, Some(0), "{output}");
    assert!(output.starts_with("clock-step-one-holder/full-grant: as-expected"), "{output}");
}

fn a_scenario_whose_fault_is_left_out_notices() {
    let ended = ask(&folder("noticed"), &["crash-restart-forgets", "--without-fault", "2"]);
    assert_eq!(ended.code, Some(2), "{}", ended.output);
    for part in ["? not-seen", "--without-fault 2\n"] {
        assert!(ended.output.contains(part), "{}", ended.output);
    }
}

fn ctrl_c_keeps_what_there_is() {
    let folder = folder("interrupted");
    let mut child = run(&folder, &["--format", "json"]).stdout(Stdio::null()).spawn().unwrap();
    // The signal arrives during the second run.
    eventually("the first run has ended", || {
        assert_eq!(child.try_wait().unwrap(), None, "the program ended");
        folder.join("out/calm/history.jsonl").is_file()
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let result = result(&folder.join("out")).unwrap();
    assert!(!result.finished && result.runs > 3, "{result:?}");
    assert!((1..4).contains(&result.scenarios.len()), "{result:?}");
}

fn what_new_writes_comes_out_as_expected() {
    let folder = folder("template");
    let (code, output) = ended(program(&folder, &["new", "mine"]));
    assert_eq!(code, Some(0), "{output}");
    let ended = ask(&folder, &["mine.toml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.output);
}

fn a_short_soak_finds_nothing() {
    let mut soak = Command::new(env!("CARGO_BIN_EXE_redquorum-soak"));
    let ended = soak.args(["--for", "6s", "--fair"]).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && text.ends_with("no finding\n"), "{ended:?}");
}

/// Of each run the scenario is kept, so that it can be played again.
fn a_search_on_masters_finds_a_mutant_and_nothing_else() {
    let outcomes = |name: &str, client: &[&str]| {
        let folder = folder(name);
        let words = ["search", "--on", "process", "--runs", "3", "--seed", "1", "--nodes", "3"];
        let (code, output) = ended(program(&folder, &[&words[..], client].concat()));
        let random = folder.join("chaos-out/random");
        let result = result(&random).unwrap_or_else(|| panic!("{output}"));
        let all: Vec<String> = result.scenarios.iter().map(|it| it.outcome.clone()).collect();
        assert_eq!((all.len(), result.runs), (3, 3), "{output}");
        let file = format!("{}.toml", result.scenarios[0].name);
        let text = fs::read_to_string(random.join(&result.scenarios[0].name).join(&file)).unwrap();
        redquorum_scenario::read(&file, &text).unwrap_or_else(|why| panic!("{why}"));
        (code, all, output)
    };
    let (code, all, output) = outcomes("search-on", &[]);
    assert!(!all.iter().any(|it| it == "differs"), "{output}");
    assert!(matches!(code, Some(0 | 2)), "{output}");
    let mutant = format!("{} --mutant plain-del", env!("CARGO_BIN_EXE_redquorum-mutant"));
    let (code, all, output) = outcomes("search-mutant", &["--client", &mutant]);
    assert!(all.iter().any(|it| it == "differs"), "{output}");
    assert_eq!(code, Some(1), "{output}");
}

fn without_a_server_it_is_3_and_says_what_to_install() {
    let mut command = run(&folder("nothing"), &["calm"]);
    command.env(redquorum_rig::SERVER_VARIABLE, "/nowhere/redis-server");
    let (code, output) = ended(command);
    assert_eq!(code, Some(3), "{output}");
    assert!(output.contains("/nowhere/redis-server") && output.contains("help: "), "{output}");
}

fn nothing_is_left_after_ctrl_c() {
    ended_by(Signal::INT);
}

fn nothing_is_left_after_kill_9() {
    ended_by(Signal::KILL);
}

/// Ends the program at twenty moments, between the start of the first master and the middle of the
/// second scenario.
fn ended_by(signal: Signal) {
    let mut seen = 0;
    for number in 0..20_u64 {
        let name = format!("killed-by-{}-{number}", signal.as_raw());
        let folder = folder(&name);
        // Masters live in the folder for temporary files, and every process of a run has its path
        // in its environment. The path is short, because of the masters' sockets.
        let temporary = short_folder(&name);
        let processes = || processes_with(temporary.to_str().unwrap());
        let mut child = run(&folder, &["pause-in-flight", "rolling-kills"])
            .env("TMPDIR", &temporary)
            .stdout(fs::File::create(folder.join("output")).unwrap())
            .stderr(fs::File::create(folder.join("complained")).unwrap())
            .spawn()
            .unwrap();
        // The moments cover two and a half seconds, with a jitter.
        let jitter = u64::from(std::process::id()) * 7 % 100;
        sleep(Duration::from_millis(number * 125 + jitter));
        seen += processes().len().saturating_sub(1);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        // Before its first output, the program may not handle signals yet.
        let no_output = fs::read(folder.join("output")).unwrap().is_empty();
        if signal == Signal::INT && !(no_output && status.signal() == Some(signal.as_raw())) {
            assert_eq!(status.code(), Some(130), "{name}");
        }
        let until = Instant::now() + Duration::from_secs(10);
        while !processes().is_empty() || !is_empty(&temporary) {
            assert!(Instant::now() < until, "{name}: left {:?}, {temporary:?}", processes());
            sleep(Duration::from_millis(10));
        }
        fs::remove_dir(&temporary).unwrap();
    }
    assert!(seen > 50, "there was something to be left behind, or this test sees nothing: {seen}");
}

fn short_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("rq-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

pub(crate) const CHAOS: &str = env!("CARGO_BIN_EXE_redquorum-chaos");

pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) output: String,
    result: Option<ResultFile>,
}

impl Ended {
    pub(crate) fn outcome(&self) -> &str {
        let result = self.result.as_ref().unwrap_or_else(|| panic!("no result: {}", self.output));
        assert_eq!(result.scenarios.len(), 1, "{}", self.output);
        &result.scenarios[0].outcome
    }
}

/// The program with these arguments, in this folder.
pub(crate) fn program(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(CHAOS);
    command.args(words).current_dir(folder).stdin(Stdio::null());
    command
}

/// The program that runs these scenarios on processes. The results go to `out`.
pub(crate) fn run(folder: &Path, words: &[&str]) -> Command {
    program(folder, &[&["run", "--backend", "process", "--out", "out"], words].concat())
}

/// The exit code and all output of a command.
pub(crate) fn ended(mut command: Command) -> (Option<i32>, String) {
    let ended = command.output().unwrap();
    let output = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
    (ended.status.code(), output)
}

/// The results in a folder, if it has any.
fn result(out: &Path) -> Option<ResultFile> {
    let bytes = fs::read(out.join("result.json")).ok()?;
    Some(serde_json::from_slice(&bytes).unwrap())
}

pub(crate) fn ask(folder: &Path, words: &[&str]) -> Ended {
    let (code, output) = ended(run(folder, words));
    Ended { code, output, result: result(&folder.join("out")) }
}

/// The text of a built-in scenario.
pub(crate) fn text(name: &str) -> &'static str {
    let mut all = redquorum_scenario::embedded();
    all.find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no scenario {name}")).1
}

pub(crate) fn ask_text(folder: &Path, name: &str, text: &str, words: &[&str]) -> Ended {
    let file = format!("{name}.toml");
    fs::write(folder.join(&file), text).unwrap();
    ask(folder, &[&[file.as_str()], words].concat())
}
