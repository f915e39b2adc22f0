//! `run --watch`: a run for each change, until Ctrl-C. The test waits for the program's lines.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::program::program;
use crate::support::{folder, text};

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
        let (code, _, stderr) = crate::program::ask(&folder, words);
        assert!(code == 64 && stderr.contains(part), "{stderr}");
    }
}
