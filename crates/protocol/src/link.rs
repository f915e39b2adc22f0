//! Link: everything between one client and one master. The one hard machine of the crate.
//!
//! A master answers commands of one connection in the order in which they were written. All
//! that makes a lock's clean-up safe is built on this order, and on nothing else:
//!
//! * **The ledger.** Whatever may create a key is entered before it is queued (R5). Its entry
//!   leaves the ledger only when the master itself has answered the compare-and-delete that
//!   follows it: no way out of a claim and no broken connection can skip it. An error is no such
//!   answer, but from then on the key can only expire: if the master still refuses after that, the
//!   entry goes.
//! * **Epochs.** Every connection has a number. An answer of an older connection is nobody's.
//! * **Replacement.** A stopped master and a black-holed connection look alike: commands are
//!   written, nothing comes back. After `stall` the link gets no new votes to collect, and a
//!   second connection is tried *beside* the first. Whichever speaks first proves itself: if
//!   the old one answers, it was the master that slept, and what is queued there is paid in
//!   order; if the new one is greeted, the old one is reset.
//! * **No zombies.** A `SET` can sit in the socket buffer of a connection that is gone, and be
//!   executed when the master wakes up. So a new connection first kills the old ones by their
//!   client id, *then* pays what is owed: after the kill nothing old can be executed.
//!
//! * **Distrust.** With a [`Guard`], a master that may have forgotten leases gets no new votes to
//!   collect either, until it was watched for long enough (`link/sentry.rs`). What keeps or ends a
//!   lease is sent all the same: an extension counts only where the key never was gone (R6), and
//!   debts are paid everywhere (R5).
//!
//! What does not live here: bytes ([`wire`](crate::wire)), sockets and time (the driver's), and
//! what a claim makes of an answer ([`claim`](crate::claim)).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::effect::{Ask, Call, Key};
use crate::guard::{Distrust, Guard};
use crate::ticket::Ticket;
use crate::time::Time;
use crate::token::Token;
use crate::vote::{Answer, Cause};
use crate::wire::{Command, Expect, Greeting};

mod inbox;
mod ledger;
mod offsets;
mod sentry;
mod words;

use inbox::Inbox;
use ledger::Ledger;
use sentry::Sentry;
pub use words::{Bounds, LinkEffect, LinkInput, LinkState, RunId};

/// The machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Link<T> {
    bounds: Bounds,
    open: Option<Open<T>>,
    /// The number of the last connection that was dialled.
    epoch: u64,
    dial: Dial,
    /// Tries in a row that failed.
    failures: u32,
    down: Arc<str>,
    ledger: Ledger,
    /// When debts that met an error are paid again.
    pay_again: Option<Time>,
    /// How often that was done since the master last paid one.
    refusals: u32,
    /// Old connections that a new one must kill before anything else.
    to_kill: Vec<(RunId, u64)>,
    sentry: Option<Sentry>,
    inbox: Inbox,
    /// So often a stalled connection turned out to be good; fewer as commands are answered in time.
    slow: u32,
    shut_down: bool,
}

/// So often the time until a connection counts as stalled doubles at most.
const MAX_SLOW: u32 = 4;

/// Most old connections that are remembered to be killed. More than a few pile up only where a
/// master accepts connections and drops each before it has answered a single `CLIENT KILL`.
const MAX_TO_KILL: usize = 64;

/// So many clean-ups that met an error are sent again at a time, and one more for each of them that is
/// done with.
const RETRIED: usize = 64;

