//! `holder`: who holds a resource, on each master.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use clap::Args;
use redquorum::report::{Holder, MasterOutcome, MasterReport};
use redquorum::{HeldBy, Plan, Shards, Token};
use redquorum_protocol::wire::queue_of;
use redquorum_protocol::{Key, slot_of};
use serde::Serialize;

use crate::codes::Code;
use crate::line::{AskError, Line, Value, on_all};
use crate::options::{LockOptions, build, plan_of};
use crate::{complain, permits, runtime, say, time};

pub(crate) const HELP: &str = "\
Exit codes:
  0    a quorum of masters names the holder of a resource
  1    all resources are free
  64   the command line or an option is wrong
  69   too few masters answered, or no quorum of them names the same holder";

/// The resources, and how to print the answer.
#[derive(Debug, Args)]
pub(crate) struct HolderOptions {
    /// What to ask for
    #[arg(required = true, value_name = "RESOURCE")]
    resources: Vec<OsString>,
    /// Ask for the permits of semaphores: `exec --permits N`
    #[arg(long, value_name = "N", value_parser = permits)]
    permits: Option<usize>,
    /// Ask again and again, and print each change
    #[arg(long)]
    watch: bool,
    /// How often to ask with --watch
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s", requires = "watch")]
    every: Duration,
    /// Print JSON, an object for each resource on a line of its own
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    lock: LockOptions,
}

/// The start of a token, as reports show it and `break` takes it.
fn id(token: &Token) -> String {
    format!("{token:?}").trim_end_matches('…').to_owned()
}

/// The answer about one resource, as JSON has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Answer {
    resource: String,
    /// `held`, `free` or `unclear`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<HolderView>,
    masters: Vec<MasterView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct MasterView {
    name: String,
    /// `held`, `free` or `unknown`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<HolderView>,
    /// How many wait for the resource there. Some of them may have gone, up to 15 s ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct HolderView {
    /// The start of the token, as `break` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    shared: bool,
    /// Without one, the key never expires, or its type has no owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_ms: Option<u64>,
    text: String,
}

impl HolderView {
    fn of(holder: &Holder) -> Self {
        let (token, left_ms) = match holder {
            Holder::Lease { token, left_ms } => (Some(id(token)), Some(*left_ms)),
            Holder::Foreign { left_ms } => (None, Some(*left_ms)),
            _ => (None, None),
        };
        let (name, shared) = (holder.name().map(str::to_owned), holder.is_shared());
        Self { token, name, shared, left_ms, text: holder.to_string() }
    }
}

impl MasterView {
    fn of(master: &MasterReport, waiting: Option<i64>) -> Self {
        let (state, holder, error) = match &master.outcome {
            Some(MasterOutcome::Taken(holder)) => ("held", Some(HolderView::of(holder)), None),
            Some(MasterOutcome::Absent) => ("free", None, None),
            Some(MasterOutcome::Unknown(cause)) => ("unknown", None, Some(cause.to_string())),
            _ => ("unknown", None, Some(master.to_string())),
        };
        Self { name: master.name.to_string(), state, holder, waiting, error }
    }

    fn line(&self) -> String {
        let waiting = self.waiting.filter(|waiting| *waiting > 0);
        let waiting = waiting.map(|waiting| format!(", {waiting} waiting")).unwrap_or_default();
        match (&self.holder, &self.error) {
            (Some(holder), _) => format!("  {}  {}{waiting}", self.name, holder.text),
            (_, Some(error)) => format!("  {}  {error}", self.name),
            _ => format!("  {}  free{waiting}", self.name),
        }
    }
}

impl Answer {
    fn of(resource: &OsString, held: &HeldBy, waiting: &[Option<i64>]) -> Self {
        let holder = held.holder();
        let state = match holder {
            Some(_) => "held",
            None if held.is_free() => "free",
            None => "unclear",
        };
        let left = |(holder, left): (Holder, Duration)| {
            let left_ms = u64::try_from(left.as_millis()).ok().filter(|_| left < Duration::MAX);
            HolderView { left_ms, ..HolderView::of(&holder) }
        };
        let masters = held.report.masters().iter().zip(waiting);
        Self {
            resource: resource.display().to_string(),
            state,
            holder: holder.map(left),
            masters: masters.map(|(master, waiting)| MasterView::of(master, *waiting)).collect(),
        }
    }

