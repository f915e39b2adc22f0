//! The scenarios that are built into the binary.

use super::Scenario;

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// The built-in scenarios: the name and the text of each, sorted by name.
pub fn embedded() -> impl Iterator<Item = (&'static str, &'static str)> {
    EMBEDDED.iter().copied()
}

/// The runs of all built-in scenarios: each scenario, and each variant as a scenario of its own.
pub fn embedded_runs() -> impl Iterator<Item = Scenario> {
    embedded().flat_map(|(name, text)| match toml::from_str::<Scenario>(text) {
        Ok(scenario) => scenario.runs(),
        // A test reads all of them.
        Err(why) => unreachable!("{name} comes with the program and cannot be read: {why}"),
    })
}
