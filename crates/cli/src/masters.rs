//! `masters`: takes masters through the steps of a move from one set to another, while the clients
//! of the lock run.
//!
//! [`steps`] decides, from what the masters show. This module reads, writes and waits. A command
//! claims each master when it first reads it. A write needs the claim and the marker that was read,
//! and every later look needs the claim: of two commands at the same time, the one that began last
//! goes on, and what a master shows before and behind a wait it has shown all the time.

mod steps;

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use redquorum::connect::Node;
use redquorum_protocol::wire::{BOOT, PROBATION};
use redquorum_protocol::{
    Admitted, Distrust, Fingerprint, Guard, MAX_NODES, MastersId, NodeId, NodeSet, Quorum, RunId,
    admitted_by, with_admitted,
};
use serde::Serialize;

use self::steps::{ClientGroup, Goal, MasterStep, Next, Refusal, Side, View, next};
use crate::codes::Code;
use crate::line::{AskError, Line, Value, on_all, reply};
use crate::options::{LockOptions, plans};
use crate::{complain, runtime, say, say_json};

pub(crate) const HELP: &str = "\
A move, step by step. Before: start all clients with a restart guard.
  1. redquorum masters begin    then start all clients again with `moving-to`
  2. redquorum masters switch   then start all clients again with the new masters alone
  3. redquorum masters finish   then stop the masters that are not needed any more

Each command can be stopped at any time, and run again. `back` undoes one: run it with the clients
started again as they were before.

Exit codes:
  0    the masters are at the step, or were already
  1    clients of another step are connected, or the masters are not at a step for this
  64   the command line or an option is wrong
  69   too few masters answered, or too few have a marker";

/// What to do, and for which masters.
#[derive(Debug, Args)]
pub(crate) struct MastersOptions {
    /// What to do
    #[arg(value_enum)]
    what: What,
    /// Print what the masters show as JSON (only with `plan`)
    #[arg(long)]
    json: bool,
    /// Say nothing while it waits
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    lock: LockOptions,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum What {
    /// Show the step of each master, who is connected, and what comes next. Changes nothing
    Plan,
    /// Admit clients that move beside those of the old masters
    Begin,
    /// Admit clients of the new masters instead of those of the old ones, one longest TTL later
    Switch,
    /// Admit the clients of the new masters alone
    Finish,
    /// Take the move back: first to the state behind `begin`, then to the one before it
    Back,
}

/// The key with which a command claims a master.
const CLAIM: &[u8] = b"redquorum:move";

/// How long a claim stays where its command was killed.
const CLAIM_MS: &[u8] = b"172800000";

/// Writes the marker `KEYS[1]`, or deletes it, if it is the one that was read, and the claim
/// `KEYS[2]` is ours. A client that watches the master, and is about to mark it for the step
/// before, begins anew: its probation key `KEYS[3]` goes.
const WRITE: &[u8] = b"\
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 'claimed' end
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[2] then return 'changed' end
if ARGV[3] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[3]) end
redis.call('DEL', KEYS[3])
return 'OK'
";

/// Claims a master if nobody has, or with `1` for `ARGV[2]` in any case. Returns who had it.
const CLAIMS: &[u8] = b"\
local held = redis.call('GET', KEYS[1])
if ARGV[2] == '1' or not held or held == ARGV[1] then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3]) end
return held or ''
";

/// Gives a claim back.
const UNCLAIM: &[u8] = b"\
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 'OK'
";

/// What a master shows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    run_id: Option<RunId>,
    marker: Option<String>,
    /// The connections of each group of clients; `None` if `CLIENT LIST` is forbidden.
    clients: Option<Clients>,
    /// Whether this command had the claim before this look.
    is_claimed: bool,
}

/// The connections of clients to a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Clients {
    old: usize,
    moving: usize,
    new: usize,
    /// Connections of this library that do not name their masters: clients without a guard, or of
    /// an earlier version.
    unknown: usize,
}

/// A move of a lock with a guard.
struct Move {
    nodes: Vec<Arc<dyn Node>>,
    names: Vec<String>,
    sides: [Side; 2],
    guard: Guard,
    from: Fingerprint,
    to: Fingerprint,
    /// What this command writes into its claims.
    claim: String,
    quiet: bool,
}

/// Runs the command.
pub(crate) fn main(options: MastersOptions) -> Result<Code, Code> {
    let move_ = Move::of(&options)?;
    runtime()?.block_on(async {
        if options.what == What::Plan {
            return move_.plan(options.json).await;
        }
        let result = move_.carry_out(options.what).await;
        move_.unclaim().await;
        result
    })
}

