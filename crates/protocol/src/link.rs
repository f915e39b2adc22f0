//! Link: everything between one client and one master. The link passes its inputs to parts that do
//! not know each other, and writes the commands that they return: the open `connection`, the
//! `dialer`, the `ledger`, the `queue_ledger`, the `restart_guard` and the `subscription`.
//!
//! A master replies to the commands of one connection in the order in which they were written. The
//! safety of a lock's clean-up rests on this order alone:
//!
//! * **The ledger.** The link enters a key before it queues a command that may create the key (R5).
//!   The entry leaves the ledger only when the master itself has replied to the compare-and-delete
//!   that follows the command. No way out of a claim and no broken connection can skip that. An
//!   error does not count as such a reply. But after the first error the key can only expire: if
//!   the master still refuses once the key has expired, the link removes the entry.
//! * **Positions.** The link also lists the positions that it may have in the master's queues
//!   (`link/queue_ledger.rs`). Safety does not depend on them. But a position that stays behind
//!   after its waiter has left blocks other waiters.
//! * **Epochs.** Every connection has a number. The link ignores a reply from an older
//!   connection.
//! * **Replacement.** A stopped master and a black-holed connection look alike: the link writes
//!   commands and receives nothing. After `stall` the link refuses new requests for votes and tries
//!   a second connection *beside* the first. If the old connection replies first, the master had
//!   only slept: the link keeps the connection, and the clean-ups that are queued there complete in
//!   order. If the new connection finishes its handshake first, the link resets the old one.
//! * **Useless connections.** A server that answers and refuses every vote (`link/refusals.rs`), or
//!   that another link found at its own address, may not be the master that the name leads to. The
//!   link dials beside the open connection, too. It takes the new connection if that leads to
//!   another server.
//! * **Idle connections.** A firewall or a load balancer may drop an idle connection and tell
//!   nobody. So the link sends a probe when nothing was received for `idle`. That keeps most of
//!   them from dropping it, and the others are noticed before a request relies on the connection.
//! * **No zombies.** A `SET` can sit in the socket buffer of a connection that is gone, and the
//!   master can execute it when it wakes up. So a new connection first kills the old ones by their
//!   client id, and *then* sends the pending clean-ups. After the kill the master executes nothing
//!   from an old connection.
//! * **Distrust.** With a [`Guard`], the link also refuses requests for votes on a master that may
//!   have forgotten leases, until it has watched that master for long enough
//!   (`link/restart_guard.rs`). It still sends commands that keep or end a lease. An extension
//!   counts only where the key was never gone (R6), and clean-ups go to every master (R5).
//!
//! This module does not handle bytes ([`wire`](crate::wire)), sockets and time (the driver), or
//! what a claim makes of a reply ([`claim`](crate::claim)).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::effect::{Key, QueueEvent, VoteRequest, WakeUp};
use crate::guard::{Distrust, Guard, RunId};
use crate::time::{Time, doubled};
use crate::token::Token;
use crate::vote::{Cause, Holder, Reply};
use crate::waiter::WaiterId;
use crate::wire::{Command, Expect, Greeting, KeyEffect};

mod connection;
mod dialer;
mod ledger;
mod offsets;
mod queue_ledger;
mod refusals;
mod restart_guard;
mod subscription;
mod types;

use connection::{Connection, Denial, Purpose};
use dialer::Dialer;
use ledger::Ledger;
use queue_ledger::QueueLedger;
use refusals::Refusals;
use restart_guard::RestartGuard;
use subscription::Subscription;
use types::Context;
pub use types::{Bounds, LinkEffect, LinkInput, LinkState};

/// The state machine of the connection to one master.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Link<T> {
    bounds: Bounds,
    open: Option<Connection<T>>,
    dialer: Dialer,
    /// Why there is no open connection.
    down: Arc<str>,
    ledger: Ledger,
    queue_ledger: QueueLedger,
    /// Old connections that a new connection must kill before it does anything else.
    to_kill: Vec<(RunId, u64)>,
    restart_guard: Option<RestartGuard>,
    inbox: Subscription,
    /// How often a stalled connection turned out to be good. Commands that are answered in time
    /// reduce it.
    slow: u32,
    shut_down: bool,
    /// Its driver is gone.
    abandoned: bool,
}

/// The stall timeout doubles at most this many times.
const MAX_SLOW: u32 = 4;

/// The most old connections that the link remembers in order to kill them. More than a few pile up
/// only where a master accepts connections and drops each one before it has answered a single
/// `CLIENT KILL`.
const MAX_TO_KILL: usize = 64;

