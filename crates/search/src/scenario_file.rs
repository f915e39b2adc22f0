//! Writes a find as a readable scenario file: the events in words, the scenario, and the
//! expectation for another run.
//!
//! The expectation is what was seen, limited to what shows from other seeds, too. Nothing is shrunk
//! here.

use std::collections::BTreeSet;

use super::plan::Space;
use super::{Found, Kind};
use redquorum_checker::{Observed, Request, Verdict, check, prepare};
use redquorum_scenario::client_protocol::{ClientReply, Each, FailureReason, Op};
use redquorum_scenario::history::{Act, Event, History, Ns, Outcome, Phase, Record};
use redquorum_scenario::name::Name;
use redquorum_scenario::{
    AccessKind, Acquires, Cluster, Expect, FaultKind, LeaseEffect, Lock, Mutant, Property,
    Scenario, Wanted, numbered,
};
use toml::{Table, Value};

/// The largest width of a comment.
const WIDE: usize = 100;

/// The name of a find, for its scenario and the file.
pub fn name(kind: &Kind, mutant: Mutant) -> String {
    let mut name = match mutant {
        Mutant::None => String::new(),
        mutant => format!("{mutant}-"),
    };
    name += kind.property.map_or("contradiction", Property::name);
    for cause in &kind.causes {
        name.push('-');
        name += &cause.name().replace('.', "-");
    }
    name
}

/// The text of a scenario file for one of the find's kinds, which gives the file its name. Another
/// run comes out as the file expects. For a mutant, that is a run with the unchanged client.
pub fn file_of(found: &Found, kind: &Kind) -> String {
    file_named(&name(kind, found.mutant), found, kind)
}

/// The text of a scenario file with another name.
pub fn file_named(name: &str, found: &Found, kind: &Kind) -> String {
    let Found { seed, mutant, .. } = *found;
    let mut scenario = found.scenario.clone();
    name.clone_into(&mut scenario.name);
    scenario.about = about(kind, mutant, &scenario);
    scenario.source = None;
    let history = redquorum_simulator::run(&found.scenario, seed, mutant);
    let (expect, steady) = expectation(&found.scenario, seed);
    scenario.expect = expect;
    let mut text = String::new();
    header(&mut text, found, kind, &history);
    again(&mut text, &scenario.name, found, steady);
    text + &toml(&scenario)
}

fn header(text: &mut String, found: &Found, kind: &Kind, history: &History) {
    match found.mutant {
        Mutant::None => comment(text, "", &format!("Found by a search: {kind}.")),
        mutant => {
            comment(text, "", &format!("Catches a client that {}: {kind}.", mutant.about()));
        }
    }
    text.push_str("#\n");
    for line in sentences(history, &found.verdict) {
        comment(text, "           ", &line);
    }
    for finding in &found.verdict.findings {
        if Kind::of(finding) == *kind {
            text.push_str("#\n");
            for line in &finding.explanation {
                comment(text, "  ", &format!("- {line}"));
            }
            break;
        }
    }
}

/// How to run it again, and what the result depends on.
fn again(text: &mut String, name: &str, found: &Found, steady: bool) {
    let seed = found.seed;
    text.push_str("#\n");
    let program = "redquorum-chaos run";
    match found.mutant {
        Mutant::None if steady => {
            comment(text, "", &format!("Again: {program} {name}.toml"));
        }
        Mutant::None => {
            comment(
                text,
                "",
                &format!(
                    "Again: {program} {name}.toml --backend sim --seed {seed}. From other seeds, \
                     and on real masters, it may come out otherwise."
                ),
            );
        }
        mutant => comment(
            text,
            "",
            &format!(
                "An honest client passes: {program} {name}.toml --backend sim --seed {seed}. On \
                 real masters add --client \"redquorum-mutant --mutant {mutant}\" to see it caught."
            ),
        ),
    }
}

