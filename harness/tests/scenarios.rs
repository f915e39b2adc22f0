//! The built-in scenarios, and the effect of garbling them.

use proptest::prelude::*;
use redquorum_harness::scenario::{embedded, line_of, read, schema};

#[test]
fn those_that_come_with_the_program_are_read_and_written_again() {
    assert!(embedded().count() > 0);
    for (name, text) in embedded() {
        let file = format!("{name}.toml");
        let scenario = read(&file, text).unwrap_or_else(|problems| panic!("{problems}"));
        let again = toml::to_string(&scenario).unwrap();
        let again = read(&file, &again).unwrap_or_else(|problems| panic!("{again}\n{problems}"));
        assert_eq!(again, scenario, "{name}");
        let json = serde_json::to_string(&scenario).unwrap();
        assert_eq!(serde_json::from_str(&json).ok(), Some(scenario.clone()), "{name}");
        for run in scenario.runs() {
            let line = text.lines().nth(line_of(text, &run.name) - 1).unwrap();
            assert!(line.contains("expect") || !text.contains("expect"), "{}: {line}", run.name);
        }
    }
}

#[test]
fn the_schema_knows_every_field_that_the_scenarios_use() {
    let schema = schema();
    assert_eq!(schema["title"], "A scenario of redquorum-chaos");
    assert!(schema["$id"].as_str().unwrap().starts_with("https://"));
    let text = schema.to_string();
    for (name, scenario) in embedded() {
        let value: toml::Value = toml::from_str(scenario).unwrap();
        fields(&value, &mut |field| {
            assert!(text.contains(&format!("\"{field}\"")), "{name}: {field}");
        });
    }
}

/// The keys, without those that are names of clients.
fn fields(value: &toml::Value, seen: &mut impl FnMut(&str)) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                seen(key);
                if !["acquires", "margin", "within", "commands", "overtaken"]
                    .contains(&key.as_str())
                {
                    fields(value, seen);
                }
            }
        }
        toml::Value::Array(list) => list.iter().for_each(|value| fields(value, seen)),
        _ => {}
    }
}

/// A text with everything that a scenario can have.
const FULL: &str = r#"name = "full"
about = "Everything: ä, 🔒."
source = "here"

[cluster]
nodes = 5
persistence = "aof-always"

[lock]
ttl = "2s"
node-timeout = "50ms"
drift-ppm = 10000
drift = "2ms"
fencing = false
fair = true

[[client]]
id = "c1"
process = "p"
script = ["acquire L wait 5s ttl 3s cancel 1s", "read R", "keep L for 1s", "work 100ms", "write R if L", "extend L", "release L"]

[[client]]
id = "w"
nodes = [2, 1, 1]
fair = false
count = 3
loop = "1s"
think = "10ms"
start = "100ms"
script = [
    "acquire L",   # a comment
    "release L",
]

[[fault]]
after = "c1 granted L + 10ms"
for = "1s"
clock.step = { node = "holders(c1, 2)", by = "-3s" }

[[fault]]
before = "w2 reply 3 of release"
net.drop = { clients = ["c1", "w1"], nodes = [1, 2], what = "reply", command = "acquire", index = 2, count = 1 }

[[fault]]
at = "0s"
[fault.net.delay]
by = "10ms"

[[fault]]
before = "c1 reads R"
for = "1s"
resource.delay = { clients = "c1", what = "read", by = "20ms" }

[expect]
mutual-exclusion = "violated"
because = ["clock.step", "late-write"]
acquires = { c1 = "granted", w1 = "no-quorum" }
margin = { c1 = 1 }
within = { c1 = "1s 500ms" }
commands = { c1 = 100 }
overtaken = { c1 = 0 }

[[variant]]
name = "three"
about = "Three masters"
cluster = { nodes = 3 }
expect = { }
[[variant.client]]
id = "c1"
script = ["acquire L", "release L"]
[[variant.fault]]
at = "1s"
clock.rate = { nodes = "all", factor = 2.0 }
"#;

#[test]
fn the_full_one_is_read() {
    let scenario = read("full.toml", FULL).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!((scenario.runs().len(), scenario.faults.len()), (2, 4));
}

