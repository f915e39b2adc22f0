//! The true holds: which master had which token when, computed from the commands and from what is
//! known of the masters. The harness reads no key during a run, since a read lets keys expire.
//!
//! Every key has two spans: the time for which it was certainly there, and the time for which it
//! may have been there. The truth lies between the two.

use crate::history::{Ns, Window};

use super::clocks::Clocks;
use super::commands::{ByKey, Command};
use super::faults::{Faults, Loss};
use super::maps::{Map, Numbers};
use super::time::Span;
use super::world::World;
use walk::OneKey;

mod walk;

/// A token on a master, from its creation to its end.
pub(super) struct Presence<'a> {
    pub(super) node: usize,
    pub(super) resource: Option<&'a str>,
    pub(super) token: &'a str,
    /// The number of the token.
    number: usize,
    /// The process that set it.
    pub(super) process: &'a str,
    /// When it was set, if it was.
    pub(super) made: Window,
    /// When the process that set it received the reply.
    pub(super) delivered: Option<Ns>,
    /// Whether it was certainly set.
    pub(super) sure: bool,
    /// Whether its master forgot that it was deleted: no client knows that the key is there again.
    pub(super) is_back: bool,
    /// Whether an acquire set it, not an extend.
    pub(super) granted: bool,
    pub(super) certain: Span,
    pub(super) possible: Span,
    /// Its life since the last command that gave it a TTL.
    pub(super) life: Life,
    pub(super) deleted: Option<Deleted<'a>>,
}

/// The life of a key that is set or prolonged, and then left alone.
#[derive(Clone, Copy)]
pub(super) struct Life {
    /// When it got its TTL.
    pub(super) set: Window,
    /// The TTL; none: the key never expires.
    pub(super) ttl: Option<Ns>,
    /// The expiry by the master's clock: the key may be gone from `from` on, and is gone by `to`.
    pub(super) expires: Window,
    /// When its master lost it, if the master did so or may have.
    pub(super) lost: Option<Loss>,
}

/// An attempt to delete a key.
#[derive(Clone, Copy)]
pub(super) struct Deleted<'a> {
    pub(super) process: &'a str,
    pub(super) when: Window,
    /// Whether the key was certainly deleted.
    pub(super) sure: bool,
}

/// A command without a token, on a key that may belong to another process.
pub(super) struct Foreign<'a> {
    pub(super) node: usize,
    pub(super) process: &'a str,
    pub(super) when: Window,
    pub(super) deletes: bool,
    /// The key that it hit, by its index in [`Keys::all`].
    pub(super) victim: usize,
    /// Whether it certainly hit that key.
    pub(super) sure: bool,
}

#[derive(Default)]
pub(super) struct Keys<'a> {
    pub(super) all: Vec<Presence<'a>>,
    pub(super) foreign: Vec<Foreign<'a>>,
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
    sent: Ns,
}

/// A reply of a master that it prolonged a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExtendedKey {
    pub(super) sent: Ns,
    /// When the client received the reply.
    pub(super) delivered: Ns,
    pub(super) node: usize,
    /// Whether the key was there already, and not created.
    pub(super) was_there: bool,
}

impl<'a> Keys<'a> {
    pub(super) fn of(
        world: &World<'a>,
        faults: &Faults<'a>,
        clocks: &Clocks,
        commands: &ByKey<'a>,
        tokens: Numbers<'a>,
    ) -> Self {
        let mut keys = Self { by_token: vec![Vec::new(); tokens.count()], ..Self::default() };
        for ((_, key), of_key) in commands {
            let resource = world.resource(key);
            let mut one = OneKey::new(resource, faults, clocks);
            for command in of_key {
                one.take(&mut keys, command);
            }
        }
        let lives = keys.all.iter().map(|all| all.possible.length());
        keys.longest = lives.max().unwrap_or(0);
        for (index, presence) in keys.all.iter().enumerate() {
            keys.by_token[presence.number].push(index);
        }
        for of_one in &mut keys.by_token {
            of_one.sort_by_key(|index| keys.all[*index].made.from);
        }
        keys.granted.extend((0..keys.all.len()).filter(|index| {
            let presence = &keys.all[*index];
            presence.sure && presence.granted
        }));
        keys.granted.sort_by_key(|index| keys.all[*index].made.from);
        keys.opaque.values_mut().for_each(|times| times.sort_unstable());
        keys.keeps.values_mut().for_each(|times| times.sort_unstable());
        keys.tokens = tokens;
        keys
    }