/// Writes a comment, wrapped at the largest width. `hang` indents its continuation lines.
fn comment(text: &mut String, hang: &str, prose: &str) {
    let mut line = "#".to_owned();
    for word in prose.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDE {
            text.push_str(line.trim_end());
            text.push('\n');
            line = format!("# {}", hang.get(1..).unwrap_or_default());
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// The find in one sentence.
fn about(kind: &Kind, mutant: Mutant, scenario: &Scenario) -> String {
    let about = kind.property.map_or("A client says what cannot be", Property::about);
    let mut about = about.to_owned();
    if mutant != Mutant::None {
        about += &format!(", with a client that {}", mutant.about());
    }
    let mut names: Vec<&str> =
        scenario.faults.iter().map(|fault| FaultKind::name(&fault.kind)).collect();
    names.dedup();
    match names.as_slice() {
        [] => about += "; no fault is needed.",
        names => about += &format!("; it takes {}.", names.join(", ")),
    }
    about
}

/// The largest number of sentences.
const SENTENCES: usize = 24;
/// How many sentences describe the beginning, if not all fit.
const FIRST_SENTENCES: usize = 6;

/// The sentences, in the order of time, each with its time.
fn sentences(history: &History, verdict: &Verdict) -> Vec<String> {
    let last = verdict.findings.iter().map(|finding| finding.from).max();
    let mut lines = Vec::new();
    for record in &history.records {
        let sentences = event(history, record).into_iter();
        lines.extend(sentences.map(|line| format!("{:>8}  {line}", time(record.ns))));
        // The report omits events after the last violation.
        if matches!(record.event, Event::Phase { phase: Phase::Heal })
            && last.is_some_and(|last| last <= record.ns)
        {
            break;
        }
    }
    if lines.len() > SENTENCES {
        let rest = lines.split_off(FIRST_SENTENCES);
        let left_out = rest.len() - (SENTENCES - FIRST_SENTENCES);
        lines.push(format!("{:>8}  ({left_out} events more)", "…"));
        lines.extend(rest.into_iter().skip(left_out));
    }
    lines
}

/// `1978 ms`.
fn time(ns: Ns) -> String {
    format!("{} ms", ns / 1_000_000)
}

fn event(history: &History, record: &Record) -> Vec<String> {
    let one = match &record.event {
        Event::Phase { phase } => match phase {
            Phase::Heal => Some("everything is healed".to_owned()),
            Phase::FinalAcquire => Some("every client that lives acquires once more".to_owned()),
            Phase::Drain => Some("one TTL passes, and the keys are looked at".to_owned()),
            Phase::Run | Phase::End => None,
        },
        Event::Replied { client, reply } => return replied(history, record.ns, client, reply),
        Event::Lost { client, resource, .. } => {
            Some(format!("{client} is notified that its lease of {resource} is lost"))
        }
        Event::Extended { client, resource, deadline } => {
            Some(format!("{client}'s watchdog extends {resource} until {}", time(*deadline)))
        }
        Event::Unpolled { client, to, .. } => {
            Some(format!("{client} does not poll its request until {}", time(*to)))
        }
        Event::Touched { client, register, way, seen, version, sent, fence, refused } => {
            let mut line = match refused {
                true => format!("{client} may not {way} {register}"),
                false => touch(client, register, *way, *seen, *version),
            };
            if let Some(token) = fence {
                line += &format!(" under token {token}");
            }
            let sent = sent.map(|sent| format!(" (sent at {})", time(sent)));
            Some(line + &sent.unwrap_or_default())
        }
        Event::Struck { fault, nodes, processes, failed, .. } => {
            let name = history.header.scenario.fault(*fault).map(|fault| fault.kind.name());
            name.map(|name| struck(*fault, name, nodes, processes, failed.as_deref()))
        }
        Event::Healed { fault, .. } => Some(format!("fault {fault} is healed")),
        Event::Broken { process, why } => Some(format!("{process} breaks: {why}")),
        Event::Keys { node, keys: Some(keys) } if !keys.is_empty() => {
            let names: Vec<&str> = keys.iter().map(|left| left.key.as_str()).collect();
            Some(format!("master {node} still has {}", names.join(", ")))
        }
        _ => None,
    };
    one.into_iter().collect()
}

/// What a reply means for each resource of its request.
fn replied(history: &History, ns: Ns, client: &str, reply: &ClientReply) -> Vec<String> {
    let asked = history.records.iter().find_map(|record| match &record.event {
        Event::Requested(request) if request.id == reply.id => Some(&request.op),
        _ => None,
    });
    let Some(op) = asked else { return Vec::new() };
    let resources = op.resources().iter().enumerate();
    resources
        .filter(|(place, _)| !op.is_any() || *place == op.chosen(reply))
        .filter_map(|(place, of)| of_resource(history, ns, client, reply, (op, place, of)))
        .collect()
}

fn of_resource(
    history: &History,
    ns: Ns,
    client: &str,
    reply: &ClientReply,
    (op, place, resource): (&Op, usize, &Name),
) -> Option<String> {
    let Each { token, deadline_ns, .. } = reply.of(place);
    let until = deadline_ns.map_or_else(String::new, |at| format!(", until {}", time(at)));
    let reason = reply.why.map_or("an error", FailureReason::about);
    let shared = if op.is_shared() { " shared" } else { "" };
    Some(match (op.effect(), reply.ok) {
        (LeaseEffect::Acquires, true) if reply.handles > Some(1) => {
            format!("{client} is granted {resource}{shared} again{until}")
        }
        (LeaseEffect::Acquires, true) => {
            let by = granted_by(history, ns, token.as_ref());
            format!("{client} is granted {resource}{shared}{by}{until}")
        }
        (LeaseEffect::Acquires, false) => {
            let mut others = op.resources().to_vec();
            others.remove(place);
            let together = if others.is_empty() { "" } else { " together with " };
            let others = others.join(" and ");
            format!("{client} is refused {resource}{together}{others}{shared}: {reason}")
        }
        (LeaseEffect::Extends, true) => format!("{client} extends {resource}{until}"),
        (LeaseEffect::Extends, false) => format!("{client} cannot extend {resource}: {reason}"),
        (LeaseEffect::Releases, _) if reply.handles.is_some() => {
            format!("{client} gives one of its handles of {resource} back")
        }
        (LeaseEffect::Releases, _) => format!("{client} gives {resource} back"),
        (LeaseEffect::None, false) => {
            format!("{client} finds that it does not hold {resource} any more, and stops")
        }
        (LeaseEffect::Keeps, _) | (LeaseEffect::None, true) => return None,
    })
}

/// ` by masters 1, 2, 3`.
fn granted_by(history: &History, by: Ns, token: Option<&Name>) -> String {
    let granted = |record: &Record| match &record.event {
        Event::Command {
            act: Act::Set { token: set, .. },
            node,
            delivered: Some(delivered),
            result: Outcome::Done,
            ..
        } if Some(set) == token && *delivered <= by => Some(*node),
        _ => None,
    };
    let nodes: BTreeSet<usize> = history.records.iter().filter_map(granted).collect();
    if nodes.is_empty() {
        return String::new();
    }
    format!(" by {}", numbered(&nodes.into_iter().collect::<Vec<_>>()))
}

fn touch(client: &str, register: &str, way: AccessKind, seen: u64, version: u64) -> String {
    match way {
        AccessKind::Present => format!("{client} presents itself to {register}"),
        AccessKind::Read => format!("{client} reads {register}: version {seen}"),
        AccessKind::Write if seen + 1 == version => {
            format!("{client} writes {register}: version {version}")
        }
        AccessKind::Write => format!(
            "{client} writes {register} on top of version {seen}, though version {} is there: an \
             update is lost",
            version - 1
        ),
    }
}

fn struck(
    fault: usize,
    name: &str,
    nodes: &[usize],
    processes: &[Name],
    failed: Option<&str>,
) -> String {
    let mut line = format!("fault {fault} strikes: {name}");
    if !nodes.is_empty() {
        line += &format!(", {}", numbered(nodes));
    }
    if !processes.is_empty() {
        let names: Vec<&str> = processes.iter().map(Name::as_str).collect();
        line += &format!(", {}", names.join(", "));
    }
    if let Some(why) = failed {
        line += &format!(", and fails: {why}");
    }
    line
}

/// The number of seeds from which the result must be the same.
const SEEDS: u64 = 32;

/// The expectation of a run with honest clients, and whether it holds from other seeds too.
fn expectation(scenario: &Scenario, seed: u64) -> (Expect, bool) {
    let run = |seed| redquorum_simulator::run(scenario, seed, Mutant::None);
    let mut runs: Vec<History> = (seed..seed + SEEDS).map(run).collect();
    let mut expect = properties(&check(&runs[0]));
    for client in &scenario.clients {
        let mut results = runs.iter().map(|history| was_granted(history, &client.id));
        let first = results.next().flatten();
        if let Some(first) = first.filter(|first| results.all(|other| other == Some(*first))) {
            let acquires = if first { Acquires::Granted } else { Acquires::Refused };
            expect.acquires.insert(client.id.to_string(), acquires);
        }
    }
    let steady = come_out(&mut runs, &expect);
    // An expectation that holds only from this seed must at least be right there.
    if !steady && !come_out(&mut runs[..1], &expect) {
        expect.acquires.clear();
    }
    (expect, steady)
}

/// Whether an acquire of a client was granted before the healing phase; none: no acquire was
/// answered.
fn was_granted(history: &History, client: &str) -> Option<bool> {
    prepare(history, |case| {
        let own = case.requests.iter().filter(|it| it.client == client && it.is_acquire_of_run());
        own.filter_map(Request::ok).reduce(|one, other| one || other)
    })
}

fn properties(verdict: &Verdict) -> Expect {
    let mut expect = Expect::default();
    for (property, seen) in &verdict.observed {
        if *seen != Observed::Violated {
            continue;
        }
        let wanted = match property {
            Property::MutualExclusion => &mut expect.mutual_exclusion,
            Property::UnfencedResource => &mut expect.unfenced_resource,
            Property::FencedResource => &mut expect.fenced_resource,
            Property::Validity => &mut expect.validity,
            Property::Progress => &mut expect.progress,
            Property::Liveness => &mut expect.liveness,
            Property::Hygiene => &mut expect.hygiene,
        };
        *wanted = Some(Wanted::Violated);
    }
    expect.because.clone_from(&verdict.because);
    expect
}

/// Whether runs come out as expected.
fn come_out(runs: &mut [History], expect: &Expect) -> bool {
    runs.iter_mut().all(|history| {
        history.header.scenario.expect = expect.clone();
        check(history).outcome == redquorum_checker::Outcome::AsExpected
    })
}

/// The fields of a client, in a natural order.
const CLIENT_FIELDS: [&str; 12] = [
    "id",
    "process",
    "nodes",
    "moving-to",
    "restart-guard",
    "fencing",
    "fair",
    "start",
    "count",
    "loop",
    "think",
    "script",
];

/// The random scenario of a number, to be played as it is: on any backend, and by any lock. What no
/// lock can prevent in it is known.
pub fn drawn(space: Space, number: u64) -> Scenario {
    let mut scenario = space.draw(number);
    scenario.name = format!("chance-{number}");
    scenario.about = format!("Drawn by chance, from the number {number}.");
    scenario.expect.known = Kind::known_by_design().collect();
    scenario
}

/// Formats a scenario as concise TOML: omits default values, and writes the kind of a fault in one
/// line.
pub fn toml(scenario: &Scenario) -> String {
    let Ok(root) = Table::try_from(scenario) else {
        unreachable!("whatever is a scenario can be written as one")
    };
    let mut text = String::new();
    for key in ["name", "about", "source"] {
        if let Some(value) = root.get(key) {
            line(&mut text, key, value);
        }
    }
    unusual(&mut text, "cluster", root.get("cluster"), Table::try_from(Cluster::default()).ok());
    unusual(&mut text, "lock", root.get("lock"), Table::try_from(Lock::default()).ok());
    for client in tables(&root, "client") {
        text.push_str("\n[[client]]\n");
        for key in CLIENT_FIELDS {
            if let Some(value) = client.get(key) {
                line(&mut text, key, value);
            }
        }
    }
    for fault in tables(&root, "fault") {
        text.push_str("\n[[fault]]\n");
        let times = ["at", "after", "before", "for"];
        for key in times {
            if let Some(value) = fault.get(key) {
                line(&mut text, key, value);
            }
        }
        for (kind, effects) in fault.iter().filter(|(key, _)| !times.contains(&key.as_str())) {
            for (effect, value) in effects.as_table().into_iter().flatten() {
                line(&mut text, &format!("{kind}.{effect}"), value);
            }
        }
    }
    if let Some(expect) = root.get("expect").and_then(Value::as_table)
        && !expect.is_empty()
    {
        text.push_str("\n[expect]\n");
        let last =
            ["because", "acquires", "margin", "within", "kept", "commands", "overtaken", "known"];
        let properties = expect.keys().map(String::as_str).filter(|key| !last.contains(key));
        for key in properties.chain(last) {
            if let Some(value) = expect.get(key) {
                line(&mut text, key, value);
            }
        }
    }
    text
}

fn line(text: &mut String, key: &str, value: &Value) {
    text.push_str(&format!("{key} = {value}\n"));
}

fn tables<'a>(root: &'a Table, key: &str) -> impl Iterator<Item = &'a Table> {
    let list = root.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_table)
}