    fn text(&self) -> String {
        let verdict = match (&self.holder, self.state) {
            (Some(holder), _) => &*holder.text,
            (None, "free") => "free",
            _ => "no quorum of masters names the same holder",
        };
        let mut lines = vec![format!("{}: {verdict}", self.resource)];
        lines.extend(self.masters.iter().map(MasterView::line));
        lines.join("\n")
    }

    /// What `--watch` waits for a change of: not the time that is left.
    fn essence(&self) -> String {
        let holder = self.holder.as_ref().map(|holder| (&holder.token, &holder.name));
        format!("{} {holder:?}", self.state)
    }
}

/// Asks, once or for ever.
pub(crate) fn main(mut options: HolderOptions) -> Result<Code, Code> {
    if let Some(permits) = options.permits {
        let slots = |resource: OsString| {
            (1..=permits).map(move |slot| OsString::from_vec(slot_of(resource.as_bytes(), slot)))
        };
        options.resources = options.resources.into_iter().flat_map(slots).collect();
    }
    runtime()?.block_on(async {
        let builder = options.lock.builder()?;
        let plans = options.resources.iter().map(|resource| plan_of(&builder, resource));
        let plans = plans.collect::<Result<Vec<Plan>, Code>>()?;
        let shards = build(builder).await?;
        let mut before: Vec<Option<_>> = vec![None; options.resources.len()];
        loop {
            let mut code = Code::NO;
            for ((resource, plan), before) in options.resources.iter().zip(&plans).zip(&mut before)
            {
                let answer = ask(&shards, plan, resource).await?;
                code = match (answer.state, code) {
                    ("held", _) => Code::SUCCESS,
                    ("unclear", Code::NO) => Code::UNAVAILABLE,
                    _ => code,
                };
                let essence = Some(answer.essence());
                if *before != essence {
                    *before = essence;
                    print(&options, &answer)?;
                }
            }
            if !options.watch {
                return Ok(code);
            }
            tokio::time::sleep(options.every).await;
        }
    })
}

async fn ask(shards: &Shards, plan: &Plan, resource: &OsString) -> Result<Answer, Code> {
    let home = shards.home(resource.as_bytes());
    let held = home.holder(resource.as_bytes()).await.map_err(|error| {
        complain(Code::of_acquire(&error), &error.to_string(), "correct the name of the resource")
    })?;
    let key: Key = [&plan.prefix, resource.as_bytes()].concat().into();
    let waiting = on_all(&plan.nodes, move |line| waiting(line, key.clone())).await;
    let waiting: Vec<Option<i64>> = waiting.into_iter().map(Result::ok).collect();
    Ok(Answer::of(resource, &held, &waiting))
}

/// How many wait in the queue of a master: for an exclusive lease, and for a shared one.
async fn waiting(mut line: Line, key: Key) -> Result<i64, AskError> {
    let mut waiting = 0;
    let [writers, readers, _] = queue_of(&key);
    for queue in [writers, readers] {
        if let Value::Integer(count) = line.ask(&[b"ZCARD", &queue]).await? {
            waiting += count;
        }
    }
    Ok(waiting)
}

fn print(options: &HolderOptions, answer: &Answer) -> Result<Code, Code> {
    if options.json {
        return say(&serde_json::to_string(answer)
            .map_err(|why| complain(Code::INTERNAL, &why.to_string(), "report it"))?);
    }
    // A log needs the time of each change, a terminal does, too.
    let stamp = if options.watch && std::io::stdout().is_terminal() {
        format!("{}  ", humantime::format_rfc3339_seconds(std::time::SystemTime::now()))
    } else {
        String::new()
    };
    say(&format!("{stamp}{}", answer.text()))
}
