//! `bench-masters`: how soon masters answer, how right their clocks are, and the options of a lock
//! that follow.
//!
//! ```text
//! node ─▶ sample: PING and TIME, again and again ─▶ summary: figures of a master ─▶ advice
//! ```
//!
//! Only the sampling opens connections and reads clocks. The rest is pure.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use redquorum::connect::Node;
use redquorum_protocol::NodeSet;
use serde::Serialize;
use summary::{Advice, Lock, Samples, Summary, advise};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::codes::Code;
use crate::line::{AskError, Line, Unreached, on_each};
use crate::look::Look;
use crate::options::{LockOptions, plan};
use crate::{complain, runtime, say, say_json, time};

mod summary;

pub(crate) const HELP: &str = "\
Each master gets 50 PING and 50 TIME per second, over one connection. Run it where the lock will
run, and while the masters and the network do their usual work.

Exit codes:
  0    a quorum of masters was measured
  64   the command line or an option is wrong
  69   no quorum of masters could be reached
  70   a fault of this program
  71   the output cannot be written";

/// How long to measure, and the lock that will use the masters.
#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
    /// How long to measure
    #[arg(long = "for", value_name = "TIME", value_parser = time, default_value = "15s")]
    length: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The shard whose masters to look at, if the resources are spread over several
    #[arg(long, value_name = "NAME")]
    shard: Option<String>,
    #[command(flatten)]
    lock: LockOptions,
}

/// The shortest measurement: its first and its last quarter have some readings of each clock.
const SHORTEST: Duration = Duration::from_secs(1);

/// The time between two samples of one master: 50 per second.
const PACE: Duration = Duration::from_millis(20);

/// The pause before a connection that failed is opened again.
const PAUSE: Duration = Duration::from_millis(200);

/// The result. `--json` prints this.
#[derive(Debug, Serialize)]
struct Measured {
    schema: u32,
    seconds: f64,
    masters: Vec<Summary>,
    /// Empty if no quorum was measured.
    advice: Vec<Advice>,
}

pub(crate) fn main(options: &BenchOptions) -> Result<Code, Code> {
    let plan = plan(&options.lock.builder()?, options.shard.as_deref())?;
    if options.length < SHORTEST {
        let wrong = format!("--for {:?} is too short for the rate of a clock", options.length);
        return Err(complain(Code::USAGE, &wrong, "give at least 1s"));
    }
    if std::io::stderr().is_terminal() {
        let (masters, length) = (plan.nodes.len(), options.length);
        // It is for whoever waits. If it cannot be written, nobody does.
        drop(writeln!(std::io::stderr(), "measuring {masters} masters for {length:?} …"));
    }
    let runtime = runtime()?;
    let (start, length) = (Instant::now(), options.length);
    let all = runtime.block_on(on_each(&plan.nodes, |node| sample(node, start, length)));
    // A node may leave a thread that hangs in a resolver.
    runtime.shutdown_background();
    let masters: Vec<Summary> =
        plan.nodes.iter().zip(&all).map(|(node, samples)| samples.summary(node.name())).collect();
    let reached = NodeSet::which(&masters, |master| master.round_trips.is_some());
    let is_quorum = plan.quorum.is_in(reached);
    let lock = Lock { ttl: plan.ttl, drift: plan.drift };
    let advice = if is_quorum { advise(&masters, lock) } else { Vec::new() };
    let measured = Measured { schema: 1, seconds: options.length.as_secs_f64(), masters, advice };
    if options.json {
        say_json(&measured)?;
    } else {
        say(&text(&measured))?;
    }
    if is_quorum {
        return Ok(Code::SUCCESS);
    }
    let wrong = format!("{} of {} masters answered, which are no quorum", reached.len(), all.len());
    Err(complain(Code::UNAVAILABLE, &wrong, "look at the others: redquorum doctor"))
}

/// Samples one master until the time is over. Connects again after each failure.
async fn sample(node: Arc<dyn Node>, start: Instant, length: Duration) -> Samples {
    let mut samples = Samples::new(length);
    while start.elapsed() < length {
        let failed = match Line::open(&node).await {
            Ok(mut line) => sample_line(&mut line, start, length, &mut samples).await,
            Err(why) => Err(why),
        };
        if let Err(why) = failed {
            samples.failed(&why.to_string());
            sleep(PAUSE.min(length.saturating_sub(start.elapsed()))).await;
        }
    }
    samples
}

/// Samples over one connection, until it breaks or the time is over.
async fn sample_line(
    line: &mut Line,
    start: Instant,
    length: Duration,
    samples: &mut Samples,
) -> Result<(), Unreached> {
    let mut ticks = interval(PACE);
    // A master that is slow for a while is not asked the more often afterwards.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while start.elapsed() < length {
        ticks.tick().await;
        let sent = Instant::now();
        match line.ask(&[b"PING"]).await {
            Ok(_) => samples.round_trips.push(sent.elapsed()),
            Err(AskError::Refused(why)) => samples.failed(&why),
            Err(AskError::Unreached(why)) => return Err(why),
        }
        let sent = Instant::now();
        match Look::at(line, start).await {
            Ok(look) => {
                samples.round_trips.push(sent.elapsed());
                samples.looks.push(look);
            }
            Err(AskError::Refused(why)) => samples.failed(&why),
            Err(AskError::Unreached(why)) => return Err(why),
        }
    }
    Ok(())
}

/// A line for each master, and one for each option.
fn text(measured: &Measured) -> String {
    let mut lines = Vec::new();
    for (index, master) in measured.masters.iter().enumerate() {
        lines.push(format!("master {}  {}  {master}", index + 1, master.name));
    }
    let width = measured.advice.iter().map(|advice| advice.value.len()).max().unwrap_or_default();
    for Advice { option, value, reason, is_error } in &measured.advice {
        let error = if *is_error { "error: " } else { "" };
        lines.push(format!("--{option:15}  {value:width$}  {error}{reason}"));
    }
    lines.join("\n")
}
