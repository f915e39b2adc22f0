//! Five masters, three clients, one resource, in virtual time: the machines together.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::{
    AcquireRequest, Claim, ClaimId, Drift, Guard, Hold, Input, Key, LockConfig, Time,
};

use crate::support::MS;
use crate::world::{Config, World, WorldEvent};

const MAX_TTL: Duration = Duration::from_millis(400);

struct Cluster {
    world: World,
    config: LockConfig,
    key: Key,
    grants: Vec<(Time, usize)>,
    /// Grants during another claim's valid lease.
    violations: Vec<(Time, usize)>,
    fencing_tokens: Vec<u64>,
}

impl Cluster {
    fn new(seed: u64, clients: usize) -> Self {
        Self::with(seed, clients, None)
    }

    /// A cluster with a guard for leases up to [`MAX_TTL`], on masters that are initialized, and
    /// with a clock guard if there is a bound.
    fn guarded(seed: u64, clients: usize, clock_bound: Option<Duration>) -> Self {
        let guard = Guard::new(MAX_TTL, Drift::default(), 0).expect("it is short");
        let with = |bound| guard.with_clock_bound(bound).expect("it is shorter");
        Self::with(seed, clients, Some(clock_bound.map_or(guard, with)))
    }

    fn with(seed: u64, clients: usize, guard: Option<Guard>) -> Self {
        let world = World::new(seed, Config { clients, guard, ..Config::default() });
        let bound = guard.and_then(Guard::clock_bound).unwrap_or_default();
        let config = LockConfig::new(5, MAX_TTL, Drift::default(), world.config.node_timeout)
            .and_then(|config| config.with_fencing(MS * 60_000))
            .and_then(|config| config.with_clock_bound(bound))
            .expect("they fit");
        let (grants, violations, fencing_tokens) = (Vec::new(), Vec::new(), Vec::new());
        let key = Arc::from(&b"the resource"[..]);
        Self { world, config, key, grants, violations, fencing_tokens }
    }

    fn acquire(&mut self, client: usize, wait: Duration) -> ClaimId {
        let request = AcquireRequest::for_member(self.config, wait, true, ());
        self.world.acquire(client, &self.key, request)
    }

    /// The oldest request of a client.
    fn oldest(&self, client: usize) -> Option<(ClaimId, &Claim)> {
        let (_, id) = self.world.requests().find(|(of, _)| *of == client)?;
        Some((id, self.world.clients[client].claim(id)?))
    }

    fn run_until(&mut self, end: Time) {
        while self.world.step(end) {
            for event in std::mem::take(&mut self.world.events) {
                if let WorldEvent::Changed(client, id) = event {
                    self.changed(client, id);
                }
            }
        }
    }

    fn run_for(&mut self, millis: u64) {
        self.run_until(self.world.now.plus(Duration::from_millis(millis)));
    }

    fn changed(&mut self, client: usize, id: ClaimId) {
        match self.world.clients[client].claim(id) {
            Some(Claim::Acquiring(acquire)) if acquire.is_won() => {
                self.world.drive(client, id, Input::Collect);
                self.granted(client, id);
            }
            Some(Claim::Acquiring(acquire)) if acquire.failure().is_none() => {}
            Some(Claim::Releasing(release)) if release.outcome().is_none() => {}
            Some(Claim::Acquiring(_) | Claim::Releasing(_)) => self.world.cancel(client, id, false),
            _ => {}
        }
    }

    /// The check: at the instant of a grant, no other claim has a valid lease.
    fn granted(&mut self, client: usize, id: ClaimId) {
        if !self.world.believes(client, id) {
            return; // Too late: the claim tries again, or has failed.
        }
        self.grants.push((self.world.now, client));
        let hold = self.world.clients[client].hold(id);
        self.fencing_tokens.extend(hold.and_then(Hold::fencing_token));
        let valid = |(client, id): &(usize, ClaimId)| self.world.believes(*client, *id);
        if self.world.requests().filter(valid).count() > 1 {
            self.violations.push((self.world.now, client));
        }
    }

    /// A master loses its data, by a restart or by `FLUSHALL`.
    fn forget(&mut self, master: usize, restarts: bool) {
        if restarts {
            self.world.kill(master, true);
            self.world.restart(master);
        } else {
            self.world.masters[master].server.flush_all();
        }
    }
}