impl<T> Link<T> {
    /// Creates a link and dials its first connection.
    pub fn start(bounds: Bounds, out: &mut Vec<LinkEffect<T>>) -> Self {
        let mut link = Self {
            bounds,
            open: None,
            dialer: Dialer::default(),
            down: Arc::from("connecting"),
            ledger: Ledger::default(),
            queue_ledger: QueueLedger::default(),
            to_kill: Vec::new(),
            restart_guard: None,
            inbox: Subscription::default(),
            slow: 0,
            shut_down: false,
            abandoned: false,
        };
        out.push(LinkEffect::Dial(link.dialer.dial()));
        link
    }

    /// Returns the link with this guard, or without one. Call it before the first connection is
    /// greeted.
    #[must_use]
    pub fn guarded_by(self, guard: Option<Guard>) -> Self {
        Self { restart_guard: guard.map(RestartGuard::new), ..self }
    }

    /// Returns the link with an inbox: a channel on which its master wakes the waiters of this
    /// process. The number is random, the same for all links of a process, and not 0. Call it
    /// before the first connection is greeted.
    #[must_use]
    pub fn woken_at(self, inbox: u64) -> Self {
        Self { inbox: Subscription::new(inbox), ..self }
    }

    /// Takes one input and appends the effects to carry out.
    ///
    /// The inputs `Send`, `CleanUp`, `Leave`, `Enqueue`, `Dequeue`, `Subscribe`, `Unsubscribe`,
    /// `AskHolder`, `Probe` and `Initialize` notify at once only their own tag or the waiters for
    /// their key. So a driver may hold its claim's lock during the call.
    pub fn handle(&mut self, now: Time, input: LinkInput<T>, out: &mut Vec<LinkEffect<T>>) {
        let cx = &mut Context { now, out };
        match input {
            LinkInput::Send { key, request, tag } => self.send(key, request, tag, cx),
            LinkInput::CleanUp { key, token, wake_up, leave, tag } => {
                self.clean_up(key, (token, wake_up, leave), tag, cx);
            }
            LinkInput::Subscribe { key, waiter_id } => {
                let event = self.inbox.add(key.clone(), waiter_id, self.bounds.subscriptions);
                cx.out.push(LinkEffect::QueueEvent(key, event));
                self.subscribe(cx);
            }
            LinkInput::Unsubscribe(waiter_id) => self.inbox.remove(waiter_id),
            LinkInput::Woken { epoch, waiter_id } => {
                if let Some(open) = self.open.as_mut().filter(|open| open.epoch == epoch) {
                    open.last_reply = cx.now;
                    let free = QueueEvent::Free(waiter_id);
                    let key = self.inbox.woken(waiter_id).cloned();
                    cx.out.extend(key.map(|key| LinkEffect::QueueEvent(key, free)));
                    // The waiter may have left: the next one has its turn.
                    let leave = self.queue_ledger.woken(waiter_id);
                    self.write_all(leave, cx);
                }
            }
            LinkInput::Enqueue { key, waiter_id, position, tag } => {
                let waiter = self.inbox.waiter(waiter_id);
                if self.refusal(None).is_none() {
                    let old = self.queue_ledger.enter(&key, waiter);
                    self.write_all(old, cx);
                }
                self.ask(Command::Enqueue { key, waiter, position }, tag, cx);
            }
            LinkInput::Dequeue { key, waiter_id, wake } => {
                self.leave_queue(key, waiter_id, wake, cx);
            }
            LinkInput::Leave { token, until } => {
                // Whether nothing can create the key from now on: every command for it was
                // answered, and no older connection is left that may have one.
                let settled = self.to_kill.is_empty()
                    && self.open.as_ref().is_some_and(|open| !open.may_create(token));
                self.ledger.leave(token, until, settled);
            }
            LinkInput::AskHolder { key, token, tag } => {
                debug_assert!(!self.ledger.contains(token), "R5: it is the token of a claim");
                if let Some(cause) = self.refusal(None) {
                    cx.unknown(tag, cause);
                } else if let Some(open) = &mut self.open {
                    // An extension without repair changes nothing but a key with its token, and no
                    // key has this one.
                    let (ttl_ms, repair, marker, fence) = (1, false, None, None);
                    let command = Command::Keep { key, token, ttl_ms, repair, marker, fence };
                    open.write_for(Purpose::Ask, command, Some(tag), cx);
                }
            }
            LinkInput::Probe(tag) => {
                // The boot marker may have gone since the last look.
                let look = self.restart_guard.as_ref().and_then(RestartGuard::look_again);
                if let Some(look) = look.filter(|_| self.refusal(None).is_none()) {
                    self.write(look, None, cx);
                }
                self.ask(Command::Probe, tag, cx);
            }
            LinkInput::Initialize(tag) => self.initialize(tag, cx),
            LinkInput::Connected { epoch, greeting } => self.connected(epoch, greeting, cx),
            LinkInput::Closed { epoch, why, random } => self.closed(epoch, why, random, cx),
            LinkInput::Replied { epoch, reply } => self.replied(epoch, reply, cx),
            LinkInput::Wake => self.wake(cx),
            LinkInput::Doubt => {
                if let Some(open) = &mut self.open {
                    open.doubted = true;
                    self.try_beside(cx);
                }
            }
            LinkInput::ShutDown => self.shut_down = true,
            LinkInput::Abandon => (self.shut_down, self.abandoned) = (true, true),
        }
        self.assert_rules();
    }

