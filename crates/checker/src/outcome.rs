//! The comparison with the expectation, in either direction. An expected violation that does not
//! show means that the harness has gone blind.

use std::collections::{BTreeMap, BTreeSet};

use redquorum_scenario::client_protocol::FailureReason;
use redquorum_scenario::history::{Event, Phase, Record};
use redquorum_scenario::{Acquires, Cause, Count, Overtaken, Property, Wanted};

use super::requests::{Reply, Request};
use super::time::{self, Ms, SKEW};
use super::{Case, Observed, Outcome, Violation, overtaken};

/// The deviations from the expectation.
#[derive(Default)]
struct Lines {
    /// Whether an unexpected violation was seen.
    unexpected: bool,
    /// Whether an expected violation was not seen.
    unseen: bool,
    /// Whether the record does not show if an expected violation occurred.
    unclear: bool,
    all: Vec<(Outcome, String)>,
}

impl Lines {
    fn add(&mut self, outcome: Outcome, line: String) {
        self.all.push((outcome, line));
    }

    /// A violation, or a bound that was not kept.
    fn unexpected(&mut self, line: String) {
        self.unexpected = true;
        self.add(Outcome::Differs, line);
    }
}

/// The outcome, with a line for each deviation.
pub(crate) fn of(
    case: &Case<'_>,
    observed: &BTreeMap<Property, Observed>,
    findings: &[Violation],
    because: &[Cause],
) -> (Outcome, Vec<String>) {
    let mut lines = Lines::default();
    properties(case, observed, findings, &mut lines);
    known(case, findings, &mut lines);
    causes(case, because, &mut lines);
    acquires(case, &mut lines);
    margins(case, &mut lines);
    within(case, &mut lines);
    commands(case, &mut lines);
    overtaken(case, &mut lines);
    faults(case, &mut lines);
    stamps(case, &mut lines);
    for (process, _, why) in &case.world.broken {
        lines.add(Outcome::Differs, format!("process {process}: {why}"));
    }
    if case.world.began(Phase::End).is_none() {
        lines.add(Outcome::Inconclusive, "the run broke off before its end".to_owned());
    }
    let worst = lines.all.iter().map(|(outcome, _)| *outcome).max();
    let outcome = match worst.unwrap_or(Outcome::AsExpected) {
        Outcome::Differs if lines.unseen && !lines.unexpected => Outcome::NotSeen,
        Outcome::Differs => Outcome::Differs,
        // The rest of the scenario is without meaning.
        worst => match unsupported(case) {
            Some(why) => return (Outcome::Skipped, vec![why]),
            None => worst,
        },
    };
    (outcome, lines.all.into_iter().map(|(_, line)| line).collect())
}

/// The first request that its client does not support, and why.
fn unsupported(case: &Case<'_>) -> Option<String> {
    let mut all = case.requests.iter();
    let request = all.find(|request| request.failed_as(FailureReason::Unsupported))?;
    let text = request.reply.and_then(|reply| reply.explanation());
    let text = text.map(|text| format!(": {text}")).unwrap_or_default();
    Some(format!("the client does not support this {}{text}", request.verb()))
}

fn properties(
    case: &Case<'_>,
    observed: &BTreeMap<Property, Observed>,
    findings: &[Violation],
    lines: &mut Lines,
) {
    let expect = &case.world.scenario.expect;
    let is_known = |property: Property| {
        let mut all = findings.iter().filter(|finding| finding.is_violation_of(property));
        all.all(|finding| {
            let causes = &finding.causes;
            !causes.is_empty() && causes.iter().all(|it| expect.known(property, *it).is_some())
        })
    };
    for property in Property::ALL {
        let wanted = case.world.scenario.expect.of(property);
        let seen = observed.get(&property).copied().unwrap_or(Observed::Safe);
        let expected = if wanted == Wanted::Safe { "safe" } else { "violated" };
        let line = |seen| format!("{property}: expected {expected}, observed {seen}");
        match (wanted, seen) {
            (Wanted::Safe, Observed::Safe | Observed::NotUsed)
            | (Wanted::Violated, Observed::Violated) => {}
            (Wanted::Safe, Observed::Violated) if is_known(property) => {}
            (Wanted::Safe, Observed::Violated) => lines.unexpected(line("violated")),
            (Wanted::Violated, Observed::Safe | Observed::NotUsed) => {
                lines.unseen = true;
                let seen = if seen == Observed::Safe { "safe" } else { "not used" };
                lines.add(Outcome::NotSeen, line(seen));
            }
            (_, Observed::Inconclusive) => {
                lines.unclear |= wanted == Wanted::Violated;
                lines.add(Outcome::Inconclusive, line("inconclusive"));
            }
        }
    }
}

