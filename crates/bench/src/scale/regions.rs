//! Masters in several regions, in virtual time: a client in the middle, one far away, and one whose
//! masters are all near.

use std::time::Duration;

use redquorum_checker::{Outcome, check};
use redquorum_protocol::{Drift, Quorum};
use redquorum_scenario::{Mutant, Scenario};

use super::virtual_time::{Lease, Run, between, millis, read};
use crate::table::median;

/// A client, and its round trips to each master, in milliseconds.
struct Place {
    name: &'static str,
    round_trips: Vec<u64>,
}

impl Place {
    fn sorted(&self) -> Vec<u64> {
        let mut sorted = self.round_trips.clone();
        sorted.sort_unstable();
        sorted
    }

    /// The round trip after which a quorum of masters has replied.
    fn quorum(&self) -> u64 {
        self.sorted()[Quorum::of(self.round_trips.len()).size() - 1]
    }

    fn slowest(&self) -> u64 {
        self.sorted()[self.round_trips.len() - 1]
    }

    /// The rule of `docs/set-up.md`, and of `redquorum bench-masters`: four round trips to the
    /// slowest master, and at least 20 ms.
    fn node_timeout(&self) -> u64 {
        (4 * self.slowest()).max(20)
    }
}

/// The least TTL by the same rules: ten node timeouts, and the drift of the whole.
fn least_ttl(node_timeout: u64) -> u64 {
    let drift = Drift::default();
    let rounds = Duration::from_millis(10 * node_timeout) + drift.fixed;
    let ttl = rounds.div_f64(1.0 - f64::from(drift.ppm) / 1e6);
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX) + 1
}

/// How long a client that waits for a holder that died waits at least, by the same rules: the TTL
/// and a few seconds.
fn wait(ttl: u64) -> u64 {
    ttl + 2_000
}

/// The usual TTL, or a longer one where it is too short.
fn ttl(node_timeout: u64) -> u64 {
    least_ttl(node_timeout).max(10_000)
}

pub(super) fn print(near: &[u64], far: &[u64]) -> Result<(), String> {
    let place = |name, round_trips: &[u64]| Place { name, round_trips: round_trips.to_vec() };
    let near_all = vec![0; near.len()];
    let places =
        [place("all near", &near_all), place("in the middle", near), place("far away", far)];
    print_pairs(&places)?;
    print_hand_overs(&places)?;
    print_options(&places)?;
    print_node_timeouts(&places[1..])
}

fn print_pairs(places: &[Place]) -> Result<(), String> {
    println!(
        "### Masters in regions: an acquire and its release, nobody else asks\n\n\
         | client | round trips, ms | a quorum has replied after | acquire p50 | release p50 | pair \
         p50 |\n|---|---|---|---|---|---|"
    );
    for place in places {
        let run = Plan::new(&[place]).rounds(30, 0)?;
        let p50 = |of: fn(&Lease) -> i64| {
            median(run.leases.iter().map(|lease| of(lease) as f64 / 1e6).collect())
        };
        let acquire = p50(|lease| lease.granted - lease.asked);
        let release = p50(|lease| lease.returned - lease.released);
        let pair = p50(|it| it.granted - it.asked + it.returned - it.released);
        println!(
            "| {} | {} | {} ms | {acquire:.1} ms | {release:.1} ms | {pair:.1} ms |",
            place.name,
            list(&place.round_trips),
            place.quorum(),
        );
    }
    println!();
    Ok(())
}

