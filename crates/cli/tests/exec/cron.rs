//! Many hosts, each a process, and one tick of cron.

use std::fs;
use std::process::Stdio;
use std::time::Instant;

use redquorum_rig::trials::Case;
use redquorum_rig::{Masters, RespValue};

use crate::support::{Folder, Process, exec, number, redquorum, rounds};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: of_fifty_hosts_one_runs_the_tick_also_if_it_is_killed,
        with_masters: others_are_kept_out_for_at_least_that_long_and_not_much_longer,
    ]
}

const HOSTS: usize = 50;

fn of_fifty_hosts_one_runs_the_tick_also_if_it_is_killed() {
    let masters = Masters::start(3).unwrap();
    let folder = Folder::new();
    for round in 0..rounds() {
        let (log, pid) =
            (folder.file(&format!("log-{round}")), folder.file(&format!("pid-{round}")));
        let (tick, kills) = (format!("tick-{round}"), round % 2 == 0);
        let work = if kills { "sleep 60" } else { "true" };
        let script =
            format!("echo run >> {}; echo $PPID > {}; {work}", log.display(), pid.display());
        // Longer than the round takes, on any machine.
        let host = || {
            let mut command = redquorum(&masters);
            command.args(["exec", "-q", "-n", "-E", "0", "--at-least", "10m", "--die-with-parent"]);
            Process::start(command.args([&*tick, "--", "sh", "-c", &script]).stderr(Stdio::null()))
        };
        let mut hosts: Vec<Process> = (0..HOSTS).map(|_| host()).collect();
        let winner = u32::try_from(number(&pid)).unwrap();
        if kills {
            let host = hosts.iter_mut().find(|host| host.id() == winner).unwrap();
            host.kill().unwrap();
        }
        // Others come late, or again.
        hosts.extend((0..5).map(|_| host()));
        for mut host in hosts {
            let code = host.wait().unwrap().code();
            assert!(code == Some(0) || kills && host.id() == winner, "round {round}: {code:?}");
        }
        assert_eq!(fs::read_to_string(&log).unwrap(), "run\n", "round {round}");
    }
}

fn others_are_kept_out_for_at_least_that_long_and_not_much_longer() {
    let masters = Masters::start(3).unwrap();
    let left = || match masters.ask(1, "PTTL tick").unwrap() {
        RespValue::Integer(left) => left,
        other => panic!("{other:?}"),
    };
    let start = Instant::now();
    let words = ["--ttl", "1s", "--at-least", "5s", "tick", "--"];
    assert_eq!(exec(&masters, &[&words[..], &["sleep", "1"]].concat()).0, 0);
    // Five seconds from the grant.
    let (left_ms, passed) = (left(), i64::try_from(start.elapsed().as_millis()).unwrap());
    assert!(left_ms >= 4900 - passed && left_ms <= 5000, "{left_ms} {passed}");
    for master in 1..=3 {
        masters.ask(master, "DEL tick").unwrap();
    }
    // A command that needs most of that time extends its lease by the TTL alone.
    assert_eq!(exec(&masters, &[&words[..], &["sleep", "4.5"]].concat()).0, 0);
    assert!(left() <= 1500, "{}", left());
}
