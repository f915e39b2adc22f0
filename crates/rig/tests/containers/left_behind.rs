//! Nothing is left behind: not by a drop, and after `kill -9` not beyond the next start. A sweep
//! removes nothing that another process still uses.

use std::{thread, time::Duration};

use redquorum_rig::{
    containers::{IMAGE_VARIABLE, sweep},
    trials::Case,
};

use crate::{
    both::eventually,
    support::{EmptyImage, Holder, command, containers, of_process, output_of},
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
    // This image has no server in it, so its container is created, but does not start.
    let empty = EmptyImage::create();
    let left = output_of("fail", &[(IMAGE_VARIABLE, &empty.name)]);
    assert!(left.contains("could not start master 1: ") && left.ends_with("left: 0\n"), "{left}");
}

fn a_sweep_removes_containers_of_killed_processes_only() {
    // Concurrent tests start containers, too, so the next sweep may be one of theirs.
    for _ in 0..20 {
        let mut holder = Holder::start();
        let mark = holder.mark();
        let swept = || sweep().unwrap().iter().filter(|name| name.contains(&mark)).count();
        assert_eq!(swept(), 0);
        assert!(holder.is_complete());
        holder.child.kill().unwrap();
        holder.child.wait().unwrap();
        let swept = swept();
        eventually("they are gone", || holder.nothing_is_left());
        if swept == 2 {
            return;
        }
        // A start sweeps, too.
        drop(containers().count(1).start().unwrap());
    }
    panic!("no sweep reported what it removed");
}

fn nothing_is_left_after_kill_9_at_any_moment_of_the_start() {
    // The moments cover a start: before, between and after creating and starting the five
    // containers.
    for moment in 0..6 {
        let mut child = command("five", &[]).spawn().unwrap();
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
