//! Tests of the checker on histories written by hand.

use crate::client_protocol::{Capability, FailureReason};
use crate::history::{
    Act, Event, Header, History, LeftKey, Ns, Outcome as Said, Phase, Record, SCHEMA, Window,
};
use crate::name::Name;
use crate::scenario::{AccessKind, Cause, Property, Scenario};

use super::{Observed, Outcome, Verdict, judge};

mod causes;
mod exclusion;
mod fencing;
mod forgets;
mod garbled;
mod handles;
mod kept;
mod keys;
mod lists;
mod liveness;
mod outcome;
mod overtaken;
mod progress;
mod register;
mod run;
mod several;
mod stamps;
mod validity;
mod votes;

use run::{Answer, Run};

/// A scenario with five masters, a TTL of 2 s and two clients.
const TWO: &str = r#"
name = "test"
about = "A test."
[[client]]
id = "c1"
script = ["acquire L", "release L"]
[[client]]
id = "c2"
script = ["acquire L", "release L"]
"#;

/// Converts milliseconds, the unit of all these tests.
fn ns(ms: f64) -> Ns {
    super::time::of_float(ms * 1e6)
}

fn window(from: f64, to: f64) -> Window {
    Window { from: ns(from), to: ns(to) }
}

impl Verdict {
    fn seen(&self, layer: Property) -> Observed {
        self.observed[&layer]
    }

    /// The report text of all violations of a property.
    fn story(&self, layer: Property) -> String {
        let of = self.findings.iter().filter(|finding| finding.layer == layer);
        of.flat_map(|finding| finding.story.clone()).collect::<Vec<_>>().join("\n")
    }

    /// Asserts the results of these properties, and that every other one is safe.
    #[track_caller]
    fn only(&self, layers: &[(Property, Observed)]) -> &Self {
        for layer in Property::ALL {
            let wanted = layers.iter().find(|(which, _)| *which == layer);
            let wanted = wanted.map_or(Observed::Safe, |(_, seen)| *seen);
            assert_eq!(self.seen(layer), wanted, "{layer}: {self:#?}");
        }
        self
    }

    #[track_caller]
    fn because(&self, causes: &[Cause]) -> &Self {
        assert_eq!(self.because, causes, "{self:#?}");
        self
    }

    #[track_caller]
    fn tells(&self, layer: Property, part: &str) -> &Self {
        let story = self.story(layer);
        assert!(story.contains(part), "`{part}` is not in:\n{story}");
        self
    }
}
