//! Writes a find as a readable scenario file: the events in words, the scenario, and the
//! expectation for another run.
//!
//! `told.rs` turns a history into sentences, `expected.rs` derives an expectation that holds from
//! every seed, `layout.rs` writes concise TOML. Nothing is shrunk here.

use super::{Found, Kind};
use crate::history::History;
use crate::sabotage::Lie;
use crate::scenario::{Harm, Layer, Scenario};
use crate::sim;

mod expected;
mod layout;
#[cfg(test)]
mod tests;
mod told;

/// The largest width of a comment.
const WIDE: usize = 100;

/// The name of a find, for its scenario and the file.
pub fn name(kind: &Kind, lie: Lie) -> String {
    let mut name = match lie {
        Lie::None => String::new(),
        lie => format!("{lie}-"),
    };
    name += kind.layer.map_or("contradiction", Layer::name);
    for cause in &kind.causes {
        name.push('-');
        name += &cause.name().replace('.', "-");
    }
    name
}

/// The text of a scenario file. Another run comes out as the file expects. For a mutant, that is a
/// run with the unchanged client.
pub fn file(found: &Found) -> String {
    file_of(found, &found.kind())
}

/// The text of a scenario file for one of the find's kinds, which gives the file its name.
pub fn file_of(found: &Found, kind: &Kind) -> String {
    file_named(&name(kind, found.lie), found, kind)
}

/// The text of a scenario file with another name.
pub fn file_named(name: &str, found: &Found, kind: &Kind) -> String {
    let Found { seed, lie, .. } = *found;
    let mut scenario = found.scenario.clone();
    name.clone_into(&mut scenario.name);
    scenario.about = about(kind, lie, &scenario);
    scenario.source = None;
    let history = sim::run(&found.scenario, seed, lie);
    let (expect, steady) = expected::of(&found.scenario, seed, lie);
    scenario.expect = expect;
    let mut text = String::new();
    header(&mut text, found, kind, &history);
    again(&mut text, &scenario.name, found, steady);
    text + &layout::toml(&scenario)
}

fn header(text: &mut String, found: &Found, kind: &Kind, history: &History) {
    match found.lie {
        Lie::None => comment(text, "", &format!("Found by a search: {kind}.")),
        lie => {
            let told = format!("Catches a client that {}: {kind}.", lie.about());
            comment(text, "", &told);
        }
    }
    text.push_str("#\n");
    for line in told::of(history, &found.verdict) {
        comment(text, "           ", &line);
    }
    for finding in &found.verdict.findings {
        if Kind::of(finding) == *kind {
            text.push_str("#\n");
            for line in &finding.story {
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
    match found.lie {
        Lie::None if steady => {
            comment(text, "", &format!("Again: {program} {name}.toml"));
        }
        Lie::None => {
            comment(
                text,
                "",
                &format!(
                    "Again: {program} {name}.toml --backend sim --seed {seed}. From other seeds, and \
                     on real masters, it may come out otherwise."
                ),
            );
        }
        lie => comment(
            text,
            "",
            &format!(
                "An honest client passes: {program} {name}.toml --backend sim --seed {seed}. On real \
                 masters add --client \"redquorum-mutant --mutant {lie}\" to see it caught."
            ),
        ),
    }
}

/// Writes a comment, wrapped at the largest width. `hang` indents its continuation lines.
fn comment(text: &mut String, hang: &str, told: &str) {
    let mut line = "#".to_owned();
    for word in told.split(' ') {
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

/// The lesson in one sentence.
fn about(kind: &Kind, lie: Lie, scenario: &Scenario) -> String {
    let mut about = match kind.layer {
        Some(Layer::MutualExclusion) => "Two clients believe at once that they hold",
        Some(Layer::UnfencedResource) => "An update is lost",
        Some(Layer::FencedResource) => "Fencing tokens do not protect",
        Some(Layer::Validity) => "A lease is not what it says",
        Some(Layer::Progress) => {
            "An acquire fails or is slow, or a lease ends, though nothing is in the way"
        }
        Some(Layer::Liveness) => "After all is healed nobody can acquire",
        Some(Layer::Hygiene) => "A key is left that nobody holds, or another's is deleted",
        None => "A client says what cannot be",
    }
    .to_owned();
    if lie != Lie::None {
        about += &format!(", with a client that {}", lie.about());
    }
    let mut names: Vec<&str> =
        scenario.faults.iter().map(|fault| Harm::name(&fault.harm)).collect();
    names.dedup();
    match names.as_slice() {
        [] => about += "; no fault is needed.",
        names => about += &format!("; it takes {}.", names.join(", ")),
    }
    about
}
