//! Locks that move to other masters while their clients run.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use redquorum::{Builder, Redlock};
use redquorum_rig::trials::{Case, eventually};
use redquorum_rig::{Masters, RespValue};

use crate::support::{Process, bare, ended, rounds};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_service_under_load_moves_three_times_and_no_request_is_refused,
        with_masters: a_client_of_another_step_is_in_the_way_and_is_named,
        with_masters: a_command_that_is_killed_anywhere_is_run_again_and_ends,
        with_masters: what_cannot_be_moved_is_said,
    ]
}

/// The longest TTL, which a switch waits for.
const GUARD: Duration = Duration::from_secs(2);

fn urls(masters: &Masters, nodes: &[usize]) -> Vec<String> {
    nodes.iter().map(|node| masters.url(*node)).collect()
}

/// A move, and the masters that it leaves and gets.
struct Move<'a> {
    masters: &'a Masters,
    from: &'a [usize],
    to: &'a [usize],
    guard: &'a str,
}

impl Move<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = bare();
        let [from, to] = [self.from, self.to].map(|set| urls(self.masters, set).join(","));
        command.arg("masters").args(words).args([
            "--restart-guard",
            self.guard,
            "--ttl",
            self.guard,
        ]);
        command.args(["--node-timeout", "100ms", "--masters", &from, "--moving-to", &to]);
        command
    }

    /// The exit code, standard output and standard error.
    fn run(&self, words: &[&str]) -> (i32, String, String) {
        ended(self.command(words).output().unwrap())
    }

    /// Runs a command to its end. Connections of clients that have ended may still be closing.
    fn done(&self, what: &str, words: &str) {
        let mut ended = (0, String::new(), String::new());
        eventually("clients of the step before are gone", || {
            ended = self.run(&[what]);
            ended.0 != 1 || !ended.2.contains("connections are of clients")
        });
        let (code, text, errors) = ended;
        assert_eq!(code, 0, "{what}: {text}{errors}");
        assert!(text.contains(words), "{what}: {text}");
    }
}

fn builder(masters: &Masters, nodes: &[usize]) -> Builder {
    let builder = Redlock::builder().masters(urls(masters, nodes));
    builder.ttl(GUARD).restart_guard(GUARD).node_timeout(Duration::from_millis(500))
}

/// What the workers of a service share.
struct Service {
    lock: Mutex<Redlock>,
    /// The largest fencing token that was seen.
    token: AtomicU64,
    inside: AtomicBool,
    leases: AtomicU64,
    ends: AtomicBool,
}

impl Service {
    /// Acquires a resource that all want, and one that nobody else wants, until the end.
    async fn work(self: Arc<Self>, worker: usize) {
        while !self.ends.load(Ordering::Relaxed) {
            let lock = self.lock.lock().unwrap().clone();
            let shared = lock.acquire("r").fenced().wait(Duration::from_secs(30));
            let lease = shared.await.unwrap_or_else(|why| panic!("refused: {why}"));
            assert!(!self.inside.swap(true, Ordering::SeqCst), "two leases at once");
            let token = lease.fencing_token().unwrap();
            let before = self.token.swap(token, Ordering::SeqCst);
            assert!(before < token, "token {token} behind {before}");
            assert!(self.inside.swap(false, Ordering::SeqCst));
            drop(lease.release().await);
            let own = lock.acquire(format!("own:{worker}")).wait(Duration::ZERO);
            drop(own.await.unwrap_or_else(|why| panic!("refused: {why}")).release().await);
            self.leases.fetch_add(2, Ordering::Relaxed);
        }
    }

    /// As if the service were started again with other options, one instance after the other.
    async fn restart(&self, builder: Builder) {
        let lock = builder.build().await.unwrap();
        let old = std::mem::replace(&mut *self.lock.lock().unwrap(), lock);
        let before = self.leases.load(Ordering::Relaxed);
        while self.leases.load(Ordering::Relaxed) < before + 40 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        old.shutdown(Duration::from_secs(10)).await.unwrap_or_else(|why| panic!("{why}"));
    }
}

/// Five masters of which one is dead and replaced; five become seven; and all move to five others.
fn a_service_under_load_moves_three_times_and_no_request_is_refused() {
    let masters = Masters::start(13).unwrap();
    let moves: [(&[usize], &[usize]); 3] = [
        (&[1, 2, 3, 4, 5], &[2, 3, 4, 5, 6]),
        (&[2, 3, 4, 5, 6], &[2, 3, 4, 5, 6, 7, 8]),
        (&[2, 3, 4, 5, 6, 7, 8], &[9, 10, 11, 12, 13]),
    ];
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let first = builder(&masters, moves[0].0).build().await.unwrap();
        let report = first.initialize_masters().await;
        assert_eq!(report.masters().len(), 5);
        let service = Arc::new(Service {
            lock: Mutex::new(first),
            token: AtomicU64::new(0),
            inside: AtomicBool::new(false),
            leases: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        });
        let workers: Vec<_> =
            (0..4).map(|worker| tokio::spawn(service.clone().work(worker))).collect();
        masters.kill(1).unwrap();
        for (from, to) in moves {
            let it = Move { masters: &masters, from, to, guard: "2s" };
            tokio::task::block_in_place(|| it.done("begin", "clients may move"));
            service.restart(builder(&masters, from).moving_to(urls(&masters, to))).await;
            tokio::task::block_in_place(|| it.done("switch", "of the new masters may begin"));
            service.restart(builder(&masters, to)).await;
            tokio::task::block_in_place(|| {
                it.done("finish", "the move is over");
                it.done("finish", "nothing to do");
                let (code, text, _) = it.run(&["plan"]);
                assert!(code == 0 && text.contains("next: nothing: the move is over"), "{text}");
            });
        }
        service.ends.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.await.unwrap();
        }
        println!("{} leases", service.leases.load(Ordering::Relaxed));
    });
}

