//! The masters, the program, and its JSON output.

use std::process::{Command, Output, Stdio};

use redquorum_rig::{Masters, Persistence};
use serde::Deserialize;

/// Masters that sync every write.
pub(crate) fn durable(count: usize) -> Masters {
    Masters::builder().count(count).persistence(Persistence::AofAlways).start().unwrap()
}

#[derive(Debug, Deserialize)]
pub(crate) struct Diagnosis {
    pub(crate) schema: u32,
    pub(crate) masters: Vec<Master>,
    pub(crate) findings: Vec<Finding>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Master {
    pub(crate) name: String,
    pub(crate) reached: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Finding {
    pub(crate) level: String,
    pub(crate) master: Option<String>,
    pub(crate) check: String,
    pub(crate) text: String,
    pub(crate) fix: Option<String>,
}

/// Runs `doctor`. Returns the exit code, standard output and standard error.
pub(crate) fn run<S: AsRef<str>>(words: &[S]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redquorum-chaos"));
    command.arg("doctor").args(words.iter().map(AsRef::as_ref)).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// Runs `doctor` on masters, with options. The node timeout is so long that a busy machine causes
/// no finding.
pub(crate) fn examine(urls: &[String], options: &[&str]) -> (i32, Diagnosis) {
    let mut words = vec!["--format", "json"];
    if !options.contains(&"--node-timeout") {
        words.extend(["--node-timeout", "10s"]);
    }
    words.extend(options);
    words.extend(urls.iter().map(String::as_str));
    let (code, json, stderr) = run(&words);
    (code, serde_json::from_str(&json).unwrap_or_else(|why| panic!("{why}: {json} {stderr}")))
}

impl Diagnosis {
    /// The findings that are not ok, as `level check master`.
    pub(crate) fn bad(&self) -> Vec<String> {
        let bad = self.findings.iter().filter(|found| found.level != "ok");
        bad.map(|found| {
            let master = found.master.as_deref().unwrap_or("all");
            format!("{} {} {master}", found.level, found.check)
        })
        .collect()
    }

    /// The one finding of a check that is not ok.
    pub(crate) fn the(&self, check: &str) -> &Finding {
        let bad = |found: &&Finding| found.check == check && found.level != "ok";
        let mut found = self.findings.iter().filter(bad);
        let one = found.next().unwrap_or_else(|| panic!("no finding of {check}: {self:#?}"));
        assert!(found.next().is_none(), "several findings of {check}: {self:#?}");
        one
    }

    /// Checks the only such finding of a check: its level, its master, and words of its text and
    /// remedy.
    #[track_caller]
    pub(crate) fn has(
        &self,
        level: &str,
        check: &str,
        master: Option<&str>,
        text: &str,
        fix: &str,
    ) {
        let found = self.the(check);
        assert!(found.is(level, master, text, fix), "{found:?}");
    }

    /// Checks that one of several such findings of a check is like this.
    #[track_caller]
    pub(crate) fn has_among(
        &self,
        level: &str,
        check: &str,
        master: Option<&str>,
        text: &str,
        fix: &str,
    ) {
        let mut found = self.findings.iter().filter(|found| found.check == check);
        assert!(found.any(|found| found.is(level, master, text, fix)), "{self:#?}");
    }
}

impl Finding {
    fn is(&self, level: &str, master: Option<&str>, text: &str, fix: &str) -> bool {
        (&*self.level, self.master.as_deref()) == (level, master)
            && self.text.contains(text)
            && self.fix.as_deref().is_some_and(|it| it.contains(fix))
    }
}

/// The name of a master in findings.
pub(crate) fn name(url: &str) -> String {
    let rest = url.split_once("://").unwrap().1;
    rest.rsplit_once('@').map_or(rest, |(_, host)| host).to_owned()
}