    /// What holds after each input. Debug builds check it.
    fn assert_rules(&self) {
        debug_assert!(!self.dialer.is_idle() || self.open.is_some(), "R9: it never dials again");
        debug_assert!(
            !self.dialer.is_idle() || !matches!(self.state(), LinkState::Refusing(_)),
            "a connection that is of no use must not stay for ever"
        );
        debug_assert!(self.to_kill.len() <= MAX_TO_KILL && self.slow <= MAX_SLOW, "R9: bounds");
        debug_assert!(self.shut_down || !self.abandoned);
        let Some(open) = &self.open else { return };
        debug_assert!(!self.dialer.awaits(open.epoch), "one number, one connection");
        debug_assert!(
            !open.stalled || !open.unanswered.is_empty(),
            "a master that has replied to everything is not stalled"
        );
        debug_assert!(
            open.bytes > 0 || open.unanswered.is_empty(),
            "commands without bytes are under way"
        );
        let kills = |sent: &connection::Sent<T>| matches!(sent.purpose, Purpose::Kill(_));
        debug_assert!(
            self.to_kill.is_empty() || open.unanswered.iter().any(kills),
            "R5: an older connection may still create keys"
        );
    }

    /// Debug builds check each command that is written.
    fn assert_may_write(&self, command: &Command) {
        match command.key_effect() {
            KeyEffect::Set { token, .. } => {
                debug_assert!(self.ledger.is_claimed(token), "R5: a key that no ledger knows");
                debug_assert!(self.refusal(Some(token)).is_none(), "R9: it takes no requests");
            }
            KeyEffect::Keep { token, .. } => {
                debug_assert!(self.ledger.is_claimed(token), "R5: a key that no ledger knows");
            }
            _ => {}
        }
        match command {
            Command::Set { .. } => {
                debug_assert!(self.restart_guard.is_none(), "a grant without a look at the marker");
            }
            Command::Keep { repair: true, marker: None, .. } => {
                debug_assert!(
                    self.restart_guard.is_none(),
                    "a repair without a look at the marker"
                );
            }
            Command::Guarded { marker, .. }
            | Command::Keep { repair: true, marker: Some(marker), .. } => {
                let shown = self.restart_guard.as_ref().map(RestartGuard::shown);
                debug_assert!(matches!(shown, Some(Ok(()))), "a grant of a distrusted master");
                debug_assert!(!marker.is_empty(), "no marker to compare");
            }
            Command::Delete { token, .. } => {
                debug_assert!(!self.ledger.is_claimed(*token), "R5: a lease wants this key");
                debug_assert!(self.ledger.contains(*token), "R5: a clean-up that no ledger knows");
            }
            Command::Enqueue { waiter, .. } => {
                debug_assert!(self.queue_ledger.contains(*waiter), "a position without an entry");
            }
            Command::Kill { client_id } => {
                let known = self.to_kill.iter().any(|(_, id)| id == client_id);
                debug_assert!(known, "another client's connection is killed");
            }
            _ => {}
        }
    }

