//! One key on one master: goes through its commands in the order in which they were sent. Each
//! command shows something about the state of the key.

use redquorum_scenario::history::{Act, Ns, Outcome, Window};

use super::{Delete, Deleted, ExtendedKey, Foreign, Keys, Life, Presence};
use crate::clocks::Clocks;
use crate::commands::Command;
use crate::faults::{Faults, Loss};
use crate::time;

/// The state of one key on one master between two commands.
pub(super) struct OneKey<'w, 'a> {
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
    pub(super) fn take(&mut self, keys: &mut Keys<'a>, command: &Command<'a>) {
        let when = command.when;
        self.open.retain(|index| keys.all[*index].possible.to >= when.from);
        self.gone.retain(|(until, _)| *until >= when.from);
        match (command.act, command.result) {
            (Act::Set { token, ttl_ms, .. }, Outcome::Done | Outcome::Created) => {
                self.missing(keys, None, when);
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
            // `commands.rs` leaves out the commands that certify.
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
                self.missing(keys, None, when);
                self.create(keys, command, token, ttl_ms, false);
            }
            (Outcome::Refused, Some(_)) => self.missing(keys, token, when),
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
            (Outcome::Refused, token) => self.missing(keys, token, when),
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

    /// A token was not there at some time within a window; none: no token was there.
    fn missing(&self, keys: &mut Keys<'a>, token: Option<&str>, when: Window) {
        for index in &self.open {
            let old = &mut keys.all[*index];
            if token.is_none_or(|token| old.token == token) && old.made.to <= when.from {
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
