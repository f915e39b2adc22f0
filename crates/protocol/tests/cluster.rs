//! Five masters, three clients, one resource, in virtual time: the machines together.

mod support;

use std::time::Duration;

use redquorum_protocol::{Claim, Input, Time};
use support::{Cluster, MS};

/// Lets a client take a random action on its claim, or acquire if it has none.
fn act(cluster: &mut Cluster, client: usize) {
    let drawn = cluster.world.random.below(16);
    let terms = cluster.terms;
    let Some((id, claim)) = cluster.oldest(client) else {
        let wait = if drawn < 8 { Duration::ZERO } else { MS * 100 };
        cluster.acquire(client, wait);
        return;
    };
    let input = match (claim, drawn) {
        (Claim::Holding(hold), _) if hold.lost().is_some() => Input::Abandon,
        (Claim::Acquiring(_), 0) | (_, 1) => Input::Abandon,
        (Claim::Holding(_), 2..=4) => Input::Release,
        (Claim::Holding(_), 5..=6) => Input::Extend(terms),
        (Claim::Holding(_), 7) => Input::Extend(terms.with_ttl(MS * 100).expect("it fits")),
        (Claim::Holding(_), 8) => Input::KeepAlive(MS * 600),
        (Claim::Holding(_), 9) => Input::Renew,
        _ => return,
    };
    cluster.drive(client, id, input);
}

fn fault(cluster: &mut Cluster) {
    let master = cluster.world.random.index(cluster.world.masters.len());
    let client = cluster.world.random.index(cluster.clients.len());
    match cluster.world.random.below(5) {
        0 => cluster.world.stop(master),
        1 => cluster.world.kill(master, false),
        2 | 3 => cluster.world.cut(client, master, MS * 150),
        _ => {}
    }
    let master = cluster.world.random.index(cluster.world.masters.len());
    match cluster.world.random.below(2) {
        0 => cluster.world.resume(master),
        _ => cluster.world.restart(master),
    }
}

/// Lets three clients contend for `millis`, with a fault every 20 ms if `faults`.
fn contend(seed: u64, millis: u64, faults: bool) -> Cluster {
    let mut cluster = Cluster::new(seed, 5, 3);
    for time in 1..millis {
        cluster.run_until(Time::from_millis(time));
        if time % 20 == 0 && faults {
            fault(&mut cluster);
        }
        if time % 3 == 0 {
            let client = cluster.world.random.index(3);
            act(&mut cluster, client);
        }
    }
    cluster
}

