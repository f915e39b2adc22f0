//! The true holds: which master had which token when, computed from the commands and from what is
//! known of the masters. The harness reads no key during a run, since a read lets keys expire.
//!
//! The commands of each key come with the latest time at which each took effect. The walk goes
//! through the commands of one key on one master, in the order in which they were sent: each shows
//! something about the state of the key.
//!
//! Every key has two spans: the time for which it was certainly there, and the time for which it
//! may have been there. The truth lies between the two.

use std::collections::BTreeMap;

use super::Case;
use super::case::World;
use super::clocks::Clocks;
use super::faults::{Faults, Loss};
use super::maps::{Map, Numbers, Set, sorted};
use super::time::{self, MS, Ms};
use redquorum_scenario::history::{Act, Event, Ns, Outcome, Record, Window, start_of_token};

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

pub(crate) fn commands_of<'a>(
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
            fence: _,
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

/// A token on a master, from its creation to its end.
pub struct Presence<'a> {
    pub node: usize,
    pub resource: Option<&'a str>,
    pub token: &'a str,
    number: usize,
    pub process: &'a str,
    /// Whether it shares its key: others may be there at the same time.
    pub shared: bool,
    /// When it was set, if it was.
    pub made: Window,
    /// When the process that set it received the reply.
    pub delivered: Option<Ns>,
    pub sure: bool,
    /// Whether its master forgot that it was deleted: no client knows that the key is there again.
    pub is_back: bool,
    /// Whether an acquire set it, not an extend.
    pub granted: bool,
    pub certain: Window,
    pub possible: Window,
    /// Its life since the last command that gave it a TTL.
    pub life: Life,
    pub deleted: Option<Deleted<'a>>,
}

/// The life of a key that is set or prolonged, and then left alone.
#[derive(Clone, Copy)]
pub struct Life {
    pub set: Window,
    /// The TTL; none: the key never expires.
    pub ttl: Option<Ns>,
    /// The expiry by the master's clock: the key may be gone from `from` on, and is gone by `to`.
    pub expires: Window,
    /// When its master lost it, if the master did so or may have.
    pub lost: Option<Loss>,
}

#[derive(Clone, Copy)]
pub struct Deleted<'a> {
    pub process: &'a str,
    pub when: Window,
    pub sure: bool,
}

/// A command without a token, on a key that may belong to another process.
pub struct Foreign<'a> {
    pub node: usize,
    pub process: &'a str,
    pub when: Window,
    pub deletes: bool,
    /// The key that it hit, by its index in [`Keys::all`].
    pub victim: usize,
    pub sure: bool,
}

#[derive(Default)]
pub struct Keys<'a> {
    pub all: Vec<Presence<'a>>,
    pub foreign: Vec<Foreign<'a>>,
    tokens: Numbers<'a>,
    /// All tokens, sorted.
    names: Vec<&'a str>,
    /// The keys of each token number, in the order in which they were set.
    by_token: Vec<Vec<usize>>,
    /// The keys that an acquire certainly set, in the order in which they were set.
    granted: Vec<usize>,
    /// Which process deleted (or tried to delete) which token, and when.
    deletes: Vec<Delete<'a>>,
    /// When a process sent a command that the checker cannot interpret, for the key of a resource.
    opaque: Map<(&'a str, &'a str), Vec<Ns>>,
    /// When a process prolonged its token.
    keeps: Map<(&'a str, usize), Vec<ExtendedKey>>,
    longest: Ns,
}

/// A deletion that a process sent for a token, by the token's number.
struct Delete<'a> {
    token: usize,
    process: &'a str,
    node: usize,
    key: Option<&'a str>,
    connection: u64,
    /// The window in which it took effect, if it did.
    when: Window,
    result: Outcome,
}

/// A reply of a master that it prolonged a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtendedKey {
    pub sent: Ns,
    pub delivered: Ns,
    pub node: usize,
    /// Whether the key was there already, and not created.
    pub was_there: bool,
}

