//! Writes `junit.xml`, for tools that read test results.

use std::io;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::{Ended, Entry, Session, human};
use redquorum_checker::Outcome;

const NAME: &str = "redquorum-chaos";

pub(super) fn text(session: &Session, entries: &[Entry]) -> io::Result<String> {
    let mut suite = TestSuite::new(NAME);
    suite.add_property(("seed", session.seed.to_string().as_str()));
    suite.add_property(("backend", session.backend.as_str()));
    suite.add_property(("masters", session.masters.as_str()));
    suite.set_time(entries.iter().map(|entry| entry.took).sum());
    for entry in entries {
        let mut case = TestCase::new(entry.name.as_str(), status(entry));
        case.set_classname(format!("{NAME}.{}", entry.backend));
        case.set_time(entry.took);
        case.add_property(("seed", entry.seed.to_string().as_str()));
        case.add_property(("again", entry.again.as_str()));
        suite.add_test_case(case);
    }
    let mut report = Report::new(NAME);
    report.add_test_suite(suite);
    report.to_string().map_err(io::Error::other)
}

fn status(entry: &Entry) -> TestCaseStatus {
    let kind = match &entry.ended {
        Ended::Checked(verdict) if verdict.outcome == Outcome::AsExpected => {
            return TestCaseStatus::success();
        }
        Ended::Skipped(why) => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(why.as_str());
            return status;
        }
        Ended::Checked(_) if entry.is_good() => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(format!("not seen: {}", entry.differences().join("; ")));
            return status;
        }
        Ended::Checked(_) => NonSuccessKind::Failure,
        Ended::Environment(_) | Ended::Internal(_) => NonSuccessKind::Error,
    };
    let mut status = TestCaseStatus::non_success(kind);
    let first = entry.differences().first().map_or("no reason was given", String::as_str);
    let text = format!("{}\n{}", human::observed(entry), human::details(entry, false));
    status.set_message(first).set_type(entry.word()).set_description(text);
    status
}
