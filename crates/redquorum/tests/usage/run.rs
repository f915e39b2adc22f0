//! Runs a plan, and checks what must hold in every run.

use std::collections::HashMap;
use std::future::IntoFuture;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redquorum::{Acquire, AcquireError, Lease, Redlock};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::backend::{Masters, short};
use crate::plan::{Action, End, Plan, Process, Step, Trouble};

/// A property that did not hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Property {
    /// Acquires of names that nothing else uses succeed at once.
    Undisturbed,
    /// A lease with a watchdog is not lost while the masters are healthy.
    KeptAlive,
    /// A waiter gets a free resource within a bound.
    Progress,
    /// An acquire returns when its wait is over.
    InTime,
    /// No `NoQuorum` and no `TooLate` where masters are healthy and futures are polled.
    Truthful,
    /// The number of commands is bounded.
    Frugal,
    /// Nothing stays behind in the process or on the masters.
    CleanedUp,
}

pub(crate) type Violation = (Property, String);

/// The pause between two acquires of a canary.
const CANARY: Duration = Duration::from_millis(500);

/// For how long masters are busy and names are wrong at most.
const TROUBLED: Duration = Duration::from_secs(4);

/// A request with this much time gets its lease, whatever is wrong on the way to the masters.
const TROUBLE: Duration = Duration::from_millis(3_500);

/// The most commands of one acquire with its release, for each master.
const PER_ACQUIRE: u64 = 8;
/// The most commands of one process in a second, for each master, on top of `PER_ACQUIRE`.
const PER_SECOND: u64 = 4;
/// The most for processes that are not notified, and retry instead.
const UNNOTIFIED_PER_SECOND: u64 = 24;

struct Shared {
    masters: Masters,
    plan: Plan,
    started: Instant,
    over: AtomicBool,
    resources: Mutex<HashMap<(usize, u32), Resource>>,
    violations: Mutex<Vec<Violation>>,
    acquires: AtomicU64,
}

/// A name in one database.
#[derive(Default)]
struct Resource {
    /// Tasks that poll an acquire.
    waiting: u32,
    /// Holders; those that cannot delete their key are counted until it expires.
    held: u32,
    /// Futures that are left unpolled. Each may have won one lease that it does not use.
    neglected: u32,
    /// Since when the resource has waiters and no holder.
    free: Option<Instant>,
}