impl<'a> Keys<'a> {
    pub fn of(
        world: &World<'a>,
        faults: &Faults<'a>,
        clocks: &Clocks,
        commands: &ByKey<'a>,
        tokens: Numbers<'a>,
    ) -> Self {
        let mut keys = Self { by_token: vec![Vec::new(); tokens.count()], ..Self::default() };
        for ((_, key), of_key) in commands {
            let (resource, open, gone) = (world.resource(key), Vec::new(), Vec::new());
            let mut one = OneKey { resource, faults, clocks, open, gone };
            of_key.iter().for_each(|command| one.take(&mut keys, command));
        }
        for (index, key) in keys.all.iter().enumerate() {
            keys.longest = keys.longest.max(key.possible.length());
            keys.by_token[key.number].push(index);
            keys.granted.extend((key.sure && key.granted).then_some(index));
        }
        for of_one in keys.by_token.iter_mut().chain([&mut keys.granted]) {
            of_one.sort_by_key(|index| keys.all[*index].made.from);
        }
        keys.opaque.values_mut().for_each(|times| times.sort_unstable());
        keys.keeps.values_mut().for_each(|times| times.sort_unstable());
        keys.names = sorted(tokens.texts());
        keys.tokens = tokens;
        keys
    }

    /// Where a token was, or may have been, at some time within a span, in the order in which it
    /// was set.
    pub fn of_token(
        &self,
        token: &str,
        resource: &str,
        within: Window,
    ) -> impl Iterator<Item = &Presence<'a>> {
        let all = self.tokens.known(token).map_or(&[][..], |number| &self.by_token[number]);
        let end = all.partition_point(|index| self.all[*index].made.from <= within.to);
        let oldest = within.from.saturating_sub(self.longest);
        let begin = all.partition_point(|index| self.all[*index].made.from < oldest);
        let found = all.get(begin..end).unwrap_or_default().iter().map(|index| &self.all[*index]);
        found
            .filter(move |presence| presence.possible.to >= within.from && presence.is_of(resource))
    }

    /// The token that a process last set for a resource on a quorum of masters within a span: other
    /// clients of the same process may have tried, too. If no token has a quorum, the one that most
    /// masters have. A token that the process had begun to delete counts only if there is no other:
    /// slow masters may set the keys of an abandoned attempt last.
    pub fn last_set(
        &self,
        process: &str,
        resource: &str,
        within: Window,
        quorum: usize,
    ) -> Option<&'a str> {
        // The masters that have each token, and its last place in the order.
        let mut tokens: Map<&'a str, (Vec<usize>, usize)> = Map::default();
        let own = self.set_by(process, resource, within).filter(|key| !key.shared);
        for (place, key) in own.enumerate() {
            let (nodes, last) = tokens.entry(key.token).or_default();
            *last = place;
            if !nodes.contains(&key.node) {
                nodes.push(key.node);
            }
        }
        let is_kept = |token| {
            tokens.len() == 1
                || self.first_delete(process, token, 0).is_none_or(|sent| sent > within.to)
        };
        let rank = |token, nodes: &[usize], last| (is_kept(token), nodes.len().min(quorum), last);
        let best = tokens.iter().max_by_key(|(token, (nodes, last))| rank(*token, nodes, *last));
        best.map(|(token, _)| *token)
    }

    /// The shared token that a quorum of masters first granted to a process within a span. Several
    /// clients of the process may get shared leases of the resource at the same time, with one
    /// token after the other: leases before have `taken` theirs.
    pub fn first_shared(
        &self,
        process: &str,
        resource: &str,
        within: Window,
        quorum: usize,
        taken: &Set<&str>,
    ) -> Option<&'a str> {
        let mut tokens: Vec<(&'a str, Vec<Ns>)> = Vec::new();
        for key in self.set_by(process, resource, within) {
            let delivered = key.delivered.filter(|at| key.shared && *at <= within.to);
            let Some(delivered) = delivered.filter(|_| !taken.contains(key.token)) else {
                continue;
            };
            match tokens.iter_mut().find(|(token, _)| *token == key.token) {
                Some((_, all)) => all.push(delivered),
                None => tokens.push((key.token, vec![delivered])),
            }
        }
        // Of equals, the one that was set first.
        let best = tokens.into_iter().min_by_key(|(token, all)| {
            let mut all = all.clone();
            all.sort_unstable();
            let granted = all.get(quorum - 1).copied();
            let deleted = self.first_delete(process, token, 0).is_some_and(|at| at <= within.to);
            (granted.is_none(), deleted, granted)
        });
        best.map(|(token, _)| token)
    }

    /// The keys of a resource that an acquire of a process certainly set within a span, in their
    /// order.
    fn set_by(
        &self,
        process: &str,
        resource: &str,
        within: Window,
    ) -> impl Iterator<Item = &Presence<'a>> {
        let begin = self.granted.partition_point(|index| self.all[*index].made.from < within.from);
        let end = self.granted.partition_point(|index| self.all[*index].made.from <= within.to);
        let keys = self.granted.get(begin..end).unwrap_or_default();
        let own =
            move |key: &&Presence<'_>| key.process == process && key.resource == Some(resource);
        keys.iter().map(|index| &self.all[*index]).filter(own)
    }

    /// Whether the history contains anything about a token.
    fn knows(&self, token: &str) -> bool {
        self.tokens.known(token).is_some_and(|number| !self.by_token[number].is_empty())
    }

    /// The token that a client reports: as it is on the masters, or its start in hexadecimal digits
    /// and `…`, if one token starts so.
    pub fn reported(&self, token: &'a str) -> Option<&'a str> {
        let Some(start) = start_of_token(token) else {
            return Some(token).filter(|token| self.knows(token));
        };
        let first = self.names.partition_point(|name| *name < start.as_str());
        let mut starting = self.names[first..].iter().take_while(|name| name.starts_with(&start));
        starting.next().copied().filter(|token| starting.next().is_none() && self.knows(token))
    }

    pub fn setter(&self, token: &str) -> Option<&'a str> {
        let first = self.by_token[self.tokens.known(token)?].first()?;
        Some(self.all[*first].process)
    }

    /// When a process first sent a deletion of a token, from an instant on.
    pub fn first_delete(&self, process: &str, token: &str, from: Ns) -> Option<Ns> {
        let token = self.tokens.known(token)?;
        let own = |delete: &&Delete<'_>| delete.token == token && delete.process == process;
        let sent = self.deletes.iter().filter(own).map(|delete| delete.when.from);
        sent.filter(|sent| *sent >= from).min()
    }

    /// When a deletion of a token was sent that may still take the key away from a master at an
    /// instant, although it was sent before. A deletion on the same connection comes before what is
    /// sent at that instant.
    pub fn late_delete(
        &self,
        token: &str,
        (node, key): (usize, &str),
        connection: u64,
        within: Window,
    ) -> Option<Ns> {
        let token = self.tokens.known(token)?;
        let late = self.deletes.iter().filter(|delete| {
            (delete.token, delete.node, delete.key) == (token, node, Some(key))
                && delete.connection != connection
                && delete.result != Outcome::Error
                && within.contains(delete.when.from)
                && delete.when.to >= within.to
        });
        late.map(|delete| delete.when.from).min()
    }

    /// Whether a process sent a command for the key of a resource that the checker cannot
    /// interpret.
    pub fn is_opaque(&self, process: &str, resource: &str, within: Window) -> bool {
        self.opaque.get(&(process, resource)).is_some_and(|all| {
            let first = all.get(all.partition_point(|sent| *sent < within.from));
            first.is_some_and(|sent| *sent <= within.to)
        })
    }

    /// Which masters replied to a process that they prolonged its token, for commands sent from an
    /// instant on.
    pub fn kept(&self, process: &str, token: &str, from: Ns) -> Vec<ExtendedKey> {
        let number = self.tokens.known(token);
        let all = number.and_then(|number| self.keeps.get(&(process, number)));
        let all = all.map_or(&[][..], Vec::as_slice);
        all[all.partition_point(|kept| kept.sent < from)..].to_vec()
    }
}