/// Known violations that did not show.
fn known(case: &Case<'_>, findings: &[Violation], lines: &mut Lines) {
    for known in case.world.scenario.expect.known.iter().filter(|known| !known.sometimes) {
        let shows = |finding: &Violation| {
            finding.is_violation_of(known.property) && finding.causes.contains(&known.because)
        };
        if !findings.iter().any(shows) {
            let line = format!(
                "known: {} because of {} does not show: if the lock was mended, remove it from \
                 what is known; if it shows in some runs only, say `sometimes = true`",
                known.property, known.because
            );
            lines.add(Outcome::NotSeen, line);
        }
    }
}

fn causes(case: &Case<'_>, because: &[Cause], lines: &mut Lines) {
    let expect = &case.world.scenario.expect;
    // A violation that did not show has no cause. `properties` has reported already that it did not
    // show.
    if !lines.unseen && !lines.unclear {
        for cause in expect.because.iter().filter(|cause| !because.contains(cause)) {
            let line = format!("because: expected {cause}, which is no cause of what was observed");
            lines.add(Outcome::Differs, line);
        }
    }
    if expect.because.is_empty() && !expect.any_violation() {
        return;
    }
    for cause in [Cause::Bug, Cause::Unknown] {
        let is_known = expect.known.iter().any(|known| known.because == cause);
        if because.contains(&cause) && !expect.because.contains(&cause) && !is_known {
            let line = format!("because: observed {cause}, which was not expected");
            lines.add(Outcome::Differs, line);
        }
    }
}

/// The text by which a client reports that it distrusts a master.
pub const DISTRUSTED: &str = "distrusted";

/// Whether a client is the one that a scenario names, or one of several with that name and a
/// number.
fn is_named(client: &str, name: &str) -> bool {
    client.strip_prefix(name).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The acquires of a client, or of all clients with that name and a number.
fn acquires_of<'a>(case: &'a Case<'_>, name: &str) -> Vec<&'a Request<'a>> {
    let exact = case.world.scenario.clients.iter().any(|client| client.id == name);
    case.requests
        .iter()
        .filter(|request| request.is_acquire_of_run())
        .filter(|request| request.client == name || !exact && is_named(request.client, name))
        .collect()
}

fn acquires(case: &Case<'_>, lines: &mut Lines) {
    for (name, wanted) in &case.world.scenario.expect.acquires {
        let all = acquires_of(case, name);
        let granted = all.iter().filter(|request| request.granted()).count();
        let replies: Vec<Reply<'_>> = all.iter().filter_map(|request| request.reply).collect();
        // A library that does not say why may have had this reason.
        let failed = |reason| {
            let reasons = [Some(reason), Some(FailureReason::Refused)];
            granted == 0 && replies.iter().any(|reply| reasons.contains(&reply.why))
        };
        let names_distrust = |reply: &Reply<'_>| {
            !reply.ok && reply.explanation().is_some_and(|text| text.contains(DISTRUSTED))
        };
        let (as_wanted, what) = match wanted {
            Acquires::Granted => (granted > 0, "was never granted"),
            Acquires::AllGranted => {
                (granted > 0 && granted == all.len(), "was not granted every time")
            }
            Acquires::Refused => (!replies.is_empty() && granted == 0, "was not refused"),
            Acquires::Taken => (failed(FailureReason::Taken), "was not refused as taken"),
            Acquires::NoQuorum => {
                (failed(FailureReason::NoQuorum), "was not refused for want of a quorum")
            }
            Acquires::Distrusted => (
                granted == 0 && replies.iter().any(names_distrust),
                "was not refused naming a distrusted master",
            ),
            Acquires::Late => (failed(FailureReason::Late), "was not refused as late"),
        };
        if !as_wanted {
            let line = format!("acquires: {name} {what} ({granted} of {} granted)", all.len());
            lines.add(Outcome::NotSeen, line);
        }
    }
}

fn margins(case: &Case<'_>, lines: &mut Lines) {
    for (name, wanted) in &case.world.scenario.expect.margin {
        let mut own = case.leases.iter().filter(|lease| lease.phase == Phase::Run);
        let Some(first) = own.find(|lease| lease.client == name) else {
            lines.add(Outcome::NotSeen, format!("margin: {name} was never granted"));
            continue;
        };
        let margin = case.margin(first.process, first.grants(&case.keys, true));
        if i64::try_from(*wanted) != Ok(margin) {
            let line = format!("margin: the first grant of {name} has {margin}, expected {wanted}");
            lines.add(Outcome::NotSeen, line);
        }
    }
}