impl Move {
    fn of(options: &MastersOptions) -> Result<Self, Code> {
        let plans = plans(&options.lock.builder()?)?;
        let wrong = |wrong: &str, fix: &str| complain(Code::USAGE, wrong, fix);
        if plans.iter().all(|(_, plan)| plan.quorum.moves().is_none()) {
            let fix = "give the URLs of all new masters, with those that stay: --moving-to URLS, or \
                       --moving-to-shards for shards";
            return Err(wrong("the lock does not move to other masters", fix));
        }
        let Some(guard) = plans[0].1.guard else {
            let fix = "give the guard that all clients have: --restart-guard TIME. Without one, move \
                       by waiting times: docs/moving.md";
            return Err(wrong("without a restart guard, masters have no markers", fix));
        };
        let Some(MastersId::Moving { from, to }) = guard.masters_id() else {
            return Err(complain(Code::INTERNAL, "the guard names no move", "report it"));
        };
        let (mut nodes, mut sides) = (Vec::new(), [Vec::new(), Vec::new()]);
        let address = |node: &Arc<dyn Node>| (node.name(), node.hello().database);
        let all: BTreeSet<_> = plans.iter().flat_map(|(_, it)| &it.nodes).map(address).collect();
        if all.len() > MAX_NODES {
            let text = format!("{} masters: a move can have at most {MAX_NODES}", all.len());
            return Err(wrong(
                &text,
                "docs/moving.md has the way without markers, by waiting times",
            ));
        }
        for (_, plan) in plans {
            // A master of several locks is asked once.
            let place = |node: Arc<dyn Node>| {
                let known = nodes.iter().position(|it| address(it) == address(&node));
                NodeId::new(known.unwrap_or_else(|| {
                    nodes.push(node);
                    nodes.len() - 1
                }))
            };
            let places: Vec<NodeId> = plan.nodes.into_iter().map(place).collect();
            for (side, of) in sides.iter_mut().zip(plan.quorum.each()) {
                let shard = of.all().iter().map(|node| places[node.index()]).collect();
                let shard = Quorum::among(shard);
                if !side.contains(&shard) {
                    side.push(shard);
                }
            }
        }
        let claim = format!("{}.{:?}", std::process::id(), std::time::SystemTime::now());
        Ok(Self {
            names: nodes.iter().map(|node| node.name()).collect(),
            nodes,
            sides: sides.map(Side::new),
            guard,
            from,
            to,
            claim,
            quiet: options.quiet,
        })
    }

    /// Reads all masters, and claims them, if it does not only look.
    async fn read(&self, claims: Claims) -> Vec<Result<Shown, String>> {
        let (claim, ids) = (self.claim.clone(), [self.from, self.to]);
        let shown = on_all(&self.nodes, move |line| look(line, claims, claim.clone(), ids)).await;
        shown.into_iter().map(|shown| shown.and_then(|shown| self.checked(shown))).collect()
    }

    /// Refuses a marker that this command must not change.
    fn checked(&self, shown: Shown) -> Result<Shown, String> {
        let Some(marker) = &shown.marker else { return Ok(shown) };
        let ours = MastersId::Moving { from: self.from, to: self.to };
        let as_ours = with_admitted(marker, Admitted::only(ours));
        let run_id = shown.run_id.as_ref();
        let is_step = admitted_by(marker).is_some_and(|it| it.step(self.from, self.to).is_some());
        match self.guard.check(Some(if is_step { &as_ours } else { marker }), run_id, false) {
            Ok(()) | Err(Distrust::Restarted | Distrust::Nameless) => Ok(shown),
            Err(why) => Err(format!("{FOREIGN}{why}")),
        }
    }

    fn steps(&self, shown: &[Result<Shown, String>]) -> Vec<MasterStep> {
        let step = |shown: &Result<Shown, String>| match shown {
            Err(_) => MasterStep::Unreached,
            Ok(shown) => match &shown.marker {
                None => MasterStep::Unmarked,
                Some(marker) => admitted_by(marker)
                    .and_then(|admitted| admitted.step(self.from, self.to))
                    .map_or(MasterStep::Unreached, MasterStep::At),
            },
        };
        shown.iter().map(step).collect()
    }