impl<'a> Presence<'a> {
    /// Whether it is the key of a resource, or may be.
    pub fn is_of(&self, resource: &str) -> bool {
        self.resource.is_none_or(|name| name == resource)
    }

    /// When the key was certainly there. Empty if it may not have been there at all.
    pub fn surely(&self) -> Window {
        if self.sure { self.certain } else { Window::at(self.possible.to) }
    }

    /// Why the key disappeared from its master.
    pub fn end(&self, case: &Case<'_>) -> String {
        let until = self.possible.to;
        if let Some(deleted) = self.deleted.filter(|deleted| deleted.sure) {
            return format!("deleted by {}", deleted.process);
        }
        // A fault that leaves the key alone does not set its end.
        if let Some(loss) = self.life.lost.filter(|loss| loss.at.to == until) {
            return format!("lost by {}", case.faults.name(loss.fault));
        }
        let gain = case.clocks.gain(self.node, self.life.set.from, until);
        match (self.life.ttl, gain.map_or(0, |gain| gain.all)) {
            (None, _) => "it has no TTL".to_owned(),
            (Some(_), gain) if gain > MS => {
                format!("expired early: the master's clock had gained {}", Ms(gain))
            }
            (Some(ttl), _) => format!("expired after its TTL of {}", Ms(ttl)),
        }
    }

