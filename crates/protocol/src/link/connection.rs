//! Connection: the open connection of a link, with its unanswered commands. A master replies in the
//! order of the commands, so a reply belongs to the oldest one.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::time::Duration;

use super::refusals::Refusals;
use super::types::{Context, LinkEffect};
use crate::effect::WakeUp;
use crate::guard::RunId;
use crate::time::Time;
use crate::token::Token;
use crate::waiter::Waiter;
use crate::wire::{Command, Expect, Greeting, KeyEffect};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Connection<T> {
    pub(super) epoch: u64,
    /// The master's process, and the client id there.
    pub(super) identity: Option<(RunId, u64)>,
    /// The master's process.
    pub(super) run_id: Option<RunId>,
    pub(super) unanswered: VecDeque<Sent<T>>,
    pub(super) bytes: usize,
    /// When the handshake finished, or when the master last sent a reply or a wake-up.
    pub(super) last_reply: Time,
    pub(super) stalled: bool,
    pub(super) refusals: Refusals,
    /// Another link has found the same server at its own address, so one of the two addresses leads
    /// to a wrong server.
    pub(super) doubted: bool,
    /// The master has flushed its scripts, and the link is loading them again.
    loading: bool,
    /// The link has loaded the scripts again, and none has run since.
    pub(super) reloaded: bool,
    /// Which optional part of a release the master forbids. Permissions may change, so the next
    /// connection asks again.
    pub(super) denial: Option<Denial>,
}

