//! Writes a find as a readable scenario file: the events in words, the scenario, and the
//! expectation for another run.
//!
//! `events.rs` turns a history into sentences, `expected.rs` derives an expectation that holds from
//! every seed, `layout.rs` writes concise TOML. Nothing is shrunk here.

use super::{Found, Kind};
use redquorum_scenario::Mutant;
use redquorum_scenario::history::History;
use redquorum_scenario::{FaultKind, Property, Scenario};

mod events;
mod expected;
mod layout;
#[cfg(test)]
mod tests;

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
    let (expect, steady) = expected::of(&found.scenario, seed);
    scenario.expect = expect;
    let mut text = String::new();
    header(&mut text, found, kind, &history);
    again(&mut text, &scenario.name, found, steady);
    text + &layout::toml(&scenario)
}

fn header(text: &mut String, found: &Found, kind: &Kind, history: &History) {
    match found.mutant {
        Mutant::None => comment(text, "", &format!("Found by a search: {kind}.")),
        mutant => {
            comment(text, "", &format!("Catches a client that {}: {kind}.", mutant.about()));
        }
    }
    text.push_str("#\n");
    for line in events::of(history, &found.verdict) {
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