    /// The key was gone at some time within a window.
    fn ends(&mut self, when: Window) {
        self.certain.to = self.certain.to.min(when.from);
        self.possible.to = self.possible.to.min(when.to);
    }

    fn delete(&mut self, command: &Command<'a>) {
        self.ends(command.when);
        let Command { process, when, .. } = *command;
        self.deleted = Some(Deleted { process, when, sure: true });
    }
}

/// The state of one key on one master between two commands.
struct OneKey<'w, 'a> {
    pub resource: Option<&'a str>,
    pub faults: &'w Faults<'a>,
    pub clocks: &'w Clocks,
    /// The tokens that may be there now.
    pub open: Vec<usize>,
    /// Deletions that may still be in progress: until when, and of which token.
    pub gone: Vec<(Ns, Option<&'a str>)>,
}

impl<'a> OneKey<'_, 'a> {
    /// Takes the next command, in the order in which they were sent.
    fn take(&mut self, keys: &mut Keys<'a>, command: &Command<'a>) {
        let when = command.when;
        self.open.retain(|index| keys.all[*index].possible.to >= when.from);
        self.gone.retain(|(until, _)| *until >= when.from);
        match (command.act, command.result) {
            (Act::Set { token, ttl_ms, .. }, Outcome::Done | Outcome::Created) => {
                self.alone(keys, command);
                self.create(keys, command, token, *ttl_ms, true);
            }
            (Act::Set { token, ttl_ms, .. }, Outcome::Silent) => {
                self.create(keys, command, token, *ttl_ms, true);
            }
            (Act::Keep { token, ttl_ms, .. }, _) => {
                self.keep(keys, command, token.as_deref(), *ttl_ms);
            }
            (Act::Delete { token, .. }, _) => self.delete(keys, command, token.as_deref()),
            (Act::Other { .. }, Outcome::Done | Outcome::Created | Outcome::Silent)
                if !command.looks() =>
            {
                self.other(keys, command);
            }
            // `commands_of` leaves out the commands that certify.
            (Act::Set { .. } | Act::Certify { .. } | Act::Other { .. }, _) => {}
        }
    }

    fn create(
        &mut self,
        keys: &mut Keys<'a>,
        command: &Command<'a>,
        token: &'a str,
        ttl_ms: Option<u64>,
        granted: bool,
    ) {
        let Some(number) = command.token else { return };
        let sure = !command.is_silent();
        let (life, certain_to, possible_to) = self.life(command.node, command.when, ttl_ms);
        let deleted_meanwhile = self.gone.iter().any(|(_, of)| of.is_none_or(|of| of == token));
        let certain_from = command.when.to;
        let certain_to =
            if sure && !deleted_meanwhile { certain_to.max(certain_from) } else { certain_from };
        self.open.push(keys.all.len());
        keys.all.push(Presence {
            node: command.node,
            resource: self.resource,
            token,
            number,
            process: command.process,
            shared: command.act.is_shared(),
            made: command.when,
            delivered: command.delivered,
            sure,
            is_back: false,
            granted,
            certain: Window::new(certain_from, certain_to),
            possible: Window::new(command.when.from, possible_to),
            life,
            deleted: None,
        });
    }

    /// The life of a key that gets its TTL within a window: how long it lives for certain, and at
    /// most.
    fn life(&self, node: usize, set: Window, ttl_ms: Option<u64>) -> (Life, Ns, Ns) {
        let ttl = ttl_ms.map(time::of_ms);
        let expires = match ttl {
            Some(ttl) => self.clocks.expiry(node, set, ttl),
            None => Window::at(Ns::MAX),
        };
        let (mut certain, mut possible) = (expires.from, expires.to);
        let mut lost = None;
        for loss in self.faults.losses(node) {
            let over = loss.at.to < set.from || loss.at.from > possible;
            if over || loss.keeps(set) {
                continue;
            }
            certain = certain.min(loss.at.from);
            if loss.takes(set) {
                possible = possible.min(loss.at.to);
            }
            lost.get_or_insert(loss);
        }
        (Life { set, ttl, expires, lost }, certain, possible)
    }

