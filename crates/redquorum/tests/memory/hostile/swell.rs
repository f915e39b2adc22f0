//! Everything that piles up for a silent master has a bound, and the rest of the lock is not
//! affected.

use redquorum::memory::Masters;
use redquorum::report::{Cause, MasterOutcome};
use redquorum_protocol::Bounds;
use tokio::time::{Instant, sleep};

use crate::support::MS;

fn bounds() -> Bounds {
    Bounds::for_node_timeout(100 * MS)
}

#[tokio::test(start_paused = true)]
async fn a_master_that_never_answers_is_asked_no_more_than_the_bounds_allow() {
    let masters = Masters::new(5);
    let lock = masters.builder().build().await.unwrap();
    masters.stop(5);
    let start = Instant::now();
    let mut most = (0, 0);
    for number in 0..10_000 {
        // All in one instant of virtual time, so the link cannot stall: only its bounds can help.
        let lease = lock.try_acquire(format!("r{number}")).await.unwrap().expect("it is free");
        drop(lease);
        let stats = &lock.stats().masters[4];
        most = (most.0.max(stats.unanswered), most.1.max(stats.owed));
    }
    assert!(start.elapsed() < 100 * MS, "{:?}", start.elapsed());
    // Each SET that was sent adds its own clean-up and nothing else.
    assert!(most.0 >= bounds().unanswered, "the bound was not reached: {most:?}");
    assert!(most.0 <= bounds().unanswered + 1 && most.1 <= bounds().unanswered, "{most:?}");
    let last = lock.acquire("r").await.unwrap();
    let reply = last.report().masters()[4].outcome.clone();
    assert_eq!(reply, Some(MasterOutcome::Unknown(Cause::Overloaded)));
    // The master goes on, and all clean-ups complete.
    masters.resume(5);
    sleep(MS).await;
    let stats = &lock.stats().masters[4];
    assert_eq!((stats.unanswered, stats.owed, stats.connected), (0, 0, 1));
    assert_eq!(masters.keys(5), Vec::<Vec<u8>>::new());
}
