//! Owners that acquire a resource they hold, on real masters.

use std::time::Duration;

use redquorum::{Outcome, Owner, Redlock};
use redquorum_rig::trials::Case;

use crate::raw::Monitor;
use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        no_master_hears_of_another_handle,
        only_the_last_of_many_handles_deletes_the_key,
        a_longer_ttl_is_on_the_masters_before_it_is_handed_out,
        an_owner_comes_in_again_though_all_masters_are_gone,
        owners_that_storm_a_resource_exclude_each_other,
    ]
}

async fn no_master_hears_of_another_handle() {
    let masters = own(3);
    let lock = built(calm(&masters)).await;
    let owner = Owner::new();
    let lease = lock.acquire("r").owner(&owner).await.unwrap();
    eventually("all masters have it", || holders(&masters, "r").len() == 3).await;
    let mut monitor = Monitor::start(&masters, 1);
    let handles = [
        lock.acquire("r").owner(&owner).await.unwrap(),
        lock.try_acquire("r").owner(&owner).await.unwrap().unwrap(),
    ];
    for handle in handles {
        assert_eq!(handle.release().await.outcome, Outcome::StillHeld);
    }
    assert_eq!(monitor.seen("\"r\""), Vec::<String>::new());
    // Control: the monitor sees a command.
    lease.extend().await.unwrap();
    eventually("it is heard", || !monitor.seen("\"r\"").is_empty()).await;
}

async fn only_the_last_of_many_handles_deletes_the_key() {
    let (masters, resource) = (shared(), unique("reentry"));
    let lock = built(calm(masters)).await;
    let owner = Owner::new();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (lock, owner, resource) = (lock.clone(), owner.clone(), resource.clone());
        tasks.spawn(async move { lock.acquire(resource).owner(&owner).await.unwrap() });
    }
    let mut leases = tasks.join_all().await;
    let stats = lock.stats();
    assert_eq!((stats.acquired, stats.reentered), (1, 49));
    let last = leases.pop().unwrap();
    for (number, lease) in leases.into_iter().enumerate() {
        match number % 2 {
            0 => drop(lease),
            _ => assert_eq!(lease.release().await.outcome, Outcome::StillHeld),
        }
    }
    eventually("all masters have it", || holders(masters, &resource).len() == 5).await;
    assert_eq!(last.release().await.outcome, Outcome::Released);
    cleaned(masters, &resource).await;
}

async fn a_longer_ttl_is_on_the_masters_before_it_is_handed_out() {
    let (masters, resource) = (shared(), unique("longer"));
    let lock = built(calm(masters)).await;
    let owner = Owner::new();
    let lease = lock.acquire(&resource).owner(&owner).await.unwrap();
    let minute = Duration::from_secs(60);
    let longer = lock.acquire(&resource).owner(&owner).ttl(minute).await.unwrap();
    let extended = all(masters).filter(|node| pttl(masters, *node, &resource) > 50_000).count();
    assert!(extended >= 3, "{extended}");
    assert_eq!(lease.deadline(), longer.deadline());
}

async fn an_owner_comes_in_again_though_all_masters_are_gone() {
    let masters = own(3);
    let lock = built(brisk(&masters)).await;
    let owner = Owner::new();
    let lease = lock.acquire("r").owner(&owner).await.unwrap();
    all(&masters).for_each(|node| masters.kill(node).unwrap());
    // The lease is valid until its deadline, even if no master is up.
    let again = lock.try_acquire("r").owner(&owner).await.unwrap().unwrap();
    assert_eq!((again.handles(), again.deadline()), (2, lease.deadline()));
    let longer = lock.acquire("r").owner(&owner).ttl(Duration::from_secs(60)).await;
    assert!(longer.is_err() && lease.handles() == 2 && lease.is_lost().is_none());
}

async fn owners_that_storm_a_resource_exclude_each_other() {
    let (masters, resource) = (shared(), unique("storm"));
    let lock: Redlock = built(calm(masters)).await;
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (lock, resource, inside) = (lock.clone(), resource.clone(), inside.clone());
        let owner = Owner::new();
        tasks.spawn(async move {
            for _ in 0..5 {
                let wait = Duration::from_secs(15);
                let lease = lock.acquire(&resource).owner(&owner).wait(wait).await.unwrap();
                let again = lock.acquire(&resource).owner(&owner).await.unwrap();
                let order = std::sync::atomic::Ordering::SeqCst;
                assert_eq!(inside.fetch_add(1, order), 0, "two owners hold it");
                drop(lease);
                tokio::time::sleep(MS).await;
                inside.fetch_sub(1, order);
                again.release().await;
            }
        });
    }
    tasks.join_all().await;
}