/// A slow grant is a failure (`Differs`), not a run without a meaning (`NotSeen`): the grants are
/// there.
fn within(case: &Case<'_>, lines: &mut Lines) {
    for (name, wanted) in &case.world.scenario.expect.within {
        let all = acquires_of(case, name);
        let granted = all.into_iter().filter(|request| request.granted());
        let slowest = granted.max_by_key(|request| request.replied().saturating_sub(request.asked));
        let Some(slowest) = slowest else {
            lines.add(Outcome::NotSeen, format!("within: {name} was never granted"));
            continue;
        };
        let took = slowest.replied().saturating_sub(slowest.asked);
        if took > time::of(wanted.0) {
            let (client, asked, took) = (slowest.client, Ms(slowest.asked), Ms(took));
            lines.unexpected(format!(
                "within: {client} asked at {asked} and was granted after {took}, expected at most \
                 {wanted}"
            ));
        }
    }
}

fn commands(case: &Case<'_>, lines: &mut Lines) {
    for (name, most) in &case.world.scenario.expect.commands {
        let own: BTreeSet<&str> =
            acquires_of(case, name).into_iter().map(|request| request.process).collect();
        let began = case.world.until(Phase::Heal);
        let sent = |record: &Record| match &record.event {
            Event::Command { process, sent, .. } => own.contains(process.as_str()) && *sent < began,
            _ => false,
        };
        let count = case.world.records.iter().filter(|record| sent(record)).count();
        if count > *most {
            let line = format!("commands: {name} sent {count}, expected at most {most}");
            lines.unexpected(line);
        }
    }
}

fn overtaken(case: &Case<'_>, lines: &mut Lines) {
    for (name, wanted) in &case.world.scenario.expect.overtaken {
        let Some(worst) = overtaken::most(case, &acquires_of(case, name)) else {
            let line = format!("overtaken: {name} was never in the fair queue");
            lines.add(Outcome::NotSeen, line);
            continue;
        };
        let (asked, since) = (Ms(worst.request.asked), Ms(worst.since));
        let (client, times) = (worst.request.client, worst.times);
        match *wanted {
            Overtaken::AtMost(most) if times > most => {
                let by = worst.by.unwrap_or("no client");
                lines.unexpected(format!(
                    "overtaken: {client} asked at {asked}, and was in the fair queue from {since} \
                     on: {by} got it {times} times before, though it came later each time, \
                     expected at most {most}"
                ));
            }
            Overtaken::Is(Count::Some) if times == 0 => {
                let line = format!("overtaken: {name} never was, expected at least once");
                lines.add(Outcome::NotSeen, line);
            }
            _ => {}
        }
    }
}

fn faults(case: &Case<'_>, lines: &mut Lines) {
    for (index, fault) in case.world.scenario.faults.iter().enumerate() {
        let number = index + 1;
        let what = match case.faults.strikes().iter().find(|strike| strike.number == number) {
            Some(strike) if !strike.failed => continue,
            Some(_) => "failed to strike",
            None => "never struck",
        };
        let name = fault.kind.name();
        lines.add(Outcome::NotSeen, format!("fault {number} ({name}) {what}"));
    }
    for strike in case.faults.not_healed() {
        lines.add(Outcome::Inconclusive, format!("{} could not be healed", strike.name()));
    }
}

/// Processes whose stamps cannot be true, each once. A client that reads another clock, or reports
/// another unit, would move its leases away from all rivals, and everything would look safe.
fn stamps(case: &Case<'_>, lines: &mut Lines) {
    let mut reported = BTreeSet::new();
    let mut report = |process, what: String, stamp| {
        if reported.insert(process) {
            let line = format!(
                "process {process}: {what}, is stamped {}: stamps are nanoseconds of \
                 CLOCK_MONOTONIC",
                Ms(stamp)
            );
            lines.add(Outcome::Differs, line);
        }
    };
    for request in &case.requests {
        let Some(reply) = request.reply else { continue };
        let latest = reply.ns.saturating_add(SKEW);
        let mut before = request.asked.saturating_sub(SKEW);
        for stamp in [reply.from_ns, reply.at_ns].into_iter().flatten() {
            if stamp < before || stamp > latest {
                let (op, asked, given) = (request.verb(), Ms(request.asked), Ms(reply.ns));
                let what = format!("its answer to {op}, asked at {asked} and given at {given}");
                report(request.process, what, stamp);
            }
            before = before.max(stamp);
        }
    }
    for record in case.world.records {
        if let Event::Lost { client, at, .. } = &record.event
            && *at > record.ns.saturating_add(SKEW)
        {
            let what = format!("its loss, reported at {}", Ms(record.ns));
            report(case.world.process(client), what, *at);
        }
    }
}