fn a_client_of_another_step_is_in_the_way_and_is_named() {
    let masters = Masters::start(4).unwrap();
    let it = Move { masters: &masters, from: &[1, 2, 3], to: &[2, 3, 4], guard: "2s" };
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
    let old = runtime.block_on(builder(&masters, it.from).build()).unwrap();
    let (_, text, _) = it.run(&["plan"]);
    assert!(text.contains("it has no marker") && text.contains("next: `redquorum masters begin`"));
    let (code, _, errors) = it.run(&["begin"]);
    assert!(code == 69 && errors.contains("too few masters have a marker"), "{errors}");
    runtime.block_on(old.initialize_masters());
    it.done("begin", "clients may move");
    it.done("begin", "nothing to do");
    let (code, _, errors) = it.run(&["switch"]);
    assert_eq!(code, 1, "{errors}");
    assert!(errors.contains("clients with the old masters alone"), "{errors}");
    assert!(errors.contains("with `moving-to`"), "{errors}");
    let (_, text, _) = it.run(&["plan", "--json"]);
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(plan["masters"][1]["step"], 1, "{text}");
    assert_eq!(plan["masters"][1]["clients"]["old"], 1, "{text}");
    let (code, _, errors) = it.run(&["finish"]);
    assert!(code == 1 && errors.contains("redquorum masters plan"), "{errors}");
    // Without clients that move it can be taken back.
    it.done("back", "the move is taken back");
    let keys = masters.command(4, &[b"DBSIZE"]).unwrap();
    assert_eq!(keys, RespValue::Integer(0), "no key is left behind");
    it.done("begin", "clients may move");
    runtime.block_on(old.shutdown(Duration::from_secs(10))).unwrap();
    drop(old);
    let moving = builder(&masters, it.from).moving_to(urls(&masters, it.to));
    let moving = runtime.block_on(moving.build()).unwrap();
    it.done("switch", "of the new masters may begin");
    let (code, _, errors) = it.run(&["finish"]);
    assert!(code == 1 && errors.contains("the new masters alone"), "{errors}");
    let (code, _, errors) = it.run(&["back"]);
    assert_eq!(code, 0, "{errors}");
    let lease = runtime.block_on(async { moving.acquire("r").await.unwrap() });
    drop(runtime.block_on(lease.release()));
}

fn a_command_that_is_killed_anywhere_is_run_again_and_ends() {
    let masters = Masters::start(5).unwrap();
    let it = Move { masters: &masters, from: &[1, 2, 3], to: &[3, 4, 5], guard: "300ms" };
    let init = |nodes: &[usize]| {
        let urls = urls(&masters, nodes).join(",");
        let mut doctor = bare();
        doctor.args(["doctor", "--init", "--restart-guard", "300ms", "--ttl", "300ms"]);
        assert_ne!(doctor.args(["--masters", &urls]).output().unwrap().status.code(), Some(64));
    };
    init(it.from);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(std::process::id());
    let mut killed = BTreeSet::new();
    for round in 0..rounds() {
        for what in ["begin", "switch", "back", "back"] {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // A switch takes a third of a second; all else a few milliseconds.
            let most = if what == "begin" { 20 } else { 400 };
            let mut command = it.command(&[what, "--quiet"]);
            let mut child = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
            thread::sleep(Duration::from_micros(random % (most * 1_000)));
            if child.try_wait().unwrap().is_none() {
                killed.insert(what);
            }
            drop(child.kill());
            child.wait().unwrap();
            let (code, text, errors) = it.run(&[what, "--quiet"]);
            assert_eq!(code, 0, "round {round}, {what}: {text}{errors}");
        }
        // `back` may have been at the start already when it was run again.
        let (code, _, errors) = it.run(&["back", "--quiet"]);
        assert_eq!(code, 0, "round {round}: {errors}");
        let (_, text, _) = it.run(&["plan"]);
        assert!(text.ends_with("next: `redquorum masters begin`\n"), "round {round}: {text}");
    }
    println!("killed: {killed:?}");
}

fn what_cannot_be_moved_is_said() {
    let masters = Masters::start(3).unwrap();
    let urls = |nodes: &[usize]| urls(&masters, nodes).join(",");
    let run = |words: &[&str]| ended(bare().arg("masters").args(words).output().unwrap());
    for (words, error) in [
        (vec!["begin", "--masters", &urls(&[1, 2, 3])], "the lock does not move"),
        (
            vec!["begin", "--masters", &urls(&[1, 2]), "--moving-to", &urls(&[2, 3])],
            "without a restart guard, masters have no markers",
        ),
        (
            vec!["begin", "--masters", &urls(&[1, 2]), "--moving-to", &urls(&[1, 2])],
            "`moving_to` names the masters that the lock has",
        ),
        (vec!["leap"], "invalid value 'leap'"),
    ] {
        let (code, _, errors) = run(&words);
        assert_eq!(code, 64, "{words:?}: {errors}");
        assert!(errors.contains(error), "{words:?}: {errors}");
    }
    // Masters of other locks are left as they are.
    let it = Move { masters: &masters, from: &[1, 2], to: &[2, 3], guard: "2s" };
    let set: [&[u8]; 3] = [b"SET", b"redquorum:boot", b"r 2000 masters=0123456789abcdef"];
    masters.command(2, &set).unwrap();
    let (code, _, errors) = it.run(&["begin"]);
    assert!(code == 1 && errors.contains("other masters"), "{errors}");
    let (_, text, _) = it.run(&["plan"]);
    assert!(text.contains("its marker is of locks over other masters"), "{text}");
}