/// An optional part of a release that the master has forbidden once. The link asks for it no more:
/// each denial adds to a log in which an operator looks for intruders.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Denial {
    /// The message to the waiter that is woken.
    Message,
    /// The queue of waiters.
    Queue,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Sent<T> {
    pub(super) at: Time,
    bytes: usize,
    pub(super) expect: Expect,
    pub(super) runs_script: bool,
    pub(super) purpose: Purpose,
    pub(super) tag: Option<T>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Purpose {
    /// Collects a vote, and may create the key of this token, or keep it.
    Claim(Token),
    /// Enters a queue.
    Enqueue,
    /// Asks the master about a key or about itself.
    Ask,
    /// Deletes a key. The waiter, if there is one, leaves the queue.
    CleanUp(Token, Option<Waiter>),
    Leave(Waiter),
    Kill(u64),
    Load,
    Watch,
    Initialize(Arc<str>),
    Subscribe,
}

impl Purpose {
    /// Whether the reply is one that a caller asked for.
    pub(super) const fn is_request(&self) -> bool {
        matches!(self, Self::Claim(_) | Self::Enqueue | Self::Ask)
    }

    /// Whether a claim wants it: its vote, its position, or its clean-up.
    pub(super) const fn is_of_a_claim(&self) -> bool {
        self.is_request() || matches!(self, Self::CleanUp(..) | Self::Leave(_))
    }

    /// Whether the command may create a lock's key, or keep it, or enter a queue.
    pub(super) const fn creates(&self) -> bool {
        matches!(self, Self::Claim(_) | Self::Enqueue)
    }

    fn of(command: &Command) -> Self {
        match command {
            Command::Delete { token, leave, .. } => Self::CleanUp(*token, *leave),
            Command::Dequeue { waiter, .. } => Self::Leave(*waiter),
            Command::Kill { client_id } => Self::Kill(*client_id),
            Command::Load(_) => Self::Load,
            Command::Watch { .. } => Self::Watch,
            Command::Initialize { marker } => Self::Initialize(marker.clone()),
            Command::Hello | Command::Subscribe { .. } => Self::Subscribe,
            Command::Enqueue { .. } => Self::Enqueue,
            _ => match command.key_effect() {
                KeyEffect::Set { token, .. } | KeyEffect::Keep { token, .. } => Self::Claim(token),
                _ => Self::Ask,
            },
        }
    }
}

impl<T> Connection<T> {
    pub(super) fn new(epoch: u64, greeting: Greeting, now: Time) -> Self {
        Self {
            epoch,
            identity: greeting.run_id.clone().zip(greeting.client_id),
            run_id: greeting.run_id,
            unanswered: VecDeque::new(),
            bytes: 0,
            last_reply: now,
            stalled: false,
            refusals: Refusals::default(),
            doubted: false,
            loading: false,
            reloaded: false,
            denial: None,
        }
    }

    /// Leaves out of a command what the master forbids.
    const fn permitted(&self, command: &mut Command) {
        match (self.denial, command) {
            (Some(Denial::Queue), Command::Delete { wake_up, leave, .. }) => {
                (*wake_up, *leave) = (WakeUp::None, None);
            }
            // A master that keeps no queue for this client refuses no grant for the sake of one.
            (Some(Denial::Queue), Command::Set { fair, .. } | Command::Guarded { fair, .. }) => {
                *fair = false;
            }
            (Some(Denial::Message), Command::Delete { wake_up: wake_up @ WakeUp::First, .. }) => {
                *wake_up = WakeUp::Quiet;
            }
            _ => {}
        }
    }

    pub(super) fn write(&mut self, command: Command, tag: Option<T>, cx: &mut Context<'_, T>) {
        let purpose = Purpose::of(&command);
        self.write_for(purpose, command, tag, cx);
    }

    /// Writes a command for another purpose than it has by itself.
    pub(super) fn write_for(
        &mut self,
        purpose: Purpose,
        mut command: Command,
        tag: Option<T>,
        cx: &mut Context<'_, T>,
    ) {
        self.permitted(&mut command);
        let bytes = command.size_hint();
        self.bytes += bytes;
        self.unanswered.push_back(Sent {
            at: cx.now,
            bytes,
            expect: command.expect(),
            runs_script: command.script().is_some(),
            purpose,
            tag,
        });
        cx.out.push(LinkEffect::Write(command));
    }

    /// Takes the command that was just answered off the queue.
    pub(super) fn answered(&mut self, now: Time) -> Option<Sent<T>> {
        let sent = self.unanswered.pop_front()?;
        self.bytes -= sent.bytes;
        self.last_reply = now;
        Some(sent)
    }

    /// Whether a command that may create the key of this token is unanswered.
    pub(super) fn may_create(&self, token: Token) -> bool {
        self.unanswered.iter().any(|sent| sent.purpose == Purpose::Claim(token))
    }

    /// When the connection will count as stalled, unless a reply or a wake-up arrives before.
    /// Progress on a backlog, however old, counts as such. So the link does not dial a slow master
    /// again at every reply.
    pub(super) fn stalls(&self, stall: Duration) -> Option<Time> {
        let oldest = self.unanswered.front().filter(|_| !self.stalled)?;
        Some(oldest.at.max(self.last_reply).plus(stall))
    }

    /// When nothing will have been received for `idle`, if no command is unanswered.
    pub(super) fn is_idle_from(&self, idle: Duration) -> Option<Time> {
        self.unanswered.is_empty().then(|| self.last_reply.plus(idle))
    }

    /// Whether a second connection that was greeted like this is of no more use than this one: it
    /// leads to the same server.
    pub(super) fn is_preferred_to(&self, greeting: &Greeting) -> bool {
        let is_same = self.run_id.is_some() && self.run_id == greeting.run_id;
        if self.stalled || self.refusals.need_login() {
            false
        } else if self.refusals.useless().is_some() {
            is_same
        } else {
            // Only a server that is known to be another one proves the doubt right.
            self.doubted && (is_same || self.run_id.is_none() || greeting.run_id.is_none())
        }
    }

    /// Loads the scripts again, unless that is under way.
    pub(super) fn load_scripts(&mut self, guarded: bool, cx: &mut Context<'_, T>) {
        if !core::mem::replace(&mut self.loading, true) {
            Command::load_scripts(guarded).for_each(|load| self.write(load, None, cx));
        }
    }

    /// Notes that a script was loaded. Returns whether it was the last one.
    pub(super) fn loaded(&mut self) -> bool {
        self.loading = self.unanswered.iter().any(|sent| sent.purpose == Purpose::Load);
        !self.loading
    }
}
