//! The signal that notifies tasks and threads of the loss of a lease.

use redquorum::{LossSignal, Lost, Owner, report::Loss};
use tokio::time::{Instant, sleep};

use crate::support::{MS, S, TTL, VALIDITY, bed, settle, take};

/// Reads the signal in a thread without a runtime.
fn in_a_thread(signal: &LossSignal) -> Option<Lost> {
    let signal = signal.clone();
    std::thread::spawn(move || signal.is_lost()).join().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_signal_tells_tasks_and_threads_of_a_loss_at_the_deadline() {
    let (masters, lock) = bed(3).await;
    let lease = take(&lock, "r").await;
    let (start, signal) = (Instant::now(), lease.loss_signal());
    let deadline = signal.deadline().unwrap();
    assert_eq!((deadline, in_a_thread(&signal)), (lease.deadline(), None));
    let waits = signal.clone();
    let task = tokio::spawn(async move { (waits.lost().await, start.elapsed()) });
    (1..=3).for_each(|number| masters.stop(number));
    let (lost, after) = task.await.unwrap();
    assert_eq!(lost, Lost(Loss::Expired));
    assert!(after >= VALIDITY && after <= VALIDITY + 2 * MS, "{after:?}");
    assert_eq!(in_a_thread(&signal), Some(lost));
    assert_eq!(lease.is_lost(), Some(lost));
}

#[tokio::test(start_paused = true)]
async fn a_signal_reads_the_clock_itself() {
    let (_masters, lock) = bed(3).await;
    let lease = take(&lock, "r").await;
    // No task runs until the clock is read.
    tokio::time::advance(VALIDITY - MS).await;
    let signal = lease.loss_signal();
    assert_eq!(signal.is_lost(), None);
    tokio::time::advance(MS).await;
    assert_eq!(signal.is_lost(), Some(Lost(Loss::Expired)));
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_released_by_value_while_a_signal_is_in_use_and_the_signal_tells() {
    let (masters, lock) = bed(3).await;
    let gone = Some(Lost(Loss::GivenBack));
    for drops in [false, true] {
        let lease = take(&lock, "r").await;
        let signal = lease.loss_signal();
        let waits = signal.clone();
        let task = tokio::spawn(async move { (waits.lost().await, Instant::now()) });
        sleep(S).await;
        assert!(!task.is_finished() && signal.is_lost().is_none());
        let start = Instant::now();
        if drops {
            drop(lease);
        } else {
            lease.release().await;
        }
        assert_eq!((signal.is_lost(), signal.deadline()), (gone, None));
        assert_eq!(task.await.unwrap(), (Lost(Loss::GivenBack), start), "at once");
        assert_eq!(signal.lost().await, Lost(Loss::GivenBack));
        settle().await;
        assert!(masters.keys(1).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_signal_goes_on_until_the_last_handle_is_given_back() {
    let (_masters, lock) = bed(3).await;
    let owner = Owner::new();
    let first = lock.acquire("r").owner(&owner).await.unwrap();
    let second = lock.acquire("r").owner(&owner).await.unwrap();
    let signal = first.loss_signal();
    first.release().await;
    assert_eq!(signal.is_lost(), None);
    second.extend_to(2 * TTL).await.unwrap();
    assert_eq!(signal.deadline(), Some(second.deadline()), "extending moves it");
    second.release().await;
    assert_eq!(signal.is_lost(), Some(Lost(Loss::GivenBack)));
}
