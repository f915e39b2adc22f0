//! The comparison with the expectation, in either direction. An expected violation that does not
//! show means that the harness has gone blind.
//!
//! Also the measurements, which do not affect the verdict, and why a run without a violation holds
//! although faults struck.

use std::collections::{BTreeMap, BTreeSet};

use super::case::{Reply, Request};
use super::keys::{BOOKS, Presence};
use super::leases::Lease;
use super::maps::{Map, Set, sorted};
use super::time::{self, Ms, SKEW};
use super::waits::most_overtaken;
use super::{Case, Measures, Observed, Outcome, Violation};
use redquorum_scenario::client_protocol::FailureReason;
use redquorum_scenario::history::{Event, Ns, Phase, Record, Window};
use redquorum_scenario::{Acquires, Cause, Count, Overtaken, Property, Wanted, numbered};

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

fn acquires(case: &Case<'_>, lines: &mut Lines) {
    for (name, wanted) in &case.world.scenario.expect.acquires {
        let all = case.acquires_of(name);
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
        let margin = case.margin(first.process, &first.grants(&case.keys, true));
        if i64::try_from(*wanted) != Ok(margin) {
            let line = format!("margin: the first grant of {name} has {margin}, expected {wanted}");
            lines.add(Outcome::NotSeen, line);
        }
    }
}