    /// Goes on until the masters are where the command takes them, or it cannot go on.
    async fn carry_out(&self, what: What) -> Result<Code, Code> {
        let (mut goal, mut changes) = (None, 0);
        let mut before: Option<Vec<Result<Shown, String>>> = None;
        let mut claims = Claims::Anyway;
        loop {
            let began = Instant::now();
            let shown = self.read(claims).await;
            claims = Claims::IfFree;
            self.refuse_foreign(&shown)?;
            // A master that was read first could lose its marker, and get another one from a
            // client, before the last one is read.
            if began.elapsed() >= self.guard.quarantine() {
                let wrong = "the masters answer more slowly than clients mark one that forgets";
                let fix = "run the command again where they answer sooner";
                return Err(complain(Code::UNAVAILABLE, wrong, fix));
            }
            let steps = self.steps(&shown);
            let goal = *goal.get_or_insert_with(|| match what {
                What::Plan | What::Begin => Goal::Begin,
                What::Switch => Goal::Switch,
                What::Finish => Goal::Finish,
                What::Back => Goal::back(&self.sides, &steps),
            });
            let steady = before.take().map_or(NodeSet::EMPTY, |before| same(&before, &shown));
            let connected = ClientGroup::ALL.map(|group| connections(&shown, group) > 0);
            let view = View { sides: &self.sides, steps: &steps, steady, connected };
            match next(goal, &view) {
                Next::Done => return self.done(goal, &shown, &steps, changes),
                Next::Refuse(why) => return Err(self.refused(goal, why, &shown)),
                Next::Wait => {
                    self.wait().await;
                    before = Some(shown);
                }
                Next::Write(nodes, step) => {
                    changes += self.write(nodes, step, &shown).await?;
                }
            }
        }
    }

    /// Writes the markers of a step. Returns how many were changed.
    async fn write(
        &self,
        nodes: NodeSet,
        step: Option<usize>,
        shown: &[Result<Shown, String>],
    ) -> Result<usize, Code> {
        let mut changed = 0;
        for node in nodes.iter() {
            let (Ok(shown), name) = (&shown[node.index()], &self.names[node.index()]) else {
                continue;
            };
            let marker = step.map_or(Some(String::new()), |step| self.marker(step, shown));
            let Some(marker) = marker else {
                let wrong = format!("{name} does not say which process it is");
                return Err(complain(Code::UNAVAILABLE, &wrong, "allow INFO there: +info"));
            };
            let before = shown.marker.clone().unwrap_or_default();
            match self.write_on(node, &before, &marker).await {
                Ok(reply) if reply == "OK" => {
                    changed += 1;
                    self.tell(&format!("{name}: {}", admits(step)));
                }
                // It is read again.
                Ok(reply) if reply == "changed" => {}
                Ok(_) => {
                    let wrong = format!("{name}: {TAKEN_OVER}");
                    return Err(complain(Code::NO, &wrong, ONE_AT_A_TIME));
                }
                // It is read again, and the next decision does without it, or is refused.
                Err(why) => self.tell(&format!("{name}: {why}")),
            }
        }
        Ok(changed)
    }

    async fn write_on(&self, node: NodeId, before: &str, marker: &str) -> Result<String, String> {
        let mut line = Line::open(&self.nodes[node.index()]).await.map_err(|it| it.to_string())?;
        let words: [&[u8]; 9] = [
            b"EVAL",
            WRITE,
            b"3",
            BOOT,
            CLAIM,
            PROBATION,
            self.claim.as_bytes(),
            before.as_bytes(),
            marker.as_bytes(),
        ];
        match reply(line.ask(&words).await) {
            Ok(Ok(value)) => Ok(value.words().concat()),
            Ok(Err(why)) => Err(why),
            Err(why) => Err(why.to_string()),
        }
    }

    /// The marker of a master at a step; `None` if it is new and does not name its process.
    fn marker(&self, step: usize, shown: &Shown) -> Option<String> {
        let admitted = Admitted::at_step(step, self.from, self.to);
        let marker = match &shown.marker {
            Some(marker) => marker.clone(),
            None => self.guard.marker(shown.run_id.as_ref()?, false).to_string(),
        };
        Some(with_admitted(&marker, admitted))
    }

    /// Waits for one window: the longest lease, and its drift.
    async fn wait(&self) {
        let (window, start) = (self.guard.window(), Instant::now());
        let ends = format!("{window:.1?}");
        self.tell(&format!("waiting {ends}, until the leases of other steps are over"));
        let shows = !self.quiet && io::stderr().is_terminal();
        loop {
            let left = window.saturating_sub(start.elapsed());
            if left.is_zero() {
                break;
            }
            if shows {
                drop(write!(io::stderr(), "\r  {:>6.1} s left ", left.as_secs_f64()));
            }
            tokio::time::sleep(left.min(Duration::from_millis(200))).await;
        }
        if shows {
            drop(writeln!(io::stderr(), "\r{:20}\r", ""));
        }
    }

