//! What an operating system can do to a process that has a lock: fork it, and move its clocks.
//!
//! Each scenario runs in a process of its own, because a fork takes only one thread along, and
//! because only a process with one thread may change its time namespace.

#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "fork, wait, unshare and setns"))]

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::{File, write};
    use std::future::{Future, IntoFuture, pending};
    use std::os::fd::AsRawFd;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::{Pin, pin};
    use std::process::{Command, ExitCode};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll, Waker};
    use std::thread;
    use std::time::Duration;

    use redquorum::report::Loss;
    use redquorum::{AcquireError, ExtendError, Lost, Outcome, Redlock, RunError, memory};
    use redquorum_rig::trials::{Case, Talk, plain, run, with_masters};
    use redquorum_rig::{Masters, required};
    use tokio::runtime::{Builder, Runtime};
    use tokio::time::Instant;

    const S: Duration = Duration::from_secs(1);
    const TTL: Duration = Duration::from_secs(60);
    /// What takes longer than this hangs.
    const HANGS: Duration = Duration::from_secs(30);
    /// The exit code of a scenario that cannot run here.
    const CANNOT: u8 = 77;

    type Scenario = (&'static str, fn() -> u8);

    const FORKS: [Scenario; 6] = [
        ("fork::a_child_that_ends_takes_nothing_from_its_parent", || done(ends)),
        ("fork::a_child_asks_nothing_and_is_told_why", || done(asks)),
        ("fork::what_a_parent_waits_for_ends_in_a_child", || done(waits)),
        ("fork::no_blocking_call_hangs_in_a_child", || done(blocks)),
        ("fork::a_child_builds_a_lock_of_its_own", || done(builds)),
        ("fork::no_mutex_of_another_thread_stops_a_child", || done(any_moment)),
    ];

    const CLOCKS: [Scenario; 2] = [
        ("clock::below_zero_time_passes_as_above", below_zero),
        ("clock::one_that_is_set_back_ends_a_lease", set_back),
    ];

    fn done(scenario: fn()) -> u8 {
        scenario();
        0
    }

    pub(super) fn main() -> ExitCode {
        let arguments: Vec<String> = std::env::args().collect();
        if let [_, flag, name] = &arguments[..]
            && flag == "--scenario"
        {
            let all = FORKS.into_iter().chain(CLOCKS);
            let (_, scenario) = all.into_iter().find(|(of, _)| of == name).expect("a scenario");
            return ExitCode::from(scenario());
        }
        let on_masters = |(name, _): Scenario| with_masters(name, move || passes(&[], name));
        let mut cases: Vec<Case> = FORKS.into_iter().map(on_masters).collect();
        cases.extend([
            plain(CLOCKS[0].0, || repeatedly(CLOCKS[0].0, in_a_namespace_that_begins_now)),
            plain(CLOCKS[1].0, || repeatedly(CLOCKS[1].0, || run_scenario(&[], CLOCKS[1].0))),
        ]);
        run(cases)
    }

    /// Runs a scenario behind these words of a command line, and returns its exit code.
    fn run_scenario(before: &[&str], name: &str) -> Option<i32> {
        let this = std::env::current_exe().unwrap();
        let words = before.iter().map(std::ffi::OsString::from);
        let words = words.chain([this.into(), "--scenario".into(), name.into()]);
        let words: Vec<_> = words.collect();
        Command::new(&words[0]).args(&words[1..]).status().ok()?.code()
    }

    fn passes(before: &[&str], name: &str) {
        assert_eq!(run_scenario(before, name), Some(0));
    }

    /// A scenario that needs privileges, or a moment that it may miss.
    fn repeatedly(name: &str, mut run: impl FnMut() -> Option<i32>) {
        for _ in 0..20 {
            match run() {
                Some(0) => return,
                Some(code) if code == i32::from(CANNOT) => {}
                failed => panic!("{failed:?}"),
            }
        }
        eprintln!(
            "SKIPPED {name}: it needs root, Linux 5.6, and a clock that NTP has slewed ahead"
        );
    }

    /// Forks this process. The child does `work` and exits; the parent goes on when it has.
    fn in_a_child(work: impl FnOnce()) {
        // SAFETY: the child has its own copy of the memory. It locks no mutex that a thread of the
        // parent may hold, but for those of `malloc`, which the C library sees to.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "no fork");
        if child == 0 {
            let passed = catch_unwind(AssertUnwindSafe(work)).is_ok();
            // SAFETY: it ends the child without what the harness does at an exit.
            unsafe { libc::_exit(i32::from(!passed)) };
        }
        let (end, mut status) = (Instant::now() + HANGS, 0);
        // SAFETY: `child` is a child of this process, and `status` outlives the call.
        while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
            if Instant::now() > end {
                // SAFETY: the child was not waited for, so this is its id.
                unsafe { libc::kill(child, libc::SIGKILL) };
                panic!("the child hangs");
            }
            pause();
        }
        assert_eq!(status, 0, "the child failed");
    }

    #[expect(clippy::disallowed_methods, reason = "no task waits for this thread")]
    fn pause() {
        thread::sleep(Duration::from_millis(1));
    }

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    async fn built(masters: &Masters) -> Redlock {
        let builder = Redlock::builder().masters(masters.urls()).ttl(TTL).wait(S).node_timeout(S);
        builder.build().await.unwrap()
    }

    fn values(masters: &Masters, key: &str) -> Vec<String> {
        let ask = |node| Talk::connect(masters.port(node)).ask(&format!("GET {key}"));
        (1..=masters.len()).map(ask).collect()
    }

    fn has_none(masters: &Masters, key: &str) -> bool {
        values(masters, key).iter().all(|value| value == "$-1" || value.is_empty())
    }

    fn connects(lock: &Redlock) -> Vec<u64> {
        lock.stats().masters.iter().map(|master| master.connected).collect()
    }

    /// The result of a future that has one at once.
    fn at_once<F: Future>(mut future: Pin<&mut F>) -> F::Output {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("it waits"),
        }
    }

    fn ends() {
        let masters = Masters::start(3).unwrap();
        let mut runtime = Some(runtime());
        let mut held = runtime.as_ref().map(|it| {
            it.block_on(async {
                let lock = built(&masters).await;
                let lease = lock.acquire("r").await.unwrap();
                let waiting = Box::pin(lock.acquire("r").wait(TTL).into_future());
                (lock, lease, waiting)
            })
        });
        let before = values(&masters, "r");
        in_a_child(|| drop((held.take(), runtime.take())));
        assert_eq!(values(&masters, "r"), before, "the child took keys away");
        let (lock, lease, waiting) = held.unwrap();
        runtime.unwrap().block_on(async {
            drop(waiting);
            assert!(!lease.is_lost());
            lease.extend().await.expect("the connections still work");
            // A quorum has extended it. The last reply may be on its way.
            let replied = async {
                while lease.latest_report().in_favour() < 3 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), replied).await.expect("all reply");
            assert_eq!(connects(&lock), [1, 1, 1]);
            assert_eq!(lease.release().await.outcome, Outcome::Released);
        });
    }

    fn asks() {
        let masters = Masters::start(3).unwrap();
        let runtime = runtime();
        let (lock, lease) = runtime.block_on(async {
            let lock = built(&masters).await;
            let lease = lock.acquire("r").fenced().await.unwrap();
            (lock, lease)
        });
        let mut request = Some((lock.acquire("r").wait(TTL).into_future(), lease, lock));
        let token = request.as_ref().and_then(|(_, lease, _)| lease.fencing_token());
        runtime.block_on(async {
            let (waiting, ..) = request.as_mut().unwrap();
            let polled = Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
        });
        in_a_child(|| {
            let _context = runtime.enter();
            let (mut waiting, lease, lock) = request.take().unwrap();
            let errors = [
                at_once(pin!(lock.acquire("three").into_future())).unwrap_err(),
                at_once(pin!(lock.try_acquire("three").into_future())).unwrap_err(),
                at_once(pin!(lock.acquire_all(["three", "four"]).into_future())).unwrap_err(),
                at_once(Pin::new(&mut waiting)).unwrap_err(),
            ];
            assert_eq!(errors, [const { AcquireError::Forked }; 4]);
            assert!(errors[0].to_string().contains("fork"), "{}", errors[0]);
            let is_forked = |lost: &Lost| lost.cause == Loss::Forked;
            assert!(lease.is_lost() && lease.validity().is_zero() && lease.deadline().has_passed());
            assert!(is_forked(&at_once(pin!(lease.lost()))));
            let signal = lease.loss_signal();
            assert!(is_forked(&at_once(pin!(signal.lost()))) && signal.deadline().is_none());
            assert!(is_forked(&at_once(pin!(lease.run(pending::<()>()))).unwrap_err()));
            let error = at_once(pin!(lease.extend())).unwrap_err();
            assert!(matches!(&error, ExtendError::Lost(lost) if is_forked(lost)), "{error}");
            at_once(pin!(lease.extend_to(TTL))).unwrap_err();
            lease.keep_alive(TTL);
            assert_eq!((lease.fencing_token(), lease.resource()), (token, &b"r"[..]));
            assert_eq!(lease.latest_report(), *lease.report());
            assert!(at_once(pin!(lease.release())).was_lost());
            let work = lock.acquire("three").run(TTL, async |_| ());
            let error = at_once(pin!(work)).unwrap_err();
            assert_eq!(error, RunError::NotAcquired(AcquireError::Forked));
            let health = at_once(pin!(lock.health()));
            assert!(health.alive == 0 && health.to_string().contains("fork"), "{health}");
            assert_eq!(at_once(pin!(lock.initialize_masters())).in_favour(), 0);
            assert_eq!(lock.stats().masters.len(), 3);
            at_once(pin!(lock.shutdown(TTL))).unwrap();
        });
        assert!(has_none(&masters, "three"), "the child wrote");
        let (waiting, lease, lock) = request.unwrap();
        runtime.block_on(async {
            drop(waiting);
            let two = lock.acquire("two").await.unwrap();
            assert_eq!(two.report().masters().len(), 3);
            two.extend().await.expect("the connections still work");
            assert_eq!(connects(&lock), [1, 1, 1]);
            assert_eq!(lease.release().await.outcome, Outcome::Released);
        });
    }

    fn waits() {
        let masters = Masters::start(3).unwrap();
        let runtime = runtime();
        let (lock, other) =
            runtime.block_on(async { (built(&masters).await, built(&masters).await) });
        let acquire = |name| runtime.block_on(lock.acquire(name).into_future()).unwrap();
        let [released, extended, held] = ["released", "extended", "held"].map(acquire);
        let kept = runtime.block_on(other.acquire("kept").into_future()).unwrap();
        let signal = held.loss_signal();
        let mut release = pin!(released.release());
        let mut extend = pin!(extended.extend());
        let mut lost = pin!(held.lost());
        let mut signalled = pin!(signal.lost());
        let mut endangered = pin!(held.endangered());
        let mut run = pin!(held.run(pending::<()>()));
        let mut health = pin!(lock.health());
        let mut shutdown = pin!(other.shutdown(TTL));
        (1..=3).for_each(|node| masters.pause(node).unwrap());
        {
            let _context = runtime.enter();
            let mut cx = Context::from_waker(Waker::noop());
            assert!(release.as_mut().poll(&mut cx).is_pending());
            assert!(extend.as_mut().poll(&mut cx).is_pending());
            assert!(lost.as_mut().poll(&mut cx).is_pending());
            assert!(signalled.as_mut().poll(&mut cx).is_pending());
            assert!(endangered.as_mut().poll(&mut cx).is_pending());
            assert!(run.as_mut().poll(&mut cx).is_pending());
            assert!(health.as_mut().poll(&mut cx).is_pending());
            assert!(shutdown.as_mut().poll(&mut cx).is_pending());
        }
        in_a_child(|| {
            let is_forked = |lost: &Lost| lost.cause == Loss::Forked;
            assert!(at_once(release.as_mut()).was_lost());
            let error = at_once(extend.as_mut()).unwrap_err();
            assert!(matches!(&error, ExtendError::Lost(lost) if is_forked(lost)), "{error}");
            assert!(is_forked(&at_once(lost.as_mut())));
            assert!(is_forked(&at_once(signalled.as_mut())));
            assert!(at_once(endangered.as_mut()).is_none());
            assert!(is_forked(&at_once(run.as_mut()).unwrap_err()));
            assert_eq!(at_once(health.as_mut()).alive, 0);
            at_once(shutdown.as_mut()).unwrap();
        });
        (1..=3).for_each(|node| masters.resume(node).unwrap());
        runtime.block_on(async {
            assert_eq!(release.await.outcome, Outcome::Released);
            extend.await.expect("the connections still work");
            assert!(!held.is_lost() && health.await.has_quorum());
            drop(kept);
            shutdown.await.unwrap();
        });
    }

    fn blocks() {
        let masters = Masters::start(3).unwrap();
        let builder = Redlock::builder().masters(masters.urls()).ttl(TTL).wait(S).node_timeout(S);
        let lock = builder.build_blocking().unwrap();
        let lease = lock.acquire("r").send().unwrap();
        let both = lock.acquire_all(["a", "b"]).send().unwrap();
        let mut held = Some((lock, lease, both));
        in_a_child(|| {
            let (lock, lease, both) = held.take().unwrap();
            assert_eq!(lock.acquire("three").send().unwrap_err(), AcquireError::Forked);
            assert_eq!(lock.try_acquire("three").send().unwrap_err(), AcquireError::Forked);
            assert_eq!(lock.acquire_all(["three"]).send().unwrap_err(), AcquireError::Forked);
            assert_eq!(lease.lost().cause, Loss::Forked);
            lease.extend().unwrap_err();
            assert!(both.is_lost() && both.extend().is_err() && both.release().was_lost());
            assert_eq!(lock.health().alive, 0);
            lock.shutdown(TTL).unwrap();
            assert!(lease.release().was_lost());
        });
        let (lock, lease, both) = held.unwrap();
        assert!(has_none(&masters, "three"), "the child wrote");
        lease.extend().unwrap();
        both.extend().unwrap();
        assert_eq!(lease.release().outcome, Outcome::Released);
        assert_eq!(both.release().outcome(), Outcome::Released);
        lock.shutdown(S).unwrap();
    }

    fn builds() {
        let masters = Masters::start(3).unwrap();
        let parent = runtime();
        let lock = parent.block_on(built(&masters));
        let lease = parent.block_on(lock.acquire("r").into_future()).unwrap();
        in_a_child(|| {
            runtime().block_on(async {
                let lock = built(&masters).await;
                assert!(lock.try_acquire("r").await.unwrap().is_none(), "the parent holds it");
                let own = lock.try_acquire("own").await.unwrap().expect("it is free");
                assert_eq!(own.release().await.outcome, Outcome::Released);
            });
        });
        assert!(!lease.is_lost());
        assert_eq!(parent.block_on(lease.release()).outcome, Outcome::Released);
    }

    fn any_moment() {
        let masters = Masters::start(3).unwrap();
        let builder = Redlock::builder().masters(masters.urls()).ttl(TTL).wait(S).node_timeout(S);
        let lock = builder.build_blocking().unwrap();
        let lease = lock.acquire("r").send().unwrap();
        let mut held = Some((lock.clone(), lease));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 0..3 {
                let (lock, stop) = (lock.clone(), &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        drop(lock.acquire(format!("r{thread}")).send());
                        lock.stats();
                    }
                });
            }
            let forks = catch_unwind(AssertUnwindSafe(|| {
                for _ in 0..60 {
                    in_a_child(|| {
                        let (lock, lease) = held.take().unwrap();
                        assert!(lease.is_lost() && lock.stats().masters.len() == 3);
                        assert_eq!(lock.try_acquire("s").send().unwrap_err(), AcquireError::Forked);
                        assert!(!lock.health().has_quorum());
                        drop((lease, lock));
                    });
                }
            }));
            stop.store(true, Ordering::Relaxed);
            forks.unwrap();
        });
        assert!(!held.unwrap().1.is_lost());
    }

    fn raw_nanos() -> i64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` outlives the call.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut time) };
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    }

    /// In a time namespace whose monotonic clock has just begun: the raw clock, which lags behind
    /// it by what NTP has added, is below zero for that long.
    fn in_a_namespace_that_begins_now() -> Option<i32> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            // SAFETY: `time` outlives the call.
            unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
            if time.tv_nsec < 5_000_000 {
                break;
            }
            pause();
        }
        let begins = ["--monotonic", "--boottime"].map(|it| format!("{it}=-{}", time.tv_sec));
        match run_scenario(&["unshare", "-T", &begins[0], &begins[1]], CLOCKS[0].0) {
            // Without the privilege, or without the program.
            Some(1 | 127) | None if !required() => Some(i32::from(CANNOT)),
            code => code,
        }
    }

    fn in_memory() -> (memory::Masters, redquorum::Builder) {
        let masters = memory::Masters::new(3);
        // By the system's clock: `Masters::builder` takes Tokio's.
        let add = |builder: redquorum::Builder, number| builder.master(masters.node(number));
        let builder = (1..=3).fold(Redlock::builder().ttl(TTL), add);
        (masters, builder)
    }

    fn below_zero() -> u8 {
        runtime().block_on(async {
            let (_masters, builder) = in_memory();
            let lock = builder.build().await.unwrap();
            let lease = lock.acquire("r").await.unwrap();
            let (start, left) = (Instant::now(), lease.deadline().remaining());
            if raw_nanos() >= 0 {
                return CANNOT;
            }
            while raw_nanos() < 100_000_000 || start.elapsed() < 2 * S {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let passed = start.elapsed();
                let by_lease = left - lease.deadline().remaining();
                // NTP slews the other clock.
                assert!(by_lease >= passed * 8 / 10, "{by_lease:?} of {passed:?}");
                assert!(!lease.is_lost());
            }
            0
        })
    }

    fn set_back() -> u8 {
        runtime().block_on(async {
            let (_masters, builder) = in_memory();
            let lock = builder.build().await.unwrap();
            let lease = lock.acquire("r").await.unwrap();
            // SAFETY: it only makes a namespace for later children.
            let made = unsafe { libc::unshare(libc::CLONE_NEWTIME) };
            // Both: a process that moves only one of them changes what counts as suspended.
            let offsets = "monotonic -30 0\nboottime -30 0\n";
            if made != 0 || write("/proc/self/timens_offsets", offsets).is_err() {
                return CANNOT;
            }
            let namespace = File::open("/proc/self/ns/time_for_children").unwrap();
            // SAFETY: the process has one thread, and `namespace` is open.
            if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWTIME) } != 0 {
                return CANNOT;
            }
            let lost = lease.loss().expect("its deadline is half a minute too late").cause;
            assert_eq!(lost, Loss::ClockRanBack);
            assert!(lock.acquire("s").await.is_ok(), "from now on the clock is relied on again");
            0
        })
    }
}
