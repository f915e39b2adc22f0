//! Resources that are spread over shards.

use std::collections::BTreeSet;
use std::time::Duration;

use redquorum::{AcquireError, BadOption, BuildError, Builder, Outcome, Redlock, Shards};

use crate::support::*;

tests! {
    both:
        each_resource_has_one_home_from_every_client,
        a_request_for_several_resources_spans_shards,
        every_change_of_shards_keeps_out_those_before_and_those_behind_it,
        a_client_with_other_shards_is_refused_by_a_guard,
        shards_that_do_not_fit_are_named;
}

type Named<'a> = &'a [(&'a str, &'a [usize])];

/// Five masters in three shards.
const A: (&str, &[usize]) = ("a", &[1]);
const B: (&str, &[usize]) = ("b", &[2]);
const C: (&str, &[usize]) = ("c", &[3, 4, 5]);

fn options() -> Builder {
    Redlock::builder().node_timeout(CALM).ttl(Duration::from_secs(20))
}

async fn client(masters: &impl Cluster, shards: Named<'_>, to: Named<'_>) -> Shards {
    masters.shards(options(), shards, to).build_shards().await.expect("shards")
}

fn resources() -> impl Iterator<Item = String> {
    (0..24).map(|number| format!("invoice:{number}"))
}

fn masters_with(masters: &impl Cluster, key: &str) -> Vec<usize> {
    masters.all().filter(|node| masters.value(*node, key).is_some()).collect()
}

async fn taken(shards: &Shards, resource: &str) {
    match shards.acquire(resource).wait(Duration::ZERO).await {
        Err(AcquireError::Taken { .. }) => {}
        Err(other) => panic!("{resource}: {other}"),
        Ok(_) => panic!("{resource} is granted twice"),
    }
}

async fn each_resource_has_one_home_from_every_client<M: Cluster>() {
    let masters = M::start(5);
    let one = client(&masters, &[A, B, C], &[]).await;
    let other = client(&masters, &[C, A, B], &[]).await;
    let names: Vec<&str> = one.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let mut homes = BTreeSet::new();
    for resource in resources() {
        let lease = one.acquire(&resource).await.unwrap();
        let on = masters_with(&masters, &resource);
        assert!([A.1, B.1, C.1].contains(&&*on), "{resource} is on {on:?}");
        homes.insert(on);
        taken(&other, &resource).await;
        assert!(other.try_acquire(&resource).await.unwrap().is_none());
        let held = other.home(&resource).holder(&resource).await.unwrap();
        assert!(held.holder().is_some(), "{held}");
        assert_eq!(lease.release().await.outcome, Outcome::Released);
        masters.freed(&resource).await;
    }
    assert_eq!(homes.len(), 3, "each shard has some: {homes:?}");
    let error = one.acquire("").await.unwrap_err();
    assert!(matches!(error, AcquireError::Options { .. }), "{error}");
    one.shutdown(Duration::from_secs(10)).await.unwrap();
    let error = one.acquire("r").await.unwrap_err();
    assert!(matches!(error, AcquireError::ShutDown), "{error}");
}

async fn a_request_for_several_resources_spans_shards<M: Cluster>() {
    let masters = M::start(5);
    let shards = client(&masters, &[A, B, C], &[]).await;
    let names: Vec<String> = resources().collect();
    let leases = shards.acquire_all(&names).await.unwrap();
    let order: Vec<&[u8]> = leases.iter().map(|lease| lease.resource()).collect();
    assert_eq!(order, names.iter().map(String::as_bytes).collect::<Vec<_>>());
    assert_eq!(leases.release().await.outcome(), Outcome::Released);
    // One that is taken leaves none of the others behind, on whichever shard.
    let lease = shards.acquire(&names[7]).await.unwrap();
    let error = shards.acquire_all(&names).wait(Duration::ZERO).await.unwrap_err();
    match error {
        AcquireError::Taken { resource, .. } => assert_eq!(resource, names[7].as_bytes()),
        other => panic!("{other}"),
    }
    for name in names.iter().filter(|name| **name != names[7]) {
        masters.freed(name).await;
    }
    drop(lease);
    let none: [&str; 0] = [];
    let error = shards.acquire_all(none).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoResources), "{error}");
    let error = shards.acquire_all(["x", "y", "x"]).await.unwrap_err();
    assert!(matches!(error, AcquireError::NamedTwice { .. }), "{error}");
}