    /// Gives the claims back.
    async fn unclaim(&self) {
        let claim = self.claim.clone();
        on_all(&self.nodes, move |mut line| {
            let claim = claim.clone();
            async move { line.ask(&[b"EVAL", UNCLAIM, b"1", CLAIM, claim.as_bytes()]).await }
        })
        .await;
    }

    fn tell(&self, text: &str) {
        if !self.quiet {
            drop(writeln!(io::stderr(), "redquorum: {text}"));
        }
    }

    fn refuse_foreign(&self, shown: &[Result<Shown, String>]) -> Result<(), Code> {
        let foreign =
            self.names.iter().zip(shown).find_map(|(name, shown)| {
                Some((name, shown.as_ref().err()?.strip_prefix(FOREIGN)?))
            });
        foreign.map_or(Ok(()), |(name, why)| {
            let fix = match why {
                TAKEN_OVER => ONE_AT_A_TIME,
                _ => "give this command the masters and the guard of the clients",
            };
            Err(complain(Code::NO, &format!("{name}: {why}"), fix))
        })
    }

    fn done(
        &self,
        goal: Goal,
        shown: &[Result<Shown, String>],
        steps: &[MasterStep],
        changes: usize,
    ) -> Result<Code, Code> {
        for (name, shown) in self.names.iter().zip(shown) {
            if let Err(why) = shown {
                self.tell(&format!(
                    "{name}: {why}. If it comes back, run this command again before clients use it"
                ));
            }
        }
        for (name, step) in self.names.iter().zip(steps) {
            if *step == MasterStep::Unmarked && goal != Goal::BackToStart {
                self.tell(&format!(
                    "{name}: has no marker, and may have forgotten leases: clients watch it"
                ));
            }
        }
        let what = if changes == 0 { "nothing to do" } else { "done" };
        say(&format!("{what}: {}", After(goal)))
    }

    fn refused(&self, goal: Goal, why: Refusal, shown: &[Result<Shown, String>]) -> Code {
        let names = |set: NodeSet| {
            set.iter().map(|node| &*self.names[node.index()]).collect::<Vec<_>>().join(", ")
        };
        for (name, shown) in self.names.iter().zip(shown) {
            if let Err(why) = shown {
                self.tell(&format!("{name}: {why}"));
            }
        }
        match why {
            Refusal::Unreached(set) => complain(
                Code::UNAVAILABLE,
                &format!("too few masters answer: not {}", names(set)),
                "start them again, or wait; then run the command again",
            ),
            Refusal::Unmarked(set) => complain(
                Code::UNAVAILABLE,
                &format!("too few masters have a marker: not {}", names(set)),
                "they are new, or lost their data: wait until clients have watched them for the \
                 longest TTL and 2 s, or, if all masters are new, mark them: redquorum doctor --init",
            ),
            Refusal::Connected(group) => {
                let count = connections(shown, group);
                let others = match group {
                    ClientGroup::Old => ClientGroup::Moving,
                    ClientGroup::Moving if goal == Goal::Finish => ClientGroup::New,
                    ClientGroup::Moving => ClientGroup::Old,
                    ClientGroup::New => ClientGroup::Moving,
                };
                let wrong = format!("{count} connections are of clients with {}", group.options());
                let fix = format!(
                    "start these clients again with {}; CLIENT LIST on the masters shows where they \
                     are, and CLIENT KILL ends what is left of one that is gone",
                    others.options()
                );
                complain(Code::NO, &wrong, &fix)
            }
            Refusal::WrongStep => complain(
                Code::NO,
                "the masters are not at a step from which this command leads on",
                "redquorum masters plan shows the command that is next",
            ),
        }
    }