/// A way to garble a text. Numbers are positions, modulo its length.
#[derive(Clone, Debug)]
enum FaultKind {
    Delete(usize, usize),
    Insert(usize, String),
    Double(usize, usize),
    SwapLines(usize, usize),
    DropLine(usize),
    SwapWords(usize, usize),
    Cut(usize),
}

/// Texts that mean something in TOML or in a scenario.
const SCRAPS: &str = "\"|'|[|]|[[|{|}|=|,|.|#|\n|\r|\r\n|\t|\0|\u{feff}|ä|🔒|\"\"\"|0|-1|1e400|nan|\
                      99999999999999999999|true|\\u0000|1979-05-27|[fault]|[[client]]|acquire|\
                      holder(|all|wait|0s|1ns|31days|count = 0|nodes = 0|`|; write |: write ";

fn fault_kinds() -> impl Strategy<Value = Vec<FaultKind>> {
    let place = || any::<usize>();
    let short = || 1..12_usize;
    let scrap = prop_oneof![
        proptest::sample::select(SCRAPS.split('|').collect::<Vec<_>>()).prop_map(str::to_owned),
        ".{0,4}",
    ];
    let one = prop_oneof![
        (place(), short()).prop_map(|(at, many)| FaultKind::Delete(at, many)),
        (place(), scrap).prop_map(|(at, what)| FaultKind::Insert(at, what)),
        (place(), short()).prop_map(|(at, many)| FaultKind::Double(at, many)),
        (place(), place()).prop_map(|(one, two)| FaultKind::SwapLines(one, two)),
        place().prop_map(FaultKind::DropLine),
        (place(), place()).prop_map(|(one, two)| FaultKind::SwapWords(one, two)),
        place().prop_map(FaultKind::Cut),
    ];
    proptest::collection::vec(one, 1..5)
}

fn garble(text: &str, fault_kind: &FaultKind) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |place: usize| place % (chars.len() + 1);
    let part = |from: usize, many: usize| from..(from + many).min(chars.len());
    let joined = |parts: &[&[char]]| parts.iter().flat_map(|part| part.iter()).collect::<String>();
    let swapped = |parts: Vec<&str>, glue: &str, one: usize, two: usize| {
        let mut parts = parts;
        let many = parts.len();
        if many > 0 {
            parts.swap(one % many, two % many);
        }
        parts.join(glue)
    };
    match fault_kind {
        FaultKind::Delete(place, many) => {
            let range = part(at(*place), *many);
            joined(&[&chars[..range.start], &chars[range.end..]])
        }
        FaultKind::Insert(place, what) => {
            let what: Vec<char> = what.chars().collect();
            joined(&[&chars[..at(*place)], &what, &chars[at(*place)..]])
        }
        FaultKind::Double(place, many) => {
            let range = part(at(*place), *many);
            joined(&[&chars[..range.end], &chars[range.start..]])
        }
        FaultKind::SwapLines(one, two) => swapped(text.split('\n').collect(), "\n", *one, *two),
        FaultKind::SwapWords(one, two) => swapped(text.split(' ').collect(), " ", *one, *two),
        FaultKind::DropLine(place) => {
            let mut lines: Vec<&str> = text.split('\n').collect();
            lines.remove(place % lines.len());
            lines.join("\n")
        }
        FaultKind::Cut(place) => chars[..at(*place)].iter().collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_garbled_is_read_or_reported(fault_kinds in fault_kinds(), own in any::<bool>()) {
        let (name, text) = match embedded().next() {
            Some((name, text)) if own => (name, text),
            _ => ("full", FULL),
        };
        let text =
            fault_kinds.iter().fold(text.to_owned(), |text, fault_kind| garble(&text, fault_kind));
        let file = format!("{name}.toml");
        line_of(&text, name);
        if let Err(problems) = read(&file, &text) {
            prop_assert!(!problems.list().is_empty());
            for problem in problems.list() {
                prop_assert!(problem.line >= 1 && problem.column >= 1, "{problem:?}");
                prop_assert!(problem.line <= text.matches('\n').count() + 1, "{problem:?}");
                prop_assert!(!problem.message.trim().is_empty(), "{problem:?}");
                prop_assert!(!problem.fix.trim().is_empty(), "{problem:?}");
            }
            prop_assert!(problems.to_string().contains("help: "), "{problems}");
            problems.render(true);
        }
    }
}
