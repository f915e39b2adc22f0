//! Starts the program, and reads its output.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use redquorum_contest::results::{Contest, Figures, Outcome, Run};

/// With the value `1`, tests fail instead of being skipped if MariaDB is not installed.
const REQUIRE_VARIABLE: &str = "REDQUORUM_REQUIRE_MARIADB";

/// One contest at a time: each of them uses the whole machine.
pub(crate) fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether MariaDB is installed. If it is not, prints that the test is skipped.
pub(crate) fn mariadb_is_installed() -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let others = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let found = env::split_paths(&path).chain(others).any(|dir| dir.join("mariadbd").is_file());
    if !found {
        let required = env::var_os(REQUIRE_VARIABLE).is_some_and(|value| value == "1");
        assert!(!required, "{REQUIRE_VARIABLE}=1, and MariaDB is not installed");
        eprintln!("SKIPPED: MariaDB is not installed (Debian: apt-get install mariadb-server)");
    }
    found
}

/// Waits until `is_true` returns true. The bound allows for a busy machine.
pub(crate) fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !is_true() {
        assert!(Instant::now() < until, "not in time: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A directory for results. It is removed on drop.
pub(crate) struct Out(PathBuf);

impl Out {
    pub(crate) fn new(name: &str) -> Self {
        let dir = env::temp_dir().join(format!("contest-test-{name}-{}", std::process::id()));
        let _none = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn contest(&self) -> Contest {
        let text = fs::read_to_string(self.0.join("contest.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        let _removed = fs::remove_dir_all(&self.0);
    }
}

/// The program with the arguments in `args`, separated by spaces.
pub(crate) fn program(out: &Out, args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redquorum-contest"));
    command.arg("--out").arg(out.path()).args(args.split_whitespace());
    command
}

pub(crate) fn run(out: &Out, args: &str) -> Output {
    program(out, args).output().unwrap()
}

/// Runs the program, and checks that it finds everything as expected.
pub(crate) fn run_as_expected(out: &Out, args: &str) -> Contest {
    let output = run(out, args);
    let (printed, complaints) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{args}\n{printed}\n{complaints}");
    out.contest()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn measured(contest: &Contest) -> impl Iterator<Item = (&Run, &Figures)> {
    contest.runs.iter().filter_map(|run| match &run.outcome {
        Outcome::Measured(figures) => Some((run, figures)),
        Outcome::NotOffered { .. } => None,
        other => panic!("{}: {other:?}", run.strategy),
    })
}

/// The directories that a contest keeps while it runs.
pub(crate) fn temporary_directories() -> Vec<PathBuf> {
    let entries = fs::read_dir(env::temp_dir()).unwrap().flatten().map(|entry| entry.path());
    let ours = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| text(name.as_encoded_bytes()).starts_with("redquorum-contest-"))
    };
    entries.filter(ours).collect()
}
