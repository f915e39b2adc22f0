//! Nothing is left behind: not by a drop, and after `kill -9` not beyond the next start. A sweep
//! removes nothing that another process still uses.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{self, Command, Stdio},
    thread,
    time::Duration,
};

use redquorum_rig::{
    containers::{IMAGE_VARIABLE, sweep},
    trials::Case,
};

use crate::{
    both::eventually,
    support::{command, containers, docker, of_process, output_of},
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_containers: nothing_is_left_after_a_drop,
        with_containers: nothing_is_left_after_a_failed_start,
        with_containers: a_sweep_removes_containers_of_killed_processes_only,
        with_containers: nothing_is_left_after_kill_9_at_any_moment_of_the_start,
    ]
}

fn nothing_is_left_after_a_drop() {
    let report = output_of("drop", &[]);
    assert_eq!(report, "there: 3\nleft: 0\ndirectory: false\n");
}

fn nothing_is_left_after_a_failed_start() {
    // The child counts its own containers before it ends, because later another start may sweep
    // them.
    let left = output_of("fail", &[]);
    assert!(left.contains("no-such-directive") && left.ends_with("left: 0\n"), "{left}");
    // An image of an archive without files, two blocks of zeros: its container is created, but does
    // not start.
    let empty = format!("redquorum-empty:{}", process::id());
    let mut import = Command::new("docker");
    import.args(["import", "-", &empty]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut import = import.spawn().unwrap();
    import.stdin.take().unwrap().write_all(&[0; 1024]).unwrap();
    assert!(import.wait().unwrap().success());
    let left = output_of("fail", &[(IMAGE_VARIABLE, &empty)]);
    docker(&["image", "rm", &empty]);
    assert!(left.contains("could not start master 1: ") && left.ends_with("left: 0\n"), "{left}");
}

fn a_sweep_removes_containers_of_killed_processes_only() {
    // Concurrent tests start containers, too, so the next sweep may be one of theirs.
    for _ in 0..20 {
        let mut holder = command("hold", &[]).spawn().unwrap();
        let mut directory = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut directory).unwrap();
        let directory = Path::new(directory.trim_end());
        let mark = format!("-{}-", holder.id());
        let swept = || sweep().unwrap().iter().filter(|name| name.contains(&mark)).count();
        assert_eq!(swept(), 0);
        assert!(of_process(holder.id()) == 2 && directory.exists());
        holder.kill().unwrap();
        holder.wait().unwrap();
        let swept = swept();
        eventually("they are gone", || of_process(holder.id()) == 0 && !directory.exists());
        if swept == 2 {
            return;
        }
        // A start sweeps, too.
        drop(containers().count(1).start().unwrap());
    }
    panic!("no sweep reported what it removed");
}

fn nothing_is_left_after_kill_9_at_any_moment_of_the_start() {
    // The moments cover a start: before, between and after creating and starting the containers.
    for moment in 0..6 {
        let mut child = command("hold", &[]).spawn().unwrap();
        thread::sleep(Duration::from_millis(moment * 200));
        child.kill().unwrap();
        child.wait().unwrap();
        // The engine may still be carrying out its last request.
        eventually("they are gone, and stay so", || {
            thread::sleep(Duration::from_millis(300));
            sweep().unwrap();
            of_process(child.id()) == 0
        });
    }
}