/// A table without its default values.
fn unusual(text: &mut String, name: &str, table: Option<&Value>, usual: Option<Table>) {
    let usual = usual.unwrap_or_default();
    let table = table.and_then(Value::as_table).into_iter().flatten();
    let mut lines = String::new();
    for (key, value) in table.filter(|(key, value)| usual.get(*key) != Some(value)) {
        line(&mut lines, key, value);
    }
    if !lines.is_empty() {
        text.push_str(&format!("\n[{name}]\n{lines}"));
    }
}

/// Tests of the written files: each is read again, and comes out as it says.
#[cfg(test)]
mod tests {
    use super::{file_of, name};
    use crate::Found;
    use crate::plan::Space;
    use redquorum_checker::{Outcome, check};
    use redquorum_scenario::{Mutant, Scenario, makes_sense, read};

    fn scenario_of(text: &str) -> Scenario {
        let scenario: Scenario = toml::from_str(text).unwrap();
        scenario.runs().remove(0)
    }

    fn clock_step() -> Scenario {
        scenario_of(include_str!("../../../scenarios/clock-step-one-holder.toml"))
    }

    /// Reads a file as `run` would.
    fn again(found: &Found) -> Scenario {
        let text = file_of(found, &found.kind());
        let path = format!("{}.toml", name(&found.kind(), found.mutant));
        read(&path, &text).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
    }

