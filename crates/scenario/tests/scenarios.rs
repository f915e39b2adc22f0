//! The built-in scenarios, faulty ones, and the effect of garbling them.
//!
//! `malformed/X.toml` is a faulty scenario, and `malformed/X.txt` the exact text of its errors.
//! `REDQUORUM_UPDATE=1 cargo test -p redquorum-harness --test scenarios` writes the texts anew;
//! read them before you commit them.

use std::{env, fs};

use proptest::prelude::*;
use redquorum_scenario::{Problems, embedded, line_of, read, schema};

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
                if !["acquires", "margin", "within", "kept", "commands", "overtaken"]
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
    "acquire L wait 1s shared",   # a comment
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

/// Each problem has a place in the text, a message and a fix, and all are printed.
fn assert_complete(problems: &Problems, text: &str) {
    assert!(!problems.list().is_empty());
    for problem in problems.list() {
        assert!(problem.line >= 1 && problem.column >= 1, "{problem:?}");
        assert!(problem.line <= text.matches('\n').count() + 1, "{problem:?}");
        assert!(!problem.message.trim().is_empty(), "{problem:?}");
        assert!(!problem.fix.trim().is_empty(), "{problem:?}");
    }
    assert!(problems.to_string().contains("help: "), "{problems}");
    problems.render(true);
}

#[test]
fn faulty_scenarios_have_their_errors() {
    let update = env::var_os("REDQUORUM_UPDATE").is_some();
    let folder = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/malformed")).unwrap();
    let mut files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    files.sort();
    assert!(files.len() >= 30);
    let mut others = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let problems = read(name, &text).expect_err(name);
        assert_complete(&problems, &text);
        let printed = format!("{problems}\n");
        let expected = path.with_extension("txt");
        if update {
            fs::write(&expected, printed).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != printed {
            others.push(format!("{name} now has:\n{printed}"));
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
}

/// A change of a text: some of its parts are replaced. Places are modulo the number of parts.
#[derive(Clone, Debug)]
struct Change {
    /// What is between two parts: nothing if they are characters, a space if they are words.
    separator: &'static str,
    /// The place and the number of the parts that are removed.
    removed: (usize, usize),
    /// Other parts of the text that are put there.
    copied: (usize, usize),
    /// A text that is put there, too.
    scrap: Option<String>,
}

/// Texts that mean something in TOML or in a scenario.
const SCRAPS: &str = "\"|'|[|]|[[|{|}|=|,|.|#|\n|\r|\r\n|\t|\0|\u{feff}|ä|🔒|\"\"\"|0|-1|1e400|nan|\
                      99999999999999999999|true|\\u0000|1979-05-27|[fault]|[[client]]|acquire|\
                      holder(|all|wait|0s|1ns|31days|count = 0|nodes = 0|`|; write |: write ";

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let scrap = prop_oneof![
        proptest::sample::select(SCRAPS.split('|').collect::<Vec<_>>()).prop_map(str::to_owned),
        ".{0,4}",
    ];
    // Small changes leave more of a scenario to check. A few cut the text off.
    let removed = prop_oneof![30 => 0..3_usize, 1 => Just(usize::MAX)];
    let one = (
        proptest::sample::select(vec!["", " ", "\n"]),
        (any::<usize>(), removed),
        (any::<usize>(), 0..3_usize),
        proptest::option::weighted(0.3, scrap),
    );
    let one = one.prop_map(|(separator, removed, copied, scrap)| Change {
        separator,
        removed,
        copied,
        scrap,
    });
    proptest::collection::vec(one, 1..5)
}

fn garbled(text: &str, change: &Change) -> String {
    let parts: Vec<&str> = text.split(change.separator).collect();
    let range = |(place, count): (usize, usize)| {
        let start = place % (parts.len() + 1);
        start..start.saturating_add(count).min(parts.len())
    };
    let (before, after) =
        (&parts[..range(change.removed).start], &parts[range(change.removed).end..]);
    let scrap = change.scrap.as_deref();
    let all = [before, &parts[range(change.copied)], scrap.as_slice(), after];
    all.concat().join(change.separator)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_garbled_is_read_or_reported(changes in changes(), own in any::<bool>()) {
        let (name, text) = match embedded().next() {
            Some((name, text)) if own => (name, text),
            _ => ("full", FULL),
        };
        let text = changes.iter().fold(text.to_owned(), |text, change| garbled(&text, change));
        line_of(&text, name);
        if let Err(problems) = read(&format!("{name}.toml"), &text) {
            assert_complete(&problems, &text);
        }
    }
}