    fn send(&mut self, key: Key, request: VoteRequest, tag: T, cx: &mut Context<'_, T>) {
        let token = request.token();
        let given_up = self.ledger.is_given_up(token).then_some(Cause::GivenUp);
        // A command that is refused is never sent, so no clean-up is pending for it.
        if let Some(cause) = given_up.or_else(|| self.refusal(Some(token))) {
            return cx.unknown(tag, cause);
        }
        let command = match request {
            VoteRequest::Set { token, ttl_ms, fair, fence } => match self.marker(cx.now) {
                None => Command::Set { key, token, ttl_ms, fair, fence },
                Some(Ok(marker)) => Command::Guarded { key, token, ttl_ms, fair, fence, marker },
                Some(Err(cause)) => return cx.unknown(tag, cause),
            },
            VoteRequest::Keep { token, ttl_ms, repair, fence } => {
                // A repair is a grant: a master that forgot must not create the key.
                let guard = self.restart_guard.as_ref();
                let marker = match guard {
                    None => Ok(None),
                    Some(guard) if repair => guard.marker(cx.now).map(Some),
                    Some(guard) => guard.admission(),
                };
                let marker = match marker {
                    Ok(marker) => marker,
                    Err(cause) => return cx.unknown(tag, cause),
                };
                Command::Keep { key, token, ttl_ms, repair, marker, fence }
            }
            VoteRequest::Certify { token, fence } => Command::Certify { key, token, fence },
        };
        // Enter the key before the command is queued (R5).
        if let KeyEffect::Set { key, token, ttl_ms } | KeyEffect::Keep { key, token, ttl_ms } =
            command.key_effect()
        {
            let ttl = Duration::from_millis(ttl_ms);
            self.ledger.claim(cx.now, token, key.clone(), ttl, &self.bounds);
        }
        self.write(command, Some(tag), cx);
    }

    fn clean_up(
        &mut self,
        key: Key,
        (token, wake_up, leave): (Token, WakeUp, Option<WaiterId>),
        tag: T,
        cx: &mut Context<'_, T>,
    ) {
        let cause = match self.refusal(Some(token)).filter(|_| !self.ledger.contains(token)) {
            // No command for this token was ever sent, so no clean-up is pending, and a master in
            // trouble gets no further command.
            Some(cause) => cause,
            None if self.open.is_some() => {
                // The clean-up is queued behind every command for this token. The link asks a
                // healthy master even if there was no such command: the caller needs the reply.
                self.ledger.start(token, key.clone(), cx.now, wake_up);
                let leave = leave.map(|waiter_id| self.inbox.waiter(waiter_id));
                let leave = leave.map(|waiter| self.queue_ledger.start(&key, waiter));
                return self.write(Command::Delete { key, token, wake_up, leave }, Some(tag), cx);
            }
            None => {
                self.ledger.enqueue(token, wake_up);
                Cause::Down(self.down.clone())
            }
        };
        cx.unknown(tag, cause);
        leave.into_iter().for_each(|it| self.leave_queue(key.clone(), it, true, cx));
    }

    /// The waiter leaves the queue. The link sends this also where it refuses requests: after a
    /// shutdown and under overload. A stalled master is asked only if it may have the position.
    fn leave_queue(&mut self, key: Key, waiter_id: WaiterId, wake: bool, cx: &mut Context<'_, T>) {
        let is_entered = self.queue_ledger.leave(waiter_id);
        if self.is_answering() || is_entered && self.open.is_some() {
            let waiter = self.queue_ledger.start(&key, self.inbox.waiter(waiter_id));
            self.write(Command::Dequeue { key, waiter, wake }, None, cx);
        }
    }

    fn initialize(&mut self, tag: T, cx: &mut Context<'_, T>) {
        let cause = match self.restart_guard.as_ref().map(RestartGuard::initial_marker) {
            Some(Some(marker)) => return self.ask(Command::Initialize { marker }, tag, cx),
            Some(None) => Cause::Distrusted { why: Distrust::Nameless, left: None },
            None => Cause::Error(Arc::from("this lock has no guard, and needs no markers")),
        };
        cx.unknown(tag, self.refusal(None).unwrap_or(cause));
    }

    /// Sends a look at the master, if one is due.
    fn watch(&mut self, cx: &mut Context<'_, T>) {
        if !self.shut_down
            && self.is_answering()
            && let Some(look) = self.restart_guard.as_mut().and_then(|guard| guard.look(cx.now))
        {
            self.write(look, None, cx);
        }
    }

    /// Takes the next step of the subscription, if the link may send requests.
    fn subscribe(&mut self, cx: &mut Context<'_, T>) {
        if self.inbox.len() > 0
            && self.refusal(None).is_none()
            && let Some(command) = self.inbox.next_command(cx.now)
        {
            self.write(command, None, cx);
        }
    }

    /// Writes a command whose reply goes to `tag`, unless the link refuses requests.
    fn ask(&mut self, command: Command, tag: T, cx: &mut Context<'_, T>) {
        match self.refusal(None) {
            Some(cause) => cx.unknown(tag, cause),
            None => self.write(command, Some(tag), cx),
        }
    }

