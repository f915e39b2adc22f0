//! A clock works for any process that reads the time through the C library: a program of the
//! system, its children, and a Rust program, here this one.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use redquorum_rig::{Clock, ClockChange, clocks_supported, trials::Case};

use crate::support::directory;

/// Set for a child of the tests, which then counts its readings.
pub(crate) const CHILD: &str = "RIG_TEST_CHILD_READS_THE_CLOCK";

const READERS: usize = 4;

/// The distance between the two times in [`no_reader_ever_sees_half_a_change`], in seconds.
const FAR: u64 = 500_000;

/// The tolerance for a reading, in seconds: a process may be delayed.
const SLACK: i64 = 60;

pub(crate) fn cases() -> Vec<Case> {
    if clocks_supported().is_err() {
        return Vec::new();
    }
    cases![
        plain: a_program_and_its_children_see_its_clock,
        plain: without_a_page_the_shim_shows_the_real_time,
        plain: a_directory_that_cannot_be_preloaded_from_is_refused,
        plain: a_clock_is_not_created_over_another,
        plain: no_reader_ever_sees_half_a_change,
    ]
}

/// A clock in a directory of its own, which is removed with it.
struct Owned {
    clock: Clock,
    dir: PathBuf,
}

fn clock(name: &str) -> Owned {
    let dir = directory(name);
    Owned { clock: Clock::create(&dir).unwrap(), dir }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _removed = fs::remove_dir_all(&self.dir);
    }
}

fn date() -> Command {
    let mut command = Command::new("date");
    command.arg("+%s");
    command
}

/// How far the clock of a program is ahead, in seconds.
fn ahead(command: &mut Command) -> i64 {
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let shown: i64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    shown - now()
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap()
}

#[track_caller]
fn about(value: i64, expected: i64) {
    assert!((value - expected).abs() <= SLACK, "{value} is not about {expected}");
}

fn a_program_and_its_children_see_its_clock() {
    let owned = clock("clock_of_a_program");
    let env = owned.clock.env();
    about(ahead(date().envs(env.clone())), 0);
    owned.clock.change(ClockChange::forward(Duration::from_secs(3600))).unwrap();
    about(ahead(date().envs(env.clone())), 3600);
    about(ahead(Command::new("/bin/sh").args(["-c", "date +%s; exit"]).envs(env)), 3600);
    about(ahead(&mut date()), 0);
}

fn without_a_page_the_shim_shows_the_real_time() {
    let owned = clock("clock_without_a_page");
    owned.clock.change(ClockChange::forward(Duration::from_secs(3600))).unwrap();
    let [(preload, shim), (variable, page)] = owned.clock.env();
    about(ahead(date().env(preload, &shim).env_remove(variable)), 0);
    // A file that is not a page is ignored.
    fs::write(owned.dir.join("empty"), "").unwrap();
    fs::write(owned.dir.join("other"), [b'x'; 8192]).unwrap();
    for name in ["missing", "", "empty", "other", "clock.so"] {
        about(ahead(date().env(preload, &shim).env(variable, owned.dir.join(name))), 0);
    }
    // A variable whose name only begins or ends like this one is ignored.
    let others = [format!("X{variable}"), format!("{variable}S")];
    about(ahead(date().env(preload, &shim).envs(others.map(|name| (name, &page)))), 0);
    // The variable is found behind another one that is longer than the read buffer.
    let mut long = date();
    long.env("A", "x".repeat(5000)).env(preload, &shim).env(variable, &page);
    about(ahead(&mut long), 3600);
}

fn a_directory_that_cannot_be_preloaded_from_is_refused() {
    for name in ["with a space", "with:a:colon"] {
        let dir = directory(name);
        let error = Clock::create(&dir).unwrap_err().to_string();
        fs::remove_dir_all(dir).unwrap();
        assert!(error.ends_with("has a space or a colon: set TMPDIR to another"), "{error}");
    }
    let error = Clock::create("/nowhere/at/all".as_ref()).unwrap_err().to_string();
    assert!(error.starts_with("clocks cannot be set: nothing can be written to /nowhere"));
}

fn a_clock_is_not_created_over_another() {
    let owned = clock("clock_over_another");
    let error = Clock::create(&owned.dir).unwrap_err().to_string();
    assert!(error.contains("exists"), "{error}");
}

fn no_reader_ever_sees_half_a_change() {
    let owned = clock("clock_that_is_rewritten");
    let clock = &owned.clock;
    let mut command = Command::new(env::current_exe().unwrap());
    command.env(CHILD, "1").envs(clock.env()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let until = Instant::now() + Duration::from_millis(1500);
    let mut writes = 0_u64;
    while Instant::now() < until || writes < 1000 {
        // Far ahead, stopped there, real. Every field differs in one of these steps. The rate of
        // the second with the anchor of another would show 1970.
        for change in [
            ClockChange::forward(Duration::from_secs(FAR)),
            ClockChange::Rate(0.0),
            ClockChange::Heal,
        ] {
            clock.change(change).unwrap();
            writes += 1;
        }
    }
    drop(child.stdin.take());
    let counts = lines.next().unwrap().unwrap();
    assert!(child.wait().unwrap().success());
    let counts: Vec<u64> = counts.split(' ').map(|count| count.parse().unwrap()).collect();
    assert_eq!(counts[2], 0, "{counts:?}, {writes} writes");
    assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}, {writes} writes");
}

/// The child's side of [`no_reader_ever_sees_half_a_change`].
pub(crate) fn child() -> ExitCode {
    // The number of readings of each of the two valid times, and of any other time.
    let (began, real) = (Instant::now(), now());
    println!("ready");
    let stop = AtomicBool::new(false);
    let read = || {
        let mut counts = [0_u64; 3];
        while !stop.load(Relaxed) {
            let passed = i64::try_from(began.elapsed().as_secs()).unwrap();
            let ahead = now() - real - passed;
            let is = |set: u64| (ahead - set.cast_signed()).abs() <= SLACK;
            counts[[0, FAR].into_iter().position(is).unwrap_or(2)] += 1;
        }
        counts
    };
    let counts = thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
        let _end = std::io::stdin().read_line(&mut String::new());
        stop.store(true, Relaxed);
        readers.into_iter().map(|reader| reader.join().unwrap()).fold([0; 3], |sum, counts| {
            std::array::from_fn::<u64, 3, _>(|index| sum[index] + counts[index])
        })
    });
    println!("{} {} {}", counts[0], counts[1], counts[2]);
    ExitCode::SUCCESS
}
