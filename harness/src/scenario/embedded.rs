//! The scenarios that come with the program, in the binary itself.

use super::Scenario;

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// The scenarios that come with the program: the name and the text of each, sorted by name.
pub fn embedded() -> impl Iterator<Item = (&'static str, &'static str)> {
    EMBEDDED.iter().copied()
}

/// The runs of all of them: each scenario, and each variant as one of its own.
pub fn embedded_runs() -> impl Iterator<Item = Scenario> {
    embedded().flat_map(|(name, text)| match toml::from_str::<Scenario>(text) {
        Ok(scenario) => scenario.runs(),
        // A test reads them all.
        Err(why) => unreachable!("{name} comes with the program and cannot be read: {why}"),
    })
}