    /// Why the link refuses a request now, for this token or for none; `None` if it accepts it.
    fn refusal(&self, token: Option<Token>) -> Option<Cause> {
        if self.abandoned {
            return Some(Cause::RuntimeEnded);
        }
        if self.shut_down {
            return Some(Cause::ShutDown);
        }
        let Some(open) = &self.open else { return Some(Cause::Down(self.down.clone())) };
        if open.stalled {
            return Some(Cause::Stalled);
        }
        let full = open.unanswered.len() >= self.bounds.unanswered
            || open.bytes >= self.bounds.unanswered_bytes
            // An extension adds no entry. A full ledger must not cost the leases that fill it.
            || self.ledger.is_full(&self.bounds)
                && token.is_some_and(|token| !self.ledger.contains(token));
        full.then_some(Cause::Overloaded)
    }

    /// The boot marker on which grants rely, or why none count; `None` without a guard.
    fn marker(&self, now: Time) -> Option<Result<Arc<str>, Cause>> {
        Some(self.restart_guard.as_ref()?.marker(now))
    }

    fn write(&mut self, command: Command, tag: Option<T>, cx: &mut Context<'_, T>) {
        self.assert_may_write(&command);
        let open = self.open.as_mut().expect("commands are written only to an open connection");
        open.write(command, tag, cx);
    }

    fn write_all(&mut self, commands: impl IntoIterator<Item = Command>, cx: &mut Context<'_, T>) {
        for command in commands {
            self.write(command, None, cx);
        }
    }

    fn connected(&mut self, epoch: u64, greeting: Greeting, cx: &mut Context<'_, T>) {
        if !self.awaits(epoch) {
            return cx.out.push(LinkEffect::Close(epoch));
        }
        if let Some(open) = self.open.as_mut().filter(|open| open.is_preferred_to(&greeting)) {
            cx.out.push(LinkEffect::Close(epoch));
            open.doubted = false;
            if open.refusals.useless().is_none() {
                self.dialer.end();
            } else {
                self.dialer.failed(&self.bounds, cx.now, 0);
                // The server may take writes again, and no caller may ask for some time.
                self.write(Command::Probe, None, cx);
            }
            return;
        }
        let mut replaces_useless = false;
        if let Some(old) = self.open.take() {
            debug_assert!(
                old.epoch < epoch,
                "the connection that was dialled last replaces others"
            );
            // The new connection finished its handshake first, so the old one is dead, or the new
            // one leads to another server.
            cx.out.push(LinkEffect::Close(old.epoch));
            replaces_useless = old.refusals.useless().is_some();
            self.bury(old, true, cx);
        }
        self.dialer.end();
        if let Some(restart_guard) = &mut self.restart_guard {
            restart_guard.greeted(cx.now, &greeting);
        }
        // Every server process numbers its clients anew. After a restart the old connections are
        // gone with the old process, and their ids may belong to other clients.
        self.to_kill.retain(|(of, _)| Some(of) == greeting.run_id.as_ref());
        self.open = Some(Connection::new(epoch, greeting, cx.now));
        self.inbox.connected(cx.now, cx.out);
        for (_, client_id) in self.to_kill.clone() {
            self.write(Command::Kill { client_id }, None, cx);
        }
        // A clean-up wakes the first waiter, so those that have left go before.
        let leaves = self.queue_ledger.start_all();
        self.write_all(leaves, cx);
        let clean_ups = self.ledger.connected(cx.now);
        debug_assert!(self.ledger.is_consistent());
        self.write_all(clean_ups, cx);
        if let Some(open) = self.open.as_mut().filter(|_| replaces_useless) {
            // Find out now whether this server takes votes. If not, the next attempt is not made
            // at once.
            open.refusals = Refusals::one_before_useless();
            self.dialer.failures = self.dialer.failures.saturating_add(1);
            self.write(Command::Probe, None, cx);
        }
        self.watch(cx);
        self.subscribe(cx);
    }

    fn closed(&mut self, epoch: u64, why: Arc<str>, random: u64, cx: &mut Context<'_, T>) {
        if self.awaits(epoch) {
            self.down = why;
            self.dialer.failed(&self.bounds, cx.now, random);
        } else if let Some(old) = self.open.take_if(|open| open.epoch == epoch) {
            self.down = why;
            if cx.now.since(old.last_reply) >= self.bounds.retry_max {
                // The server closed an idle connection, or a fault came after a long peace: no
                // flapping.
                self.dialer.failures = 0;
            }
            self.bury(old, true, cx);
            let dial = self.dialer.broke(&self.bounds, cx.now, random);
            cx.out.extend(dial.map(LinkEffect::Dial));
        }
    }

    fn give_up(&mut self, why: &str, cx: &mut Context<'_, T>) {
        let Some(old) = self.open.take() else { return };
        cx.out.push(LinkEffect::Close(old.epoch));
        // A reply on this connection may have been the reply to another command.
        self.bury(old, false, cx);
        self.down = Arc::from(why);
        self.dialer.gave_up(&self.bounds, cx.now);
    }

