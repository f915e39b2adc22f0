//! However the program ends, it leaves no process and no folder behind.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redquorum_rig::trials::{Case, processes_with};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{folder, run};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: nothing_is_left_after_ctrl_c,
        with_masters: nothing_is_left_after_kill_9,
    ]
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