fn commands(case: &Case<'_>, lines: &mut Lines) {
    for (name, most) in &case.world.scenario.expect.commands {
        let own: BTreeSet<&str> =
            case.acquires_of(name).into_iter().map(|request| request.process).collect();
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
        let Some(worst) = most_overtaken(case, &case.acquires_of(name)) else {
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

/// The leases that count: not those of the final acquires.
fn granted<'c, 'h>(case: &'c Case<'h>) -> Vec<&'c Lease<'h>> {
    case.leases.iter().filter(|lease| lease.phase != Phase::FinalAcquire).collect()
}

/// The times of the granted acquires, and those from the end of a lease to the next grant.
pub fn times(case: &Case<'_>) -> (Vec<Ns>, Vec<Ns>) {
    let granted = granted(case);
    let took = granted.iter().map(|lease| lease.reply.returned().saturating_sub(lease.called()));
    (took.collect(), hand_overs(&granted))
}

/// When a command was sent, and its token.
type SentCommand<'a> = (Ns, Option<&'a str>);

/// The number of commands that a client sent for each granted acquire: those that touch the key of
/// the resource, from the call to the grant. Clients that share a process do not count, because a
/// command does not name its client.
pub fn commands_per_acquisition(case: &Case<'_>) -> Vec<i64> {
    let mut clients: Map<&str, usize> = Map::default();
    for client in &case.world.scenario.clients {
        *clients.entry(client.process()).or_default() += 1;
    }
    let mut sent_for: Map<(&str, &str), Vec<SentCommand<'_>>> = Map::default();
    for record in case.world.records {
        let Event::Command { process, act, sent, .. } = &record.event else { continue };
        let key = act.key().filter(|key| !key.starts_with(BOOKS));
        if let Some(resource) = key.and_then(|key| case.world.resource(key)) {
            sent_for.entry((process, resource)).or_default().push((*sent, act.token()));
        }
    }
    sent_for.values_mut().for_each(|commands| commands.sort_unstable());
    // The clean-up of an earlier lease may still be in progress.
    let tokens: Set<&str> = case.leases.iter().filter_map(|lease| lease.token).collect();
    let alone = granted(case).into_iter().filter(|lease| clients.get(lease.process) == Some(&1));
    let count = alone.filter_map(|lease| {
        let commands = sent_for.get(&(lease.process, lease.resource))?;
        let begin = commands.partition_point(|(sent, _)| *sent < lease.called());
        let end = commands.partition_point(|(sent, _)| *sent <= lease.reply.returned());
        let is_own = |token: Option<&str>| {
            token == lease.token || token.is_none_or(|token| !tokens.contains(token))
        };
        let own = commands.get(begin..end)?.iter().filter(|(_, token)| is_own(*token)).count();
        i64::try_from(own).ok()
    });
    count.collect()
}

pub(crate) fn measures(case: &Case<'_>) -> Measures {
    let granted = granted(case);
    let (took, hand_overs) = times(case);
    let hollow = granted.iter().flat_map(|lease| case.hollow(lease));
    Measures {
        grants: granted.len(),
        hollow_ns: hollow.map(|span| span.length()).fold(0, Ns::saturating_add),
        margins: granted
            .iter()
            .filter(|lease| lease.token.is_some())
            .map(|lease| case.margin(lease.process, &lease.grants(&case.keys, true)))
            // With fewer certain grants than a quorum there is no margin: `validity` says why.
            .filter(|margin| *margin >= 0)
            .collect(),
        acquire_ns: time::median(took),
        hand_over_ns: time::median(hand_overs),
    }
}

/// The times from the end of a lease to the next grant of the same resource to another client that
/// was already waiting.
fn hand_overs(granted: &[&Lease<'_>]) -> Vec<Ns> {
    let mut by_resource: BTreeMap<&str, Vec<&Lease<'_>>> = BTreeMap::new();
    for lease in granted {
        by_resource.entry(lease.resource).or_default().push(lease);
    }
    let mut times = Vec::new();
    for leases in by_resource.values_mut() {
        leases.sort_by_key(|lease| lease.start.to);
        for (place, lease) in leases.iter().enumerate() {
            let Some(before) = before(&leases[..place], lease.shared) else { continue };
            let end = before.span().to;
            let next = lease.start.to;
            let waited = lease.asked <= end && next >= end;
            if waited && before.client != lease.client {
                times.push(next.saturating_sub(end));
            }
        }
    }
    times
}

/// The lease that had to end before the next one. Before a shared lease: the latest exclusive one.
/// Before an exclusive lease: the latest one, or of the shared ones that were granted after the
/// latest exclusive one the one that ended last.
fn before<'c, 'h>(earlier: &[&'c Lease<'h>], shared: bool) -> Option<&'c Lease<'h>> {
    let exclusive = earlier.iter().rposition(|lease| !lease.shared);
    let readers = if shared { &[] } else { &earlier[exclusive.map_or(0, |at| at + 1)..] };
    let last = readers.iter().max_by_key(|lease| lease.span().to);
    last.or(exclusive.map(|at| &earlier[at])).copied()
}

/// The reason, for a run without violations. None if no fault struck, or if the history does not
/// show a reason.
pub fn reason_to_hold(case: &Case<'_>) -> Option<String> {
    if case.faults.strikes().iter().all(|strike| strike.failed) {
        return None;
    }
    let leases: Vec<&Lease<'_>> =
        case.leases.iter().filter(|lease| lease.phase == Phase::Run).collect();
    let contests = Contest::all(case, &leases);
    let reason = never_granted(case, &leases)
        .or_else(|| kept(case, &contests))
        .or_else(|| contests.iter().find_map(Contest::distrusted))
        .or_else(|| refused_access(case))
        .or_else(|| untouched(case, &leases))
        .or_else(|| contests.is_empty().then_some(NOT_ASKED.to_owned()))?;
    // The first word is never a name.
    let (first, rest) = reason.split_at_checked(1)?;
    Some(format!("{}{rest}.", first.to_uppercase()))
}

const NOT_ASKED: &str = "no client asked for a resource while another client held it, so no fault \
                         could let a second client in";

/// A lease, and the acquires of other clients that were open while its client believed in it.
struct Contest<'c, 'a> {
    lease: &'c Lease<'a>,
    rivals: Vec<&'c Request<'a>>,
    /// From the first of these acquires to the last, while the client believed in the lease.
    span: Window,
}

impl<'c, 'a> Contest<'c, 'a> {
    /// The contests of all leases, in the order of the leases.
    fn all(case: &'c Case<'a>, leases: &[&'c Lease<'a>]) -> Vec<Self> {
        // The acquires of each client, in the order in which it sent them.
        let mut acquires: BTreeMap<(&str, &str), Vec<&Request<'_>>> = BTreeMap::new();
        for request in case.requests.iter().filter(|request| request.is_acquire_of_run()) {
            if let Some(resource) = request.resource {
                acquires.entry((resource, request.client)).or_default().push(request);
            }
        }
        let contest = |lease: &&'c Lease<'a>| {
            let held = lease.span();
            let rivals: Vec<&Request<'_>> = acquires
                .range((lease.resource, "")..)
                .take_while(|((resource, _), _)| *resource == lease.resource)
                .filter(|((_, client), _)| *client != lease.client)
                .flat_map(|(_, of_client)| {
                    // A client has one acquire of a resource at a time.
                    let before = of_client.partition_point(|request| request.asked < held.to);
                    let latest = of_client[..before].iter().rev();
                    let open = latest.take_while(|request| request.replied() > held.from).copied();
                    open.filter(|request| !(lease.shared && request.op.is_shared()))
                })
                .collect();
            let spans = rivals.iter().filter_map(|rival| rival.span().meet(held));
            let span = spans.reduce(Window::and_what_is_between)?;
            Some(Contest { lease, rivals, span })
        };
        leases.iter().filter_map(contest).collect()
    }

    /// The report of a rival that does not count the grant of a master.
    fn distrusted(&self) -> Option<String> {
        let (rival, text) = self.rivals.iter().find_map(|rival| {
            let text = rival.reply.filter(|reply| !reply.ok)?.explanation()?;
            text.contains(DISTRUSTED).then_some((rival.client, text))
        })?;
        // `master 1: distrusted for another 1.8s: and so on`.
        let parts: Vec<&str> = text.split(": ").take(2).collect();
        let (client, resource) = (self.lease.client, self.lease.resource);
        let parts = parts.join(": ");
        Some(format!(
            "while {client} held {resource}, {rival} was refused it and reported “{parts}”"
        ))
    }

    /// Whether no rival has a quorum without the masters that kept the key of the lease.
    fn is_kept_out(&self, case: &Case<'_>, kept: &[usize]) -> bool {
        self.rivals.iter().all(|rival| {
            let lock = case.world.lock_of(rival.process);
            let rest: Vec<usize> =
                lock.masters.iter().copied().filter(|node| !kept.contains(node)).collect();
            !lock.is_quorum(&rest)
        })
    }

    /// The masters that certainly had the key while other clients asked for the resource.
    fn kept(&self, case: &Case<'_>) -> Vec<usize> {
        let through = |key: &&Presence<'_>| {
            let there = key.surely();
            there.from <= self.span.from && self.span.to <= there.to
        };
        sorted(self.lease.keys(&case.keys).filter(through).map(|key| key.node))
    }

    /// The masters on which the key was certainly gone before the end of its TTL, and before the
    /// other clients stopped asking. A key that a client deleted does not count.
    fn lost(&self, case: &Case<'_>) -> Vec<usize> {
        let is_early = |key: &Presence<'_>| {
            let end = key.life.ttl.map_or(Ns::MAX, |ttl| key.life.set.to.saturating_add(ttl));
            key.deleted.is_none() && key.possible.to < self.span.to.min(end)
        };
        let is_lost = |node: &usize| {
            let mut of_node = self.lease.keys(&case.keys).filter(|key| key.node == *node);
            of_node.all(is_early)
        };
        self.lease.masters(&case.keys).into_iter().filter(is_lost).collect()
    }

    /// The masters that kept the key, for clients with the same `n` masters and quorum `q`.
    fn sentence(&self, case: &Case<'_>, kept: &[usize], n: usize, q: usize) -> String {
        let (client, resource) = (self.lease.client, self.lease.resource);
        let kept_it = match &self.lost(case)[..] {
            [] => format!("{} kept {client}'s key", numbered(kept)),
            lost => {
                format!(
                    "{} lost {client}'s key early, but {} kept it",
                    numbered(lost),
                    numbered(kept)
                )
            }
        };
        let mut rivals = self.rivals.iter().map(|rival| rival.client);
        let first = rivals.next().unwrap_or_default();
        let rival = if rivals.all(|other| other == first) { first } else { "another client" };
        let could = match n.saturating_sub(kept.len()) {
            0 => "it could not get any master".to_owned(),
            free => format!("it could get at most {free} of {n} masters, and a quorum takes {q}"),
        };
        format!("{kept_it} while {rival} asked for {resource}: {could}")
    }
}

/// Whether so many masters kept the key of each of these leases that the others were no quorum.
fn kept(case: &Case<'_>, all: &[Contest<'_, '_>]) -> Option<String> {
    let kept: Vec<Vec<usize>> = all.iter().map(|one| one.kept(case)).collect();
    if all.is_empty() || !all.iter().zip(&kept).all(|(one, kept)| one.is_kept_out(case, kept)) {
        return None;
    }
    let mut locks = all.iter().flat_map(|one| {
        let rivals = one.rivals.iter().map(|rival| rival.process);
        rivals.chain([one.lease.process]).map(|process| case.world.lock_of(process))
    });
    let first = locks.next()?;
    if !locks.all(|lock| lock.is_as(first)) {
        return Some(
            "whenever a client asked for the resource of another one's lease, so many masters \
             kept the key of the lease that the others were no quorum"
                .to_owned(),
        );
    }
    let (n, q) = (first.n, first.q);
    if let ([one], [kept]) = (all, &kept[..]) {
        return Some(one.sentence(case, kept, n, q));
    }
    let least = kept.iter().map(Vec::len).min()?;
    Some(format!(
        "another client asked for the resource during {} leases, and meanwhile at least {least} of \
         {n} masters kept the key of each: at most {} could grant, and a quorum takes {q}",
        all.len(),
        n.saturating_sub(least)
    ))
}

/// Whether no acquire was granted at all.
fn never_granted(case: &Case<'_>, leases: &[&Lease<'_>]) -> Option<String> {
    let asked = leases.is_empty() && case.requests.iter().any(Request::is_acquire_of_run);
    asked.then(|| {
        "no acquire was granted before the faults were healed, so there was no lease to break"
            .to_owned()
    })
}