    fn keep(
        &mut self,
        keys: &mut Keys<'a>,
        command: &Command<'a>,
        token: Option<&'a str>,
        ttl_ms: Option<u64>,
    ) {
        let when = command.when;
        if let (Some(number), Some(delivered)) = (command.token, command.delivered)
            && matches!(command.result, Outcome::Done | Outcome::Created)
        {
            let (node, was_there) = (command.node, command.result == Outcome::Done);
            let kept = ExtendedKey { sent: when.from, delivered, node, was_there };
            keys.keeps.entry((command.process, number)).or_default().push(kept);
        }
        match (command.result, token) {
            (Outcome::Done, Some(token)) => {
                let (life, certain_to, possible_to) = self.life(command.node, when, ttl_ms);
                let Some(index) = self.which(keys, token, when) else {
                    return self.create(keys, command, token, ttl_ms, false);
                };
                let kept = &mut keys.all[index];
                if !kept.sure {
                    // The key is there, so it was set.
                    kept.sure = true;
                    kept.certain.from = when.to;
                    kept.made.to = kept.made.to.min(when.to);
                }
                kept.certain.to = certain_to.max(kept.certain.from);
                // Some locks do not shorten the life of a key when they extend it for a shorter
                // time.
                kept.possible.to = match kept.possible.to {
                    Ns::MAX => possible_to,
                    before => before.max(possible_to),
                };
                kept.life = life;
            }
            (Outcome::Created, Some(token)) => {
                self.alone(keys, command);
                self.create(keys, command, token, ttl_ms, false);
            }
            (Outcome::Refused, Some(token)) => self.missing(keys, when, |old| old.token == token),
            (Outcome::Done | Outcome::Silent, token) => {
                if token.is_none() && command.result == Outcome::Done {
                    self.foreign(keys, command, false);
                    self.opaque(keys, command);
                }
                for index in &self.open {
                    let old = &mut keys.all[*index];
                    if token.is_some_and(|token| token != old.token) {
                        continue;
                    }
                    // The command can only have prolonged the key while it was there.
                    let until = when.to.min(old.possible.to).max(when.from);
                    let set = Window::new(when.from, until);
                    let (life, certain_to, possible_to) = self.life(command.node, set, ttl_ms);
                    old.certain.to = old.certain.to.min(certain_to).max(old.certain.from);
                    if possible_to > old.possible.to {
                        old.possible.to = possible_to;
                        // The old life stands if the key was not prolonged: keep the earlier start.
                        let from = old.life.expires.from.min(life.expires.from);
                        let expires = Window::new(from, life.expires.to);
                        old.life = Life { expires, set: old.life.set, ..life };
                    }
                }
            }
            (Outcome::Error | Outcome::Refused | Outcome::Created, _) => {}
        }
    }

    fn delete(&mut self, keys: &mut Keys<'a>, command: &Command<'a>, token: Option<&'a str>) {
        let (when, process) = (command.when, command.process);
        if let Some(token) = command.token {
            let Command { node, connection, act, result, .. } = *command;
            let key = act.key();
            keys.deletes.push(Delete { token, process, node, key, connection, when, result });
        }
        match (command.result, token) {
            (Outcome::Error, _) => {}
            (Outcome::Refused, token) => {
                self.missing(keys, when, |old| token.is_none_or(|token| token == old.token));
            }
            (Outcome::Silent, token) => {
                self.gone.push((when.to, token));
                for index in &self.open {
                    let old = &mut keys.all[*index];
                    if token.is_none_or(|token| token == old.token) {
                        old.certain.to = old.certain.to.min(when.from);
                        old.deleted.get_or_insert(Deleted { process, when, sure: false });
                    }
                }
            }
            (Outcome::Done | Outcome::Created, Some(token)) => {
                self.gone.push((when.to, Some(token)));
                if let Some(index) = self.which(keys, token, when) {
                    keys.all[index].sure = true;
                    keys.all[index].delete(command);
                    self.revive(keys, command, index);
                }
            }
            (Outcome::Done | Outcome::Created, None) => {
                self.foreign(keys, command, true);
                self.gone.push((when.to, None));
                for index in &self.open {
                    let old = &mut keys.all[*index];
                    if old.sure && old.made.to <= when.from {
                        old.delete(command);
                    } else {
                        old.certain.to = old.certain.to.min(when.from);
                    }
                }
            }
        }
    }