/// Lets a client take a random action on its claim, or acquire if it has none.
fn act(cluster: &mut Cluster, client: usize) {
    let drawn = cluster.world.random.below(16);
    let config = cluster.config;
    let Some((id, claim)) = cluster.oldest(client) else {
        let wait = if drawn < 8 { Duration::ZERO } else { MS * 100 };
        cluster.acquire(client, wait);
        return;
    };
    let input = match (claim, drawn) {
        (Claim::Holding(hold), _) if hold.lost().is_some() => Input::Abandon,
        (Claim::Acquiring(_), 0) | (_, 1) => Input::Abandon,
        (Claim::Holding(_), 2..=4) => Input::Release,
        (Claim::Holding(_), 5..=6) => Input::extend(config),
        (Claim::Holding(_), 7) => Input::extend(config.with_ttl(MS * 100).expect("it fits")),
        (Claim::Holding(_), 8) => Input::KeepAlive(MS * 600),
        (Claim::Holding(_), 9) => Input::Renew,
        _ => return,
    };
    match input {
        Input::Abandon => cluster.world.cancel(client, id, false),
        input => cluster.world.drive(client, id, input),
    }
}

fn fault(cluster: &mut Cluster) {
    let master = cluster.world.random.index(cluster.world.masters.len());
    let client = cluster.world.random.index(cluster.world.clients.len());
    match cluster.world.random.below(5) {
        0 => cluster.world.masters[master].server.pause(),
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

/// Lets three clients contend. `fault` runs in every millisecond, and a client acts in every one of
/// `pause`.
fn contend(
    mut cluster: Cluster,
    millis: u64,
    pause: u64,
    fault: impl Fn(&mut Cluster, u64),
) -> Cluster {
    for time in 1..millis {
        cluster.run_until(Time::from_millis(time));
        fault(&mut cluster, time);
        if time % pause == 0 {
            let client = cluster.world.random.index(3);
            act(&mut cluster, client);
        }
    }
    cluster
}

/// Three clients contend without a guard, with a fault every 20 ms.
fn with_faults(seed: u64, millis: u64) -> Cluster {
    contend(Cluster::new(seed, 3), millis, 3, |cluster, time| {
        if time % 20 == 0 {
            fault(cluster);
        }
    })
}

/// Lets 20 clusters contend. In none of them two clients hold the resource at once. After the
/// faults, the lock works as before.
fn never_meet(recovery: Duration, contended: impl Fn(u64) -> Cluster) {
    let mut grants = 0;
    for seed in 0..20 {
        let mut cluster = contended(seed);
        grants += cluster.grants.len();
        assert_eq!(cluster.violations, [], "seed {seed}");
        cluster.world.heal(recovery);
        let id = cluster.acquire(0, MS * 200);
        cluster.run_until(cluster.world.now.plus(MS * 200));
        assert!(cluster.world.believes(0, id), "seed {seed}");
    }
    assert!(grants > 100, "{grants} grants: too dull a run to show anything");
}

/// Each grant has a fencing token that is larger than all earlier ones.
fn assert_tokens_grow(cluster: &Cluster) {
    let tokens = &cluster.fencing_tokens;
    assert_eq!(tokens.len(), cluster.grants.len());
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

#[test]
fn masters_that_stop_restart_and_are_cut_off_never_let_two_in_and_no_clean_up_stays_pending() {
    never_meet(Duration::ZERO, |seed| {
        let mut cluster = with_faults(seed, 1_500);
        assert_tokens_grow(&cluster);
        cluster.world.heal(MS * 500);
        assert_eq!(cluster.world.leftovers(), (0, 0), "keys, pending clean-ups; seed {seed}");
        cluster
    });
}

/// Client 0 wins with masters 1, 2 and 3 alone. Then master 3 restarts, and client 1 tries.
fn rival(amnesia: bool) -> Cluster {
    let restart = |cluster: &mut Cluster| {
        cluster.world.kill(2, amnesia);
        cluster.world.restart(2);
    };
    rival_after(Cluster::new(7, 2), restart)
}

fn rival_after(mut cluster: Cluster, fault: impl FnOnce(&mut Cluster)) -> Cluster {
    cluster.run_until(Time::from_millis(10));
    cluster.world.cut(0, 3, MS * 200);
    cluster.world.cut(0, 4, MS * 200);
    let holder = cluster.acquire(0, Duration::ZERO);
    cluster.run_until(Time::from_millis(20));
    assert!(cluster.world.believes(0, holder));
    fault(&mut cluster);
    cluster.run_until(Time::from_millis(100));
    cluster.acquire(1, Duration::ZERO);
    cluster.run_until(Time::from_millis(150));
    assert!(cluster.world.believes(0, holder));
    cluster
}

#[test]
fn a_master_that_forgets_lets_a_rival_in_and_the_check_sees_it() {
    assert_eq!(rival(true).violations.len(), 1);
    assert_eq!(rival(false).violations, [], "a master that remembers does not");
}

/// With a guard, neither the restart nor `FLUSHALL` lets the rival in.
#[test]
fn a_guard_keeps_the_rival_out_of_a_master_that_forgets_until_the_lease_is_over() {
    for restart in [true, false] {
        let mut cluster =
            rival_after(Cluster::guarded(7, 2, None), |cluster| cluster.forget(2, restart));
        assert_eq!(cluster.violations, []);
        assert_eq!(cluster.grants.len(), 1, "the rival was refused");
        // A quarantine delays no grant if enough other masters are trusted.
        cluster.run_until(Time::from_millis(1_000));
        let number = cluster.acquire(1, MS * 200);
        cluster.run_until(Time::from_millis(1_300));
        assert!(cluster.world.believes(1, number));
        // After the quarantine, the master counts as before.
        cluster.run_until(Time::from_millis(4_000));
        let marked = cluster.world.masters.iter().filter(|it| it.is_initialized());
        assert_eq!(marked.count(), 5);
        cluster.world.kill(0, true);
        cluster.world.kill(1, true);
        let number = cluster.acquire(0, Duration::ZERO);
        cluster.run_until(Time::from_millis(4_050));
        assert!(
            cluster.world.believes(0, number),
            "granted by the master that forgot, and two more"
        );
    }
}

#[test]
fn guarded_contenders_never_meet_whatever_masters_forget() {
    never_meet(MS * 4_000, |seed| {
        contend(Cluster::guarded(seed, 3, None), 6_000, 3, |cluster, time| {
            if time % 300 == 0 {
                let (master, restarts) =
                    (cluster.world.random.index(5), cluster.world.random.below(2));
                cluster.forget(master, restarts == 0);
            }
        })
    });
}

/// Now and then a client is cut off from a master, or a clock steps ahead.
fn with_clocks_that_step(seed: u64, bound: Option<Duration>) -> Cluster {
    // Clients act rarely, so that leases live long enough to meet a step.
    contend(Cluster::guarded(seed, 3, bound), 6_000, 25, |cluster, time| {
        let random = &mut cluster.world.random;
        if time % 20 == 0 {
            let [client, master] = [3, 5].map(|of| random.index(of));
            cluster.world.cut(client, master, MS * 150);
        }
        for master in 0..if time % 700 == 0 { 5 } else { 0 } {
            let random = &mut cluster.world.random;
            if random.below(2) == 0 {
                cluster.world.masters[master].ahead += MS + random.millis(500);
            }
        }
    })
}

#[test]
fn clock_guarded_contenders_never_meet_whatever_clocks_step_and_others_do() {
    never_meet(MS * 2_000, |seed| with_clocks_that_step(seed, Some(MS * 50)));
    let undefended: usize =
        (0..20).map(|seed| with_clocks_that_step(seed, None).violations.len()).sum();
    assert!(undefended > 10, "{undefended} violations: the check is blind");
}

#[test]
fn a_lease_is_extended_while_masters_are_restarted_one_after_the_other_with_a_quarantine_between() {
    let mut cluster = Cluster::guarded(3, 2, None);
    cluster.run_until(Time::from_millis(10));
    let holder = cluster.acquire(0, Duration::ZERO);
    cluster.run_until(Time::from_millis(20));
    cluster.world.drive(0, holder, Input::KeepAlive(MS * 60_000));
    for master in 0..5 {
        cluster.world.kill(master, true);
        cluster.world.restart(master);
        for _ in 0..30 {
            cluster.run_for(100);
            assert!(cluster.world.believes(0, holder), "master {}", master + 1);
            let rival = cluster.acquire(1, Duration::ZERO);
            cluster.run_for(30);
            assert!(!cluster.world.believes(1, rival));
        }
    }
    assert_eq!(cluster.violations, []);
}

#[test]
fn a_holder_keeps_its_lease_through_the_death_of_two_masters_and_loses_it_with_the_third() {
    let mut cluster = Cluster::new(5, 1);
    cluster.run_until(Time::from_millis(10));
    let holder = cluster.acquire(0, Duration::ZERO);
    cluster.run_until(Time::from_millis(20));
    cluster.world.drive(0, holder, Input::KeepAlive(MS * 60_000));
    cluster.world.kill(0, true);
    cluster.world.kill(1, true);
    cluster.run_until(Time::from_millis(3_000));
    assert!(cluster.world.believes(0, holder));
    cluster.world.kill(2, true);
    cluster.run_until(Time::from_millis(3_400));
    assert!(!cluster.world.believes(0, holder));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (one, two) = (with_faults(4, 500), with_faults(4, 500));
    assert!(!one.grants.is_empty());
    assert_eq!(one.grants, two.grants);
    assert_ne!(one.grants, with_faults(5, 500).grants);
}
