//! The types that may go to other threads, checked at compile time.

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
fn is_send<T: Send>(_: &T) {}
fn clone<T: Clone>() {}
fn unpin<T: Unpin>() {}

macro_rules! each {
    ($check:ident: $($type:ty),+ $(,)?) => { $($check::<$type>();)+ };
}

#[test]
fn types_and_futures_go_where_they_are_promised_to_go() {
    each!(send_sync: Redlock, Lease, Acquire, TryAcquire, Deadline, Report, MasterReport, Released);
    each!(send_sync: AcquireError, BuildError, ExtendError, Lost, Unfinished, BadOption, BadUrl);
    each!(send_sync: Health, Stats, MasterStats, Latency, MasterOutcome, Backoff, Cause, Holder, Hello);
    each!(send_sync: LinkState, Loss, Outcome, Owner, Token, Masters, Box<dyn Node>);
    each!(send_sync: Leases, AcquireAll);
    each!(send_sync: ReleasedAll, LossSignal, RunError);
    each!(send: AcquiringAll, Acquiring, TryAcquiring, Builder, Connecting<'static>);
    each!(clone: LossSignal, Redlock, Acquire, TryAcquire, Deadline, Masters, AcquireError, BuildError, Stats);
    each!(unpin: Redlock, Lease, Leases, Acquiring, TryAcquiring, AcquiringAll);
    // Never called; it only has to compile.
    let _ = futures;
}

async fn work(lease: &Lease) -> Option<u64> {
    lease.fencing_token()
}

async fn futures(lock: Redlock, lease: Lease, leases: Leases, deadline: Deadline) {
    is_send(&lock.acquire_all(["r"]).fenced().into_future());
    is_send(&leases.lost());
    is_send(&leases.extend());
    is_send(&leases.extend_to(std::time::Duration::ZERO));
    is_send(&leases.run(std::future::ready(())));
    is_send(&leases.release());
    is_send(&Redlock::builder().build());
    is_send(&lock.acquire("r").into_future());
    is_send(&lock.try_acquire("r").into_future());
    is_send(&lock.acquire("r").owner(&Owner::new()).fenced().into_future());
    is_send(&lock.health());
    is_send(&lock.acquire("r").run(std::time::Duration::ZERO, async |lease| lease.validity()));
    is_send(&lock.acquire("r").fenced().run(std::time::Duration::ZERO, work));
    is_send(&lease.loss_signal().lost());
    is_send(&lock.shutdown(std::time::Duration::ZERO));
    is_send(&lease.lost());
    is_send(&lease.extend());
    is_send(&lease.extend_to(std::time::Duration::ZERO));
    is_send(&lease.run(std::future::ready(())));
    is_send(&lease.release());
    is_send(&deadline.passed());
}

#[test]
fn errors_fit_into_boxes_and_results_of_others() {
    fn error<E: std::error::Error + Send + Sync + 'static>() {}
    each!(error: RunError);
    each!(error: AcquireError, BuildError, ExtendError, Lost, Unfinished, BadOption, BadUrl);
}
