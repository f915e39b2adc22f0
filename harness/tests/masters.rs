//! The program on real masters, from the command line to the exit code.

#[cfg(unix)]
#[path = "support/folder.rs"]
mod folder;

#[cfg(unix)]
mod unix {
    use std::fs;
    use std::path::Path;
    use std::process::{Child, Command, ExitCode, Stdio};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use redquorum_harness::report::ResultFile;
    use redquorum_rig::trials::{plain, run, with_masters};
    use rustix::process::{Pid, Signal, kill_process};

    use super::folder::folder;

    pub(super) fn main() -> ExitCode {
        run([
            with_masters("a_scenario_comes_out_as_expected_and_again_from_its_history", expected),
            with_masters("a_scenario_whose_fault_is_left_out_notices", noticed),
            with_masters("ctrl_c_keeps_what_there_is", interrupted),
            with_masters("what_new_writes_comes_out_as_expected", template),
            with_masters("a_short_soak_finds_nothing", soaked),
            plain("without_a_server_it_is_3_and_says_what_to_install", nothing),
        ])
    }

    fn program(folder: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redquorum-chaos"));
        command.args(words).current_dir(folder).stdin(Stdio::null());
        command
    }

    fn ask(folder: &Path, words: &[&str]) -> (Option<i32>, String) {
        let output = program(folder, words).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    fn result(folder: &Path) -> ResultFile {
        serde_json::from_slice(&fs::read(folder.join("chaos-out/result.json")).unwrap()).unwrap()
    }

    fn expected() {
        let folder = folder("expected");
        let words = ["clock-step-one-holder/full-grant", "--backend", "process", "--seed", "1"];
        let (code, output) = ask(&folder, &words);
        assert_eq!(code, Some(0), "{output}");
        assert!(output.starts_with("seed     1\nbackend  process — redis-server "), "{output}");
        let result = result(&folder);
        assert_eq!((result.scenarios.len(), result.finished), (1, true));
        assert_eq!(result.scenarios[0].outcome, "as-expected");
        let history = "chaos-out/clock-step-one-holder.full-grant/history.jsonl";
        let (code, output) = ask(&folder, &["check", history]);
        assert_eq!(code, Some(0), "{output}");
        assert!(output.starts_with("clock-step-one-holder/full-grant: as-expected"), "{output}");
    }

    fn noticed() {
        let folder = folder("noticed");
        let words = ["crash-restart-forgets", "--backend", "process", "--without-fault", "2"];
        let (code, output) = ask(&folder, &words);
        assert_eq!(code, Some(2), "{output}");
        assert!(
            output.contains("? not-seen") && output.contains("--without-fault 2\n"),
            "{output}"
        );
    }

    fn soaked() {
        let mut soak = Command::new(env!("CARGO_BIN_EXE_redquorum-soak"));
        let ended = soak.args(["--for", "6s", "--fair"]).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success() && text.ends_with("no finding\n"), "{ended:?}");
    }

    fn template() {
        let folder = folder("template");
        ask(&folder, &["new", "mine"]);
        let (code, output) = ask(&folder, &["mine.toml", "--backend", "process"]);
        assert_eq!(code, Some(0), "{output}");
    }

    fn interrupted() {
        let folder = folder("interrupted");
        let words = ["--backend", "process", "--format", "json"];
        let mut child = program(&folder, &words).stdout(Stdio::null()).spawn().unwrap();
        // The signal arrives during the second run.
        let first = folder.join("chaos-out/calm/history.jsonl");
        wait(&mut child, || first.is_file());
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        let result = result(&folder);
        assert!(!result.finished && result.runs > 3, "{result:?}");
        assert!((1..4).contains(&result.scenarios.len()), "{result:?}");
    }

    fn wait(child: &mut Child, until: impl Fn() -> bool) {
        let start = Instant::now();
        while !until() {
            assert_eq!(child.try_wait().unwrap(), None, "it ended");
            assert!(start.elapsed() < Duration::from_secs(60), "it takes too long");
            sleep(Duration::from_millis(10));
        }
    }

    fn nothing() {
        let folder = folder("nothing");
        let mut command = program(&folder, &["calm", "--backend", "process"]);
        let output =
            command.env(redquorum_rig::SERVER_VARIABLE, "/nowhere/redis-server").output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(stderr.contains("/nowhere/redis-server") && stderr.contains("help: "), "{stderr}");
    }
}

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    unix::main()
}

#[cfg(not(unix))]
fn main() {
    eprintln!("masters and clients are stopped by signals: use Linux, macOS or WSL");
}
