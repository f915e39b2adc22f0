//! Children of the tests: this program with its own environment and a task. Also queries of the
//! engine's containers from outside.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{self, Child, Command, ExitCode, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use redquorum_rig::{Containers, clocks_supported, engine};

/// Set for a child: the name of its task.
pub(crate) const CHILD: &str = "RIG_TEST_CHILD";

pub(crate) fn child(part: &str) -> ExitCode {
    match part {
        "hold" => {
            let mut builder = Containers::builder().count(2);
            if clocks_supported().is_ok() {
                builder = builder.clocks();
            }
            let containers = builder.start().unwrap();
            let directory = containers.clock(1).and_then(|clock| clock.dir().parent());
            let directory = directory.unwrap_or(Path::new("none")).display();
            println!("{} {} {directory}", containers.id(1), containers.id(2));
            loop {
                thread::park();
            }
        }
        "start" => match Containers::start(1) {
            Ok(containers) => println!("started from {}", containers.image()),
            Err(error) => println!("{error}"),
        },
        "fail" => {
            let builder = Containers::builder().count(2).config("no-such-directive", "1");
            println!("{}", builder.start().unwrap_err());
            println!("left: {}", of_process(process::id()));
        }
        "five" => {
            let _containers = Containers::start(5).unwrap();
            loop {
                thread::park();
            }
        }
        "engine" => match engine() {
            Ok(engine) => println!("{engine}"),
            Err(error) => println!("{error}"),
        },
        other => panic!("no part {other:?}"),
    }
    ExitCode::SUCCESS
}

/// The command of a child with this task and these variables.
pub(crate) fn command(part: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.env(CHILD, part).envs(variables.iter().copied()).stdout(Stdio::piped());
    command
}

/// The output of a child until it ends.
pub(crate) fn said(part: &str, variables: &[(&str, &str)]) -> String {
    let Output { stdout, status, .. } = command(part, variables).output().unwrap();
    let text = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{text}");
    text
}

/// A child that owns two containers, and a directory if there are clocks.
pub(crate) struct Holder {
    child: Child,
    ids: Vec<String>,
    directory: PathBuf,
}

impl Holder {
    pub(crate) fn start() -> Self {
        let mut child = command("hold", &[]).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let [first, second, directory] = &words[..] else { panic!("it said {line:?}") };
        let directory = PathBuf::from(directory);
        assert!(directory.exists() || clocks_supported().is_err());
        Self { child, ids: vec![first.clone(), second.clone()], directory }
    }

    /// Part of the names of its containers.
    pub(crate) fn mark(&self) -> String {
        format!("-{}-", self.child.id())
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.ids.iter().all(|id| exists(id))
    }

    pub(crate) fn nothing_is_left(&self) -> bool {
        !self.ids.iter().any(|id| exists(id)) && !self.directory.exists()
    }
}

/// Whether the engine has a container with this id.
pub(crate) fn exists(id: &str) -> bool {
    let filter = format!("id={id}");
    !docker(&["ps", "--all", "--quiet", "--no-trunc", "--filter", &filter]).is_empty()
}

/// The number of containers that belong to this process.
pub(crate) fn of_process(pid: u32) -> usize {
    let filter = format!("name=-{pid}-");
    docker(&["ps", "--all", "--quiet", "--filter", &filter]).lines().count()
}

/// Queries the engine with the `docker` command, which is independent of the tested code.
fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// An empty image. It is removed on drop.
pub(crate) struct EmptyImage {
    pub(crate) name: String,
}

impl EmptyImage {
    pub(crate) fn create() -> Self {
        let name = format!("redquorum-empty:{}", process::id());
        let mut command = Command::new("docker");
        command.args(["import", "-", &name]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        // An archive without files: two blocks of zeros.
        child.stdin.take().unwrap().write_all(&[0; 1024]).unwrap();
        assert!(child.wait().unwrap().success());
        Self { name }
    }
}

impl Drop for EmptyImage {
    fn drop(&mut self) {
        docker(&["image", "rm", &self.name]);
    }
}

/// Waits until `is_true` returns true. The bound allows for a busy machine.
pub(crate) fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_true() {
        assert!(Instant::now() < until, "not in time: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
