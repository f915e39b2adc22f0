//! The types that may go to other threads, checked at compile time.

use std::time::Duration;

use redquorum::{
    Acquire, AcquireAll, AcquireError, Backoff, BadOption, BuildError, Builder, Deadline,
    ExtendError, Health, Lease, Leases, LossSignal, Lost, Outcome, Owner, Redlock, Released,
    ReleasedAll, RunError, Token, TryAcquire,
    connect::{BadUrl, Connecting, Hello, Node},
    future::{Acquiring, AcquiringAll, TryAcquiring},
    memory::Masters,
    report::{Cause, Holder, Loss, MasterOutcome, MasterReport, Report, Unfinished},
    stats::{Latency, LinkState, MasterStats, Stats},
};

fn send<T: Send>() {}
fn send_sync<T: Send + Sync>() {}
fn clone<T: Clone>() {}
fn unpin<T: Unpin>() {}
fn error<E: std::error::Error + Send + Sync + 'static>() {}

macro_rules! each {
    ($check:ident: $($type:ty),+ $(,)?) => { $($check::<$type>();)+ };
}

#[test]
fn types_and_futures_go_where_they_are_promised_to_go() {
    each!(error: AcquireError, BuildError, ExtendError, RunError, Lost, Unfinished, BadOption, BadUrl);
    each!(send_sync: Redlock, Lease, Leases, Acquire, TryAcquire, AcquireAll, Deadline, LossSignal);
    each!(send_sync: Report, MasterReport, MasterOutcome, Released, ReleasedAll, Health, Outcome);
    each!(send_sync: Stats, MasterStats, LinkState, Latency, Backoff, Cause, Holder, Loss, Hello);
    each!(send_sync: Owner, Token, Masters, Box<dyn Node>);
    each!(send: AcquiringAll, Acquiring, TryAcquiring, Builder, Connecting<'static>);
    each!(clone: LossSignal, Redlock, Acquire, TryAcquire, Deadline, Masters, AcquireError, BuildError, Stats);
    each!(unpin: Redlock, Lease, Leases, Acquiring, TryAcquiring, AcquiringAll);
    // Never called; it only has to compile.
    let _ = futures;
}

async fn work(lease: &Lease) -> Option<u64> {
    lease.fencing_token()
}

async fn futures(lock: Redlock, lease: Lease, leases: Leases) {
    fn send(_: &[&dyn Send]) {}
    let (ttl, owner) = (Duration::ZERO, Owner::new());
    let fenced = lock.acquire("r").owner(&owner).fenced().into_future();
    send(&[&fenced, &lock.try_acquire("r").into_future(), &Redlock::builder().build()]);
    let run = lock.acquire("r").run(ttl, async |lease| lease.validity());
    send(&[&run, &lock.acquire("r").run(ttl, work), &lock.health(), &lock.shutdown(ttl)]);
    send(&[&lease.lost(), &lease.extend(), &lease.extend_to(ttl), &lease.run(async {})]);
    send(&[&lease.loss_signal().lost(), &lease.deadline().passed(), &lease.release()]);
    send(&[&leases.lost(), &leases.extend(), &leases.extend_to(ttl), &leases.run(async {})]);
    send(&[&lock.acquire_all(["r"]).fenced().into_future(), &leases.release()]);
}
