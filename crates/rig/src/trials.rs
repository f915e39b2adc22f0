//! Runs tests of which some need real masters. Called by the `main` of test files that have
//! `harness = false`, in this crate and in others.
//!
//! Rust's own test harness cannot skip a test at run time; a test that returns early counts as
//! passed, and no one sees that it never ran. Here it is reported as ignored, with the reason at
//! the top, and on a machine that sets [`REQUIRE_VARIABLE`] as failed.
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

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::{REQUIRE_VARIABLE, find_server, required};

/// A test: a function that panics if it fails.
pub struct Case {
    name: String,
    needs_masters: bool,
    test: Box<dyn FnOnce() + Send>,
}

/// A test that needs a server, and is ignored where there is none.
pub fn with_masters(name: &str, test: impl FnOnce() + Send + 'static) -> Case {
    Case { name: name.to_owned(), needs_masters: true, test: Box::new(test) }
}

/// A test that needs none.
pub fn plain(name: &str, test: impl FnOnce() + Send + 'static) -> Case {
    Case { name: name.to_owned(), needs_masters: false, test: Box::new(test) }
}

/// Runs the tests as the arguments of the process say, which are those of Rust's own harness.
///
/// Says on standard error which server the tests use, or why they are ignored: standard output
/// belongs to those who list the tests.
pub fn run(cases: impl IntoIterator<Item = Case>) -> ExitCode {
    let arguments = Arguments::from_args();
    let missing = find_server().map_err(|error| error.to_string());
    let trials: Vec<Trial> =
        cases.into_iter().map(|case| case.into_trial(missing.as_ref().err())).collect();
    if !arguments.list {
        match &missing {
            Ok(server) => eprintln!("\nreal masters: {server}"),
            Err(why) if required() => eprintln!("\nreal masters are required: {why}"),
            Err(why) => {
                eprintln!("\ntests with real masters are ignored: {why}");
                eprintln!("(with {REQUIRE_VARIABLE}=1 they fail)");
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

impl Case {
    fn into_trial(self, missing: Option<&String>) -> Trial {
        let missing = missing.filter(|_| self.needs_masters).cloned();
        let ignored = missing.is_some() && !required();
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
