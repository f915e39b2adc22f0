//! Children of the tests: this program with its own environment and a task. Also queries of the
//! engine's containers from outside.

use std::{
    env,
    process::{self, Command, ExitCode, Output, Stdio},
    thread,
};

use redquorum_rig::{Builder, Masters, clocks_supported, containers::prepare};

/// Set for a child: the name of its task.
pub(crate) const CHILD: &str = "RIG_TEST_CHILD";

pub(crate) fn containers() -> Builder {
    Masters::builder().containers(None)
}

pub(crate) fn child(part: &str) -> ExitCode {
    match part {
        "hold" => {
            let builder = containers().count(2);
            let clocks = clocks_supported().is_ok();
            let masters = if clocks { builder.clocks() } else { builder }.start().unwrap();
            println!("{}", masters.dir(1).parent().unwrap().display());
            loop {
                thread::park();
            }
        }
        "start" => match containers().count(1).start() {
            Ok(masters) => println!("started {}", masters.describe()),
            Err(error) => println!("{error}"),
        },
        "drop" => {
            let masters = containers().count(3).start().unwrap();
            let directory = masters.dir(1).parent().unwrap().to_owned();
            println!("there: {}", of_process(process::id()));
            masters.pause(2).unwrap();
            masters.kill(3).unwrap();
            drop(masters);
            // At once, without waiting.
            println!("left: {}\ndirectory: {}", of_process(process::id()), directory.exists());
        }
        "fail" => {
            let builder = containers().count(2).config("no-such-directive", "1");
            println!("{}", builder.start().unwrap_err());
            println!("left: {}", of_process(process::id()));
        }
        "prepare" => match prepare(None) {
            Ok(image) => println!("{image}"),
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
pub(crate) fn output_of(part: &str, variables: &[(&str, &str)]) -> String {
    let Output { stdout, status, .. } = command(part, variables).output().unwrap();
    let text = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{text}");
    text
}

/// The number of containers that belong to this process.
pub(crate) fn of_process(pid: u32) -> usize {
    let filter = format!("name=-{pid}-");
    docker(&["ps", "--all", "--quiet", "--filter", &filter]).lines().count()
}

/// Queries the engine with the `docker` command, which is independent of the tested code.
pub(crate) fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
