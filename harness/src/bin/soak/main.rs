//! The command `redquorum-soak`: many clients on real masters for a long time, under one fault at a
//! time: masters and clients are killed and come back; masters are paused and demoted, and lose
//! their connections and scripts; clients vanish. Clients leave requests unpolled and fork, and
//! every other one reaches the masters through proxies that recycle connections.
//!
//! Masters sync every write, so that all faults are within the assumptions of the lock. No two
//! clients may be in a critical section at once. No request may wait for a free resource for longer
//! than `docs/waiting.md` says. In the end nothing may be left, neither on a master nor in a
//! client, and the memory of a client may not have grown.
//!
//! - `client.rs` has the client processes, and their forks.
//! - `sections.rs` passes their requests and critical sections to the checker, which detects
//!   overlaps and long waits; it counts, and reports findings.
//! - `faults.rs` strikes masters and clients, and has the proxies.
//!
//! Exit codes: 0 no finding, 1 a finding, 3 no server program, 64 wrong usage.

#[cfg(unix)]
mod client;
#[cfg(unix)]
mod faults;
#[cfg(unix)]
mod sections;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    parent::main()
}

#[cfg(not(unix))]
fn main() -> std::process::ExitCode {
    eprintln!("masters and clients run on Unix systems only: use Linux, macOS or WSL");
    std::process::ExitCode::from(3)
}

#[cfg(unix)]
mod parent {
    use std::process::ExitCode;
    use std::time::{Duration, Instant};

    use clap::Parser;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;
    use redquorum_checker::longest_wait;
    use redquorum_protocol::wire::{LAPSE_MS, is_queue};
    use redquorum_rig::{Masters, Persistence, RespValue, RigError};
    use redquorum_scenario::units::nanos;

    use super::faults::Proxies;
    use super::sections::Figures;
    use crate::client::{self, Task};
    use crate::faults::{Processes, strike};

    /// The TTL of a lease. After this time, nothing is left of a killed client's leases.
    pub(crate) const TTL: Duration = Duration::from_secs(3);

    pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(200);

    /// How long a client waits: longer than a free resource may be blocked.
    pub(crate) const WAIT: Duration = Duration::from_secs(15);

    /// How much later than in theory events may come: machines stall, and masters are down.
    const SLACK: Duration = Duration::from_secs(6);

    /// Interval of progress lines on the terminal.
    const PROGRESS: Duration = Duration::from_secs(10);

    const NODES: usize = 5;

    /// Lets clients take locks on real masters for a long time while faults strike, one at a time.
    #[derive(Parser)]
    #[command(name = "redquorum-soak")]
    struct Options {
        /// How long
        #[arg(long = "for", value_name = "TIME", default_value = "10m")]
        #[arg(value_parser = humantime::parse_duration)]
        time: Duration,
        /// Client processes; those but the first half are killed now and then
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
        processes: u32,
        /// Clients in all processes together
        #[arg(long, default_value_t = 64)]
        #[arg(value_parser = clap::value_parser!(u32).range(2..=10_000))]
        clients: u32,
        /// Resources; half of all acquires are of the first eight
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
        resources: u32,
        /// Processes that wait for the same resource use the fair queue
        #[arg(long)]
        fair: bool,
        /// Seed of the random choices; without it, they differ each time
        #[arg(long)]
        seed: Option<u64>,
        /// Run as a client process
        #[arg(long, hide = true)]
        client: Option<String>,
    }

    pub(crate) fn main() -> ExitCode {
        let options = match Options::try_parse() {
            Ok(options) => options,
            Err(error) => {
                let code = if error.use_stderr() { 64 } else { 0 };
                // If the message cannot be printed, there is no other place to report that.
                drop(error.print());
                return ExitCode::from(code);
            }
        };
        if let Some(task) = &options.client {
            return match serde_json::from_str(task) {
                Ok(task) => client::main(&task),
                Err(error) => wrong(64, &format!("--client: {error}")),
            };
        }
        match soak(&options) {
            Ok(findings) if findings.is_empty() => {
                println!("no finding");
                ExitCode::SUCCESS
            }
            Ok(findings) => {
                findings.iter().for_each(|finding| println!("FINDING: {finding}"));
                ExitCode::FAILURE
            }
            Err(error) => {
                let code = if matches!(error, RigError::NoServer { .. }) { 3 } else { 1 };
                wrong(code, &error.to_string())
            }
        }
    }

