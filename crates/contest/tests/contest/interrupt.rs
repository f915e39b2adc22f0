//! An interrupted or killed contest leaves nothing behind.

use std::{
    env, fs,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::support::{
    Out, eventually, mariadb_is_installed, one_at_a_time, program, temporary_directories, text,
};

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status();
    assert!(status.unwrap().success());
}

/// The processes whose command line names one of our temporary directories.
fn servers() -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| text(&line).replace('\0', " "));
    let ours = env::temp_dir().join("redquorum-contest-");
    lines.filter(|line| line.contains(ours.to_str().unwrap())).collect()
}

fn assert_nothing_is_left() {
    eventually("nothing is left", || servers().is_empty() && temporary_directories().is_empty());
}

fn started(out: &Out, args: &str, ms: u64) -> Child {
    let child = program(out, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(ms));
    child
}

#[test]
fn an_interrupted_contest_writes_a_partial_result_and_leaves_nothing() {
    let _turn = one_at_a_time();
    for name in ["INT", "TERM"] {
        // More time for a slow machine, until runs have ended.
        let keeps_runs = [3_000, 12_000, 48_000, 192_000].into_iter().any(|ms| {
            let out = Out::new("interrupt");
            let args = "--database sqlite --workload last-place throughput --seconds 3600";
            let child = started(&out, args, ms);
            signal(&child, name);
            let output = child.wait_with_output().unwrap();
            let printed = text(&output.stdout);
            assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
            assert_nothing_is_left();
            let is_partial = printed.contains("PARTIAL: interrupted");
            is_partial && {
                let contest = out.contest();
                assert_eq!(contest.stopped.as_deref(), Some("interrupted"));
                !contest.runs.is_empty()
            }
        });
        assert!(keeps_runs, "{name}: the runs that had ended are kept");
    }
}

#[test]
fn an_interrupt_at_any_moment_leaves_nothing_of_mariadb() {
    let _turn = one_at_a_time();
    if !mariadb_is_installed() {
        return;
    }
    // The interrupt arrives while the server is installed, while it starts, and during a pause.
    for ms in [100, 1_200, 3_500] {
        let out = Out::new("interrupt-mariadb");
        let args = "--database mariadb --fault pause-past-ttl";
        let child = started(&out, args, ms);
        signal(&child, "INT");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "after {ms} ms: {}", text(&output.stderr));
        assert_nothing_is_left();
    }
}

#[test]
fn a_contest_that_is_killed_leaves_nothing() {
    let _turn = one_at_a_time();
    let database = if mariadb_is_installed() { "mariadb" } else { "sqlite" };
    let out = Out::new("killed");
    let args =
        format!("--database {database} --fault pause-past-ttl --strategy redquorum --repeat 9");
    let child = started(&out, &args, 4_000);
    signal(&child, "KILL");
    let _output = child.wait_with_output().unwrap();
    assert_nothing_is_left();
}
