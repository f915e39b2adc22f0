//! The program on real masters, from the command line to the exit code.

use std::process::{Command, Stdio};

use redquorum_rig::trials::{Case, eventually};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{ask, ended, folder, program, result, run};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_scenario_comes_out_as_expected_and_again_from_its_history,
        with_masters: a_scenario_whose_fault_is_left_out_notices,
        with_masters: ctrl_c_keeps_what_there_is,
        with_masters: what_new_writes_comes_out_as_expected,
        with_masters: a_short_soak_finds_nothing,
        plain: without_a_server_it_is_3_and_says_what_to_install,
    ]
}

fn a_scenario_comes_out_as_expected_and_again_from_its_history() {
    let folder = folder("expected");
    // Without the command `run` and a folder for results, which are the defaults.
    let words = ["clock-step-one-holder/full-grant", "--backend", "process", "--seed", "1"];
    let (code, output) = ended(program(&folder, &words));
    assert_eq!(code, Some(0), "{output}");
    assert!(output.starts_with("seed     1\nbackend  process — redis-server "), "{output}");
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

fn without_a_server_it_is_3_and_says_what_to_install() {
    let mut command = run(&folder("nothing"), &["calm"]);
    command.env(redquorum_rig::SERVER_VARIABLE, "/nowhere/redis-server");
    let (code, output) = ended(command);
    assert_eq!(code, Some(3), "{output}");
    assert!(output.contains("/nowhere/redis-server") && output.contains("help: "), "{output}");
}