    /// Ends a connection. Its commands in flight fail, and their clean-ups go back to the queue. A
    /// later connection kills it by its client id, in case the master still has its bytes.
    fn bury(&mut self, old: Connection<T>, trusted: bool, cx: &mut Context<'_, T>) {
        for sent in &old.unanswered {
            if let Purpose::CleanUp(token, _) = sent.purpose {
                self.ledger.restart(token);
            }
        }
        debug_assert!(self.ledger.is_consistent());
        debug_assert!(!self.ledger.is_any_sent(), "no clean-up is under way without a connection");
        // Not only the oldest command: a proxy may drop the replies to those before.
        if old.unanswered.iter().any(|sent| sent.purpose == Purpose::Subscribe) {
            self.inbox.broke(cx.now);
        }
        self.queue_ledger.restart_all();
        self.inbox.close(cx.out);
        // A trusted connection needs no kill if it holds only commands that cannot create a key or
        // a position: the master may execute those.
        if let Some(identity) = old.identity
            && (!trusted || old.unanswered.iter().any(|sent| sent.purpose.creates()))
        {
            if self.to_kill.len() == MAX_TO_KILL {
                self.to_kill.remove(0);
            }
            self.to_kill.push(identity);
        }
        for tag in old.unanswered.into_iter().filter_map(|sent| sent.tag) {
            cx.unknown(tag, Cause::Disconnected);
        }
    }

    fn replied(&mut self, epoch: u64, reply: Reply, cx: &mut Context<'_, T>) {
        let Some(open) = self.open.as_mut().filter(|open| open.epoch == epoch) else { return };
        let Some(sent) = open.answered(cx.now) else {
            // There are more replies than commands, so nothing on this connection can be trusted.
            return self.give_up("a reply to no command", cx);
        };
        let took = cx.now.since(sent.at);
        if took.saturating_add(took) < self.bounds.stall {
            self.slow = self.slow.saturating_sub(1);
        }
        let (mut reply, clock) = match reply {
            Reply::Stamped { micros, reply } => {
                let restart_guard = self.restart_guard.as_mut();
                (reply.plain(), restart_guard.and_then(|it| it.read_clock(cx.now, sent.at, micros)))
            }
            reply => (reply, None),
        };
        if sent.purpose.is_request() || matches!(sent.purpose, Purpose::CleanUp(..)) {
            let was_useless = open.refusals.useless().is_some();
            open.refusals.heard(sent.expect, &reply);
            if was_useless && open.refusals.useless().is_none() {
                cx.out.extend(self.dialer.end().map(LinkEffect::Close));
            }
        }
        let is_useless = open.refusals.useless().is_some();
        let is_known = !matches!(reply, Reply::Unknown(_));
        // Only a reply to a request or a clean-up ends the flapping. A master that hangs up at
        // every clean-up has replied to the kill of its last connection each time.
        if is_known && !is_useless && sent.purpose.is_of_a_claim() {
            self.dialer.failures = 0;
        }
        if is_known && sent.runs_script {
            open.reloaded = false;
        }
        if open.stalled {
            // The master slept. Its connection is good, so the second one is not needed. If the
            // master is slow, a second one would make it slower.
            open.stalled = false;
            self.slow = (self.slow + 1).min(MAX_SLOW);
            if !is_useless {
                cx.out.extend(self.dialer.end().map(LinkEffect::Close));
            }
        }
        let garbage = reply == Reply::Unknown(Cause::Garbage);
        let mut broken = garbage.then_some("a reply that is not Redis's");
        let no_script = reply == Reply::Unknown(Cause::NoScript);
        let alive = reply == Reply::Alive;
        let mut refused_to_leave = false;
        match sent.purpose {
            Purpose::Claim(_) | Purpose::Enqueue | Purpose::Ask => {
                if let Some(guard) = &mut self.restart_guard {
                    let cause = clock.as_ref().and_then(|(_, cause)| cause.clone());
                    reply = guard.vote(cx.now, reply, cause);
                }
            }
            Purpose::Watch => {
                self.restart_guard.iter_mut().for_each(|guard| guard.looked(cx.now, &reply));
            }
            Purpose::Initialize(marker) => {
                let guard = self.restart_guard.as_mut().filter(|_| reply == Reply::Initialized);
                guard.into_iter().for_each(|guard| guard.trust(marker.clone()));
            }
            Purpose::Leave(waiter) => {
                self.queue_ledger.answered(cx.now, waiter, is_known);
                refused_to_leave = !is_known;
            }
            Purpose::CleanUp(token, leave) => {
                // For a key of another type the script ends before the waiter leaves.
                let done = is_known && reply != Reply::Taken(Holder::WrongType);
                if let Some(waiter) = leave {
                    self.queue_ledger.answered(cx.now, waiter, done);
                    refused_to_leave = !done;
                }
                if let Reply::Freed { waiters, denied } = reply {
                    reply = Reply::Deleted;
                    if denied {
                        // Without the queue, no waiter can be in it.
                        let denial = if waiters == 0 { Denial::Queue } else { Denial::Message };
                        open.denial = open.denial.max(Some(denial));
                    }
                    let key = self.ledger.notifying(token).cloned();
                    let event = QueueEvent::Waiters(waiters);
                    cx.out.extend(key.map(|key| LinkEffect::QueueEvent(key, event)));
                }
                let (reloaded, pause) = (open.reloaded, self.bounds.retry_max);
                let next = self.ledger.answered(cx.now, token, &reply, reloaded, pause);
                self.write_all(next, cx);
            }
            Purpose::Subscribe if garbage => self.inbox.broke(cx.now),
            Purpose::Subscribe => self.inbox.answered(cx.now, &reply, &self.bounds, cx.out),
            // The old connection is dead, or the master forbids the kill.
            Purpose::Kill(id) if alive => self.to_kill.retain(|(_, of)| *of != id),
            // A clean-up behind the kill may have run too early: send it again on another
            // connection.
            Purpose::Kill(_) => broken = broken.or(Some("an older connection could not be killed")),
            Purpose::Load if alive => {
                if open.loaded() {
                    // Some masters load scripts and then do not have them, for example a proxy with
                    // several servers behind it. Without this pause the link would ask again and
                    // again.
                    if core::mem::replace(&mut open.reloaded, true) {
                        self.ledger.retry_after(cx.now, self.bounds.retry_max);
                    } else {
                        let leaves = self.queue_ledger.start_all();
                        self.write_all(leaves, cx);
                        let pending = self.ledger.start_all();
                        self.write_all(pending, cx);
                    }
                }
            }
            Purpose::Load => broken = Some("the scripts could not be loaded"),
        }
        if refused_to_leave && !no_script {
            self.ledger.retry_after(cx.now, self.bounds.retry_max);
        }
        if let Some(tag) = sent.tag {
            if let Some((reading, _)) = clock {
                // The reading matters whatever the reply is: the claim compares other clocks with
                // it.
                reply = Reply::Timed { reading, reply: Box::new(reply) };
            }
            cx.out.push(LinkEffect::Reply(tag, reply));
        }
        if let Some(open) = self.open.as_mut().filter(|_| no_script) {
            open.load_scripts(self.restart_guard.is_some(), cx);
        }
        if let Some(why) = broken {
            self.give_up(why, cx);
        } else if is_useless {
            self.try_beside(cx);
        }
        self.subscribe(cx);
    }

