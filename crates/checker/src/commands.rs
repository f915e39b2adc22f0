//! The commands of each key, and the latest time at which each took effect.

use std::collections::BTreeMap;

use redquorum_scenario::history::{Act, Event, Ns, Outcome, Record, Window};

use super::faults::Faults;
use super::maps::{Map, Numbers};
use super::time::MS;
use super::world::World;

/// The prefix of the bookkeeping keys of the lock. They are not locks.
pub(crate) const BOOKS: &str = "redquorum:";
/// A running master executes a command within this time after it was sent, however busy the machine
/// is.
const SETTLED: Ns = 1_000 * MS;
/// Commands that read a key and do not change it.
const LOOKS: [&str; 9] =
    ["get", "pttl", "ttl", "exists", "type", "object", "strlen", "pexpiretime", "getrange"];

/// Commands that open a connection, or that only ask a master about itself.
const GREETINGS: [&str; 14] = [
    "hello", "auth", "select", "client", "ping", "echo", "info", "command", "config", "time",
    "role", "readonly", "quit", "reset",
];

/// Whether the command can have asked a master for a lock. A command that reads can, in a script
/// that is not known.
pub(crate) fn may_lock(act: &Act) -> bool {
    match act {
        Act::Set { .. } | Act::Keep { .. } => true,
        Act::Delete { .. } | Act::Certify { .. } => false,
        Act::Other { command, .. } => {
            let name = command.split(' ').next().unwrap_or_default();
            !GREETINGS.iter().chain(&LOOKS).any(|it| name.eq_ignore_ascii_case(it))
        }
    }
}

#[derive(Clone, Copy)]
pub struct Command<'a> {
    pub process: &'a str,
    pub node: usize,
    pub connection: u64,
    pub act: &'a Act,
    pub token: Option<usize>,
    pub result: Outcome,
    pub delivered: Option<Ns>,
    /// The window in which it took effect, if it did.
    pub when: Window,
}

impl Command<'_> {
    /// Whether the command's effect is unknown, because no reply arrived.
    pub fn is_silent(&self) -> bool {
        self.result == Outcome::Silent
    }

    pub fn looks(&self) -> bool {
        match self.act {
            Act::Other { command, .. } => {
                LOOKS.iter().any(|look| command.eq_ignore_ascii_case(look))
            }
            _ => false,
        }
    }
}

/// The commands of each key on each master, in the order in which they were sent.
pub(crate) type ByKey<'a> = BTreeMap<(usize, &'a str), Vec<Command<'a>>>;

pub(crate) fn of<'a>(
    world: &World<'a>,
    faults: &Faults<'a>,
    tokens: &mut Numbers<'a>,
) -> ByKey<'a> {
    let mut all = ByKey::new();
    let silent = |record: &Record| matches!(record.event, Event::Command { replied: None, .. });
    let replies =
        if world.records.iter().any(silent) { replies(world.records) } else { Map::default() };
    for record in world.records {
        let Event::Command {
            process,
            node,
            connection,
            number,
            act,
            sent,
            replied,
            delivered,
            result,
        } = &record.event
        else {
            continue;
        };
        // A command about a fencing counter does not change the key, and does not bring it back
        // either.
        let key = act.key().filter(|_| !matches!(act, Act::Certify { .. }));
        let Some(key) = key.filter(|key| !key.starts_with(BOOKS)) else { continue };
        let by = replied.unwrap_or_else(|| {
            let behind = replies.get(connection).and_then(|on_one| {
                let next = on_one.partition_point(|(other, _)| other <= number);
                on_one.get(next).map(|(_, replied)| *replied)
            });
            behind.unwrap_or(Ns::MAX).min(settled(faults, *node, *sent))
        });
        // A command without a reply has no result.
        let result = match (replied, result) {
            (None, Outcome::Done | Outcome::Created) => Outcome::Silent,
            (_, result) => *result,
        };
        all.entry((*node, key)).or_default().push(Command {
            process,
            node: *node,
            connection: *connection,
            act,
            token: act.token().map(|token| tokens.of(token)),
            result,
            delivered: *delivered,
            when: Window::new(*sent, by).tidy(),
        });
    }
    for of_key in all.values_mut() {
        if !of_key.is_sorted_by_key(|command| command.when.from) {
            of_key.sort_by_key(|command| command.when.from);
        }
    }
    all
}

/// For each answered command on each connection: the first reply to it or to a later command.
/// Masters reply in order.
fn replies(records: &[Record]) -> Map<u64, Vec<(u64, Ns)>> {
    let mut replies: Map<u64, Vec<(u64, Ns)>> = Map::default();
    for record in records {
        if let Event::Command { connection, number, replied: Some(replied), .. } = record.event {
            replies.entry(connection).or_default().push((number, replied));
        }
    }
    for on_one in replies.values_mut() {
        on_one.sort_unstable();
        let mut first = Ns::MAX;
        for (_, replied) in on_one.iter_mut().rev() {
            first = first.min(*replied);
            *replied = first;
        }
    }
    replies
}

/// Until when a master may execute a command that it never replied to.
fn settled(faults: &Faults<'_>, node: usize, sent: Ns) -> Ns {
    let mut by = sent.saturating_add(SETTLED);
    for pause in faults.node_pauses(node) {
        let span = pause.span();
        if span.touches(Window::new(sent, by)) {
            by = by.max(span.to.saturating_add(SETTLED));
        }
    }
    // A master that dies loses the commands that it has not executed.
    let deaths = faults.deaths(node).filter(|death| death.at.from >= sent);
    deaths.map(|death| death.at.to).fold(by, Ns::min)
}
