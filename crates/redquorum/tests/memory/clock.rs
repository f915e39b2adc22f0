//! The lock reads no wall clock.

#[test]
fn no_source_of_the_lock_reads_the_wall_clock_but_for_the_hint_of_the_fencing_counters() {
    fn sources(dir: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { sources(&path, found) } else { found.push(path) }
        }
    }
    let mut found = Vec::new();
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for dir in ["src", "../protocol/src"] {
        sources(&here.join(dir), &mut found);
    }
    let reads = |path: &std::path::Path| {
        let text = std::fs::read_to_string(path).unwrap();
        let text = match text.split_once(concat!("fn wall_", "micros() -> u64 {")) {
            Some((before, after)) => format!("{before}{}", after.split_once("\n}\n").unwrap().1),
            None => text,
        };
        ["SystemTime", "UNIX_EPOCH", "ClockId::Realtime"].iter().any(|word| text.contains(word))
    };
    assert!(found.len() > 20, "the sources are elsewhere");
    assert!(reads(&here.join("tests/memory/clock.rs")), "this test names the wall clock");
    let readers: Vec<_> = found.iter().filter(|path| reads(path)).collect();
    assert!(readers.is_empty(), "{readers:?}");
}
