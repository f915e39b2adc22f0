//! The files of results, which other programs read.

use std::fs;

use quick_junit::{NonSuccessKind, Report, TestCaseStatus};
use redquorum_harness::report::{Format, result_schema};
use serde_json::Value;

use crate::support::{folder, plan, play, printed};

const NAMES: [&str; 7] = ["good", "differs", "blind", "unsure", "skip", "nothing", "injudicable"];

#[test]
fn result_json_fits_its_schema() {
    let folder = folder("result");
    play(&folder, &NAMES, &plan());
    let text = fs::read_to_string(folder.join("out/result.json")).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&result["schema"], &result["seed"]), (&1.into(), &7.into()));
    assert_eq!(result["backend"], "fake");
    let lines = result["scenarios"].as_array().unwrap();
    let outcomes: Vec<&str> = lines.iter().map(|line| line["outcome"].as_str().unwrap()).collect();
    let expected = "as-expected differs not-seen inconclusive skipped environment internal";
    assert_eq!(outcomes, expected.split(' ').collect::<Vec<_>>());
    let good = &lines[0];
    assert_eq!((good["name"].as_str(), good["grants"].as_u64()), (Some("good"), Some(2)));
    assert_eq!(good["expected"]["mutual-exclusion"], "violated");
    assert_eq!(good["expected"]["hygiene"], "safe");
    assert_eq!(good["observed"]["mutual-exclusion"], "violated");
    assert_eq!(good["because"], serde_json::json!(["clock.step"]));
    assert_eq!(good["history"], "good/history.jsonl");
    assert!(good["duration_ms"].is_u64() && good["backend"] == "fake" && good["seed"] == 7);
    assert_eq!(lines[4]["observed"], serde_json::json!({}));
    let schema = result_schema();
    fits(&result, &schema, &schema);
}

/// Whether a value fits a schema: the part of JSON Schema that the schema of results uses.
fn fits(value: &Value, schema: &Value, root: &Value) {
    let has = |kind: &str| match &schema["type"] {
        Value::String(one) => one == kind,
        Value::Array(several) => several.iter().any(|one| one == kind),
        _ => true,
    };
    if let Some(reference) = schema["$ref"].as_str() {
        return fits(value, root.pointer(&reference[1..]).unwrap(), root);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let wanted = any.iter().find(|one| (one["type"] == "null") == value.is_null());
        return fits(value, wanted.unwrap(), root);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    assert!(has(kind), "{value} is {kind}: {schema}");
    match value {
        Value::Array(list) => list.iter().for_each(|value| fits(value, &schema["items"], root)),
        Value::Object(table) => {
            for name in schema["required"].as_array().into_iter().flatten() {
                assert!(table.contains_key(name.as_str().unwrap()), "{name} is missing");
            }
            for (key, value) in table {
                if let Some(known) = schema["properties"].get(key) {
                    fits(value, known, root);
                } else {
                    assert!(schema.get("properties").is_none(), "{key} is not in the schema");
                }
            }
        }
        _ => {}
    }
}

#[test]
fn junit_xml_distinguishes_failures_errors_and_skipped_runs() {
    let folder = folder("junit");
    play(&folder, &NAMES, &plan());
    let text = fs::read_to_string(folder.join("out/junit.xml")).unwrap();
    let report = Report::deserialize_from_str(&text).unwrap();
    let suite = &report.test_suites[0];
    assert_eq!((suite.tests, suite.failures, suite.errors), (7, 3, 2));
    let of = |name: &str| {
        let case = suite.test_cases.iter().find(|case| case.name.as_str() == name).unwrap();
        &case.status
    };
    assert!(matches!(of("good"), TestCaseStatus::Success { .. }));
    assert!(matches!(of("skip"), TestCaseStatus::Skipped { .. }));
    match of("differs") {
        TestCaseStatus::NonSuccess { kind, message, ty, description, .. } => {
            assert_eq!(*kind, NonSuccessKind::Failure);
            assert_eq!(message.as_ref().unwrap().as_str(), "differs is <not> & as expected");
            assert_eq!(ty.as_ref().unwrap().as_str(), "differs");
            let text = description.as_ref().unwrap().as_str();
            assert!(text.contains("c1 believed L") && text.contains("--seed 7"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    for name in ["nothing", "injudicable"] {
        let error = |status: &TestCaseStatus| {
            matches!(status, TestCaseStatus::NonSuccess { kind: NonSuccessKind::Error, .. })
        };
        assert!(error(of(name)), "{name}");
    }
}

#[test]
fn text_begins_with_the_seed_and_has_a_line_for_each_run() {
    let folder = folder("human");
    let text = printed(&folder, &NAMES, Format::Human);
    assert!(text.starts_with("seed     7\nbackend  fake — a fake, for tests\nresults  "), "{text}");
    for part in [
        ", 7 runs\n",
        "✓ as-expected   good  ",
        "mutual-exclusion violated (clock.step), as expected\n",
        "✗ differs       differs  ",
        "    differs is <not> & as expected\n      mutual-exclusion violated, because of clock.step\n",
        "        c1 believed L from 1.0 to 9.0\n        so did c2\n    history  ",
        "out/differs/history.jsonl\n    again    ",
        "differs.toml --seed 7 --backend fake\n",
        "? not-seen      blind  ",
        "safe, expected: mutual-exclusion violated\n",
        "? inconclusive  unsure  ",
        "mutual-exclusion not certain, expected: mutual-exclusion violated\n",
        "- skipped       skip  ",
        "! environment   nothing  ",
        "there is nothing here\n    install something\n",
        "! internal      injudicable  ",
        "the checker panicked: no verdict on this\n    history  ",
        "\n0 scenarios must hold: 0 do. 4 must break: 1 did, for the named cause. 3 not checked.\n",
        "\nreport   ",
        "out/report.html\n",
        "\n1 as expected, 1 differs, 1 not seen, 1 inconclusive, 1 failed by the environment, \
         1 failed by this program, 1 skipped; ",
        "\n  skipped: it cannot be (skip)\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn json_has_a_line_for_each_run_and_ends_with_the_results() {
    let text = printed(&folder("lines"), &NAMES, Format::Json);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], kinds[8], kinds.len()), ("session", "summary", 9));
    assert!(kinds[1..8].iter().all(|kind| *kind == "result"));
    assert_eq!((&lines[8]["exit"], &lines[8]["result"]["finished"]), (&70.into(), &true.into()));
    assert_eq!(lines[8]["result"]["scenarios"][1]["name"], lines[2]["name"]);
}

#[test]
fn annotations_point_at_the_expectation() {
    let folder = folder("github");
    let text = printed(&folder, &["good", "differs"], Format::Github);
    let marks: Vec<&str> = text.lines().filter(|line| line.starts_with("::")).collect();
    assert_eq!(marks.len(), 1);
    let file = folder.join("differs.toml");
    let start = format!("::error file={},line=12,title=differs%3A differs::", file.display());
    assert!(marks[0].starts_with(&start), "{}", marks[0]);
    assert!(marks[0].contains("<not> & as expected%0Aagain: "), "{}", marks[0]);
}