    /// Where a token was, or may have been, at some time within a span.
    pub(super) fn of_token(
        &self,
        token: &str,
        resource: &str,
        within: Span,
    ) -> impl Iterator<Item = &Presence<'a>> {
        let all = self.tokens.known(token).map_or(&[][..], |number| &self.by_token[number]);
        let end = all.partition_point(|index| self.all[*index].made.from <= within.to);
        let oldest = within.from.saturating_sub(self.longest);
        let begin = all.partition_point(|index| self.all[*index].made.from < oldest);
        let found = all.get(begin..end).unwrap_or_default().iter().map(|index| &self.all[*index]);
        found.filter(move |presence| {
            presence.possible.to >= within.from
                && presence.resource.is_none_or(|name| name == resource)
        })
    }

    /// The token of a process that was the last to be set for a resource on a quorum of masters
    /// within a span: other clients of the same process may have tried, too. If no token has a
    /// quorum, the one that most masters have.
    pub(super) fn last_set(
        &self,
        process: &str,
        resource: &str,
        within: Span,
        quorum: usize,
    ) -> Option<&'a str> {
        let begin = self.granted.partition_point(|index| self.all[*index].made.from < within.from);
        let end = self.granted.partition_point(|index| self.all[*index].made.from <= within.to);
        let mut nodes: Map<&str, Vec<usize>> = Map::default();
        let own = |key: &&Presence<'_>| key.process == process && key.resource == Some(resource);
        let tokens = self.granted.get(begin..end)?.iter().map(|index| &self.all[*index]);
        let tokens = tokens.filter(own);
        tokens
            .enumerate()
            .filter_map(|(place, key)| {
                let of_token = nodes.entry(key.token).or_default();
                // A further master may be slow, and set the key of an older token last.
                if of_token.contains(&key.node) || of_token.len() >= quorum {
                    return None;
                }
                of_token.push(key.node);
                Some((of_token.len(), place, key.token))
            })
            .max()
            .map(|(_, _, token)| token)
    }

    /// Whether the history contains anything about a token.
    pub(super) fn knows(&self, token: &str) -> bool {
        self.tokens.known(token).is_some_and(|number| !self.by_token[number].is_empty())
    }

    /// The process that set a token.
    pub(super) fn setter(&self, token: &str) -> Option<&'a str> {
        let first = self.by_token[self.tokens.known(token)?].first()?;
        Some(self.all[*first].process)
    }

    /// When a process first sent a deletion of a token, from an instant on.
    pub(super) fn first_delete(&self, process: &str, token: &str, from: Ns) -> Option<Ns> {
        let token = self.tokens.known(token)?;
        let own = |delete: &&Delete<'_>| delete.token == token && delete.process == process;
        let sent = self.deletes.iter().filter(own).map(|delete| delete.sent);
        sent.filter(|sent| *sent >= from).min()
    }

    /// Whether a process sent a command for the key of a resource that the checker cannot
    /// interpret.
    pub(super) fn is_opaque(&self, process: &str, resource: &str, within: Span) -> bool {
        self.opaque.get(&(process, resource)).is_some_and(|all| {
            let first = all.get(all.partition_point(|sent| *sent < within.from));
            first.is_some_and(|sent| *sent <= within.to)
        })
    }

    /// Which masters replied to a process that they prolonged its token, for commands sent from an
    /// instant on.
    pub(super) fn kept(&self, process: &str, token: &str, from: Ns) -> Vec<ExtendedKey> {
        let number = self.tokens.known(token);
        let all = number.and_then(|number| self.keeps.get(&(process, number)));
        let all = all.map_or(&[][..], Vec::as_slice);
        all[all.partition_point(|kept| kept.sent < from)..].to_vec()
    }
}

impl<'a> Presence<'a> {
    /// The key was gone at some time within a window.
    fn ends(&mut self, when: Window) {
        self.certain.to = self.certain.to.min(when.from);
        self.possible.to = self.possible.to.min(when.to);
    }

    fn delete(&mut self, command: &Command<'a>) {
        self.ends(command.when);
        let deleted = Deleted { process: command.process, when: command.when, sure: true };
        self.deleted = Some(deleted);
    }
}