    #[test]
    fn a_file_comes_out_as_it_expects() {
        let found = Found::of(&clock_step(), 3, Mutant::None).unwrap();
        let again = again(&found);
        assert!(again.expect.any_violation());
        for seed in [found.seed, 11, 12] {
            let verdict = check(&redquorum_simulator::run(&again, seed, Mutant::None));
            assert_eq!(verdict.outcome, Outcome::AsExpected, "{:?}", verdict.differences);
        }
    }

    #[test]
    fn a_file_about_a_mutant_expects_the_result_of_the_client() {
        let scenario = scenario_of(include_str!("../../../scenarios/calm.toml"));
        let found = Found::of(&scenario, 3, Mutant::SmallQuorum).unwrap();
        let again = again(&found);
        let outcome = |mutant| check(&redquorum_simulator::run(&again, found.seed, mutant)).outcome;
        assert_eq!(outcome(Mutant::None), Outcome::AsExpected);
        assert_eq!(outcome(Mutant::SmallQuorum), Outcome::Differs);
    }

    #[test]
    fn a_drawn_scenario_is_read_from_its_file() {
        for number in 0..50 {
            let drawn = super::drawn(Space::INSIDE, number);
            assert!(drawn.expect.known.len() > 1 && !drawn.expect.any_violation());
            let path = format!("{}.toml", drawn.name);
            let again = read(&path, &super::toml(&drawn)).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(again, drawn);
        }
    }

    #[test]
    fn events_are_in_order() {
        let found = Found::of(&clock_step(), 3, Mutant::None).unwrap();
        let text = file_of(&found, &found.kind());
        let places = [
            "fault 1 strikes: net.drop",
            "c1 is granted L by masters 1, 2, 3",
            "fault 2 strikes: clock.step, master 1",
            "c2 is granted L by masters 1, 4, 5",
            "an update is lost",
        ];
        let places: Vec<_> = places.iter().map(|part| text.find(part).expect(part)).collect();
        assert!(places.is_sorted(), "{text}");
        assert!(text.lines().filter(|line| line.starts_with('#')).all(|line| line.len() <= 110));
    }

    #[test]
    fn a_random_scenario_is_valid_and_its_file_leaves_nothing_out() {
        let scenarios = [Space::INSIDE, Space::OUTSIDE]
            .map(|space| (0..500).map(move |number| space.draw(number)));
        for scenario in scenarios.into_iter().flatten() {
            assert!(makes_sense(&scenario), "{scenario:#?}");
            let text = super::toml(&scenario);
            let again: Scenario =
                toml::from_str(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
            assert_eq!(again, scenario, "{text}");
        }
    }
}