    /// Shows everything, and changes nothing.
    async fn plan(&self, json: bool) -> Result<Code, Code> {
        let shown = self.read(Claims::None).await;
        let steps = self.steps(&shown);
        let [old, new] = self.sides.each_ref().map(Side::masters);
        let masters: Vec<PlannedMaster<'_>> = NodeId::all(self.names.len())
            .map(|node| {
                let shown = &shown[node.index()];
                PlannedMaster {
                    name: &self.names[node.index()],
                    is_old: old.contains(node),
                    is_new: new.contains(node),
                    step: match steps[node.index()] {
                        MasterStep::At(step) => Some(step),
                        _ => None,
                    },
                    problem: match shown {
                        Err(why) => Some(why.strip_prefix(FOREIGN).unwrap_or(why).to_owned()),
                        Ok(Shown { marker: None, .. }) => Some("it has no marker".to_owned()),
                        Ok(_) => None,
                    },
                    clients: shown.as_ref().ok().and_then(|shown| shown.clients),
                }
            })
            .collect();
        let due = self.due(&steps);
        let plan = Planned { masters, next: due };
        if json { say_json(&plan) } else { say(&plan.to_string()) }
    }

    /// What comes next.
    fn due(&self, steps: &[MasterStep]) -> &'static str {
        let view =
            View { sides: &self.sides, steps, steady: NodeSet::EMPTY, connected: [false; 3] };
        let [old, new] = &self.sides;
        if new.every_is_in(view.at(|step| step == 4)) && view.at(|step| step <= 3).is_empty() {
            "nothing: the move is over"
        } else if new.every_is_in(view.at(|step| step >= 3))
            && !old.any_is_in(view.at(|step| step <= 1))
        {
            match view.at(|step| step <= 2).is_empty() {
                true => {
                    "start all clients again with the new masters alone, then \
                     `redquorum masters finish`"
                }
                false => "`redquorum masters switch` again: some masters have not got this step",
            }
        } else if !view.at(|step| step >= 2).is_empty() {
            "`redquorum masters switch` again, or `redquorum masters back`: it did not end"
        } else if view.are_both_in(view.at(|step| step == 1)) {
            match view.at(|step| step == 0).is_empty() {
                true => "start all clients again with `moving-to`, then `redquorum masters switch`",
                false => "`redquorum masters begin` again: some masters have not got this step",
            }
        } else {
            "`redquorum masters begin`"
        }
    }
}

/// In front of a problem that no later look solves.
const FOREIGN: &str = "not ours: ";

const ONE_AT_A_TIME: &str = "run one at a time; look with `redquorum masters plan`";

const TAKEN_OVER: &str = "another `redquorum masters` has taken over";

/// Whether a look claims a master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Claims {
    /// It only looks.
    None,
    /// As the first look of a command does.
    Anyway,
    /// As later looks do: another command that has claimed it goes on instead.
    IfFree,
}

/// The masters that show the same marker as before.
fn same(before: &[Result<Shown, String>], now: &[Result<Shown, String>]) -> NodeSet {
    NodeSet::which(before.iter().zip(now), |pair| match pair {
        (Ok(before), Ok(now)) => {
            now.is_claimed && before.marker.is_some() && before.marker == now.marker
        }
        _ => false,
    })
}

fn connections(shown: &[Result<Shown, String>], group: ClientGroup) -> usize {
    let all = shown.iter().flatten().filter_map(|shown| shown.clients);
    all.map(|clients| match group {
        ClientGroup::Old => clients.old,
        ClientGroup::Moving => clients.moving,
        ClientGroup::New => clients.new,
    })
    .sum()
}

async fn look(
    mut line: Line,
    claims: Claims,
    claim: String,
    [from, to]: [Fingerprint; 2],
) -> Result<Shown, AskError> {
    let mut is_claimed = false;
    // Before it reads: who claims later has read later.
    if claims != Claims::None {
        let anyway: &[u8] = if claims == Claims::Anyway { b"1" } else { b"0" };
        let words: [&[u8]; 7] = [b"EVAL", CLAIMS, b"1", CLAIM, claim.as_bytes(), anyway, CLAIM_MS];
        let held = line.ask(&words).await?.words().concat();
        is_claimed = held == claim;
        if claims == Claims::IfFree && !is_claimed && !held.is_empty() {
            return Err(AskError::Refused(format!("{FOREIGN}{TAKEN_OVER}")));
        }
    }
    let marker = match line.ask(&[b"GET", BOOT]).await? {
        Value::Bytes(marker) => Some(String::from_utf8_lossy(&marker).into_owned()),
        _ => None,
    };
    let marker = marker.filter(|marker| !marker.is_empty());
    let info = match line.ask(&[b"INFO", b"server"]).await {
        Ok(info) => info.words().concat(),
        Err(AskError::Refused(_)) => String::new(),
        Err(why) => return Err(why),
    };
    let run_id = info.lines().find_map(|line| line.trim().strip_prefix("run_id:"));
    let clients = match line.ask(&[b"CLIENT", b"LIST"]).await {
        Ok(list) => Some(Clients::of(&list.words().concat(), from, to)),
        Err(AskError::Refused(_)) => None,
        Err(why) => return Err(why),
    };
    let run_id = run_id.map(|id| RunId(Arc::from(id)));
    Ok(Shown { run_id, marker, clients, is_claimed })
}

