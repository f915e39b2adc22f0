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

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

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
    needs: Need,
    test: Box<dyn FnOnce() + Send>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Nothing,
    Masters,
    Containers,
}

impl Case {
    fn new(needs: Need, name: &str, test: impl FnOnce() + Send + 'static) -> Self {
        Self { name: name.to_owned(), needs, test: Box::new(test) }
    }
}

/// A test that needs a server. It is ignored where there is none.
pub fn with_masters(name: &str, test: impl FnOnce() + Send + 'static) -> Case {
    Case::new(Need::Masters, name, test)
}

/// A test that needs containers. It is ignored where there is no engine or no image. A machine that
/// sets [`containers::REQUIRE_VARIABLE`] fails it instead.
pub fn with_containers(name: &str, test: impl FnOnce() + Send + 'static) -> Case {
    Case::new(Need::Containers, name, test)
}

/// A test without requirements.
pub fn plain(name: &str, test: impl FnOnce() + Send + 'static) -> Case {
    Case::new(Need::Nothing, name, test)
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
    let means: Vec<Means> = [Need::Masters, Need::Containers]
        .into_iter()
        .filter(|need| cases.iter().any(|case| case.needs == *need))
        .map(Means::of)
        .collect();
    if !arguments.list {
        means.iter().for_each(Means::announce);
    }
    let trials = cases.into_iter().map(|case| case.into_trial(&means)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The requirements of tests, and whether each is met.
struct Means {
    need: Need,
    noun: &'static str,
    found: Result<String, String>,
    required: bool,
    variable: &'static str,
}

impl Means {
    fn of(need: Need) -> Self {
        let (noun, found, required, variable) = match need {
            Need::Containers => (
                "containers",
                containers::prepare(None).map(|image| format!("image {image}")),
                containers::required(),
                containers::REQUIRE_VARIABLE,
            ),
            _ => (
                "real masters",
                find_server().map(|server| server.to_string()),
                required(),
                REQUIRE_VARIABLE,
            ),
        };
        Self { need, noun, found: found.map_err(|error| error.to_string()), required, variable }
    }

    fn announce(&self) {
        let Self { noun, variable, .. } = self;
        match &self.found {
            Ok(what) => eprintln!("\n{noun}: {what}"),
            Err(why) if self.required => eprintln!("\n{noun} are required: {why}"),
            Err(why) => {
                eprintln!("\ntests with {noun} are ignored: {why}");
                eprintln!("(with {variable}=1 they fail)");
            }
        }
    }
}

impl Case {
    fn into_trial(self, means: &[Means]) -> Trial {
        let means = means.iter().find(|means| means.need == self.needs);
        let missing = means.and_then(|means| means.found.clone().err());
        let ignored = missing.is_some() && means.is_some_and(|means| !means.required);
        let test = self.test;
        Trial::test(self.name, move || match missing {
            Some(why) => Err(Failed::from(why)),
            None => {
                test();
                Ok(())
            }
        })
        .with_ignored_flag(ignored)
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
