//! Formats a scenario as concise TOML: omits default values, and writes the kind of a fault in one
//! line.

use toml::{Table, Value};

use redquorum_scenario::{Cluster, Lock, Scenario};

/// The fields of a client, in a natural order.
const CLIENT: [&str; 11] = [
    "id",
    "process",
    "nodes",
    "restart-guard",
    "fencing",
    "fair",
    "start",
    "count",
    "loop",
    "think",
    "script",
];

/// The text.
pub(super) fn toml(scenario: &Scenario) -> String {
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
        for key in CLIENT {
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
        let last = ["because", "acquires", "margin", "within", "commands", "overtaken"];
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