impl Clients {
    /// Counts the connections in a `CLIENT LIST` by the masters that their names end with.
    fn of(list: &str, from: Fingerprint, to: Fingerprint) -> Self {
        let moving = MastersId::Moving { from, to }.to_string();
        let (old, new) = (from.to_string(), to.to_string());
        let mut clients = Self::default();
        for connection in list.lines() {
            let word = |key: &str| {
                connection.split(' ').find_map(|word| word.strip_prefix(key)).unwrap_or_default()
            };
            let name = word("name=");
            let id = name.rsplit_once('/').map_or("", |(_, id)| id);
            match id {
                id if id == moving => clients.moving += 1,
                id if id == old => clients.old += 1,
                id if id == new => clients.new += 1,
                _ if name == "redquorum" || word("lib-name=") == "redquorum" => {
                    clients.unknown += 1;
                }
                _ => {}
            }
        }
        clients
    }
}

/// What a master at this step admits.
fn admits(step: Option<usize>) -> &'static str {
    match step {
        None => "no marker any more",
        Some(0) => "admits the old masters' clients",
        Some(1) => "admits the old masters' clients, and those that move",
        Some(2) => "admits clients that move",
        Some(3) => "admits clients that move, and the new masters' clients",
        Some(_) => "admits the new masters' clients",
    }
}

/// The state behind a command, and what to do next.
struct After(Goal);

impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Goal::Begin => {
                "clients may move. Start all clients again with `moving-to`, then `redquorum masters \
                 switch`"
            }
            Goal::Switch => {
                "clients of the new masters may begin. Start all clients again with the new masters \
                 alone, then `redquorum masters finish`"
            }
            Goal::Finish => "the move is over. Masters that are not in the new list may be stopped",
            Goal::BackToFirst => {
                "clients of the old masters may begin again. Start all clients again with the old \
                 masters alone, then `redquorum masters back`"
            }
            Goal::BackToStart => "the move is taken back",
        })
    }
}

/// What `plan` shows.
#[derive(Serialize)]
struct Planned<'a> {
    masters: Vec<PlannedMaster<'a>>,
    next: &'static str,
}

#[derive(Serialize)]
struct PlannedMaster<'a> {
    name: &'a str,
    is_old: bool,
    is_new: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<Clients>,
}

impl fmt::Display for Planned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for master in &self.masters {
            let set = match (master.is_old, master.is_new) {
                (true, true) => "stays",
                (true, false) => "leaves",
                _ => "new",
            };
            write!(f, "{} ({set}): ", master.name)?;
            match (&master.problem, master.step) {
                (Some(problem), _) => write!(f, "{problem}")?,
                (None, Some(step)) => write!(f, "step {step} of 4, {}", admits(Some(step)))?,
                (None, None) => write!(f, "no step of this move")?,
            }
            match master.clients {
                Some(Clients { old, moving, new, unknown }) => {
                    write!(f, "; connections: {old} old, {moving} moving, {new} new")?;
                    if unknown > 0 {
                        write!(f, ", {unknown} that do not name their masters")?;
                    }
                }
                None if master.problem.is_none() => {
                    write!(f, "; CLIENT LIST is forbidden, so no client is seen")?;
                }
                None => {}
            }
            writeln!(f)?;
        }
        write!(f, "next: {}", self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_the_masters_that_their_names_end_with() {
        let [from, to] = ["a", "b"].map(Fingerprint::of_name);
        let line =
            |name: &str, more: &str| format!("id=3 addr=1.2.3.4:5 name={name} age=1{more}\n");
        let list = [
            line(&format!("billing/{from}"), ""),
            line(&format!("bill/ing/{from}"), ""),
            line(&format!("billing/{from}>{to}"), ""),
            line(&format!("redquorum/{to}"), " lib-name=redquorum"),
            line("redquorum", ""),
            line("", " lib-name=redquorum"),
            line("other/thing", ""),
            line("", ""),
        ]
        .concat();
        let clients = Clients::of(&list, from, to);
        assert_eq!(clients, Clients { old: 2, moving: 1, new: 1, unknown: 2 });
        assert_eq!(Clients::of("", from, to), Clients::default());
    }
}
