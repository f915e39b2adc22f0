//! `client-check`: tells the author of a driver what is right and what is wrong with it, in plain
//! words, before a scenario does so in a riddle.
//!
//! It starts masters of its own and one process of the driver, and goes through the protocol of
//! [`talk`](crate::talk). One line a check: `ok`, `wrong`, or `skipped` where the driver does not
//! say that it can.
//!
//! What lives here is the course of it; `talker.rs` is the conversation, bounded against any driver;
//! `keys.rs` looks at the masters; `manners.rs`, `grant.rs`, `hold.rs`, `again.rs`, `fair.rs` and
//! `trouble.rs` have the checks.

use std::io::Write;

use redquorum_rig::Masters;

use self::keys::Keys;
use self::talker::{Fault, Talker};
use crate::process::shown;
use crate::talk::{Answer, Can, Options};

mod again;
mod fair;
mod grant;
mod hold;
mod keys;
mod manners;
mod talker;
mod trouble;

/// So few that a majority can be killed quickly, and so many that there is one.
const MASTERS: usize = 3;

/// What the driver is told in its environment. A master on this machine answers within a
/// millisecond; a slow language gets its share.
const OPTIONS: Options = Options {
    ttl_ms: 2000,
    node_timeout_ms: 100,
    drift_ppm: 10_000,
    drift_ms: 2,
    fencing: true,
    guard_ms: None,
    clock_guard_ms: None,
    grace_ms: 0,
    wake_ups: true,
    fair: false,
    fleet: None,
};

/// How a check ended, if it did not find a fault.
enum Verdict {
    /// All is well; what was seen.
    Ok(String),
    /// It was not done, and why.
    Skipped(String),
}

type Check = fn(&mut Session) -> Result<Verdict, Fault>;

/// What the checks share.
struct Session {
    /// How a process of it is started.
    command: String,
    talker: Talker,
    keys: Keys,
    can: Vec<Can>,
    /// The lease that several checks look at.
    grant: Option<Grant>,
}

/// A granted acquire.
struct Grant {
    resource: String,
    ttl_ms: u64,
    /// Stamps: when it was asked for, and when the answer was heard.
    asked: i64,
    heard: i64,
    answer: Answer,
    /// The value of the key on the masters, once it was looked at.
    value: Option<Vec<u8>>,
}

const CHECKS: [(&str, Check); 23] = [
    ("ready", manners::ready),
    ("acquire", grant::acquire),
    ("stamps", grant::stamps),
    ("deadline", grant::deadline),
    ("keys", grant::keys),
    ("token", grant::token),
    ("taken", grant::taken),
    ("step", manners::step),
    ("checked step", hold::checked_step),
    ("release", hold::release),
    ("fence", grant::fence),
    ("extend", hold::extend),
    ("keep alive", hold::keep_alive),
    ("again", again::again),
    ("lost", hold::lost),
    ("expired lease", hold::expired),
    ("wait", grant::wait),
    ("cancel", manners::cancel),
    ("fair", fair::fair),
    ("unknown op", manners::unknown),
    ("no quorum", trouble::no_quorum),
    ("recovery", trouble::recovery),
    ("end of input", manners::end),
];

/// Checks a driver, and writes what it finds line by line. Whether all is well is returned.
///
/// # Errors
/// Why it could not be checked: no server, no shell, nobody to write to.
pub fn check(command: &str, out: &mut dyn Write) -> Result<bool, String> {
    let masters = Masters::start(MASTERS).map_err(|error| error.to_string())?;
    let talker = Talker::start(command, &masters.urls(), &OPTIONS)?;
    let keys = Keys::new(masters);
    let command = command.to_owned();
    let mut session = Session { command, talker, keys, can: Vec::new(), grant: None };
    let mut page = Page { out, all_well: true };
    let mut whole = true;
    for (number, (name, check)) in CHECKS.iter().enumerate() {
        let over = match check(&mut session) {
            Ok(Verdict::Ok(seen)) => page.line("ok", name, &seen)?,
            Ok(Verdict::Skipped(why)) => page.line("skipped", name, &why)?,
            Err(Fault::Wrong(what)) => page.line("wrong", name, &what)?,
            Err(Fault::Environment(why)) => return Err(why),
            Err(Fault::Over(what)) => {
                page.line("wrong", name, &what)?;
                let left = CHECKS.len() - number - 1;
                if left > 0 {
                    page.line("skipped", "the rest", &format!("{left} checks, for that reason"))?;
                }
                whole = false;
                true
            }
        };
        if over {
            break;
        }
    }
    let complaints = session.talker.complaints();
    if complaints.is_empty() && whole {
        page.line("ok", "lines", "each was understood, and every answer was to a question")?;
    }
    for complaint in complaints {
        page.line("wrong", "lines", &complaint)?;
    }
    Ok(page.all_well)
}

struct Page<'a> {
    out: &'a mut dyn Write,
    all_well: bool,
}

impl Page<'_> {
    /// Writes a line. It is false, to go on, because no line ends the page.
    fn line(&mut self, verdict: &str, name: &str, text: &str) -> Result<bool, String> {
        self.all_well &= verdict != "wrong";
        let text = text.replace('\n', "\n         ");
        let written = writeln!(self.out, "{verdict:<8} {name}: {text}");
        written
            .and_then(|()| self.out.flush())
            .map_err(|why| format!("cannot be written: {why}"))?;
        Ok(false)
    }
}

impl Session {
    fn can(&self, what: Can) -> bool {
        self.can.contains(&what)
    }

    /// One more process of it, beside the one that all other checks are about.
    fn another(&self, options: &Options) -> Result<Talker, Fault> {
        Talker::start(&self.command, &self.keys.urls(), options).map_err(Fault::Environment)
    }
}

/// Nothing to look at: an earlier check has said why.
fn no_lease() -> Verdict {
    Verdict::Skipped("no lease was granted".to_owned())
}

fn cannot(what: &str) -> Verdict {
    Verdict::Skipped(format!("`{what}` is not in \"can\""))
}

/// What a client said in its answer, for messages.
fn said(answer: &Answer) -> String {
    serde_json::to_string(answer).map_or_else(|_| "its answer".to_owned(), |text| shown(&text))
}
