//! `client-check`: shows the author of a driver in plain words what is right and what is wrong with
//! the driver. A scenario would report the same faults, but less clearly.
//!
//! The command starts its own masters and one process of the driver, and checks each part of the
//! protocol of [`client_protocol`](redquorum_scenario::client_protocol). Each check prints one
//! line: `ok`, `wrong`, or `skipped` if the driver does not announce the feature.
//!
//! This file has the order of the checks. `checks.rs` has them, `peer.rs` the client protocol with
//! the driver, bounded against any driver, and the keys on the masters.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use redquorum_rig::Masters;
use redquorum_rig::network::Network;

use self::peer::{Fault, Peer};
use crate::real::wire::Scripts;
use crate::unpoisoned;
use peer::Keys;
use redquorum_scenario::client_protocol::{Capability, ClientReply, FailureReason, Op, Options};
use redquorum_scenario::history::{Act, Outcome};

/// Ends a check with a fault of the driver: its output, the expected output, and how to fix it.
macro_rules! wrong {
    ($($text:tt)*) => { Err(Fault::Wrong(format!($($text)*))) };
}

/// Ends a check with a fault of the driver unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return wrong!($($text)*);
        }
    };
}

mod checks;
mod peer;

/// The options that the driver gets in its environment. A master on this machine replies within a
/// millisecond; the rest is for slow languages.
const OPTIONS: Options = Options {
    ttl_ms: 2000,
    node_timeout_ms: 100,
    drift_ppm: 10_000,
    drift_ms: 2,
    fencing: true,
    restart_guard_ms: None,
    clock_guard_ms: None,
    lock_delay_ms: 0,
    wake_ups: true,
    fair: false,
    masters_id: None,
    moving: None,
    name: None,
};

/// The observation of a check that found no fault; or why the check ended without one.
type CheckResult = Result<String, Fault>;

type Check = fn(&mut Session) -> CheckResult;

/// The state that the checks share.
struct Session {
    /// The command that starts a process of the driver.
    command: String,
    peer: Peer,
    keys: Keys,
    readings: Readings,
    /// The proxies between the driver and the masters.
    _network: Network,
    can: Vec<Capability>,
    /// The lease that several checks examine.
    grant: Option<Grant>,
}

/// What the harness has read from the commands of the driver: the master, the effect on a key, and
/// the outcome.
type Readings = Arc<Mutex<Vec<(usize, Act, Outcome)>>>;

/// A granted acquire.
struct Grant {
    resource: &'static str,
    ttl_ms: u64,
    /// Stamps: the time of the request, and the time at which the reply was read.
    asked: i64,
    received: i64,
    reply: ClientReply,
    /// The value of the key on the masters, once a check has read it.
    value: Option<Vec<u8>>,
}

/// The checks in their order, with the features without which they are skipped.
const CHECKS: [(&str, &[Capability], Check); 29] = [
    ("ready", &[], checks::ready),
    ("acquire", &[], checks::acquire),
    ("stamps", &[], checks::stamps),
    ("deadline", &[], checks::deadline),
    ("keys", &[], checks::keys),
    ("token", &[], checks::token),
    ("taken", &[], checks::taken),
    ("step", &[], checks::step),
    ("checked step", &[], checks::checked_step),
    ("release", &[], checks::release),
    ("reading", &[], checks::reading),
    ("fresh tokens", &[Capability::FreshTokens], checks::fresh_tokens),
    ("fence", &[Capability::Fence], checks::fence),
    ("extend", &[Capability::Extend], checks::extend),
    ("keep alive", &[Capability::KeepAlive], checks::keep_alive),
    ("renews", &[Capability::Renews], checks::renews),
    ("again", &[Capability::Reenter], checks::again),
    ("several", &[Capability::Several], checks::several),
    ("any", &[Capability::Any], checks::any),
    ("shared", &[Capability::Shared], checks::shared),
    ("lost", &[], checks::lost),
    ("expired lease", &[], checks::expired),
    ("wait", &[Capability::Wait], checks::wait),
    ("cancel", &[Capability::Wait, Capability::Cancel], checks::cancel),
    ("fair", &[Capability::Fair, Capability::Wait], checks::fair),
    ("unknown op", &[], checks::unknown),
    ("no quorum", &[], checks::no_quorum),
    ("recovery", &[], checks::recovery),
    ("end of input", &[], checks::end),
];

/// Puts proxies in front of the masters, as in a run, which read the commands. Returns their
/// addresses, too.
fn proxies(masters: &Masters, readings: &Readings) -> io::Result<(Network, Vec<String>)> {
    let (scripts, readings) = (Scripts::default(), Arc::clone(readings));
    let network = Network::start(move |traffic| {
        if let Some((act, outcome)) = scripts.reading(&traffic.event) {
            unpoisoned(&readings).push((traffic.node, act, outcome));
        }
    })?;
    let urls = (1..=masters.len()).map(|node| {
        network.upstream(node, Some(masters.address(node)));
        Ok(format!("redis://{}", network.listen("driver", node)?))
    });
    let urls = urls.collect::<io::Result<Vec<String>>>()?;
    Ok((network, urls))
}

/// The quorum of the masters that a driver is checked on if it is not said.
pub const USUAL_QUORUM: u8 = 2;

