//! Nothing is left behind: not by a drop, and after `kill -9` not beyond the next start. A sweep
//! removes nothing that another process still uses.

use std::{thread, time::Duration};

use redquorum_rig::{Cluster, Containers, IMAGE_VARIABLE, trials::Case};

use crate::support::{EmptyImage, Holder, command, eventually, exists, of_process, said};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_containers: nothing_is_left_after_a_drop,
        with_containers: nothing_is_left_after_a_failed_start,
        with_containers: what_a_killed_process_left_is_swept_by_the_next_start_and_reported,
        with_containers: nothing_is_left_after_kill_9_at_any_moment_of_the_start,
        with_containers: what_a_live_process_uses_is_not_swept,
    ]
}

fn nothing_is_left_after_a_drop() {
    let containers = Containers::start(3).unwrap();
    let ids: Vec<String> = (1..=3).map(|node| containers.id(node).to_owned()).collect();
    assert!(ids.iter().all(|id| exists(id)));
    containers.pause(2).unwrap();
    containers.kill(3).unwrap();
    drop(containers);
    // At once, without waiting.
    assert!(!ids.iter().any(|id| exists(id)));
}

fn nothing_is_left_after_a_failed_start() {
    // The child counts its own containers before it ends, because later another start may sweep
    // them.
    let left = said("fail", &[]);
    assert!(left.contains("no-such-directive") && left.ends_with("left: 0\n"), "{left}");
    // This image has no server in it, so its container is created, but does not start.
    let empty = EmptyImage::create();
    let left = said("fail", &[(IMAGE_VARIABLE, &empty.name)]);
    assert!(left.contains("could not start master 1: ") && left.ends_with("left: 0\n"), "{left}");
}

fn what_a_killed_process_left_is_swept_by_the_next_start_and_reported() {
    // Concurrent tests start containers, too, so the next start may be one of theirs.
    for _ in 0..20 {
        let mut holder = Holder::start();
        holder.kill();
        let next = Containers::start(1).unwrap();
        eventually("they are gone", || holder.nothing_is_left());
        if next.swept().iter().filter(|name| name.contains(&holder.mark())).count() == 2 {
            return;
        }
    }
    panic!("no start reported what it swept");
}

fn what_a_live_process_uses_is_not_swept() {
    let mut holder = Holder::start();
    let swept = Containers::sweep().unwrap();
    assert!(!swept.iter().any(|name| name.contains(&holder.mark())), "{swept:?}");
    assert!(holder.is_complete());
    holder.kill();
    Containers::sweep().unwrap();
    eventually("they are gone", || holder.nothing_is_left());
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
            Containers::sweep().unwrap();
            of_process(child.id()) == 0
        });
    }
}