    /// Dials beside the open connection, unless an attempt is under way or planned.
    fn try_beside(&mut self, cx: &mut Context<'_, T>) {
        let dial = self.dialer.try_beside(&self.bounds, cx.now);
        cx.out.extend(dial.map(LinkEffect::Dial));
    }

    fn wake(&mut self, cx: &mut Context<'_, T>) {
        let stall = self.stall();
        let stalls = self.open.as_ref().and_then(|open| open.stalls(stall));
        let stalled = stalls.is_some_and(|time| cx.now >= time);
        self.open.iter_mut().for_each(|open| open.stalled |= stalled);
        cx.out.extend(self.dialer.wake(cx.now, stalled).map(LinkEffect::Dial));
        let ripe = self.ledger.ripen(cx.now);
        if self.open.is_some() {
            let leaves = self.ledger.tries_again(cx.now).then(|| self.queue_ledger.start_all());
            self.write_all(leaves.into_iter().flatten(), cx);
            let due = self.ledger.due(cx.now, ripe);
            self.write_all(due, cx);
        }
        self.watch(cx);
        self.subscribe(cx);
        if self.idle_from().is_some_and(|time| cx.now >= time) {
            self.write(Command::Probe, None, cx);
        }
    }

    /// When the open connection is to be probed, if no other command is written before.
    fn idle_from(&self) -> Option<Time> {
        let idle = self.bounds.idle;
        self.open.as_ref().filter(|_| !self.shut_down)?.is_idle_from(idle)
    }