/// Each grant has a fencing token that is larger than all earlier ones.
fn assert_tokens_grow(cluster: &Cluster) {
    let tokens = &cluster.fencing_tokens;
    assert_eq!(tokens.len(), cluster.grants.len());
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

#[test]
fn contenders_take_turns_and_leave_nothing_behind() {
    let mut cluster = contend(1, 3_000, false);
    assert!(cluster.grants.len() > 50, "{} grants", cluster.grants.len());
    assert_eq!(cluster.violations, []);
    assert_tokens_grow(&cluster);
    cluster.heal(MS * 50);
    assert_eq!(cluster.leftovers(), (0, 0), "keys, debts");
}

#[test]
fn masters_that_stop_restart_and_are_cut_off_never_let_two_in_and_every_debt_is_paid() {
    let mut grants = 0;
    for seed in 0..20 {
        let mut cluster = contend(seed, 1_500, true);
        grants += cluster.grants.len();
        assert_eq!(cluster.violations, [], "seed {seed}");
        assert_tokens_grow(&cluster);
        cluster.heal(MS * 500);
        assert_eq!(cluster.leftovers(), (0, 0), "keys, debts; seed {seed}");
        // After that, the lock works as before.
        let number = cluster.acquire(0, MS * 100);
        cluster.run_until(cluster.world.now.plus(MS * 100));
        assert!(cluster.believes(0, number), "seed {seed}");
    }
    assert!(grants > 100, "{grants} grants: too dull a run to show anything");
}

/// Client 0 wins with masters 1, 2 and 3 alone. Then master 3 restarts, and client 1 tries.
fn rival(amnesia: bool) -> Cluster {
    let restart = |cluster: &mut Cluster| {
        cluster.world.kill(2, amnesia);
        cluster.world.restart(2);
    };
    rival_after(Cluster::new(7, 5, 2), restart)
}

fn rival_after(mut cluster: Cluster, fault: impl FnOnce(&mut Cluster)) -> Cluster {
    cluster.run_until(Time::from_millis(10));
    cluster.world.cut(0, 3, MS * 200);
    cluster.world.cut(0, 4, MS * 200);
    let holder = cluster.acquire(0, Duration::ZERO);
    cluster.run_until(Time::from_millis(20));
    assert!(cluster.believes(0, holder));
    fault(&mut cluster);
    cluster.run_until(Time::from_millis(100));
    cluster.acquire(1, Duration::ZERO);
    cluster.run_until(Time::from_millis(150));
    assert!(cluster.believes(0, holder));
    cluster
}

#[test]
fn a_master_that_forgets_lets_a_rival_in_and_the_check_sees_it() {
    assert_eq!(rival(true).violations.len(), 1);
    assert_eq!(rival(false).violations, [], "a master that remembers does not");
}

const MAX_TTL: Duration = Duration::from_millis(400);

/// With a guard, neither the restart nor `FLUSHALL` lets the rival in.
#[test]
fn a_guard_keeps_the_rival_out_of_a_master_that_forgets_until_the_lease_is_over() {
    let guarded = || Cluster::guarded(7, 5, 2, MAX_TTL);
    for restart in [true, false] {
        let mut cluster = rival_after(guarded(), |cluster| {
            if restart {
                cluster.world.kill(2, true);
                cluster.world.restart(2);
            } else {
                cluster.world.flush(2);
            }
        });
        assert_eq!(cluster.violations, []);
        assert_eq!(cluster.grants.len(), 1, "the rival was refused");
        // A quarantine delays no grant if enough other masters are trusted.
        cluster.run_until(Time::from_millis(1_000));
        let number = cluster.acquire(1, MS * 200);
        cluster.run_until(Time::from_millis(1_300));
        assert!(cluster.believes(1, number));
        // After the quarantine, the master counts as before.
        cluster.run_until(Time::from_millis(4_000));
        let marked = cluster.world.masters.iter().filter(|master| master.markers.boot().is_some());
        assert_eq!(marked.count(), 5);
        cluster.world.kill(0, true);
        cluster.world.kill(1, true);
        let number = cluster.acquire(0, Duration::ZERO);
        cluster.run_until(Time::from_millis(4_050));
        assert!(cluster.believes(0, number), "granted by the master that forgot, and two more");
    }
}

#[test]
fn guarded_contenders_never_meet_whatever_masters_forget() {
    let mut grants = 0;
    for seed in 0..20 {
        let mut cluster = Cluster::guarded(seed, 5, 3, MAX_TTL);
        for time in 1..6_000 {
            cluster.run_until(Time::from_millis(time));
            if time % 300 == 0 {
                let master = cluster.world.random.index(5);
                if cluster.world.random.below(2) == 0 {
                    cluster.world.kill(master, true);
                    cluster.world.restart(master);
                } else {
                    cluster.world.flush(master);
                }
            }
            if time % 3 == 0 {
                let client = cluster.world.random.index(3);
                act(&mut cluster, client);
            }
        }
        grants += cluster.grants.len();
        assert_eq!(cluster.violations, [], "seed {seed}");
        // After the faults, the masters become trusted again.
        cluster.heal(MS * 4_000);
        let number = cluster.acquire(0, MS * 200);
        cluster.run_until(cluster.world.now.plus(MS * 200));
        assert!(cluster.believes(0, number), "seed {seed}");
    }
    assert!(grants > 100, "{grants} grants: too dull a run to show anything");
}

/// Lets clients contend. Now and then a client is cut off from a master, or a clock steps ahead.
fn with_clocks_that_step(seed: u64, bound: Option<Duration>) -> Cluster {
    let mut cluster = match bound {
        Some(bound) => Cluster::clock_guarded(seed, 5, 3, (MAX_TTL, bound)),
        None => Cluster::guarded(seed, 5, 3, MAX_TTL),
    };
    for time in 1..6_000 {
        cluster.run_until(Time::from_millis(time));
        if time % 20 == 0 {
            let [client, master] = [3, 5].map(|of| cluster.world.random.index(of));
            cluster.world.cut(client, master, MS * 150);
        }
        for master in 0..if time % 700 == 0 { 5 } else { 0 } {
            if cluster.world.random.below(2) == 0 {
                let by = Duration::from_millis(1 + cluster.world.random.below(500));
                cluster.world.masters[master].ahead += by;
            }
        }
        // Clients act rarely, so that leases live long enough to meet a step.
        if time % 25 == 0 {
            let client = cluster.world.random.index(3);
            act(&mut cluster, client);
        }
    }
    cluster
}

#[test]
fn clock_guarded_contenders_never_meet_whatever_clocks_step_and_others_do() {
    let (mut grants, mut undefended) = (0, 0);
    for seed in 0..20 {
        let mut cluster = with_clocks_that_step(seed, Some(MS * 50));
        grants += cluster.grants.len();
        assert_eq!(cluster.violations, [], "seed {seed}");
        // After the steps, the masters become trusted again.
        cluster.heal(MS * 2_000);
        let number = cluster.acquire(0, MS * 200);
        cluster.run_until(cluster.world.now.plus(MS * 200));
        assert!(cluster.believes(0, number), "seed {seed}");
        undefended += with_clocks_that_step(seed, None).violations.len();
    }
    assert!(grants > 100, "{grants} grants: too dull a run to show anything");
    assert!(undefended > 10, "{undefended} violations: the check is blind");
}

#[test]
fn a_lease_is_extended_while_masters_are_restarted_one_after_the_other_with_a_quarantine_between() {
    let mut cluster = Cluster::guarded(3, 5, 2, MAX_TTL);
    cluster.run_until(Time::from_millis(10));
    let holder = cluster.acquire(0, Duration::ZERO);
    cluster.run_until(Time::from_millis(20));
    cluster.drive(0, holder, Input::KeepAlive(MS * 60_000));
    for master in 0..5 {
        cluster.world.kill(master, true);
        cluster.world.restart(master);
        for _ in 0..30 {
            cluster.run_until(cluster.world.now.plus(MS * 100));
            assert!(cluster.believes(0, holder), "master {}", master + 1);
            let rival = cluster.acquire(1, Duration::ZERO);
            cluster.run_until(cluster.world.now.plus(MS * 30));
            assert!(!cluster.believes(1, rival));
        }
    }
    assert_eq!(cluster.violations, []);
}

#[test]
fn a_claim_that_counts_a_strangers_answers_for_its_own_is_seen_by_the_check() {
    use redquorum_protocol::{NodeId, Reply, RoundId};
    let mut cluster = Cluster::new(3, 5, 2);
    cluster.run_until(Time::from_millis(10));
    let holder = cluster.acquire(0, Duration::ZERO);
    cluster.run_until(Time::from_millis(20));
    let wrong = cluster.acquire(1, Duration::ZERO);
    for node in NodeId::all(3) {
        let (step, answer) = (RoundId::Attempt(1), Reply::Granted { number: 7 });
        cluster.drive(1, wrong, Input::Answered { node, step, answer });
    }
    cluster.run_until(Time::from_millis(21));
    assert!(cluster.believes(0, holder) && cluster.believes(1, wrong));
    assert_eq!(cluster.violations.len(), 1);
}

#[test]
fn a_holder_keeps_its_lease_through_the_death_of_two_masters_and_loses_it_with_the_third() {
    let mut cluster = Cluster::new(5, 5, 1);
    cluster.run_until(Time::from_millis(10));
    let holder = cluster.acquire(0, Duration::ZERO);
    cluster.run_until(Time::from_millis(20));
    cluster.drive(0, holder, Input::KeepAlive(MS * 60_000));
    cluster.world.kill(0, true);
    cluster.world.kill(1, true);
    cluster.run_until(Time::from_millis(3_000));
    assert!(cluster.believes(0, holder));
    cluster.world.kill(2, true);
    cluster.run_until(Time::from_millis(3_400));
    assert!(!cluster.believes(0, holder));
}

#[test]
fn what_a_stopped_master_executes_after_its_client_has_gone_is_cleaned_up() {
    let mut cluster = Cluster::new(11, 5, 1);
    cluster.run_until(Time::from_millis(10));
    cluster.world.stop(4);
    let claim = cluster.acquire(0, Duration::ZERO);
    cluster.run_until(Time::from_millis(30));
    cluster.drive(0, claim, Input::Abandon);
    cluster.run_until(Time::from_millis(300));
    assert_eq!(cluster.clients[0].links()[4].owed(), 1, "kept while the master sleeps");
    cluster.heal(MS * 50);
    assert_eq!(cluster.leftovers(), (0, 0));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (one, two) = (contend(4, 500, true), contend(4, 500, true));
    assert!(!one.grants.is_empty());
    assert_eq!(one.grants, two.grants);
    assert_ne!(one.grants, contend(5, 500, true).grants);
}
