//! Locks that move to other masters while their clients run.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use redquorum::{Builder, Redlock, Shards};
use redquorum_rig::trials::{Case, eventually};
use redquorum_rig::{Masters, RespValue};

use crate::support::{Process, bare, ended, rounds};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_service_under_load_moves_three_times_and_no_request_is_refused,
        with_masters: shards_are_added_and_removed_under_load_and_no_request_is_refused,
        with_masters: a_command_is_for_the_home_of_its_resource,
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

type Named<'a> = &'a [(&'a str, &'a [usize])];

/// A move.
struct Move<'a> {
    guard: &'a str,
    /// The options with the masters that it leaves and gets.
    sides: [String; 4],
}

impl<'a> Move<'a> {
    fn new(masters: &Masters, from: &[usize], to: &[usize], guard: &'a str) -> Self {
        let [from, to] = [from, to].map(|set| urls(masters, set).join(","));
        Self { guard, sides: ["--masters".into(), from, "--moving-to".into(), to] }
    }

    fn of_shards(masters: &Masters, from: Named<'_>, to: Named<'_>, guard: &'a str) -> Self {
        let [from, to] = [from, to].map(|shards| as_option(masters, shards));
        Self { guard, sides: ["--shards".into(), from, "--moving-to-shards".into(), to] }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = bare();
        let guard = ["--restart-guard", self.guard, "--ttl", self.guard];
        command.arg("masters").args(words).args(guard);
        command.args(["--node-timeout", "100ms"]).args(&self.sides);
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

fn options() -> Builder {
    let builder = Redlock::builder().ttl(GUARD).restart_guard(GUARD);
    builder.node_timeout(Duration::from_millis(500))
}

fn builder(masters: &Masters, nodes: &[usize]) -> Builder {
    options().masters(urls(masters, nodes))
}

fn named<'a>(masters: &Masters, shards: Named<'a>) -> impl Iterator<Item = (&'a str, Vec<String>)> {
    shards.iter().map(|(name, nodes)| (*name, urls(masters, nodes)))
}

/// As `--shards` takes them.
fn as_option(masters: &Masters, shards: Named<'_>) -> String {
    let shards = named(masters, shards).map(|(name, urls)| format!("{name}={}", urls.join(",")));
    shards.collect::<Vec<_>>().join(" ")
}

/// A resource that all workers want.
#[derive(Default)]
struct Wanted {
    /// The largest fencing token that was seen.
    token: AtomicU64,
    inside: AtomicBool,
}

/// What the workers of a service share.
struct Service {
    shards: Mutex<Shards>,
    wanted: Vec<Wanted>,
    leases: AtomicU64,
    ends: AtomicBool,
}

impl Service {
    async fn start(lock: Builder, wanted: usize) -> Arc<Self> {
        let shards = lock.build_shards().await.unwrap();
        for (_, lock) in shards.iter() {
            lock.initialize_masters().await;
        }
        Arc::new(Self {
            shards: Mutex::new(shards),
            wanted: (0..wanted).map(|_| Wanted::default()).collect(),
            leases: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        })
    }

    fn workers(self: &Arc<Self>) -> Vec<tokio::task::JoinHandle<()>> {
        (0..4).map(|worker| tokio::spawn(self.clone().work(worker))).collect()
    }

    /// Acquires a resource that all want, and one that nobody else wants, until the end.
    async fn work(self: Arc<Self>, worker: usize) {
        for round in 0.. {
            if self.ends.load(Ordering::Relaxed) {
                return;
            }
            let shards = self.shards.lock().unwrap().clone();
            let place = round % self.wanted.len();
            let wanted = &self.wanted[place];
            let request = shards.acquire(format!("r:{place}")).fenced();
            let lease = request.wait(Duration::from_secs(30)).await;
            let lease = lease.unwrap_or_else(|why| panic!("refused: {why}"));
            assert!(!wanted.inside.swap(true, Ordering::SeqCst), "two leases at once");
            let token = lease.fencing_token().unwrap();
            let before = wanted.token.swap(token, Ordering::SeqCst);
            assert!(before < token, "token {token} behind {before}");
            assert!(wanted.inside.swap(false, Ordering::SeqCst));
            drop(lease.release().await);
            let own = shards.acquire(format!("own:{worker}:{place}")).wait(Duration::ZERO);
            drop(own.await.unwrap_or_else(|why| panic!("refused: {why}")).release().await);
            self.leases.fetch_add(2, Ordering::Relaxed);
        }
    }

    async fn end(&self, workers: Vec<tokio::task::JoinHandle<()>>) {
        self.ends.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.await.unwrap();
        }
        println!("{} leases", self.leases.load(Ordering::Relaxed));
    }

    /// As if the service were started again with other options, one instance after the other.
    async fn restart(&self, builder: Builder) {
        let shards = builder.build_shards().await.unwrap();
        let old = std::mem::replace(&mut *self.shards.lock().unwrap(), shards);
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
        let service = Service::start(builder(&masters, moves[0].0), 1).await;
        let workers = service.workers();
        masters.kill(1).unwrap();
        for (from, to) in moves {
            let it = Move::new(&masters, from, to, "2s");
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
        service.end(workers).await;
    });
}