/// The pause before they are sent again doubles up to `retry_max` times this.
const MAX_REFUSALS: u32 = 16;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Open<T> {
    epoch: u64,
    client_id: Option<u64>,
    run_id: Option<RunId>,
    unanswered: VecDeque<Sent<T>>,
    bytes: usize,
    /// When it was greeted, or last answered anything.
    heard: Time,
    stalled: bool,
    /// Scripts were flushed, and are being loaded again.
    loading: bool,
    /// They were loaded again, and none has run since.
    reloaded: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Sent<T> {
    at: Time,
    bytes: usize,
    expect: Expect,
    purpose: Purpose,
    tag: Option<T>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Purpose {
    /// A vote is collected, or the master is probed.
    Ask,
    /// A debt is paid.
    Pay(Token),
    /// An old connection is killed.
    Kill(u64),
    /// A script is loaded again.
    Load,
    /// A distrusted master is looked at.
    Watch,
    /// A master is marked as new, with this.
    Bless(Arc<str>),
    /// Can the connection take push messages?
    Hello,
    /// The master shall wake the waiters of this process.
    Subscribe,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Dial {
    /// Nothing to do: connected, or never to be again.
    Idle,
    /// Under way, under the number `epoch`.
    Trying,
    /// The next try starts then.
    At(Time),
}

impl<T> Open<T> {
    /// When it is to be taken for stalled, unless it is heard before. A backlog that is worked
    /// off, however old, is progress: a slow master is not dialled again at every answer.
    fn stalls(&self, stall: Duration) -> Option<Time> {
        Some(self.unanswered.front()?.at.max(self.heard).plus(stall))
    }
}

impl<T> Link<T> {
    /// A link that dials its first connection.
    pub fn start(bounds: Bounds, out: &mut Vec<LinkEffect<T>>) -> Self {
        let mut link = Self {
            bounds,
            open: None,
            epoch: 0,
            dial: Dial::Idle,
            failures: 0,
            down: Arc::from("connecting"),
            ledger: Ledger::default(),
            pay_again: None,
            refusals: 0,
            to_kill: Vec::new(),
            sentry: None,
            inbox: Inbox::default(),
            slow: 0,
            shut_down: false,
        };
        link.dial(out);
        link
    }

    /// The same link with a guard, or without. To be said before its first connection is greeted.
    #[must_use]
    pub fn guarded_by(self, guard: Option<Guard>) -> Self {
        Self { sentry: guard.map(Sentry::new), ..self }
    }

    /// The same link with a channel of its own on which its master wakes the waiters of this process. The number is
    /// random, the same for all links of a process, and not 0. To be said before its first connection is greeted.
    #[must_use]
    pub fn woken_at(self, inbox: u64) -> Self {
        Self { inbox: Inbox::new(inbox), ..self }
    }

    /// Takes one input and says what is to be done.
    ///
    /// `Send`, `Settle`, `Leave`, `Stand`, `StepOut`, `Listen`, `Unlisten`, `Probe` and `Bless` never tell anybody
    /// but their own tag, or those who wait for their key, at once, so a driver may hold its claim's lock meanwhile.
    pub fn handle(&mut self, now: Time, input: LinkInput<T>, out: &mut Vec<LinkEffect<T>>) {
        match input {
            LinkInput::Send { key, ask, tag } => self.send(now, key, ask, tag, out),
            LinkInput::Settle { key, token, call, leave, tag } => {
                self.settle(now, key, (token, call, leave), tag, out);
            }
            LinkInput::Listen { key, ticket } => self.listen(now, (key, ticket), out),
            LinkInput::Unlisten(ticket) => self.unlisten(ticket),
            LinkInput::Woken { epoch, ticket } => self.woken(now, epoch, ticket, out),
            LinkInput::Stand { key, ticket, spot, tag } => match self.refusal(None) {
                Some(cause) => out.push(LinkEffect::Tell(tag, Answer::Unknown(cause))),
                None => {
                    let waiter = self.inbox.waiter(ticket);
                    let command = Command::Stand { key, waiter, spot };
                    self.write(now, command, Purpose::Ask, Some(tag), out);
                }
            },
            // One that is not told so forgets the place soon. It is told also where nothing is asked any more.
            LinkInput::StepOut { key, ticket, call } => {
                if self.open.as_ref().is_some_and(|open| !open.stalled) {
                    let waiter = self.inbox.waiter(ticket);
                    let command = Command::StepOut { key, waiter, call };
                    self.write(now, command, Purpose::Ask, None, out);
                }
            }
            LinkInput::Leave { token, until } => self.ledger.leave(token, until),
            LinkInput::Probe(tag) => match self.refusal(None) {
                Some(cause) => out.push(LinkEffect::Tell(tag, Answer::Unknown(cause))),
                None => {
                    // The marker may be gone since it was last seen.
                    if let Some(look) = self.sentry.as_ref().and_then(Sentry::look_again) {
                        self.write(now, look, Purpose::Watch, None, out);
                    }
                    self.write(now, Command::Probe, Purpose::Ask, Some(tag), out);
                }
            },
            LinkInput::Bless(tag) => self.bless(now, tag, out),
            LinkInput::Connected { epoch, greeting } => self.connected(now, epoch, greeting, out),
            LinkInput::Closed { epoch, why, random } => self.closed(now, epoch, why, random, out),
            LinkInput::Answered { epoch, answer } => self.answered(now, epoch, answer, out),
            LinkInput::Wake => self.wake(now, out),
            LinkInput::ShutDown => self.shut_down = true,
        }
    }

    fn send(&mut self, now: Time, key: Key, ask: Ask, tag: T, out: &mut Vec<LinkEffect<T>>) {
        let token = ask.token();
        let settled = self.ledger.is_settled(token).then_some(Cause::GivenUp);
        if let Some(cause) = settled.or_else(|| self.refusal(Some(token))) {
            // Never sent, so nothing is owed for it.
            return out.push(LinkEffect::Tell(tag, Answer::Unknown(cause)));
        }
        let command = match (ask, key.clone()) {
            (Ask::Set { token, ttl_ms, fence }, key) => {
                match self.sentry.as_ref().map(|sentry| sentry.marker(now)) {
                    None => Command::Set { key, token, ttl_ms, fence },
                    Some(Ok(marker)) => Command::Guarded { key, token, ttl_ms, fence, marker },
                    // The same.
                    Some(Err(cause)) => {
                        return out.push(LinkEffect::Tell(tag, Answer::Unknown(cause)));
                    }
                }
            }
            (Ask::Keep { token, ttl_ms, repair, fence }, key) => {
                Command::Keep { key, token, ttl_ms, repair, fence }
            }
            (Ask::Certify { token, fence }, key) => Command::Certify { key, token, fence },
        };
        // Before it is queued (R5).
        if ask.creates() {
            self.ledger.claim(now, token, key, Duration::from_millis(ask.ttl_ms()));
        }
        self.write(now, command, Purpose::Ask, Some(tag), out);
    }

    fn settle(
        &mut self,
        now: Time,
        key: Key,
        (token, call, leave): (Token, Call, Option<Ticket>),
        tag: T,
        out: &mut Vec<LinkEffect<T>>,
    ) {
        if let Some(cause) = self.refusal(Some(token)).filter(|_| !self.ledger.contains(token)) {
            // Nothing was ever sent for this token, so nothing is owed, and a master that is
            // in trouble is spared the question.
            out.push(LinkEffect::Tell(tag, Answer::Unknown(cause)));
        } else if self.open.is_some() {
            // Behind whatever was written for this token. A healthy master is asked even where
            // nothing was: the caller wants to know.
            self.ledger.pay(token, key.clone(), now, call);
            let leave = leave.map(|ticket| self.inbox.waiter(ticket));
            let command = Command::Delete { key, token, call, leave };
            self.write(now, command, Purpose::Pay(token), Some(tag), out);
        } else {
            self.ledger.owe(token, call);
            out.push(LinkEffect::Tell(tag, Answer::Unknown(Cause::Down(self.down.clone()))));
        }
    }

    fn connected(
        &mut self,
        now: Time,
        epoch: u64,
        greeting: Greeting,
        out: &mut Vec<LinkEffect<T>>,
    ) {
        if !self.awaits(epoch) {
            return out.push(LinkEffect::Close(epoch));
        }
        if let Some(old) = self.open.take() {
            // The new connection was greeted first, so it is the old one that is dead.
            out.push(LinkEffect::Close(old.epoch));
            self.bury(old, true, out);
        }
        self.dial = Dial::Idle;
        if let Some(sentry) = &mut self.sentry {
            sentry.greeted(now, &greeting);
        }
        let Greeting { client_id, run_id, .. } = greeting;
        self.open = Some(Open {
            epoch,
            client_id,
            run_id: run_id.clone(),
            unanswered: VecDeque::new(),
            bytes: 0,
            heard: now,
            stalled: false,
            loading: false,
            reloaded: false,
        });
        // Client ids start anew with every process: after a restart the old connections are
        // gone with it, and their ids may be somebody else's.
        self.to_kill.retain(|(of, _)| Some(of) == run_id.as_ref());
        for (_, id) in self.to_kill.clone() {
            self.write(now, Command::Kill { client_id: id }, Purpose::Kill(id), None, out);
        }
        self.ledger.ripen(now);
        self.pay_again = None;
        self.pay_all(now, out);
        self.retry(now, RETRIED, out);
        self.watch(now, out);
        self.subscribe(now, out);
    }

    fn bless(&mut self, now: Time, tag: T, out: &mut Vec<LinkEffect<T>>) {
        let unguarded = || Cause::Error(Arc::from("this lock has no guard, and needs no markers"));
        let nameless = || Cause::Distrusted { why: Distrust::Nameless, left: None };
        let marker = match (&self.sentry, self.refusal(None)) {
            (_, Some(cause)) => Err(cause),
            (None, _) => Err(unguarded()),
            (Some(sentry), _) => sentry.blessing().ok_or_else(nameless),
        };
        match marker {
            Ok(marker) => {
                let command = Command::Bless { marker: marker.clone() };
                self.write(now, command, Purpose::Bless(marker), Some(tag), out);
            }
            Err(cause) => out.push(LinkEffect::Tell(tag, Answer::Unknown(cause))),
        }
    }

    /// Looks at the master, if it is distrusted and a look is due.
    fn watch(&mut self, now: Time, out: &mut Vec<LinkEffect<T>>) {
        if self.shut_down || self.open.as_ref().is_none_or(|open| open.stalled) {
            return;
        }
        if let Some(look) = self.sentry.as_mut().and_then(|sentry| sentry.look(now)) {
            self.write(now, look, Purpose::Watch, None, out);
        }
    }

    fn closed(
        &mut self,
        now: Time,
        epoch: u64,
        why: Arc<str>,
        random: u64,
        out: &mut Vec<LinkEffect<T>>,
    ) {
        if self.dial == Dial::Trying && epoch == self.epoch {
            self.failures = self.failures.saturating_add(1);
            self.down = why;
            self.dial = Dial::At(now.plus(self.pause(random)));
        } else if self.open.as_ref().is_some_and(|open| open.epoch == epoch) {
            self.down = why;
            if let Some(old) = self.open.take() {
                if now.since(old.heard) >= self.bounds.retry_max {
                    // Closed for idleness, or a fault after long peace: not flapping.
                    self.failures = 0;
                }
                self.bury(old, true, out);
            }
            // A try that is under way goes on. Else one starts at once: most broken connections
            // are a restart, and masters restart fast. But one that broke before it answered
            // anything would only break again.
            if self.dial == Dial::Idle {
                self.failures = self.failures.saturating_add(1);
                if self.failures == 1 {
                    self.dial(out);
                } else {
                    self.dial = Dial::At(now.plus(self.pause(random)));
                }
            }
        }
    }

    fn answered(&mut self, now: Time, epoch: u64, answer: Answer, out: &mut Vec<LinkEffect<T>>) {
        let Some(open) = self.open.as_mut().filter(|open| open.epoch == epoch) else { return };
        let Some(sent) = open.unanswered.pop_front() else {
            // More answers than commands: nothing on this connection can be trusted.
            return self.give_up(now, "an answer to no command", out);
        };
        open.bytes -= sent.bytes;
        if now.since(sent.at) < self.bounds.stall / 2 {
            self.slow = self.slow.saturating_sub(1);
        }
        open.heard = now;
        let (mut answer, clock) = match answer {
            Answer::Stamped { micros, answer } => {
                let sentry = self.sentry.as_mut();
                (answer.plain(), sentry.and_then(|it| it.read_clock(now, sent.at, micros)))
            }
            answer => (answer, None),
        };
        // Only what a healthy master says counts against flapping: one that hangs up at every
        // clean-up has answered the kill of its last connection each time.
        if matches!(sent.purpose, Purpose::Ask | Purpose::Pay(_))
            && !matches!(answer, Answer::Unknown(_))
        {
            self.failures = 0;
        }
        if sent.expect.is_of_script() && !matches!(answer, Answer::Unknown(_)) {
            open.reloaded = false;
        }
        if open.stalled {
            // The master slept. Its connection is as good as ever: the second one is not needed. If it is slow, a
            // second one would make it slower.
            open.stalled = false;
            self.slow = (self.slow + 1).min(MAX_SLOW);
            if self.dial == Dial::Trying {
                out.push(LinkEffect::Close(self.epoch));
            }
            self.dial = Dial::Idle;
        }
        let trust = !matches!(answer, Answer::Unknown(Cause::Garbage));
        let no_script = answer == Answer::Unknown(Cause::NoScript);
        let alive = answer == Answer::Alive;
        let mut kill_failed = false;
        match sent.purpose {
            Purpose::Ask => {
                if let (Answer::Marked { boot, .. }, Some(sentry)) = (&answer, &mut self.sentry) {
                    answer = Answer::Unknown(sentry.refused(now, boot.clone()));
                } else if let (true, Some((_, Err(cause)))) = (answer.creates(), &clock) {
                    // The key is there, and is cleaned up as any other.
                    answer = Answer::Unknown(cause.clone());
                } else if let (Expect::Probe, Answer::Alive) = (sent.expect, &answer)
                    && let Some(Err(cause)) = self.sentry.as_ref().map(|it| it.marker(now))
                {
                    answer = Answer::Unknown(cause);
                }
            }
            Purpose::Watch => {
                if let Some(sentry) = &mut self.sentry {
                    sentry.looked(now, &answer);
                }
            }
            Purpose::Bless(marker) => {
                if let (Answer::Blessed, Some(sentry)) = (&answer, &mut self.sentry) {
                    sentry.blessed(marker);
                }
            }
            Purpose::Pay(token) => {
                if let Answer::Freed { listeners } = answer {
                    answer = Answer::Deleted;
                    self.count(token, listeners, out);
                }
                self.paid(now, token, &answer, out);
            }
            Purpose::Hello => self.inbox.asked(alive, out),
            Purpose::Subscribe => self.inbox.subscribed(alive, out),
            // It is dead, or killing is forbidden.
            Purpose::Kill(id) if alive => self.to_kill.retain(|(_, of)| *of != id),
            Purpose::Kill(_) => kill_failed = true,
            Purpose::Load => self.loaded(now, &answer, out),
        }
        if let Some(tag) = sent.tag {
            out.push(LinkEffect::Tell(
                tag,
                match clock {
                    // Whatever it answered: others are compared with it.
                    Some((reading, _)) => Answer::Timed { reading, answer: Box::new(answer) },
                    None => answer,
                },
            ));
        }
        if no_script {
            self.load_scripts(now, out);
        }
        if !trust {
            self.give_up(now, "an answer that is not Redis's", out);
        } else if kill_failed {
            // Whatever was paid behind it may have been paid too early: once more, on another one.
            self.give_up(now, "an older connection could not be killed", out);
        }
        self.subscribe(now, out);
    }

    fn wake(&mut self, now: Time, out: &mut Vec<LinkEffect<T>>) {
        let stall = self.stall();
        if let Some(open) = &mut self.open
            && !open.stalled
            && open.stalls(stall).is_some_and(|time| now >= time)
        {
            open.stalled = true;
            if self.dial == Dial::Idle {
                self.dial(out);
            }
        }
        if let Dial::At(time) = self.dial
            && now >= time
        {
            self.dial(out);
        }
        let ripe = self.ledger.ripen(now);
        if self.open.is_some() {
            let again = self.pay_again.take_if(|time| now >= *time).is_some();
            if ripe || again {
                self.pay_all(now, out);
            }
            if again {
                self.refusals = self.refusals.saturating_add(1);
                self.retry(now, RETRIED, out);
            }
        }
        self.watch(now, out);
    }

    /// When to call [`Link::handle`] with [`LinkInput::Wake`] next.
    pub fn next_wake(&self) -> Time {
        let mut next = Time::NEVER;
        if let Some(open) = &self.open {
            if !open.stalled {
                next = next.min(open.stalls(self.stall()).unwrap_or(Time::NEVER));
                let look = self.sentry.as_ref().and_then(Sentry::next_look);
                next = next.min(look.filter(|_| !self.shut_down).unwrap_or(Time::NEVER));
            }
            next = next.min(self.pay_again.unwrap_or(Time::NEVER));
            next = next.min(self.ledger.next_ripe().unwrap_or(Time::NEVER));
        }
        if let Dial::At(time) = self.dial {
            next = next.min(time);
        }
        next
    }

    /// How long commands may be unanswered and nothing be heard. Twice as long after each time that the connection was
    /// good all the same.
    fn stall(&self) -> Duration {
        self.bounds.stall.saturating_mul(1 << self.slow)
    }

    /// Why nothing can be asked now, for this token or for none, if it can't.
    fn refusal(&self, token: Option<Token>) -> Option<Cause> {
        if self.shut_down {
            return Some(Cause::ShutDown);
        }
        let Some(open) = &self.open else { return Some(Cause::Down(self.down.clone())) };
        if open.stalled {
            return Some(Cause::Stalled);
        }
        let full = open.unanswered.len() >= self.bounds.unanswered
            || open.bytes >= self.bounds.unanswered_bytes
            // An extension adds nothing: a full ledger must not cost the leases that fill it.
            || (self.ledger.len() >= self.bounds.ledger
                || self.ledger.bytes() >= self.bounds.ledger_bytes)
                && token.is_some_and(|token| !self.ledger.contains(token));
        full.then_some(Cause::Overloaded)
    }

    fn write(
        &mut self,
        now: Time,
        command: Command,
        purpose: Purpose,
        tag: Option<T>,
        out: &mut Vec<LinkEffect<T>>,
    ) {
        let Some(open) = &mut self.open else {
            unreachable!("a command is written only to an open connection")
        };
        let bytes = command.size_hint();
        open.bytes += bytes;
        open.unanswered.push_back(Sent { at: now, bytes, expect: command.expect(), purpose, tag });
        out.push(LinkEffect::Write(command));
    }

    /// The connection is gone: its commands are nobody's, its debts are owed again, and it is
    /// to be killed in case the master still has its bytes.
    fn bury(&mut self, old: Open<T>, trusted: bool, out: &mut Vec<LinkEffect<T>>) {
        self.ledger.unpay_all();
        self.inbox.close(out);
        // What cannot create a key may as well be executed.
        let creates = |sent: &Sent<T>| sent.expect.creates();
        if let (Some(run_id), Some(id)) = (old.run_id, old.client_id)
            && (!trusted || old.unanswered.iter().any(creates))
        {
            if self.to_kill.len() == MAX_TO_KILL {
                self.to_kill.remove(0);
            }
            self.to_kill.push((run_id, id));
        }
        for tag in old.unanswered.into_iter().filter_map(|sent| sent.tag) {
            out.push(LinkEffect::Tell(tag, Answer::Unknown(Cause::Disconnected)));
        }
    }

    fn give_up(&mut self, now: Time, why: &str, out: &mut Vec<LinkEffect<T>>) {
        let Some(old) = self.open.take() else { return };
        out.push(LinkEffect::Close(old.epoch));
        // What it answered may have been the answer to something else.
        self.bury(old, false, out);
        self.down = Arc::from(why);
        if self.dial == Dial::Idle {
            // Not at once: whoever talks nonsense will do so again.
            self.dial = Dial::At(now.plus(self.bounds.retry_max));
        }
    }

    fn paid(&mut self, now: Time, token: Token, answer: &Answer, out: &mut Vec<LinkEffect<T>>) {
        let reloaded = self.open.as_ref().is_some_and(|open| open.reloaded);
        let done = match answer {
            // The master itself said that no key of ours is there, and nothing of ours that
            // could make one is behind: commands of one connection are answered in order.
            Answer::Deleted | Answer::Absent | Answer::Taken(_) => {
                self.ledger.clear(token);
                self.refusals = 0;
                true
            }
            Answer::Unknown(Cause::Error(_)) => self.ledger.refuse(now, token),
            Answer::Unknown(Cause::NoScript) if reloaded => self.ledger.refuse(now, token),
            // The reload comes first, and pays; or the connection ends.
            _ => return self.ledger.owe(token, Call::Nobody),
        };
        if done {
            self.retry(now, 1, out);
        } else {
            let longer = 1_u32.checked_shl(self.refusals).unwrap_or(MAX_REFUSALS).min(MAX_REFUSALS);
            self.pay_again.get_or_insert(now.plus(self.bounds.retry_max.saturating_mul(longer)));
        }
    }

    fn pay_all(&mut self, now: Time, out: &mut Vec<LinkEffect<T>>) {
        let owed = self.ledger.pay_all();
        self.write_deletes(now, owed, out);
    }

    /// Sends clean-ups again that met an error.
    fn retry(&mut self, now: Time, count: usize, out: &mut Vec<LinkEffect<T>>) {
        let refused = self.ledger.retry(count);
        self.write_deletes(now, refused, out);
    }

    fn write_deletes(
        &mut self,
        now: Time,
        deletes: Vec<(Token, Key, Call)>,
        out: &mut Vec<LinkEffect<T>>,
    ) {
        for (token, key, call) in deletes {
            // A waiter whose release did not arrive lapses.
            let command = Command::Delete { key, token, call, leave: None };
            self.write(now, command, Purpose::Pay(token), None, out);
        }
    }

    fn load_scripts(&mut self, now: Time, out: &mut Vec<LinkEffect<T>>) {
        if let Some(open) = &mut self.open
            && !open.loading
        {
            open.loading = true;
            for load in Command::load_scripts(self.sentry.is_some()) {
                self.write(now, load, Purpose::Load, None, out);
            }
        }
    }

    fn loaded(&mut self, now: Time, answer: &Answer, out: &mut Vec<LinkEffect<T>>) {
        if *answer != Answer::Alive {
            return self.give_up(now, "the scripts could not be loaded", out);
        }
        if let Some(open) = &mut self.open
            && !open.unanswered.iter().any(|sent| sent.purpose == Purpose::Load)
        {
            open.loading = false;
            // A master that loads scripts and does not know them (a proxy with several servers
            // behind it, say) would otherwise be asked again and again without a pause.
            if core::mem::replace(&mut open.reloaded, true) {
                self.pay_again.get_or_insert(now.plus(self.bounds.retry_max));
            } else {
                self.pay_all(now, out);
            }
        }
    }

    fn dial(&mut self, out: &mut Vec<LinkEffect<T>>) {
        self.epoch += 1;
        self.dial = Dial::Trying;
        out.push(LinkEffect::Dial(self.epoch));
    }

    /// Doubles with every failure up to the maximum, the upper half of it at random, so that
    /// clients do not come back in step.
    fn pause(&self, random: u64) -> Duration {
        let doubled = 1_u32.checked_shl(self.failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let full = self.bounds.retry_min.saturating_mul(doubled).min(self.bounds.retry_max);
        let nanos = u64::try_from(full.as_nanos()).unwrap_or(u64::MAX) / 2;
        Duration::from_nanos(nanos + random % (nanos + 1))
    }

    /// What the oldest unanswered command wants for an answer, so that it can be decoded, and
    /// when it was written.
    pub fn oldest(&self) -> Option<(Expect, Time)> {
        let sent = self.open.as_ref()?.unanswered.front()?;
        Some((sent.expect, sent.at))
    }

    /// Whether a connection with this number would be taken if it were greeted now.
    pub fn awaits(&self, epoch: u64) -> bool {
        epoch == self.epoch && self.dial == Dial::Trying
    }

    /// The number of the connection that is written to.
    pub fn epoch(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.epoch)
    }

    /// Whether it can collect votes.
    pub fn state(&self) -> LinkState {
        match &self.open {
            Some(open) if open.stalled => LinkState::Stalled,
            Some(_) => LinkState::Up,
            None => LinkState::Down(self.down.clone()),
        }
    }

    /// Why grants of this master do not count though it is connected, if they do not.
    pub fn distrust(&self, now: Time) -> Option<Cause> {
        let open = self.open.is_some();
        self.sentry.as_ref().filter(|_| open).and_then(|sentry| sentry.marker(now).err())
    }

    /// Keys that shall go and that the master has not yet said to be gone.
    pub fn owed(&self) -> usize {
        self.ledger.owed()
    }

    /// The same, but for keys that have expired by themselves on a master that is down.
    pub fn owed_still(&self, now: Time) -> usize {
        if self.open.is_some() { self.ledger.owed() } else { self.ledger.owed_and_alive(now) }
    }

    /// The same, but for keys that have expired by themselves, if what was sent for them was
    /// executed at once.
    pub fn owed_and_alive(&self, now: Time) -> usize {
        self.ledger.owed_and_alive(now)
    }

    /// Keys that may be there and are still wanted.
    pub fn claimed(&self) -> usize {
        self.ledger.claimed()
    }

    /// Waiters that its master is to wake.
    pub fn listens(&self) -> usize {
        self.inbox.len()
    }

    /// Commands without an answer on the current connection.
    pub fn unanswered(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.unanswered.len())
    }

    /// Whether the first try to connect is still under way.
    pub const fn is_first_dial(&self) -> bool {
        self.epoch == 1 && matches!(self.dial, Dial::Trying) && !self.shut_down
    }
}
