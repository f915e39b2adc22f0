//! Runs tests of which some need real masters. Called by the `main` of test files that have
//! `harness = false`, in this crate and in others.
//!
//! Rust's own test harness cannot skip a test at run time. A test that returns early counts as
//! passed, and the output does not show that it never ran. Here such a test is reported as ignored,
//! with the reason at the top. On a machine that sets [`REQUIRE_VARIABLE`] it is reported as
//! failed.
//!
//! ```no_run
//! use redquorum_rig::{Masters, trials::{plain, run, with_masters}};
//!
//! fn main() -> std::process::ExitCode {
//!     run([
//!         with_masters("five_masters_start", || drop(Masters::start(5).unwrap())),
//!         plain("two_and_two_make_four", || assert_eq!(2 + 2, 4)),
//!     ])
//! }
//! ```

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

#[cfg(feature = "tls")]
mod sentinel;
#[cfg(feature = "tls")]
pub mod tls;

#[cfg(feature = "tls")]
pub use sentinel::Sentinel;

use crate::{REQUIRE_VARIABLE, containers, find_server, required};

/// A list of tests by the names of their functions, each behind its requirement:
/// `cases![with_masters: five_start, plain: two_and_two_make_four]`.
#[macro_export]
macro_rules! cases {
    ($($kind:ident: $test:ident),* $(,)?) => {
        vec![$($crate::trials::$kind(stringify!($test), $test)),*]
    };
}

/// A test: a function that panics if it fails.
pub struct Case {
    name: String,
    needs: Option<Need>,
    test: Box<dyn FnOnce() + Send>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Masters,
    Containers,
}

fn case(needs: Option<Need>, name: &str, test: impl FnOnce() + Send + 'static) -> Case {
    Case { name: name.to_owned(), needs, test: Box::new(test) }
}

/// A test that needs a server. It is ignored where there is none.
pub fn with_masters(name: &str, test: impl FnOnce() + Send + 'static) -> Case {
    case(Some(Need::Masters), name, test)
}

/// A test that needs containers. It is ignored where there is no engine or no image. A machine that
/// sets [`containers::REQUIRE_VARIABLE`] fails it instead.
pub fn with_containers(name: &str, test: impl FnOnce() + Send + 'static) -> Case {
    case(Some(Need::Containers), name, test)
}

/// A test without requirements.
pub fn plain(name: &str, test: impl FnOnce() + Send + 'static) -> Case {
    case(None, name, test)
}

/// A test in real time, run up to three times until it passes. A machine that stalls for a moment
/// does not fail it each time; a defect does.
///
/// # Panics
///
/// With the last try's panic.
pub fn thrice(test: impl Fn()) {
    for _ in 1..3 {
        if catch_unwind(AssertUnwindSafe(&test)).is_ok() {
            return;
        }
        eprintln!("that was in real time, on a machine that may have stalled: once more");
    }
    test();
}

/// Waits until `is_true` returns true. The bound allows for a busy machine.
///
/// # Panics
///
/// It is not true within a minute: the message names `what`.
pub fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_true() {
        assert!(Instant::now() < until, "not in time: {what}");
        sleep(Duration::from_millis(5));
    }
}

/// The ids of the processes that have this text in their environment, in their arguments, or in the
/// path of their working directory. Servers overwrite the first two. Without `/proc` only the
/// arguments are visible.
///
/// # Panics
///
/// There is neither `/proc` nor `ps`.
pub fn processes_with(text: &str) -> Vec<u32> {
    if !Path::new("/proc/self/cwd").exists() {
        let output = Command::new("ps").args(["-axww", "-o", "pid=,args="]).output();
        let output = output.expect("neither /proc nor ps is there").stdout;
        let lines = String::from_utf8_lossy(&output);
        let lines = lines.lines().filter(|line| line.contains(text));
        return lines.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    }
    let has_it = |pid: &u32| {
        let path = |file| format!("/proc/{pid}/{file}");
        let cwd = fs::read_link(path("cwd")).unwrap_or_default();
        cwd.to_string_lossy().contains(text)
            || ["environ", "cmdline"].iter().any(|file| {
                let bytes = fs::read(path(file)).unwrap_or_default();
                String::from_utf8_lossy(&bytes).contains(text)
            })
    };
    let entries = fs::read_dir("/proc").expect("it is there").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(has_it).collect()
}