impl Resource {
    fn changed(&mut self) {
        let free = self.waiting > 0 && self.held == 0;
        self.free = free.then(|| self.free.unwrap_or_else(Instant::now));
    }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Runs the plan; returns the violations, each property once.
pub(crate) async fn run(plan: &Plan, masters: Masters) -> Vec<Violation> {
    let mut locks = Vec::new();
    for process in plan.processes.iter().chain([&Process::default()]) {
        let builder = masters.process(process, plan.latency, locks.len() as u64);
        let lock = builder.ttl(ms(plan.ttl)).build().await.expect("a lock");
        locks.push((lock, *process));
    }
    let shared = Arc::new(Shared {
        masters,
        plan: plan.clone(),
        started: Instant::now(),
        over: AtomicBool::new(false),
        resources: Mutex::default(),
        violations: Mutex::default(),
        acquires: AtomicU64::new(0),
    });
    let mut beside = JoinSet::new();
    for (number, (lock, process)) in locks.iter().enumerate() {
        beside.spawn(Box::pin(canary(shared.clone(), number, lock.clone(), *process)));
        if process.keeps() && !process.is_misled() {
            beside.spawn(Box::pin(keep_alive(shared.clone(), number, lock.clone())));
        }
    }
    beside.spawn(Box::pin(progress(shared.clone())));
    let mut steps = JoinSet::new();
    for step in &plan.steps {
        let (lock, process) = locks[step.process].clone();
        let task = Task { shared: shared.clone(), step: *step, lock, process };
        steps.spawn(Box::pin(async move { task.play().await }));
    }
    steps.join_all().await;
    shared.over.store(true, Ordering::Relaxed);
    beside.join_all().await;
    shared.count(&locks);
    shared.rest(&locks).await;
    shared.violations.lock().unwrap().clone()
}

/// Acquires names that nothing else uses, again and again.
async fn canary(shared: Arc<Shared>, process: usize, lock: Redlock, permissions: Process) {
    // Beside real masters the machine may stall; without permissions, the key stays for its TTL.
    let wait = shared.masters.slack() - ms(500);
    let wait = if permissions.is_troubled() { wait.max(TROUBLE) } else { wait };
    for number in 0.. {
        let (start, name) = (Instant::now(), format!("canary-{process}-{number}"));
        shared.acquires.fetch_add(1, Ordering::Relaxed);
        let bound = shared.masters.node_timeout() + wait;
        match lock.acquire(&name).wait(wait).await {
            Ok(lease) if permissions.keeps() => {
                let _ = lease.release().await;
            }
            Ok(_) => {}
            Err(error) => shared.violated(Property::Undisturbed, &format!("{name}: {error}")),
        }
        if start.elapsed() > bound {
            shared.violated(Property::Undisturbed, &format!("{name}: {:?}", start.elapsed()));
        }
        if shared.is_over() {
            return;
        }
        sleep(CANARY).await;
    }
}

async fn keep_alive(shared: Arc<Shared>, process: usize, lock: Redlock) {
    let name = format!("watched-{process}");
    shared.acquires.fetch_add(1, Ordering::Relaxed);
    let lease = match lock.acquire(&name).wait(shared.masters.slack().max(TROUBLE)).await {
        Ok(lease) => lease,
        Err(error) => return shared.violated(Property::Undisturbed, &format!("{name}: {error}")),
    };
    lease.keep_alive(Duration::from_secs(3_600));
    while !shared.is_over() {
        if let Some(lost) = lease.loss() {
            return shared.violated(Property::KeptAlive, &format!("{name}: {lost}"));
        }
        sleep(CANARY).await;
    }
    let _ = lease.release().await;
}

/// Watches that no resource stays free while it is waited for.
async fn progress(shared: Arc<Shared>) {
    while !shared.is_over() {
        sleep(ms(100)).await;
        let mut stuck = None;
        for ((name, _), resource) in shared.resources.lock().unwrap().iter_mut() {
            // Each neglected future may hold one lease unused. Then a position in a fair queue
            // lapses within three seconds, and a waiter looks within one.
            let unused = ms(shared.plan.ttl) * resource.neglected;
            let bound = unused + ms(4_000) + shared.masters.slack();
            if resource.free.is_some_and(|since| since.elapsed() > bound) {
                resource.free = Some(Instant::now());
                stuck = Some((*name, resource.waiting, bound));
            }
        }
        if let Some((name, waiting, bound)) = stuck {
            let text = format!("name {name} is free, and {waiting} tasks wait for over {bound:?}");
            shared.violated(Property::Progress, &text);
        }
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Keeps the first violation of each property.
    fn violated(&self, property: Property, text: &str) {
        let (at, mut violations) = (self.started.elapsed(), self.violations.lock().unwrap());
        if violations.iter().all(|(before, _)| *before != property) {
            violations.push((property, format!("at {at:?}: {text}")));
        }
    }

    /// Checks that the commands of all processes are within their bound.
    fn count(&self, locks: &[(Redlock, Process)]) {
        let (commands, acquires) = (commands(locks), self.acquires.load(Ordering::Relaxed));
        let seconds = self.started.elapsed().as_secs() + 2;
        let rate = |process: &Process| {
            let notified = process.forbidden.is_empty() && !process.is_troubled();
            if notified { PER_SECOND } else { UNNOTIFIED_PER_SECOND }
        };
        let rates: u64 = locks.iter().map(|(_, process)| rate(process)).sum();
        let most = (PER_ACQUIRE * acquires + rates * seconds) * self.plan.masters as u64;
        if commands > most {
            let text = &format!("{commands} commands for {acquires} acquires in {seconds} s");
            self.violated(Property::Frugal, text);
        }
    }

    /// Checks that an idle lock leaves nothing behind and sends no more commands.
    async fn rest(&self, locks: &[(Redlock, Process)]) {
        // The link retries clean-ups that meet errors every 16 s in the end, and drops them once
        // their keys have expired.
        let refused = locks.iter().any(|(_, process)| !process.forbidden.is_empty());
        let retries = if refused { ms(20_000) } else { Duration::ZERO };
        let end = Instant::now() + ms(2 * self.plan.ttl) + ms(4_000) + retries;
        let end = end + self.masters.slack();
        loop {
            let left: Vec<_> = locks.iter().filter_map(|(lock, _)| left(lock)).collect();
            let keys = self.masters.keys();
            if left.is_empty() && keys.is_empty() {
                break;
            }
            if Instant::now() > end {
                self.violated(Property::CleanedUp, &format!("{left:?}, keys {keys:?}"));
                break;
            }
            sleep(ms(200)).await;
        }
        // New connections are no idleness.
        if locks.iter().any(|(_, process)| process.is_troubled()) {
            sleep_until(self.started + TROUBLED + TROUBLE).await;
        }
        let recycled = |process: &Process| matches!(process.trouble.0, Trouble::Recycles(_));
        let idle = locks.iter().filter(|(_, process)| !recycled(process));
        // Replies now: no idle probe of a connection falls into the time that is measured.
        for (lock, process) in idle.clone() {
            let health = lock.health().await;
            if process.forbidden.is_empty() && health.usable < self.plan.masters {
                self.violated(Property::Undisturbed, &health.to_string());
            }
        }
        let before = commands(idle.clone());
        sleep(ms(2_000)).await;
        let commands = commands(idle) - before;
        if commands > 0 {
            self.violated(Property::Frugal, &format!("{commands} commands in 2 s of idleness"));
        }
    }
}

#[derive(Clone)]
struct Task {
    shared: Arc<Shared>,
    step: Step,
    lock: Redlock,
    process: Process,
}

impl Task {
    fn change(&self, change: impl FnOnce(&mut Resource)) {
        let mut resources = self.shared.resources.lock().unwrap();
        let resource = resources.entry((self.step.name, self.process.database)).or_default();
        change(resource);
        resource.changed();
    }

    fn acquire(&self, wait: u64) -> Acquire {
        self.lock.acquire(self.shared.plan.name(self.step.name)).wait(ms(wait))
    }

    async fn play(&self) {
        sleep_until(self.shared.started + ms(self.step.at)).await;
        let start = Instant::now();
        match self.step.action {
            Action::Publish { bytes } => {
                self.shared.masters.publish(usize::try_from(bytes).unwrap());
            }
            Action::Die => {
                let ttl = ms(self.shared.plan.ttl);
                self.change(|resource| resource.held += 1);
                self.shared.masters.occupy(&self.shared.plan.name(self.step.name), ttl);
                sleep(ttl).await;
                self.change(|resource| resource.held -= 1);
            }
            Action::Acquire { tasks, wait, hold, end } => {
                let mut crowd = JoinSet::new();
                for _ in 0..tasks {
                    let this = self.clone();
                    crowd.spawn(Box::pin(async move {
                        let start = Instant::now();
                        let result = this.polled(this.acquire(wait)).await;
                        if let Some(lease) = this.result(start, wait, result) {
                            this.hold(lease, hold, end).await;
                        }
                    }));
                }
                crowd.join_all().await;
            }
            Action::Cancel { wait, after } => {
                let result = timeout(ms(after), self.polled(self.acquire(wait))).await;
                if let Some(lease) = result.ok().and_then(|result| self.result(start, wait, result))
                {
                    self.hold(lease, 0, End::Drop).await;
                }
            }
            Action::Neglect { wait, polled, idle, drops } => {
                let mut future = pin!(self.acquire(wait).into_future());
                let result = match timeout(ms(polled), self.polled(future.as_mut())).await {
                    Ok(result) => result,
                    Err(_) => {
                        self.change(|resource| resource.neglected += 1);
                        sleep(ms(idle)).await;
                        self.change(|resource| {
                            (resource.neglected, resource.free) = (resource.neglected - 1, None);
                        });
                        if drops {
                            return;
                        }
                        self.polled(future).await
                    }
                };
                // The acquire may be as late as it is polled.
                let excused = matches!(result, Err(AcquireError::TooLate { .. }));
                let wait = wait + polled + idle;
                if !excused && let Some(lease) = self.result(start, wait, result) {
                    self.hold(lease, 1, End::Release).await;
                }
            }
        }
    }

    /// Awaits an acquire as a task that waits for it.
    async fn polled<F: IntoFuture>(&self, future: F) -> F::Output {
        struct Waiting<'a>(&'a Task);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.change(|resource| resource.waiting -= 1);
            }
        }
        self.shared.acquires.fetch_add(1, Ordering::Relaxed);
        self.change(|resource| resource.waiting += 1);
        let _waiting = Waiting(self);
        let result = future.into_future().await;
        // Any grant is progress.
        self.change(|resource| resource.free = None);
        result
    }

    fn result(
        &self,
        start: Instant,
        wait: u64,
        result: Result<Lease, AcquireError>,
    ) -> Option<Lease> {
        let (shared, masters) = (&self.shared, &self.shared.masters);
        if start.elapsed() > ms(wait) + 2 * masters.node_timeout() + masters.slack() {
            let text = &format!("{:?} took {:?}", self.step, start.elapsed());
            shared.violated(Property::InTime, text);
        }
        match result {
            Ok(lease) => {
                self.change(|resource| resource.held += 1);
                Some(lease)
            }
            Err(AcquireError::Taken { .. }) => None,
            // A single attempt may meet connections that break.
            Err(_) if self.process.is_troubled() && ms(wait) < TROUBLE => None,
            Err(error) => {
                let name = short(&shared.plan.name(self.step.name));
                shared.violated(Property::Truthful, &format!("{name}: {error}"));
                None
            }
        }
    }

    async fn hold(&self, lease: Lease, hold: u64, end: End) {
        if end == End::KeptAlive {
            lease.keep_alive(Duration::from_secs(3_600));
        }
        let hold = if end == End::Expire { 2 * self.shared.plan.ttl } else { hold };
        let lost = lease.run(sleep(ms(hold))).await.err();
        let may_be_lost = end == End::Expire || !self.process.keeps() || self.process.is_misled();
        if let Some(lost) = lost.filter(|_| !may_be_lost) {
            self.shared.violated(Property::KeptAlive, &format!("{:?}: {lost}", self.step));
        }
        let until = Instant::now() + lease.validity();
        if end == End::Drop {
            drop(lease);
        } else {
            let _ = lease.release().await;
        }
        let this = self.clone();
        tokio::spawn(async move {
            if !this.process.keeps() {
                sleep_until(until).await;
            }
            this.change(|resource| resource.held -= 1);
        });
    }
}

/// The commands that all clients have sent. A connection begins with a handshake.
pub(crate) fn commands<'a, P: 'a>(locks: impl IntoIterator<Item = &'a (Redlock, P)>) -> u64 {
    const HANDSHAKE: u64 = 10;
    let masters = locks.into_iter().flat_map(|(lock, _)| lock.stats().masters);
    masters.map(|master| master.latency.count + HANDSHAKE * master.connected).sum()
}

fn left(lock: &Redlock) -> Option<String> {
    let stats = lock.stats();
    let sum = |count: fn(&redquorum::stats::MasterStats) -> usize| -> usize {
        stats.masters.iter().map(count).sum()
    };
    let left = [
        ("waiting", stats.waiting),
        ("pending_cleanups", sum(|master| master.pending_cleanups)),
        ("unanswered", sum(|master| master.unanswered)),
        ("subscriptions", sum(|master| master.subscriptions)),
    ];
    left.iter().any(|(_, count)| *count > 0).then(|| format!("{left:?}"))
}