/// A lock gets a second shard, and a third one; then one is removed. Some of the resources change
/// hands each time.
fn shards_are_added_and_removed_under_load_and_no_request_is_refused() {
    let masters = Masters::start(7).unwrap();
    let [a, b, c]: [(&str, &[usize]); 3] = [("a", &[1, 2, 3]), ("b", &[4]), ("c", &[5, 6, 7])];
    let moves: [(Named<'_>, Named<'_>); 3] =
        [(&[a], &[a, b]), (&[a, b], &[a, b, c]), (&[a, b, c], &[a, c])];
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        // At first it knows nothing of shards.
        let service = Service::start(builder(&masters, a.1), 12).await;
        let workers = service.workers();
        for (from, to) in moves {
            let it = Move::of_shards(&masters, from, to, "2s");
            tokio::task::block_in_place(|| it.done("begin", "clients may move"));
            let both = options().shards(named(&masters, from));
            service.restart(both.moving_to_shards(named(&masters, to))).await;
            tokio::task::block_in_place(|| it.done("switch", "of the new masters may begin"));
            service.restart(options().shards(named(&masters, to))).await;
            tokio::task::block_in_place(|| it.done("finish", "the move is over"));
            // A client with the shards before is refused, wherever the resource is.
            let late = options().shards(named(&masters, from)).build_shards().await.unwrap();
            for place in 0..12 {
                let refused = late.acquire(format!("late:{place}")).wait(Duration::ZERO).await;
                assert!(refused.is_err_and(|why| why.is_unavailable()));
            }
        }
        service.end(workers).await;
    });
}

/// `exec`, `holder` and `break` use the home of a resource; `doctor` looks at one shard.
fn a_command_is_for_the_home_of_its_resource() {
    let masters = Masters::start(3).unwrap();
    let shards = as_option(&masters, &[("a", &[1]), ("b", &[2]), ("c", &[3])]);
    let run = |words: &[&str]| {
        let mut command = bare();
        command.args(words).args(["--node-timeout", "5s", "--connect-timeout", "5s"]);
        command.args(["--shards", &shards]);
        ended(command.output().unwrap())
    };
    let mut homes = BTreeSet::new();
    for resource in (0..3).map(|number| format!("invoice:{number}")) {
        let mut exec = bare();
        exec.args(["exec", "--shards", &shards, "--node-timeout", "500ms", "--ttl", "3s"]);
        exec.arg(&resource);
        let mut child = Process::start(exec.args(["--", "sleep", "60"]));
        let mut holder = String::new();
        eventually("it is held", || {
            let (code, text, _) = run(&["holder", &resource]);
            holder = text;
            code == 0
        });
        let key: [&[u8]; 2] = [b"EXISTS", resource.as_bytes()];
        let has = |node: &usize| masters.command(*node, &key).unwrap() == RespValue::Integer(1);
        let on: Vec<usize> = (1..=3).filter(has).collect();
        assert_eq!(on.len(), 1, "{resource} is on {on:?}");
        homes.extend(on);
        let token = holder.split("token ").nth(1).unwrap()[..8].to_owned();
        let (code, text, errors) = run(&["break", &resource, "--token", &token, "--yes"]);
        assert!(code == 0 && text.contains("1 keys are deleted"), "{text}{errors}");
        assert_eq!(child.code(), 74);
    }
    assert_eq!(homes.len(), 3, "{homes:?}");
    let (code, _, errors) = run(&["doctor"]);
    assert!(code == 64 && errors.contains("--shard a, --shard b, --shard c"), "{errors}");
    let (code, _, errors) = run(&["bench-masters", "--shard", "d"]);
    assert!(code == 64 && errors.contains("there is no shard \"d\""), "{errors}");
    let (_, text, errors) = run(&["doctor", "--shard", "b"]);
    let [one, other] = [2, 1].map(|node| masters.url(node).replace("redis://", ""));
    assert!(text.contains(one.trim_end_matches('/')), "{text}{errors}");
    assert!(!text.contains(other.trim_end_matches('/')), "{text}");
}

fn a_client_of_another_step_is_in_the_way_and_is_named() {
    let masters = Masters::start(4).unwrap();
    let (from, to) = ([1, 2, 3], [2, 3, 4]);
    let it = Move::new(&masters, &from, &to, "2s");
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
    let old = runtime.block_on(builder(&masters, &from).build()).unwrap();
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
    let moving = builder(&masters, &from).moving_to(urls(&masters, &to));
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
    let it = Move::new(&masters, &[1, 2, 3], &[3, 4, 5], "300ms");
    let init = |nodes: &[usize]| {
        let urls = urls(&masters, nodes).join(",");
        let mut doctor = bare();
        doctor.args(["doctor", "--init", "--restart-guard", "300ms", "--ttl", "300ms"]);
        assert_ne!(doctor.args(["--masters", &urls]).output().unwrap().status.code(), Some(64));
    };
    init(&[1, 2, 3]);
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
    let it = Move::new(&masters, &[1, 2], &[2, 3], "2s");
    let set: [&[u8]; 3] = [b"SET", b"redquorum:boot", b"r 2000 masters=0123456789abcdef"];
    masters.command(2, &set).unwrap();
    let (code, _, errors) = it.run(&["begin"]);
    assert!(code == 1 && errors.contains("other masters"), "{errors}");
    let (_, text, _) = it.run(&["plan"]);
    assert!(text.contains("its marker is of locks over other masters"), "{text}");
}
