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
    assert!(stdout.contains("nothing went wrong in 100 runs"), "{stdout}");
    // A hundred runs are too few for some situation, and the report shows that.
    assert!(stdout.contains("     never  "), "{stdout}");
    let words = ["search", "--runs", "100", "--seed", "1", "--require-coverage"];
    assert_eq!(ask(&folder, &words).0, 2);
}

#[test]
fn a_lie_is_found_and_the_file_can_be_run() {
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
fn a_program_reads_a_line_for_each_find() {
    let folder = folder("search-json");
    let words = ["search", "--outside", "--runs", "100", "--seed", "250", "--format", "json"];
    let (code, stdout, stderr) = ask(&folder, &words);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let lines: Vec<serde_json::Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (end, finds) = lines.split_last().unwrap();
    assert_eq!((end["event"].as_str(), end["runs"].as_u64()), (Some("end"), Some(100)));
    assert!(!finds.is_empty());
    for find in finds {
        assert_eq!(find["wrong"], false, "{find}");
        assert!(folder.join(find["file"].as_str().unwrap()).exists(), "{find}");
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let folder = folder("search-jobs");
    let finds = |jobs: &str| {
        let words = [
            "search",
            "--outside",
            "--runs",
            "100",
            "--seed",
            "250",
            "--format",
            "json",
            "--jobs",
            jobs,
        ];
        let (_, stdout, _) = ask(&folder, &words);
        let finds = stdout.lines().filter(|line| line.contains("\"find\""));
        finds.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(!finds("1").is_empty());
    assert_eq!(finds("1"), finds("3"));
}

#[test]
fn wrong_words_are_64() {
    let folder = folder("search-usage");
    for (words, part) in [
        (&["search", "--for", "soon"][..], "write a number with a unit"),
        (&["search", "--for", "1s", "--runs", "1"], "cannot be used with"),
        (&["search", "--nodes", "10"], "1..=9"),
        (&["search", "--mutant", "nobody"], "there is no mutant"),
    ] {
        let (code, _, stderr) = ask(&folder, words);
        assert_eq!(code, 64, "{words:?}: {stderr}");
        assert!(stderr.contains(part), "{words:?}: {stderr}");
    }
}

#[test]
fn all_schedules_are_told_with_what_they_were_made_of() {
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
    assert_eq!(ask(&folder, &["search", "--defended"]).0, 64);
    // The two kinds of search exclude each other.
    assert_eq!(ask(&folder, &["search", "--faults", "1", "--runs", "5"]).0, 64);
}