/// Checks a driver on as many masters as make this quorum, and writes each result as a line.
/// Returns whether all is well.
///
/// # Errors
/// The reason why the driver could not be checked: no server, no shell, or `out` cannot be written
/// to.
pub fn check(command: &str, quorum: u8, out: &mut dyn Write) -> Result<bool, String> {
    let count = 2 * usize::from(quorum) - 1;
    let masters = Masters::start(count).map_err(|error| error.to_string())?;
    let readings = Readings::default();
    let (network, urls) = proxies(&masters, &readings)
        .map_err(|error| format!("no proxy can be started: {error}"))?;
    let peer = Peer::start(command, &urls, &OPTIONS)?;
    let keys = Keys::new(masters);
    let command = command.to_owned();
    let can = Vec::new();
    let mut session =
        Session { command, peer, keys, readings, _network: network, can, grant: None };
    let mut page = Page { out, all_well: true };
    let mut whole = true;
    for (number, (name, needs, check)) in CHECKS.iter().enumerate() {
        let result = match needs.iter().find(|need| !session.can(**need)) {
            Some(missing) => cannot(*missing),
            None => check(&mut session),
        };
        match result {
            Ok(seen) => page.line("ok", name, &seen)?,
            Err(Fault::Skipped(why)) => page.line("skipped", name, &why)?,
            Err(Fault::Wrong(what)) => page.line("wrong", name, &what)?,
            Err(Fault::Environment(why)) => return Err(why),
            Err(Fault::Over(what)) => {
                page.line("wrong", name, &what)?;
                let left = CHECKS.len() - number - 1;
                if left > 0 {
                    page.line("skipped", "the rest", &format!("{left} checks, for that reason"))?;
                }
                whole = false;
                break;
            }
        }
    }
    let complaints = session.peer.complaints();
    if complaints.is_empty() && whole {
        page.line("ok", "lines", "each was understood, and every answer was to a question")?;
    }
    for complaint in complaints {
        page.line("wrong", "lines", &complaint)?;
    }
    Ok(page.all_well)
}

struct Page<'a> {
    out: &'a mut dyn Write,
    all_well: bool,
}

impl Page<'_> {
    fn line(&mut self, verdict: &str, name: &str, text: &str) -> Result<(), String> {
        self.all_well &= verdict != "wrong";
        let text = text.replace('\n', "\n         ");
        let written = writeln!(self.out, "{verdict:<8} {name}: {text}");
        written.and_then(|()| self.out.flush()).map_err(|why| format!("cannot be written: {why}"))
    }
}

impl Session {
    /// Sends a request and waits for its reply.
    fn request(&mut self, client: &str, op: Op) -> Result<ClientReply, Fault> {
        let asked = self.peer.ask(client, op)?;
        self.peer.reply(asked).map(|(reply, _)| reply)
    }

    /// Releases a resource.
    fn release(&mut self, client: &str, resource: &str) -> Result<ClientReply, Fault> {
        self.request(client, Op::Release { resource: resource.into() })
    }

    /// Acquires a free resource.
    fn acquire(&mut self, resource: &'static str, ttl_ms: u64) -> Result<Grant, Fault> {
        let op = Op::Acquire {
            resource: resource.into(),
            ttl_ms,
            wait_ms: 0,
            again: false,
            shared: false,
        };
        let asked = self.peer.ask("c1", op)?;
        let (reply, received) = self.peer.reply(asked)?;
        if reply.why == Some(FailureReason::Unsupported) {
            let why = format!("an acquire for {ttl_ms} ms was answered {reply}");
            return Err(Fault::Skipped(why));
        }
        ensure!(reply.ok, "a free resource was not granted, with all masters up: {reply}");
        Ok(Grant { resource, ttl_ms, asked: asked.at, received, reply, value: None })
    }

    /// The lease that several checks examine.
    fn lease(&self) -> Result<&Grant, Fault> {
        self.grant.as_ref().ok_or_else(no_lease)
    }

    /// On how many masters the harness has read this from a command since the last call.
    fn read(&self, is: impl Fn(&Act, Outcome) -> bool) -> usize {
        let all = std::mem::take(&mut *unpoisoned(&self.readings));
        let found = all.iter().filter(|(_, act, outcome)| is(act, *outcome));
        found.map(|(node, ..)| *node).collect::<BTreeSet<usize>>().len()
    }

    fn can(&self, what: Capability) -> bool {
        self.can.contains(&what)
    }
}

/// An acquire with the TTL of the options.
fn acquire_op(resource: &str, wait_ms: u64) -> Op {
    Op::Acquire {
        resource: resource.into(),
        ttl_ms: OPTIONS.ttl_ms,
        wait_ms,
        again: false,
        shared: false,
    }
}

/// A step that checks the lease of a resource, if one is given.
fn step_op(check: Option<&str>) -> Op {
    Op::Step { name: "write R".into(), check: check.map(Into::into) }
}

/// The result of a check that found no fault.
fn fine(seen: impl Into<String>) -> CheckResult {
    Ok(seen.into())
}

/// There is no lease to examine: an earlier check has reported why.
fn no_lease() -> Fault {
    Fault::Skipped("no lease was granted".to_owned())
}

fn cannot(what: Capability) -> CheckResult {
    Err(Fault::Skipped(format!("`{what}` is not in \"can\"")))
}