    /// When to call [`Link::handle`] with [`LinkInput::Wake`] next.
    pub fn next_wake(&self) -> Time {
        let dial = self.dialer.next();
        let Some(open) = &self.open else { return dial.unwrap_or(Time::NEVER) };
        let look = self.restart_guard.as_ref().and_then(RestartGuard::next_look);
        let look = look.filter(|_| !self.shut_down && !open.stalled);
        // Where the link refuses requests, the next reply makes it go on.
        let step = self.inbox.next().filter(|_| self.refusal(None).is_none());
        let stalls = open.stalls(self.stall());
        let others = [self.ledger.next(), stalls, look, step, self.idle_from()];
        let earliest = |first: Time, other: Option<Time>| first.min(other.unwrap_or(Time::NEVER));
        others.into_iter().fold(dial.unwrap_or(Time::NEVER), earliest)
    }

    /// How long commands may stay unanswered, with nothing received, before the connection counts
    /// as stalled. It doubles each time that a stalled connection turns out to be good.
    fn stall(&self) -> Duration {
        doubled(self.bounds.stall, self.slow)
    }

    /// What the oldest unanswered command expects, by which its reply is decoded, and when it was
    /// written.
    pub fn oldest(&self) -> Option<(Expect, Time)> {
        let sent = self.open.as_ref()?.unanswered.front()?;
        Some((sent.expect, sent.at))
    }

    /// Whether the link would take a connection with this number if it were greeted now.
    pub fn awaits(&self, epoch: u64) -> bool {
        self.dialer.awaits(epoch)
    }

    /// The number of the connection that the link writes to.
    pub fn epoch(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.epoch)
    }

    /// Whether the link can collect votes.
    pub fn state(&self) -> LinkState {
        match &self.open {
            Some(open) if open.stalled => LinkState::Stalled,
            Some(open) => match open.refusals.useless() {
                Some(why) => LinkState::Refusing(why.clone()),
                None => LinkState::Up,
            },
            None => LinkState::Down(self.down.clone()),
        }
    }

    /// Whether the master replies to commands, whatever the replies.
    pub fn is_answering(&self) -> bool {
        self.open.as_ref().is_some_and(|open| !open.stalled)
    }

    /// Why this master's grants do not count although it is connected; `None` if they count.
    pub fn distrust(&self, now: Time) -> Option<Cause> {
        self.marker(now).filter(|_| self.open.is_some())?.err()
    }

    /// What the marker says that the master shows: whether its grants count, or why not; `None`
    /// without a guard, and without a connection. Clocks do not matter here.
    pub(crate) fn shown(&self) -> Option<Result<(), &Distrust>> {
        Some(self.restart_guard.as_ref().filter(|_| self.open.is_some())?.shown())
    }

    /// Whether the link watches a distrusted master.
    pub(crate) fn is_watching(&self) -> bool {
        matches!(self.shown(), Some(Err(_)))
    }

    /// Whether the link may mark its master at the end of a quarantine. It may unless its client
    /// says otherwise.
    pub(crate) fn permit_marking(&mut self, permitted: bool) {
        self.restart_guard.iter_mut().for_each(|guard| guard.permit_marking(permitted));
    }

    /// Counts the keys whose clean-up is pending: they must go, and the master has not yet
    /// confirmed it.
    pub fn pending_cleanups(&self) -> usize {
        self.ledger.pending_cleanups()
    }

    /// Counts the pending clean-ups, without the keys that have expired by themselves on a master
    /// that does not answer: it is down, or leaves its commands unanswered. Such a master may never
    /// confirm a clean-up.
    pub fn pending_still(&self, now: Time) -> usize {
        if self.state() == LinkState::Up {
            self.ledger.pending_cleanups()
        } else {
            self.ledger.pending_and_alive(now)
        }
    }

    /// Whether a clean-up is pending for a key that has not expired by itself, if the master
    /// executed its commands at once.
    pub fn is_cleaning_up(&self, now: Time) -> bool {
        self.ledger.is_any_pending_alive(now)
    }

    /// Counts the keys that may be there and are still wanted.
    pub fn claimed(&self) -> usize {
        self.ledger.claimed()
    }

    /// Counts the waiters that the master is to wake.
    pub fn subscriptions(&self) -> usize {
        self.inbox.len()
    }

    /// Counts the positions that the master may keep although their waiters have left.
    pub fn pending_leaves(&self) -> usize {
        self.queue_ledger.pending()
    }

    /// Counts the commands without a reply on the current connection.
    pub fn unanswered(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.unanswered.len())
    }

    /// Whether the first attempt to connect is still under way.
    pub const fn is_first_dial(&self) -> bool {
        self.dialer.awaits(1) && !self.shut_down
    }
}
