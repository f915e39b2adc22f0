//! The command `search`, from the command line to the files that it writes.

use std::fs;

use crate::program::ask;
use crate::support::folder;

#[test]
fn inside_the_assumptions_nothing_is_found() {
    let folder = folder("search-inside");
    let (code, stdout, stderr) = ask(&folder, &["search", "--runs", "100", "--seed", "1"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.starts_with("seed     1, "), "{stdout}");
    assert!(stdout.contains("no violation in 100 runs"), "{stdout}");
    // A hundred runs are too few for some coverage goal, and the report shows that.
    assert!(stdout.contains("     never  "), "{stdout}");
    let words = ["search", "--runs", "100", "--seed", "1", "--require-coverage"];
    assert_eq!(ask(&folder, &words).0, 2);
}

#[test]
fn a_mutant_is_found_and_its_file_can_be_run() {
    let folder = folder("search-lie");
    let words = ["search", "--runs", "20", "--seed", "1", "--mutant", "plain-del", "--out", "out"];
    let (code, stdout, stderr) = ask(&folder, &words);
    assert_eq!(code, 1, "{stdout}{stderr}");
    let found = fs::read_dir(folder.join("out/found")).unwrap();
    let files: Vec<_> = found.map(|file| file.unwrap().path()).collect();
    assert!(!files.is_empty(), "{stdout}");
    for file in files {
        let path = file.to_str().unwrap();
        assert!(stdout.contains(file.file_name().unwrap().to_str().unwrap()), "{stdout}");
        // An honest client passes.
        let (code, stdout, stderr) =
            ask(&folder, &["run", path, "--backend", "sim", "--seed", "0"]);
        assert_eq!(code, 0, "{path}: {stdout}{stderr}");
    }
}

#[test]
fn a_find_that_blames_the_guard_of_the_only_client_can_be_run() {
    let folder = folder("search-guard");
    let words = ["search", "--outside", "--seed", "2443841125", "--runs", "1", "--out", "out"];
    let (code, stdout, stderr) = ask(&folder, &words);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let file = "out/found/liveness-max-ttl.toml";
    let (code, stdout, stderr) = ask(&folder, &["run", file, "--backend", "sim", "--seed", "0"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
}

#[test]
fn json_has_a_line_for_each_find_on_any_number_of_threads() {
    let folder = folder("search-json");
    let lines = |jobs: &str| -> Vec<serde_json::Value> {
        let words = "search --outside --runs 100 --seed 250 --format json --jobs";
        let words: Vec<&str> = words.split(' ').chain([jobs]).collect();
        let (code, stdout, stderr) = ask(&folder, &words);
        assert_eq!(code, 0, "{stdout}{stderr}");
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = lines("1");
    let (end, finds) = all.split_last().unwrap();
    assert_eq!((end["event"].as_str(), end["runs"].as_u64()), (Some("end"), Some(100)));
    assert!(!finds.is_empty());
    for find in finds {
        assert!(find["event"] == "find" && find["wrong"] == false, "{find}");
        assert!(folder.join(find["file"].as_str().unwrap()).exists(), "{find}");
    }
    assert_eq!(lines("3").split_last().unwrap().1, finds);
}

#[test]
fn an_exhaustive_search_prints_its_schedules_and_faults() {
    let folder = folder("search-faults");
    let words = ["search", "--nodes", "3", "--faults", "0"];
    let (code, stdout, stderr) = ask(&folder, &words);
    assert_eq!(code, 0, "{stdout}{stderr}");
    for part in ["after c1 granted L", "clock.step: ", "14 schedules of up to 0", "nothing was cut"]
    {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let mutants = ["--mutant", "small-quorum", "--out", "out"];
    let (code, stdout, stderr) = ask(&folder, &[&words[..], &mutants[..]].concat());
    assert_eq!(code, 1, "{stdout}{stderr}");
    assert!(fs::read_dir(folder.join("out/found")).unwrap().count() > 0, "{stdout}");
    let words = ["search", "--nodes", "3", "--faults", "0", "--defended", "--out", "out"];
    let (code, stdout, stderr) = ask(&folder, &words);
    assert_eq!(code, 0, "{stdout}{stderr}");
    for part in [
        "without defences: 14 schedules",
        "with all defences: 14 schedules",
        "| nothing | 13 / 13 | 0 | 0 |",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
}
