//! The true holds: which master had which token when, computed from the commands and from what is
//! known of the masters. No key was looked at during the run, since a look lets keys expire.
//!
//! Of every key that was set it is known since when it was there for certain and until when, and
//! since when it may have been there and until when: the truth lies between the two.

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
    /// The token's number.
    number: usize,
    /// Who set it.
    pub(super) process: &'a str,
    /// When it was set, if it was.
    pub(super) made: Window,
    /// When the setter learnt of it.
    pub(super) delivered: Option<Ns>,
    /// Whether it is known that it was set.
    pub(super) sure: bool,
    /// Whether its master forgot that it was deleted: nobody knows that it is there again.
    pub(super) is_back: bool,
    /// Whether it was set by an acquire, not by an extend.
    pub(super) granted: bool,
    pub(super) certain: Span,
    pub(super) possible: Span,
    /// What last gave it its TTL.
    pub(super) life: Life,
    pub(super) deleted: Option<Deleted<'a>>,
}

/// How long a key lives that was set, or prolonged, and then left alone.
#[derive(Clone, Copy)]
pub(super) struct Life {
    /// When it was given its TTL.
    pub(super) set: Window,
    /// None: for ever.
    pub(super) ttl: Option<Ns>,
    /// By the master's clock it may be gone from, and is gone by.
    pub(super) expires: Window,
    /// When its master lost it, if it did or may have.
    pub(super) lost: Option<Loss>,
}

/// Somebody's attempt to delete a key.
#[derive(Clone, Copy)]
pub(super) struct Deleted<'a> {
    pub(super) process: &'a str,
    pub(super) when: Window,
    /// Whether it is known that it did.
    pub(super) sure: bool,
}

/// A command without a token that hit a key that may be another's.
pub(super) struct Foreign<'a> {
    pub(super) node: usize,
    pub(super) process: &'a str,
    pub(super) when: Window,
    pub(super) deletes: bool,
    /// Whose key it was, by the place in [`Keys::all`].
    pub(super) victim: usize,
    /// Whether it was certainly that one.
    pub(super) sure: bool,
}

#[derive(Default)]
pub(super) struct Keys<'a> {
    pub(super) all: Vec<Presence<'a>>,
    pub(super) foreign: Vec<Foreign<'a>>,
    tokens: Numbers<'a>,
    /// By the number of the token, in the order in which they were set.
    by_token: Vec<Vec<usize>>,
    /// What was certainly granted, in the order in which it was.
    granted: Vec<usize>,
    /// Who deleted (or tried to) which token, and when.
    deletes: Vec<Delete<'a>>,
    /// When a process did to the key of a resource what nobody understands.
    opaque: Map<(&'a str, &'a str), Vec<Ns>>,
    /// When a process prolonged its token.
    keeps: Map<(&'a str, usize), Vec<Kept>>,
    longest: Ns,
}

/// A process sent a deletion of a token, by its number.
struct Delete<'a> {
    token: usize,
    process: &'a str,
    sent: Ns,
}

/// A master said that it prolonged a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kept {
    pub(super) sent: Ns,
    /// When the client learnt of it.
    pub(super) delivered: Ns,
    pub(super) node: usize,
    /// Whether it was there already, not created.
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

    /// The token that a process last set for a resource within a span, on so many masters: others
    /// in the same process may have tried, too. If there is none, the one that most masters have.
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
            .map(|(place, key)| {
                let of_token = nodes.entry(key.token).or_default();
                if !of_token.contains(&key.node) {
                    of_token.push(key.node);
                }
                (of_token.len().min(quorum), place, key.token)
            })
            .max()
            .map(|(_, _, token)| token)
    }

    /// Whether anything is known of a token.
    pub(super) fn knows(&self, token: &str) -> bool {
        self.tokens.known(token).is_some_and(|number| !self.by_token[number].is_empty())
    }

    /// Who set a token.
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

    /// Whether a process did something to the key of a resource that nobody understands.
    pub(super) fn is_opaque(&self, process: &str, resource: &str, within: Span) -> bool {
        self.opaque.get(&(process, resource)).is_some_and(|all| {
            let first = all.get(all.partition_point(|sent| *sent < within.from));
            first.is_some_and(|sent| *sent <= within.to)
        })
    }

    /// Which masters told a process that its token was prolonged, by commands from an instant on.
    pub(super) fn kept(&self, process: &str, token: &str, from: Ns) -> Vec<Kept> {
        let number = self.tokens.known(token);
        let all = number.and_then(|number| self.keeps.get(&(process, number)));
        let all = all.map_or(&[][..], Vec::as_slice);
        all[all.partition_point(|kept| kept.sent < from)..].to_vec()
    }
}

impl<'a> Presence<'a> {
    /// It was gone at some time within a window.
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
