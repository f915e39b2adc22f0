//! The clocks of masters in containers behave as those of processes. `tests/processes` covers the
//! details of stepping, drifting and strobing, which need no container.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use redquorum_rig::{
    ClockChange, Cluster, Containers, RespValue, RigError, clocks_supported,
    trials::{Case, plain},
};

/// An allowance in milliseconds for a busy machine between two readings.
const SLACK: i64 = 500;

pub(crate) fn cases() -> Vec<Case> {
    if let Err(why) = clocks_supported() {
        return vec![plain("clocks_are_refused_with_a_reason", move || {
            let error = Containers::builder().count(1).clocks().start().unwrap_err();
            assert_eq!(error.to_string(), why.to_string());
        })];
    }
    cases![
        with_containers: a_clock_is_stepped_and_cured_and_no_other_sees_it,
        with_containers: a_step_expires_a_key,
        with_containers: a_change_while_a_master_is_paused_or_dead_holds_when_it_is_back,
        with_containers: the_directory_of_the_clocks_goes_with_the_containers,
        with_containers: containers_without_clocks_say_so,
    ]
}

fn containers(count: usize) -> Containers {
    Containers::builder().count(count).clocks().start().unwrap()
}

fn forward(seconds: u64) -> ClockChange {
    ClockChange::forward(Duration::from_secs(seconds))
}

/// Checks that a master's `TIME` is about `seconds` ahead of the real time.
#[track_caller]
fn ahead(containers: &Containers, node: usize, seconds: i64) {
    let time = containers.ask(node, "TIME").unwrap();
    let RespValue::Array(parts) = time else { panic!("TIME: {time:?}") };
    let [s, us] = [0, 1].map(|part: usize| parts[part].text().unwrap().parse::<i64>().unwrap());
    let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let millis = s * 1000 + us / 1000 - i64::try_from(real.as_millis()).unwrap();
    assert!((millis - seconds * 1000).abs() <= SLACK, "{millis} ms is not about {seconds} s");
}

fn a_clock_is_stepped_and_cured_and_no_other_sees_it() {
    let containers = containers(2);
    ahead(&containers, 1, 0);
    containers.set_clock(1, forward(3600)).unwrap();
    ahead(&containers, 1, 3600);
    ahead(&containers, 2, 0);
    containers.set_clock(1, ClockChange::Cure).unwrap();
    ahead(&containers, 1, 0);
}

fn a_step_expires_a_key() {
    let containers = containers(1);
    assert_eq!(containers.ask(1, "SET key value PX 10000").unwrap().text().unwrap(), "OK");
    containers.set_clock(1, forward(8)).unwrap();
    let RespValue::Integer(left) = containers.ask(1, "PTTL key").unwrap() else { panic!() };
    assert!((2000 - SLACK..=2000).contains(&left), "{left}");
    containers.set_clock(1, forward(8)).unwrap();
    assert_eq!(containers.ask(1, "GET key").unwrap(), RespValue::Nil);
}

fn a_change_while_a_master_is_paused_or_dead_holds_when_it_is_back() {
    let containers = containers(1);
    containers.pause(1).unwrap();
    containers.set_clock(1, forward(100)).unwrap();
    containers.resume(1).unwrap();
    ahead(&containers, 1, 100);
    containers.kill(1).unwrap();
    containers.set_clock(1, forward(100)).unwrap();
    containers.restart(1).unwrap();
    ahead(&containers, 1, 200);
}

fn the_directory_of_the_clocks_goes_with_the_containers() {
    let containers = containers(2);
    let directories: Vec<PathBuf> =
        (1..=2).map(|node| containers.clock(node).unwrap().dir().to_owned()).collect();
    assert!(directories.iter().all(|directory| fs::read_dir(directory).unwrap().count() == 2));
    let all = directories[0].parent().unwrap().to_owned();
    drop(containers);
    assert!(!all.exists());
}

fn containers_without_clocks_say_so() {
    let containers = Containers::start(1).unwrap();
    let error = containers.set_clock(1, forward(1)).unwrap_err();
    assert!(matches!(error, RigError::NoClocks { .. }), "{error}");
    assert!(error.to_string().contains("ContainersBuilder::clocks"), "{error}");
    assert!(containers.clock(1).is_none());
}
