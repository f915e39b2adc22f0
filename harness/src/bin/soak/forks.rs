//! Forks of a client process. The child uses its copies of the lock and of a lease, drops the
//! lease, and ends. That must take nothing from its parent.

use std::future::{Future as _, IntoFuture as _};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redquorum::{AcquireError, Lease, Redlock};
use tokio::time::sleep;

/// A child that takes longer than this hangs: an alarm ends it. In seconds.
const HANGS: u32 = 20;

/// Forks this process, and waits for the child. Returns whether the child's copies behaved as
/// documented; none: the system refused to fork.
pub(crate) async fn fork(lock: &Redlock, lease: &mut Option<Lease>) -> Option<bool> {
    let child = start(lock, lease)?;
    loop {
        if let Some(is_well) = ended(child) {
            return Some(is_well);
        }
        sleep(Duration::from_millis(5)).await;
    }
}

#[expect(unsafe_code, reason = "fork, alarm and _exit")]
fn start(lock: &Redlock, lease: &mut Option<Lease>) -> Option<libc::pid_t> {
    // SAFETY: the child has its own copy of the memory, and one thread. It locks no mutex that a
    // thread of the parent may hold, but for those of `malloc`, which the C library sees to. It
    // does not print and does not return.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(HANGS);
            libc::_exit(i32::from(!behaves(lock, lease)));
        }
        (child > 0).then_some(child)
    }
}

/// Whether the child has ended as it should; none: it has not ended.
#[expect(unsafe_code, reason = "waitpid")]
fn ended(child: libc::pid_t) -> Option<bool> {
    let mut status = 0;
    // SAFETY: `child` is a child that was not waited for, and `status` outlives the call.
    let found = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
    (found != 0).then_some(found == child && status == 0)
}

/// In the child: the lease is lost, the lock refuses, and the drop of the lease does nothing.
fn behaves(lock: &Redlock, lease: &mut Option<Lease>) -> bool {
    let is_lost = lease.as_ref().is_some_and(Lease::is_lost);
    let request = pin!(lock.acquire("soak-child").into_future());
    let polled = request.poll(&mut Context::from_waker(Waker::noop()));
    drop(lease.take());
    is_lost && matches!(polled, Poll::Ready(Err(AcquireError::Forked)))
}
