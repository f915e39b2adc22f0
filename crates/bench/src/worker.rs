//! This program once more, as one of several processes. Each reports steps on its output, and waits
//! on its input.

use std::io::{BufRead, BufReader, Lines, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(crate) struct Worker {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts this program with these arguments, behind which the URLs follow.
    pub(crate) fn start(arguments: &[&str], urls: &[String]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.args(arguments).args(urls).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program starts again");
        let input = child.stdin.take().expect("the input is piped");
        let output = BufReader::new(child.stdout.take().expect("the output is piped")).lines();
        Self { child, input, output }
    }

    /// Waits for its next report.
    pub(crate) fn report(&mut self) -> String {
        self.output.next().expect("a worker reports each step").expect("a worker prints text")
    }

    /// Lets it take its next step.
    pub(crate) fn go_on(&mut self) {
        self.input.write_all(b"\n").expect("a worker waits for the step");
    }

    /// Waits for its end, and returns its other reports.
    pub(crate) fn finish(mut self) -> Vec<String> {
        let reports = self.output.map_while(Result::ok).collect();
        assert!(self.child.wait().expect("a worker ends").success(), "a worker failed");
        reports
    }
}

/// Reports a step of this worker, and waits until it may go on.
pub(crate) async fn report(step: &str) {
    println!("{step}");
    let line = || stdin().read_line(&mut String::new());
    let read = tokio::task::spawn_blocking(line).await.expect("reading does not panic");
    read.expect("the parent writes");
}