/// The first access that a register refused because it had seen a larger fencing token.
fn refused_access(case: &Case<'_>) -> Option<String> {
    let mut largest: BTreeMap<&str, u64> = BTreeMap::new();
    for record in case.world.records {
        let Event::Touched { client, register, way, fence: Some(fence), refused, .. } =
            &record.event
        else {
            continue;
        };
        let seen = largest.entry(register).or_default();
        if *refused && *fence < *seen {
            return Some(format!(
                "the register {register} refused {client}'s {} under fencing token {fence} at {}: \
                 it had seen token {seen}",
                way.name(),
                Ms(record.ns)
            ));
        }
        if !*refused {
            *seen = (*seen).max(*fence);
        }
    }
    None
}

/// Whether every lease had a quorum among the masters that no fault hit.
fn untouched(case: &Case<'_>, leases: &[&Lease<'_>]) -> Option<String> {
    let strikes = case.faults.strikes();
    // A fault that failed may have hit some of its masters.
    if strikes.iter().any(|strike| strike.failed) {
        return None;
    }
    let hit: Vec<usize> = sorted(strikes.iter().flat_map(|strike| strike.masters(case)));
    let rest: Vec<usize> = (1..=case.world.n).filter(|node| !hit.contains(node)).collect();
    let enough = |lease: &&Lease<'_>| {
        let granted: Set<usize> = lease.masters(&case.keys).into_iter().collect();
        let unhit: Vec<usize> = rest.iter().copied().filter(|it| granted.contains(it)).collect();
        case.world.lock_of(lease.process).is_quorum(&unhit)
    };
    (!hit.is_empty() && leases.iter().all(enough)).then(|| {
        format!(
            "faults hit only {}, and a quorum of {} granted every lease",
            numbered(&hit),
            numbered(&rest)
        )
    })
}