/// More shards, fewer, others, ones with other masters, and the first one beside a lock.
async fn every_change_of_shards_keeps_out_those_before_and_those_behind_it<M: Cluster>() {
    let masters = M::start(5);
    let elsewhere: (&str, &[usize]) = ("b", &[3, 4, 5]);
    let changes: [(Named<'_>, Named<'_>); 5] = [
        (&[A, B], &[A, B, C]),
        (&[A, B, C], &[A, C]),
        (&[A, B], &[B, C]),
        (&[A, B], &[A, elsewhere]),
        (&[C], &[A, C]),
    ];
    for (old, new) in changes {
        let clients = [
            client(&masters, old, &[]).await,
            client(&masters, old, new).await,
            client(&masters, new, &[]).await,
        ];
        let (mut stay, mut move_) = (0, 0);
        for resource in resources() {
            let mut homes = Vec::new();
            let mut last = 0;
            for (first, second) in [(0, 1), (1, 0), (1, 2), (2, 1)] {
                let lease = clients[first].acquire(&resource).fenced().await.unwrap();
                let token = lease.fencing_token().unwrap();
                assert!(token > last, "{token} behind {last}");
                last = token;
                homes.push(masters_with(&masters, &resource));
                taken(&clients[second], &resource).await;
                assert_eq!(lease.release().await.outcome, Outcome::Released);
                masters.freed(&resource).await;
            }
            let [before, between, _, behind] = &homes[..] else { unreachable!() };
            if before == behind {
                stay += 1;
                assert_eq!(between, before, "{resource} does not move");
            } else {
                move_ += 1;
                let both: BTreeSet<_> = before.iter().chain(behind).copied().collect();
                assert_eq!(between.iter().copied().collect::<BTreeSet<_>>(), both);
                // Those two do not exclude each other: this is why no step admits both.
                let one = clients[0].acquire(&resource).wait(Duration::ZERO).await.unwrap();
                let other = clients[2].acquire(&resource).wait(Duration::ZERO).await.unwrap();
                drop((one, other));
                masters.freed(&resource).await;
            }
        }
        assert!(stay > 0 && move_ > 0, "{old:?} to {new:?}: {stay} stay, {move_} move");
    }
}

async fn a_client_with_other_shards_is_refused_by_a_guard<M: Cluster>() {
    let masters = M::start(5);
    let guarded = |shards: Named<'_>, to: Named<'_>| {
        let ttl = Duration::from_secs(20);
        masters.shards(options().restart_guard(ttl), shards, to).build_shards()
    };
    let own = guarded(&[A, B, C], &[]).await.unwrap();
    for (_, lock) in own.iter() {
        lock.initialize_masters().await;
    }
    for resource in resources() {
        assert!(own.try_acquire(resource).await.unwrap().is_some());
    }
    for other in [
        guarded(&[A, B], &[]).await.unwrap(),
        guarded(&[A, ("d", B.1), C], &[]).await.unwrap(),
        guarded(&[A, B, C], &[A, B]).await.unwrap(),
    ] {
        for resource in resources() {
            match other.acquire(resource).wait(Duration::ZERO).await {
                Err(AcquireError::NoQuorum { .. }) => {}
                Err(other) => panic!("{other}"),
                Ok(lease) => panic!("{lease:?}"),
            }
        }
    }
}

async fn shards_that_do_not_fit_are_named<M: Cluster>() {
    let masters = M::start(5);
    let build = |old: Named<'_>, new: Named<'_>| masters.shards(options(), old, new);
    let in_shard = |name: &str, bad| BuildError::Shard {
        name: name.into(),
        error: Box::new(BuildError::Options(bad)),
    };
    let options = BuildError::Options;
    let of_b: (&str, &[usize]) = ("a", B.1);
    let spaced: (&str, &[usize]) = ("a b", A.1);
    let empty: (&str, &[usize]) = ("a", &[]);
    for (builder, wanted) in [
        (build(&[A, of_b], &[]), in_shard("a", BadOption::ShardTwice)),
        (build(&[spaced], &[]), in_shard("a b", BadOption::ShardName)),
        (build(&[empty], &[]), in_shard("a", BadOption::NoMasters)),
        (build(&[A], &[B, spaced]), in_shard("a b", BadOption::ShardName)),
        (build(&[A, B], &[B, A]), options(BadOption::MovesToItself)),
        (build(&[], &[A]), options(BadOption::NoMasters)),
        (build(&[A], &[B]).masters_id("x"), options(BadOption::MoveHalfNamed)),
        (build(&[A], &[]).master("redis://db1"), options(BadOption::MastersBesideShards)),
        (build(&[A], &[]).moving_to(["redis://db1"]), options(BadOption::MastersBesideShards)),
    ] {
        assert_eq!(builder.build_shards().await.err(), Some(wanted));
    }
    let error = build(&[A, B], &[]).build().await.unwrap_err();
    assert_eq!(error, options(BadOption::Sharded));
    let builder = build(&[], &[]).shards([("x", ["redis://ok"]), ("y", ["http://db1"])]);
    let error = builder.build_shards().await.unwrap_err().to_string();
    assert!(error.starts_with("shard \"y\": master 1: "), "{error}");
    // Masters without shards are the only one.
    let all = masters.over(&[1, 2, 3]).build_shards().await.unwrap();
    assert_eq!(
        all.iter().map(|(name, lock)| (name, lock.masters())).collect::<Vec<_>>(),
        [("all", 3)]
    );
    assert!(all.try_acquire("r").await.unwrap().is_some());
}