    /// A deletion that its master forgot. The key may be there again, unless its creation was
    /// forgotten, too.
    fn revive(&mut self, keys: &mut Keys<'a>, command: &Command<'a>, index: usize) {
        let old = &keys.all[index];
        let until = old.life.expires.to;
        let undone = |loss: &Loss| {
            let later = loss.at.to >= command.when.from && loss.at.from <= until;
            later && !loss.keeps(command.when) && !loss.takes(old.made)
        };
        let Some(loss) = self.faults.losses(command.node).find(undone) else { return };
        let revived = Presence {
            made: loss.at,
            delivered: None,
            sure: false,
            is_back: true,
            granted: false,
            certain: Window::new(loss.at.to, loss.at.to),
            possible: Window::new(loss.at.from, until.max(loss.at.to)),
            life: Life { lost: None, ..old.life },
            deleted: None,
            ..*old
        };
        self.open.push(keys.all.len());
        keys.all.push(revived);
    }

    /// The effect is unknown: a key that was there may be gone, or may stay for ever.
    fn other(&self, keys: &mut Keys<'a>, command: &Command<'a>) {
        self.opaque(keys, command);
        for index in &self.open {
            let old = &mut keys.all[*index];
            old.certain.to = old.certain.to.min(command.when.from);
            old.possible.to = Ns::MAX;
        }
    }

    /// Records a command after which it is unknown what the process knows of its token.
    fn opaque(&self, keys: &mut Keys<'a>, command: &Command<'a>) {
        if let Some(resource) = self.resource {
            keys.opaque.entry((command.process, resource)).or_default().push(command.when.from);
        }
    }

    /// The presence of a token that was certainly there at some time within a window.
    fn which(&self, keys: &Keys<'a>, token: &str, when: Window) -> Option<usize> {
        let mut fits = self.open.iter().rev().copied().filter(|index| {
            let presence = &keys.all[*index];
            presence.token == token && presence.made.from <= when.to
        });
        let first = fits.clone().next();
        fits.find(|index| keys.all[*index].sure).or(first)
    }

    /// A command set a token: no other was there, except those that share their key, beside one
    /// that does.
    fn alone(&self, keys: &mut Keys<'a>, command: &Command<'a>) {
        let shared = command.act.is_shared();
        let stays = |old: &Presence<'_>| shared && old.shared && Some(old.number) != command.token;
        self.missing(keys, command.when, |old| !stays(old));
    }

    /// Some tokens were not there at some time within a window.
    fn missing(&self, keys: &mut Keys<'a>, when: Window, is: impl Fn(&Presence<'a>) -> bool) {
        for index in &self.open {
            let old = &mut keys.all[*index];
            if is(old) && old.made.to <= when.from {
                old.ends(when);
            }
        }
    }

    /// A command without a token hit the key that was there: did it belong to another process?
    fn foreign(&self, keys: &mut Keys<'a>, command: &Command<'a>, deletes: bool) {
        let Command { node, process, when, .. } = *command;
        let is_there = |index: &&usize| keys.all[**index].possible.from <= when.to;
        let there = self.open.iter().filter(is_there).copied();
        let is_own = |index: &usize| keys.all[*index].process == process;
        let (own, others): (Vec<usize>, Vec<usize>) = there.partition(is_own);
        let is_sure = |index: &&usize| {
            let certain = keys.all[**index].certain;
            certain.from <= when.from && certain.to >= when.to
        };
        let sure = others.iter().find(is_sure);
        let found = sure.or(others.first().filter(|_| own.is_empty()));
        if let Some(victim) = found.copied() {
            let sure = sure.is_some();
            keys.foreign.push(Foreign { node, process, when, deletes, victim, sure });
        }
    }
}