/// A connection to a master for commands as text. It waits for half a minute, which is longer than
/// the rig's own connection does: a busy disk slows a master that syncs before each reply.
///
/// # Panics
///
/// Every method does if the master is not there, or does not reply in time.
pub struct Talk(BufReader<TcpStream>);

impl Talk {
    /// Connects to the master at this port of the loopback.
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self(BufReader::new(stream))
    }

    /// Sends a command of words without spaces, and does not wait for the reply.
    pub fn send(&mut self, words: &str) {
        self.0.get_mut().write_all(format!("{words}\r\n").as_bytes()).expect("it is sent");
    }

    /// Sends a command, and returns the reply as it is on the wire, but without the frame of a long
    /// text.
    pub fn ask(&mut self, words: &str) -> String {
        self.send(words);
        let line = self.line();
        let Some(length) = line.strip_prefix('$').and_then(|digits| digits.parse().ok()) else {
            return line;
        };
        let mut text = vec![0; length];
        self.0.read_exact(&mut text).expect("a reply");
        self.line();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The next line.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).expect("a reply");
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }
}

/// Runs the tests as the arguments of the process say, which are those of Rust's own harness.
///
/// By default twice as many tests run at a time as there are cores: most tests wait for masters for
/// most of their time.
///
/// It prints on standard error which server the tests use, or why they are ignored: tools that list
/// the tests read standard output.
pub fn run(cases: impl IntoIterator<Item = Case>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let cores = available_parallelism().map_or(1, usize::from);
    arguments.test_threads.get_or_insert(2 * cores);
    let cases: Vec<Case> = cases.into_iter().collect();
    // Requirements that no test has are not checked: an image may have to be pulled.
    let missing: Vec<_> = [Need::Masters, Need::Containers]
        .into_iter()
        .filter(|need| cases.iter().any(|case| case.needs == Some(*need)))
        .filter_map(|need| Some((need, need.missing(!arguments.list)?)))
        .collect();
    let trials = cases.into_iter().map(|Case { name, needs, test }| {
        let missing = missing.iter().find(|(need, _)| Some(*need) == needs);
        let missing = missing.map(|(_, missing)| missing.clone());
        let ignored = missing.as_ref().is_some_and(|(_, required)| !required);
        let run = move || match missing {
            Some((why, _)) => Err(Failed::from(why)),
            None => {
                test();
                Ok(())
            }
        };
        Trial::test(name, run).with_ignored_flag(ignored)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

impl Need {
    /// The reason why it is not met, and whether it is required. Prints the result if asked to.
    fn missing(self, announces: bool) -> Option<(String, bool)> {
        let (noun, found, required, variable) = match self {
            Self::Containers => (
                "containers",
                containers::prepare(None).map(|image| format!("image {image}")),
                containers::required(),
                containers::REQUIRE_VARIABLE,
            ),
            Self::Masters => (
                "real masters",
                find_server().map(|server| server.to_string()),
                required(),
                REQUIRE_VARIABLE,
            ),
        };
        if announces {
            match &found {
                Ok(what) => eprintln!("\n{noun}: {what}"),
                Err(why) if required => eprintln!("\n{noun} are required: {why}"),
                Err(why) => {
                    eprintln!("\ntests with {noun} are ignored: {why}");
                    eprintln!("(with {variable}=1 they fail)");
                }
            }
        }
        found.err().map(|why| (why.to_string(), required))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_test_passes_at_the_third_try_and_fails_after_it() {
        let tries = AtomicUsize::new(0);
        thrice(|| assert_eq!(tries.fetch_add(1, Ordering::Relaxed), 2));
        assert_eq!(tries.load(Ordering::Relaxed), 3);
        assert!(catch_unwind(|| thrice(|| panic!("it is wrong each time"))).is_err());
    }
}
