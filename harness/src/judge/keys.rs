//! The true holds: which master had which token when, computed from the commands and from what is
//! known of the masters. No key was looked at during the run, since a look lets keys expire.
//!
//! Of every key that was set it is known since when it was there for certain and until when, and
//! since when it may have been there and until when: the truth lies between the two.

use std::collections::HashMap;

use crate::history::{Act, Ns, Outcome, Window};

use super::clocks::Clocks;
use super::commands::{ByKey, Command};
use super::faults::Faults;
use super::time::{self, Span};
use super::world::World;

/// A token on a master, from its creation to its end.
pub(super) struct Presence<'a> {
    pub(super) node: usize,
    pub(super) resource: Option<&'a str>,
    pub(super) token: &'a str,
    /// Who set it.
    pub(super) process: &'a str,
    /// When it was set, if it was.
    pub(super) made: Window,
    /// When the setter learnt of it.
    pub(super) delivered: Option<Ns>,
    /// Whether it is known that it was set.
    pub(super) sure: bool,
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
    /// The number of the fault that wiped it, and when.
    pub(super) wiped: Option<(usize, Window)>,
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
    by_token: HashMap<&'a str, Vec<usize>>,
    /// The sets of a process for a resource.
    by_setter: HashMap<(&'a str, &'a str), Vec<usize>>,
    /// When a process deleted (or tried to) its token.
    deletes: HashMap<(&'a str, &'a str), Vec<Ns>>,
    /// When a process did to the key of a resource what nobody understands.
    opaque: HashMap<(&'a str, &'a str), Vec<Ns>>,
    /// When a process prolonged its token, as it learnt.
    keeps: HashMap<(&'a str, &'a str), Vec<(Ns, Ns)>>,
    longest: Ns,
}

impl<'a> Keys<'a> {
    pub(super) fn of(
        world: &World<'a>,
        faults: &Faults<'a>,
        clocks: &Clocks,
        commands: &ByKey<'a>,
    ) -> Self {
        let mut keys = Self::default();
        for ((_, key), of_key) in commands {
            let resource = world.resource(key);
            let mut one = OneKey { resource, faults, clocks, open: Vec::new(), gone: Vec::new() };
            for command in of_key {
                one.take(&mut keys, command);
            }
        }
        let lives = keys.all.iter().map(|all| all.possible.length());
        keys.longest = lives.max().unwrap_or(0);
        let mut order: Vec<usize> = (0..keys.all.len()).collect();
        order.sort_by_key(|index| keys.all[*index].made.from);
        for index in order {
            let presence = &keys.all[index];
            keys.by_token.entry(presence.token).or_default().push(index);
            if let (Some(resource), true) = (presence.resource, presence.sure && presence.granted) {
                keys.by_setter.entry((presence.process, resource)).or_default().push(index);
            }
        }
        let times = keys.deletes.values_mut().chain(keys.opaque.values_mut());
        times.for_each(|times| times.sort_unstable());
        keys.keeps.values_mut().for_each(|times| times.sort_unstable());
        keys
    }

    /// Where a token was, or may have been, at some time within a span.
    pub(super) fn of_token(
        &self,
        token: &str,
        resource: &str,
        within: Span,
    ) -> impl Iterator<Item = &Presence<'a>> {
        let all = self.by_token.get(token).map_or(&[][..], Vec::as_slice);
        let end = all.partition_point(|index| self.all[*index].made.from <= within.to);
        let oldest = within.from.saturating_sub(self.longest);
        let begin = all.partition_point(|index| self.all[*index].made.from < oldest);
        let found = all.get(begin..end).unwrap_or_default().iter().map(|index| &self.all[*index]);
        found.filter(move |presence| {
            presence.possible.to >= within.from
                && presence.resource.is_none_or(|name| name == resource)
        })
    }

    /// The token that a process last set for a resource within a span.
    pub(super) fn last_set(&self, process: &str, resource: &str, within: Span) -> Option<&'a str> {
        let all = self.by_setter.get(&(process, resource))?;
        let end = all.partition_point(|index| self.all[*index].made.from <= within.to);
        let last = &self.all[all[end.checked_sub(1)?]];
        (last.made.from >= within.from).then_some(last.token)
    }

    /// Whether anything is known of a token.
    pub(super) fn knows(&self, token: &str) -> bool {
        self.by_token.contains_key(token)
    }

    /// Who set a token.
    pub(super) fn setter(&self, token: &str) -> Option<&'a str> {
        let first = self.by_token.get(token)?.first()?;
        Some(self.all[*first].process)
    }

    /// When a process first sent a deletion of a token, from an instant on.
    pub(super) fn first_delete(&self, process: &str, token: &str, from: Ns) -> Option<Ns> {
        let all = self.deletes.get(&(process, token))?;
        all.get(all.partition_point(|sent| *sent < from)).copied()
    }

    /// Whether a process did something to the key of a resource that nobody understands.
    pub(super) fn is_opaque(&self, process: &str, resource: &str, within: Span) -> bool {
        self.opaque.get(&(process, resource)).is_some_and(|all| {
            let first = all.get(all.partition_point(|sent| *sent < within.from));
            first.is_some_and(|sent| *sent <= within.to)
        })
    }

    /// When a process learnt that its token was prolonged, by commands from an instant on.
    pub(super) fn kept(&self, process: &str, token: &str, from: Ns) -> Vec<Ns> {
        let all = self.keeps.get(&(process, token)).map_or(&[][..], Vec::as_slice);
        let begin = all.partition_point(|(sent, _)| *sent < from);
        all[begin..].iter().map(|(_, delivered)| *delivered).collect()
    }
}