fn list(numbers: &[u64]) -> String {
    match numbers.iter().all(|number| *number == 0) {
        true => "below 1".to_owned(),
        false => numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn print_hand_overs(places: &[Place]) -> Result<(), String> {
    println!(
        "### Masters in regions: a hand-over, from the call of a release to the grant of a waiter\n\n\
         | from a client | to a client | p50 | longest |\n|---|---|---|---|"
    );
    let [near, middle, far] = places else { unreachable!("there are three places") };
    for [one, other] in [[near, near], [middle, middle], [middle, far], [far, far]] {
        let run = Plan::new(&[one, other]).rounds(30, 30_000)?;
        for (from, to) in [("c1", "c2"), ("c2", "c1")] {
            let of_these = run
                .hand_overs()
                .filter(|(before, after, _)| before.client == from && after.client == to);
            let times: Vec<f64> = of_these.map(|(_, _, time)| millis(time)).collect();
            let name = |client| if client == "c1" { one.name } else { other.name };
            let longest = times.iter().copied().fold(0.0, f64::max);
            println!(
                "| {} | {} | {:.1} ms | {longest:.1} ms |",
                name(from),
                name(to),
                median(times)
            );
            if one.name == other.name {
                break;
            }
        }
    }
    println!();
    Ok(())
}

fn print_options(places: &[Place]) -> Result<(), String> {
    println!(
        "### Masters in regions: what to choose, and what a waiter has when a holder dies\n\n\
         | client | node timeout, more than | node timeout | connect timeout | drift | TTL, at least | \
         TTL | wait | first pause of `retry` | with these: grant after a holder's last one |\n\
         |---|---|---|---|---|---|---|---|---|---|"
    );
    for place in places {
        let node_timeout = place.node_timeout();
        let ttl = ttl(node_timeout);
        println!(
            "| {} | {} ms | {node_timeout} ms | {} ms | 1 % + 2 ms | {:.2} s | {:.2} s | {:.2} s | {} ms \
             | {:.2} s |",
            place.name,
            place.quorum(),
            node_timeout.max(1_000),
            least_ttl(node_timeout) as f64 / 1e3,
            ttl as f64 / 1e3,
            wait(ttl) as f64 / 1e3,
            place.slowest().max(10),
            Plan::new(&[place, place]).after_death()?.as_secs_f64(),
        );
    }
    println!();
    Ok(())
}

fn print_node_timeouts(places: &[Place]) -> Result<(), String> {
    const ROUNDS: usize = 30;
    const KEPT: usize = 5;
    println!(
        "### Masters in regions: the node timeout\n\n\
         | client | node timeout | one attempt: granted of {ROUNDS} | with a wait of 5 s: granted of \
         {ROUNDS} | p50 | leases kept alive for three TTLs, of {KEPT} |\n|---|---|---|---|---|---|"
    );
    for place in places {
        let (quorum, slowest) = (place.quorum(), place.slowest());
        for (node_timeout, why) in [
            (quorum * 8 / 10, "below the quorum's round trip"),
            (100, "the default"),
            (quorum.midpoint(slowest), "between the quorum's and the slowest round trip"),
            (place.node_timeout(), "4 × the slowest round trip"),
        ] {
            let plan = Plan { node_timeout, ..Plan::new(&[place]) };
            let [once, waiting] = [plan.rounds(ROUNDS, 0)?, plan.rounds(ROUNDS, 5_000)?];
            let kept = plan.kept(KEPT)?;
            let times = waiting.leases.iter().map(|it| (it.granted - it.asked) as f64 / 1e6);
            let p50 = match waiting.leases.is_empty() {
                true => "–".to_owned(),
                false => format!("{:.0} ms", median(times.collect())),
            };
            println!(
                "| {} | {node_timeout} ms, {why} | {} | {} | {p50} | {} |",
                place.name,
                once.leases.len(),
                waiting.leases.len(),
                kept.leases.len().saturating_sub(kept.lost),
            );
        }
    }
    println!();
    Ok(())
}

/// Clients of one resource, and the node timeout of their lock.
struct Plan<'a> {
    clients: Vec<&'a Place>,
    node_timeout: u64,
}

impl<'a> Plan<'a> {
    /// These clients, with the node timeout that suits all of them.
    fn new(clients: &[&'a Place]) -> Self {
        let node_timeout = clients.iter().map(|place| place.node_timeout()).max();
        Self { clients: clients.to_vec(), node_timeout: node_timeout.unwrap_or_default() }
    }

    fn ttl(&self) -> u64 {
        ttl(self.node_timeout)
    }

    /// Each client acquires and releases the resource in so many rounds, and waits for so long.
    fn rounds(&self, rounds: usize, wait: u64) -> Result<Run, String> {
        let wait = if wait > 0 { format!(" wait {wait}ms") } else { String::new() };
        let client = format!(
            "loop = {rounds}\nthink = \"5ms\"\n\
             script = [\"acquire L{wait}\", \"work 20ms\", \"release L\"]\n"
        );
        self.run(&vec![client; self.clients.len()], "")
    }

    /// The client keeps so many leases alive for three TTLs each, one after the other.
    fn kept(&self, leases: usize) -> Result<Run, String> {
        let long = 3 * self.ttl();
        let client = format!(
            "loop = {leases}\nscript = [\"acquire L wait 5s\", \"keep L for {}ms\", \
             \"work {long}ms\", \"release L\"]\n",
            long + self.ttl()
        );
        self.run(&[client], "")
    }

    /// The first client dies as soon as it holds the resource. How long until the second one, which
    /// asks a second later, has it.
    fn after_death(&self) -> Result<Duration, String> {
        let hold = |start, wait| {
            format!(
                "start = \"{start}s\"\nscript = [\"acquire L wait {wait}ms\", \"work 20ms\", \
                 \"release L\"]\n"
            )
        };
        let clients = [hold(0, 0), hold(1, wait(self.ttl()))];
        let dies = "[[fault]]\nafter = \"c1 granted L\"\nclient.kill = { client = \"c1\" }\n";
        let run = self.run(&clients, dies)?;
        let lease = run.leases.first().ok_or("nobody has the resource after its holder's death")?;
        let died = self.clients[0].quorum() * 1_000_000;
        Ok(between(i64::try_from(died).unwrap_or(0), lease.granted))
    }

    /// Runs these clients, whose messages take as long as their places say.
    fn run(&self, clients: &[String], faults: &str) -> Result<Run, String> {
        let history = redquorum_simulator::run(&self.scenario(clients, faults)?, 1, Mutant::None);
        let verdict = check(&history);
        if verdict.outcome != Outcome::AsExpected {
            return Err(format!("a run is not as expected: {}", verdict.differences.join("; ")));
        }
        Ok(Run::of(&history))
    }

    fn scenario(&self, clients: &[String], faults: &str) -> Result<Scenario, String> {
        let masters = self.clients[0].round_trips.len();
        let mut text = format!(
            "name = \"regions\"\nabout = \"Masters far away.\"\n[cluster]\nnodes = {masters}\n\
             [lock]\nttl = \"{}ms\"\nnode-timeout = \"{}ms\"\n",
            self.ttl(),
            self.node_timeout
        );
        for (client, number) in clients.iter().zip(1..) {
            text += &format!("[[client]]\nid = \"c{number}\"\n{client}");
        }
        for (place, number) in self.clients.iter().zip(1..) {
            let far = place.round_trips.iter().zip(1..).filter(|(round_trip, _)| **round_trip > 0);
            for (round_trip, master) in far {
                // A half on each way.
                text += &format!(
                    "[[fault]]\nat = \"0s\"\nnet.delay = {{ client = \"c{number}\", node = {master}, \
                     by = \"{}us\" }}\n",
                    round_trip * 500
                );
            }
        }
        read(&(text + faults))
    }
}