    fn wrong(code: u8, why: &str) -> ExitCode {
        eprintln!("redquorum-soak: {why}");
        ExitCode::from(code)
    }

    fn soak(options: &Options) -> Result<Vec<String>, RigError> {
        let seed = options.seed.unwrap_or_else(|| u64::from(std::process::id()));
        println!(
            "{} clients in {} processes, {} resources, {NODES} masters, for {}, seed {seed}",
            options.clients,
            options.processes,
            options.resources,
            humantime::format_duration(options.time)
        );
        let masters =
            Masters::builder().count(NODES).persistence(Persistence::AofAlways).start()?;
        let task = Task {
            urls: masters.urls(),
            clients: options.clients.div_ceil(options.processes),
            resources: options.resources,
            seed,
            fair: options.fair,
            apart: false,
        };
        let addresses = (1..=masters.len()).map(|node| masters.address(node));
        let proxies = Proxies::start(addresses).expect("ports of loopback");
        let mut findings = Vec::new();
        let seen = sight(&task);
        println!("clients of masters that know nothing of each other: {seen} overlaps are seen");
        if seen == 0 {
            findings.push("the check is blind: it saw no overlap where there must be some".into());
        }
        let may_wait = longest_wait(options.fair, nanos(NODE_TIMEOUT)).saturating_add(nanos(SLACK));
        let mut figures = Figures::new(may_wait);
        let mut processes = Processes::start(&task, &proxies.urls, options.processes as usize);
        let mut random = StdRng::seed_from_u64(seed);
        let (begin, mut printed) = (Instant::now(), Instant::now());
        while begin.elapsed() < options.time {
            strike(&masters, &mut processes, &mut random, &mut figures)?;
            processes.receive(begin, &mut figures);
            if printed.elapsed() >= PROGRESS {
                printed = Instant::now();
                println!("{:>5} s  {}", begin.elapsed().as_secs(), figures.line());
            }
        }
        processes.stop(begin, &mut figures);
        figures.recycled = proxies.recycled();
        std::thread::sleep(TTL + TTL / 3);
        let mut keys = left(&masters, &["KEYS", "*"])?;
        // A client could not leave the queues if it was killed or its master was down. Positions
        // lapse.
        if keys.iter().any(|key| is_queue(key.as_bytes())) {
            std::thread::sleep(Duration::from_millis(LAPSE_MS).saturating_sub(TTL));
            keys.retain(|key| !is_queue(key.as_bytes()));
            keys.extend(left(&masters, &["KEYS", "*"])?);
        }
        figures.keys = keys;
        figures.channels = left(&masters, &["PUBSUB", "CHANNELS"])?;
        print!("{}", figures.table());
        findings.extend(figures.findings());
        Ok(findings)
    }

    /// Runs the same clients, each on one master of its own: the check for overlaps must find some.
    fn sight(task: &Task) -> u64 {
        let apart = Task { apart: true, clients: 10, resources: 4, ..task.clone() };
        let mut figures = Figures::default();
        let mut processes = Processes::start(&apart, &apart.urls, 1);
        std::thread::sleep(Duration::from_millis(1500));
        processes.stop(Instant::now(), &mut figures);
        figures.sections.overlaps
    }

    /// What is left on all masters together.
    fn left(masters: &Masters, words: &[&str]) -> Result<Vec<String>, RigError> {
        let mut left = Vec::new();
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        for node in 1..=masters.len() {
            match masters.command(node, &words)? {
                RespValue::Array(all) => left.extend(
                    all.iter().map(|one| format!("{} on {node}", one.text().unwrap_or_default())),
                ),
                other => left.push(format!("{other:?} of {node}")),
            }
        }
        Ok(left)
    }
}