/// One key on one master, while its commands are gone through.
struct OneKey<'w, 'a> {
    resource: Option<&'a str>,
    faults: &'w Faults<'a>,
    clocks: &'w Clocks,
    /// What may be there now.
    open: Vec<usize>,
    /// Deletions that may still be under way: until when, of which token.
    gone: Vec<(Ns, Option<&'a str>)>,
}

impl<'a> OneKey<'_, 'a> {
    fn take(&mut self, keys: &mut Keys<'a>, command: &Command<'a>) {
        let when = command.when;
        self.open.retain(|index| keys.all[*index].possible.to >= when.from);
        self.gone.retain(|(until, _)| *until >= when.from);
        match command.act {
            Act::Set { token, ttl_ms, .. } => match command.result {
                Outcome::Done | Outcome::Created => {
                    self.replace(keys, command);
                    self.create(keys, command, token, *ttl_ms, true);
                }
                Outcome::Silent => self.create(keys, command, token, *ttl_ms, true),
                Outcome::Refused | Outcome::Error => {}
            },
            Act::Keep { token, ttl_ms, .. } => {
                self.keep(keys, command, token.as_deref(), *ttl_ms);
            }
            Act::Delete { token, .. } => self.delete(keys, command, token.as_deref()),
            Act::Other { .. } => self.other(keys, command),
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
            process: command.process,
            made: command.when,
            delivered: command.delivered,
            sure,
            granted,
            certain: Span::new(certain_from, certain_to),
            possible: Span::new(command.when.from, possible_to),
            life,
            deleted: None,
        });
    }

    /// How long a key lives that is given its TTL within a window: for certain, and at most.
    fn life(&self, node: usize, set: Window, ttl_ms: Option<u64>) -> (Life, Ns, Ns) {
        let ttl = ttl_ms.map(time::of_ms);
        let expires = match ttl {
            Some(ttl) => self.clocks.expiry(node, set, ttl),
            None => Window { from: Ns::MAX, to: Ns::MAX },
        };
        let (mut certain, mut possible) = (expires.from, expires.to);
        let mut wiped = None;
        for wipe in self.faults.wipes(node) {
            // What was set while the master went down and came up may be from before or after.
            if wipe.at.to < set.from || wipe.at.from > possible {
                continue;
            }
            certain = certain.min(wipe.at.from);
            if wipe.at.from >= set.to {
                possible = possible.min(wipe.at.to);
            }
            if wiped.is_none() {
                wiped = Some((wipe.fault, wipe.at));
            }
        }
        (Life { set, ttl, expires, wiped }, certain, possible)
    }

    /// A key was set: so nothing was there.
    fn replace(&self, keys: &mut Keys<'a>, command: &Command<'a>) {
        for index in &self.open {
            let old = &mut keys.all[*index];
            if old.made.to <= command.when.from {
                old.ends(command.when);
            }
        }
    }

    fn keep(
        &mut self,
        keys: &mut Keys<'a>,
        command: &Command<'a>,
        token: Option<&'a str>,
        ttl_ms: Option<u64>,
    ) {
        let when = command.when;
        match (command.result, token) {
            (Outcome::Done, Some(token)) => {
                if let Some(delivered) = command.delivered {
                    let keeps = keys.keeps.entry((command.process, token)).or_default();
                    keeps.push((when.from, delivered));
                }
                let (life, certain_to, possible_to) = self.life(command.node, when, ttl_ms);
                let Some(index) = self.which(keys, token, when) else {
                    return self.create(keys, command, token, ttl_ms, false);
                };
                let kept = &mut keys.all[index];
                if !kept.sure {
                    // It is there, so it was set.
                    kept.sure = true;
                    kept.certain.from = when.to;
                    kept.made.to = kept.made.to.min(when.to);
                }
                kept.certain.to = certain_to.max(kept.certain.from);
                kept.possible.to = possible_to;
                kept.life = life;
            }
            (Outcome::Created, Some(token)) => {
                if let Some(delivered) = command.delivered {
                    let keeps = keys.keeps.entry((command.process, token)).or_default();
                    keeps.push((when.from, delivered));
                }
                self.replace(keys, command);
                self.create(keys, command, token, ttl_ms, false);
            }
            (Outcome::Refused, Some(token)) => self.missing(keys, token, when),
            (Outcome::Done | Outcome::Silent, token) => {
                if token.is_none() && command.result == Outcome::Done {
                    self.foreign(keys, command, false);
                }
                for index in &self.open {
                    let old = &mut keys.all[*index];
                    if token.is_some_and(|token| token != old.token) {
                        continue;
                    }
                    // It can only have been prolonged while it was there.
                    let until = when.to.min(old.possible.to).max(when.from);
                    let set = Window { from: when.from, to: until };
                    let (life, certain_to, possible_to) = self.life(command.node, set, ttl_ms);
                    old.certain.to = old.certain.to.min(certain_to).max(old.certain.from);
                    if possible_to > old.possible.to {
                        old.possible.to = possible_to;
                        // The old life stands if it was not prolonged: keep the earlier start.
                        let from = old.life.expires.from.min(life.expires.from);
                        let expires = Window { from, to: life.expires.to };
                        old.life = Life { expires, set: old.life.set, ..life };
                    }
                }
            }
            (Outcome::Error | Outcome::Refused | Outcome::Created, _) => {}
        }
    }

    fn delete(&mut self, keys: &mut Keys<'a>, command: &Command<'a>, token: Option<&'a str>) {
        let when = command.when;
        if let Some(token) = token {
            keys.deletes.entry((command.process, token)).or_default().push(when.from);
        }
        match (command.result, token) {
            (Outcome::Error, _) => {}
            (Outcome::Refused, Some(token)) => self.missing(keys, token, when),
            (Outcome::Refused, None) => {
                for index in &self.open {
                    let old = &mut keys.all[*index];
                    if old.made.to <= when.from {
                        old.ends(when);
                    }
                }
            }
            (Outcome::Silent, token) => {
                self.gone.push((when.to, token));
                for index in &self.open {
                    let old = &mut keys.all[*index];
                    if token.is_none_or(|token| token == old.token) {
                        old.certain.to = old.certain.to.min(when.from);
                        old.deleted.get_or_insert(Deleted {
                            process: command.process,
                            when,
                            sure: false,
                        });
                    }
                }
            }
            (Outcome::Done | Outcome::Created, Some(token)) => {
                self.gone.push((when.to, Some(token)));
                if let Some(index) = self.which(keys, token, when) {
                    keys.all[index].sure = true;
                    keys.all[index].delete(command);
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

    /// Nobody knows what it did: what was there may be gone, or may stay for ever.
    fn other(&self, keys: &mut Keys<'a>, command: &Command<'a>) {
        let harmless = matches!(command.result, Outcome::Error | Outcome::Refused);
        if harmless || command.looks() {
            return;
        }
        if let Some(resource) = self.resource {
            let opaque = keys.opaque.entry((command.process, resource)).or_default();
            opaque.push(command.when.from);
        }
        for index in &self.open {
            let old = &mut keys.all[*index];
            old.certain.to = old.certain.to.min(command.when.from);
            old.possible.to = Ns::MAX;
        }
    }

    /// Which one a token is that was certainly there at some time within a window.
    fn which(&self, keys: &Keys<'a>, token: &str, when: Window) -> Option<usize> {
        let fits = |index: &&usize| {
            let presence = &keys.all[**index];
            presence.token == token && presence.made.from <= when.to
        };
        let mut sure = self.open.iter().rev().filter(fits);
        let first = self.open.iter().rev().find(fits).copied();
        sure.find(|index| keys.all[**index].sure).copied().or(first)
    }

    /// A token was not there at some time within a window.
    fn missing(&self, keys: &mut Keys<'a>, token: &str, when: Window) {
        for index in &self.open {
            let old = &mut keys.all[*index];
            if old.token == token && old.made.to <= when.from {
                old.ends(when);
            }
        }
    }

    /// A command without a token hit whatever was there: was it another's?
    fn foreign(&self, keys: &mut Keys<'a>, command: &Command<'a>, deletes: bool) {
        let when = command.when;
        let mut own = false;
        let mut others = Vec::new();
        for index in &self.open {
            let there = &keys.all[*index];
            if there.possible.from > when.to {
                continue;
            }
            if there.process == command.process {
                own = true;
            } else {
                let sure = there.certain.from <= when.from && there.certain.to >= when.to;
                others.push((*index, sure));
            }
        }
        let found = others.iter().find(|(_, sure)| *sure).or(others.first().filter(|_| !own));
        if let Some((victim, sure)) = found {
            keys.foreign.push(Foreign {
                node: command.node,
                process: command.process,
                when,
                deletes,
                victim: *victim,
                sure: *sure,
            });
        }
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
