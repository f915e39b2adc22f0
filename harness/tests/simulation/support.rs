//! Shared helpers of the tests.

use redquorum_scenario::history::{Event, History};
use redquorum_scenario::{Scenario, embedded_runs};

pub(crate) fn runs() -> Vec<Scenario> {
    embedded_runs().collect()
}

pub(crate) fn named(name: &str) -> Scenario {
    embedded_runs().find(|run| run.name == name).expect("it is there")
}

/// A scenario from its text; it has no variants.
pub(crate) fn scenario(text: &str) -> Scenario {
    toml::from_str::<Scenario>(text).unwrap().runs().remove(0)
}

/// A line for each event of one client, which has a process of its own.
pub(crate) fn of_client(history: &History, name: &str) -> Vec<String> {
    let is_about = |event: &Event| match event {
        Event::Replied { client, .. }
        | Event::Lost { client, .. }
        | Event::Extended { client, .. }
        | Event::Touched { client, .. } => *client == name,
        Event::Command { process, .. } => *process == name,
        _ => false,
    };
    let lines = history.records.iter().filter(|record| is_about(&record.event));
    // The numbers of requests and connections count over all clients.
    let plain = |line: String| {
        let mut value: serde_json::Value = serde_json::from_str(&line).unwrap();
        for number in ["id", "connection"] {
            value.as_object_mut().unwrap().remove(number);
        }
        value.to_string()
    };
    lines.map(|record| plain(serde_json::to_string(record).unwrap())).collect()
}
