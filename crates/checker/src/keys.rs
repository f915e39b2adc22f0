//! The true holds: which master had which token when, computed from the commands and from what is
//! known of the masters. The harness reads no key during a run, since a read lets keys expire.
//!
//! Every key has two spans: the time for which it was certainly there, and the time for which it
//! may have been there. The truth lies between the two.

use redquorum_scenario::history::{Ns, Outcome, Window};

use super::Case;
use super::clocks::Clocks;
use super::commands::{ByKey, Command};
use super::faults::{Faults, Loss};
use super::maps::{Map, Numbers};
use super::time::{MS, Ms};
use super::world::World;
use walk::OneKey;

mod walk;

/// A token on a master, from its creation to its end.
pub struct Presence<'a> {
    pub node: usize,
    pub resource: Option<&'a str>,
    pub token: &'a str,
    number: usize,
    pub process: &'a str,
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
        keys.tokens = tokens;
        keys
    }

    /// Where a token was, or may have been, at some time within a span.
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
        let begin = self.granted.partition_point(|index| self.all[*index].made.from < within.from);
        let end = self.granted.partition_point(|index| self.all[*index].made.from <= within.to);
        let own = |key: &&Presence<'_>| key.process == process && key.resource == Some(resource);
        let keys = self.granted.get(begin..end)?.iter().map(|index| &self.all[*index]);
        // The masters that have each token, and its last place in the order.
        let mut tokens: Map<&'a str, (Vec<usize>, usize)> = Map::default();
        for (place, key) in keys.filter(own).enumerate() {
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

    /// Whether the history contains anything about a token.
    pub fn knows(&self, token: &str) -> bool {
        self.tokens.known(token).is_some_and(|number| !self.by_token[number].is_empty())
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
