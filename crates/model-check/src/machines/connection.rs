//! Connection: a client's link to one master, and the connections between the two.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::{Command, Greeting};
use redquorum_protocol::{
    Bounds, Cause, Key, Link, LinkEffect, LinkInput, Position, QueueEvent, Reply, RoundId, RunId,
    Time, Token, VoteRequest, WaiterId, WakeUp,
};

use super::master::{MasterReply, Request};
use redquorum_scenario::Mutant;

/// The tag that a link returns with a reply: the number of the claim, the round, and the token.
type Tag = (u8, RoundId);

/// The fixed time of all links. It is so late that no earlier instant is cut off at zero.
const NOW: Time = Time::from_millis(1_000_000);
/// Later than the retry timers, so that these fire alone.
const STALL: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_millis(50);

/// The inbox of each client. Masters distinguish clients by their connections.
const INBOX: u64 = 1;
/// The waiter id of each client: it waits in one claim only.
const WAITER_ID: WaiterId = WaiterId::new(0);

const fn waiter_id(shared: bool) -> WaiterId {
    if shared { WAITER_ID.shared() } else { WAITER_ID }
}

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Connection {
    /// None after its process died.
    pub(super) link: Option<Link<Tag>>,
    /// The connection that is being opened.
    pub(super) dialling: Option<u64>,
    /// The connections that the master knows, the oldest first.
    pub(super) wires: Vec<Wire>,
    /// Tokens for which a `SET` was written, one bit each.
    pub(super) set: u8,
    /// The first token for which a second `SET` was written.
    pub(super) twice: Option<u8>,
    /// Whether its client asks for shared leases.
    shared: bool,
    /// The mutation of the driver.
    mutant: Mutant,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wire {
    /// Its number, which is also its client id on the master.
    pub(super) epoch: u64,
    /// Whether the client still has it. If not, the master may still execute what the client wrote.
    pub(super) open: bool,
    /// Commands written, not executed.
    pub(super) requests: VecDeque<Request>,
    /// Replies and push messages that are not read.
    pub(super) replies: VecDeque<MasterReply>,
    /// Whether it is subscribed to the client's inbox.
    pub(super) subscribed: bool,
}

/// The notifications for claims.
pub(super) type Notifications = Vec<Notification>;

/// A notification for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notification {
    Reply(Tag, Reply),
    QueueEvent(QueueEvent),
}

/// The contents of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entries {
    /// Tokens that are wanted, one bit each.
    pub(super) claimed: u8,
    /// Tokens whose clean-up is pending, one bit each.
    pub(super) pending: u8,
    /// The number of entries by the ledger's own count.
    pub(super) count: usize,
}

/// The entry of a token in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// No clean-up is pending for it.
    None,
    /// It is wanted; its clean-up will be pending.
    Claimed,
    /// Its clean-up is pending.
    Pending,
}

pub(super) fn token(number: u8, shared: bool) -> Token {
    let token = Token::new([number; redquorum_protocol::TOKEN_LEN]);
    if shared { token.shared() } else { token }
}

pub(super) fn number(token: Token) -> u8 {
    token.as_bytes()[0]
}

pub(super) fn key() -> Key {
    thread_local!(static KEY: Key = Arc::from(&b"r"[..]));
    KEY.with(Arc::clone)
}

fn run_id() -> RunId {
    thread_local!(static RUN: RunId = RunId(Arc::from("m")));
    RUN.with(RunId::clone)
}

impl Wire {
    /// The client drops the connection.
    fn leave(&mut self) {
        (self.open, self.subscribed) = (false, false);
        self.replies.clear();
    }
}

impl Connection {
    /// A connection that is up, subscribed or not, before any other request.
    pub(super) fn connected(subscribed: bool, shared: bool, mutant: Mutant) -> Self {
        let bounds = Bounds {
            stall: STALL,
            retry_min: RETRY,
            retry_max: RETRY,
            // Longer than any schedule.
            idle: Duration::MAX,
            ..Bounds::for_node_timeout(RETRY)
        };
        let mut out = Vec::new();
        let link = Link::start(bounds, &mut out).woken_at(INBOX);
        let mut side = Self {
            link: Some(link),
            dialling: None,
            wires: Vec::new(),
            set: 0,
            twice: None,
            shared,
            mutant: Mutant::None,
        };
        side.carry_out(out, 0);
        side.connect();
        if subscribed {
            side.subscribe(waiter_id(shared));
            while side.is_pending() {
                side.reply(0, MasterReply::Alive);
                side.read_reply(Duration::ZERO);
            }
            side.unsubscribe();
        }
        Self { mutant, ..side }
    }

    /// Passes the link an input. `round` is the round of extending that a request belongs to, or 1
    /// for a look at a position.
    pub(super) fn input(&mut self, input: LinkInput<Tag>, round: u8) -> Notifications {
        self.handle(NOW, input, round)
    }

    /// Registers the waiter of a claim.
    pub(super) fn subscribe(&mut self, waiter_id: WaiterId) -> Notifications {
        self.handle(NOW, LinkInput::Subscribe { key: key(), waiter_id }, 0)
    }

    /// Removes the waiter.
    pub(super) fn unsubscribe(&mut self) {
        self.handle(NOW, LinkInput::Unsubscribe(waiter_id(self.shared)), 0);
    }

    fn handle(&mut self, now: Time, input: LinkInput<Tag>, round: u8) -> Notifications {
        let Some(link) = &mut self.link else { return Vec::new() };
        let mut out = Vec::new();
        link.handle(now, input, &mut out);
        self.carry_out(out, round)
    }

    fn carry_out(&mut self, effects: Vec<LinkEffect<Tag>>, round: u8) -> Notifications {
        let mut notifications = Notifications::new();
        for effect in effects {
            match effect {
                LinkEffect::Write(command) => self.write(&command, round),
                LinkEffect::Dial(epoch) => self.dialling = Some(epoch),
                LinkEffect::Close(epoch) => {
                    self.dialling = self.dialling.filter(|other| *other != epoch);
                    self.close(epoch);
                }
                LinkEffect::Reply(tag, reply) => {
                    notifications.push(Notification::Reply(tag, reply));
                }
                LinkEffect::QueueEvent(_, event) => {
                    notifications.push(Notification::QueueEvent(event));
                }
                other => unreachable!("an effect that this driver does not know: {other:?}"),
            }
        }
        notifications
    }

    fn write(&mut self, command: &Command, round: u8) {
        let epoch = self.link.as_ref().and_then(Link::epoch);
        let request = match command {
            Command::Set { token, fair, .. } => {
                assert!(!fair || self.shared, "no claim is fair");
                self.note_set(number(*token));
                Request::Set { token: number(*token), behind: *fair }
            }
            Command::Keep { token, repair, .. } => {
                Request::Keep { token: number(*token), round, repair: *repair }
            }
            Command::Delete { token, wake_up, leave, .. } => {
                let leave = leave.map(|waiter| waiter.inbox == INBOX);
                Request::Delete(number(*token), *wake_up, leave)
            }
            Command::Enqueue { waiter, position, .. } => {
                assert_eq!(
                    (waiter.waiter_id, *position),
                    (waiter_id(self.shared), Position::Any),
                    "no claim is fair"
                );
                Request::Enqueue { inbox: waiter.inbox == INBOX, again: round > 0 }
            }
            Command::Dequeue { waiter, wake, .. } => {
                Request::Dequeue { inbox: waiter.inbox == INBOX, wake: *wake }
            }
            Command::Hello => Request::Hello,
            Command::Subscribe { .. } => Request::Subscribe,
            Command::Kill { .. } if self.mutant == Mutant::KillsNone => Request::Ping,
            Command::Kill { client_id } => Request::Kill(*client_id),
            Command::Load(script) => Request::Load(*script),
            Command::Probe => Request::Ping,
            other => unreachable!("no claim or link of this model sends it: {other:?}"),
        };
        let Some(wire) = self.wires.iter_mut().find(|wire| Some(wire.epoch) == epoch) else {
            return;
        };
        if self.mutant == Mutant::CleansUpFirst && matches!(request, Request::Delete(..)) {
            wire.requests.push_front(request);
        } else {
            wire.requests.push_back(request);
        }
    }

    const fn note_set(&mut self, token: u8) {
        if self.set & (1 << token) != 0 && self.twice.is_none() {
            self.twice = Some(token);
        }
        self.set |= 1 << token;
    }

    /// The client drops a connection. The master may still execute what it wrote, but the client
    /// does not read the replies.
    fn close(&mut self, epoch: u64) {
        if let Some(wire) = self.wires.iter_mut().find(|wire| wire.epoch == epoch) {
            wire.leave();
        }
        self.forget();
    }

    /// Removes a connection that neither end uses and that holds no data.
    fn forget(&mut self) {
        self.wires.retain(|wire| wire.open || !wire.requests.is_empty());
    }

    /// The handshake of the new connection succeeds.
    pub(super) fn connect(&mut self) -> Notifications {
        let Some(epoch) = self.dialling.take() else { return Vec::new() };
        let unread = self.unread_sets();
        let (requests, replies) = (VecDeque::new(), VecDeque::new());
        self.wires.push(Wire { epoch, open: true, requests, replies, subscribed: false });
        let (client_id, run_id) = (Some(epoch), Some(run_id()));
        let greeting = Greeting { client_id, run_id, ..Greeting::default() };
        let input = LinkInput::Connected { epoch, greeting };
        let notifications = self.handle(NOW, input, 0);
        if self.mutant == Mutant::SendsAgain
            && let Some(wire) = self.wires.iter_mut().find(|wire| wire.epoch == epoch)
        {
            wire.requests.extend(unread.iter().map(|token| Request::Again(*token)));
            unread.into_iter().for_each(|token| self.note_set(token));
        }
        notifications
    }

    fn unread_sets(&self) -> Vec<u8> {
        let requests = self.wires.iter().flat_map(|wire| &wire.requests);
        let of = |request: &Request| match request {
            Request::Set { token, .. } => Some(*token),
            _ => None,
        };
        requests.filter_map(of).collect()
    }

    /// The attempt to connect fails.
    pub(super) fn fail_to_connect(&mut self) -> Notifications {
        let Some(epoch) = self.dialling.take() else { return Vec::new() };
        self.closed(epoch)
    }

    /// The client's connection breaks.
    pub(super) fn cut(&mut self) -> Notifications {
        let Some(wire) = self.wires.iter().find(|wire| wire.open) else { return Vec::new() };
        let (epoch, mut notifications) = (wire.epoch, Vec::new());
        if self.mutant == Mutant::AssumesCleanUps {
            notifications = self.assume_clean_ups(wire.clone());
        }
        self.close(epoch);
        notifications.extend(self.closed(epoch));
        notifications
    }

    fn closed(&mut self, epoch: u64) -> Notifications {
        self.handle(NOW, LinkInput::Closed { epoch, why: "cut".into(), random: 0 }, 0)
    }

    /// If a connection breaks between two clean-ups, the second also counts as complete.
    fn assume_clean_ups(&mut self, wire: Wire) -> Notifications {
        let epoch = wire.epoch;
        let unread = wire.replies.iter().filter_map(|reply| reply.reply(Duration::ZERO));
        let silent = wire.requests.iter().map(|request| match request {
            Request::Delete(..) => Reply::Absent,
            Request::Kill(_) | Request::Load(_) | Request::Ping => Reply::Alive,
            _ => Reply::Unknown(Cause::Silent),
        });
        let replies = unread.chain(silent).map(|reply| LinkInput::Replied { epoch, reply });
        replies.flat_map(|input| self.handle(NOW, input, 0)).collect()
    }

    /// The next wake-up to be read is lost.
    pub(super) fn miss(&mut self) {
        if let Some(wire) = self.wires.iter_mut().find(|wire| wire.open) {
            wire.replies.pop_front();
        }
    }

    /// The client reads the next reply.
    pub(super) fn read_reply(&mut self, left: Duration) -> Notifications {
        if self.mutant == Mutant::NeverReads {
            return Vec::new();
        }
        let Some(wire) = self.wires.iter_mut().find(|wire| wire.open) else { return Vec::new() };
        let Some(reply) = wire.replies.pop_front() else { return Vec::new() };
        let epoch = wire.epoch;
        let input = match reply.reply(left) {
            Some(reply) => LinkInput::Replied { epoch, reply },
            None => LinkInput::Woken { epoch, waiter_id: waiter_id(self.shared) },
        };
        self.handle(NOW, input, 0)
    }

    /// The due time of its next timer, and whether that timer treats the connection as stalled.
    pub(super) fn timer(&self) -> Option<(Time, bool)> {
        let due = self.link.as_ref()?.next_wake();
        (due != Time::NEVER).then_some((due, due >= NOW.plus(STALL)))
    }

    /// Its next timer fires.
    pub(super) fn wake(&mut self) -> Notifications {
        let Some((due, _)) = self.timer() else { return Vec::new() };
        self.handle(due, LinkInput::Wake, 0)
    }

    /// The master removes the next command of a connection from its buffer, and replies to it.
    pub(super) fn reply(&mut self, wire: usize, reply: MasterReply) {
        let Some(request) = self.wires[wire].requests.pop_front() else { return };
        let reply = match (request, reply) {
            (Request::Kill(_), MasterReply::Error) => MasterReply::NotKilled,
            (_, reply) => reply,
        };
        if self.wires[wire].open && !matches!(request, Request::Again(_)) {
            self.wires[wire].replies.push_back(reply);
        }
        if request == Request::Subscribe && reply == MasterReply::Alive {
            self.wires[wire].subscribed = self.wires[wire].open;
        }
        if let Request::Kill(id) = request
            && reply == MasterReply::Alive
        {
            // With all commands that were not executed.
            self.wires.retain(|other| other.epoch != id);
        }
        self.forget();
    }

    /// The master wakes the client's waiter.
    pub(super) fn freed(&mut self) {
        for wire in self.wires.iter_mut().filter(|wire| wire.subscribed) {
            wire.replies.push_back(MasterReply::Freed);
        }
    }

    /// Whether any message is under way between the client and the master.
    pub(super) fn is_pending(&self) -> bool {
        let busy = |wire: &Wire| !wire.requests.is_empty() || !wire.replies.is_empty();
        self.dialling.is_some() || self.wires.iter().any(busy)
    }

    /// Whether a wake-up was sent that is not read.
    pub(super) fn has_wake_up(&self) -> bool {
        self.wires.iter().any(|wire| wire.replies.contains(&MasterReply::Freed))
    }

    /// Whether the client has a connection with no message under way.
    pub(super) fn is_quiet(&self) -> bool {
        let quiet = |wire: &Wire| wire.requests.is_empty() && wire.replies.is_empty();
        self.dialling.is_none()
            && self.wires.iter().any(|wire| wire.open)
            && self.wires.iter().all(quiet)
    }

    /// The tokens of the clean-ups that wake a waiter, among the commands that are written and not
    /// executed.
    pub(super) fn calls(&self) -> impl Iterator<Item = u8> {
        let requests = self.wires.iter().flat_map(|wire| &wire.requests);
        requests.filter_map(|request| match request {
            Request::Delete(token, WakeUp::First, _) => Some(*token),
            _ => None,
        })
    }

    /// Whether a message to the client's inbox reaches a connection.
    pub(super) fn is_called(&self) -> bool {
        self.wires.iter().any(|wire| wire.subscribed)
    }

    /// The data that was written to a connection that is gone is lost.
    pub(super) fn lose(&mut self, wire: usize) {
        self.wires[wire].requests.clear();
        self.forget();
    }

    /// The client's process dies.
    pub(super) fn die(&mut self) {
        (self.link, self.dialling) = (None, None);
        self.wires.iter_mut().for_each(Wire::leave);
        self.forget();
    }

    /// Whether a key with this token may still be created.
    pub(super) fn may_create(&self, token: u8) -> bool {
        let mut requests = self.wires.iter().flat_map(|wire| &wire.requests);
        requests.any(|request| request.creates() == Some(token))
    }

    /// The contents of the ledger, for this many tokens.
    pub(super) fn entries(&self, tokens: u8) -> Entries {
        let count = self.link.as_ref().map_or(0, |link| link.pending_cleanups() + link.claimed());
        let mut entries = Entries { claimed: 0, pending: 0, count };
        for token in (1..=tokens).filter(|_| count > 0) {
            match self.entry(token) {
                Entry::None => {}
                Entry::Claimed => entries.claimed |= 1 << token,
                Entry::Pending => entries.pending |= 1 << token,
            }
        }
        entries
    }

    /// The ledger's entry for a token. The method asks a copy of the link, because only the link
    /// can read its ledger.
    pub(super) fn entry(&self, of: u8) -> Entry {
        let Some(link) = &self.link else { return Entry::None };
        let reports = |input| {
            let mut copy = link.clone();
            let mut out = Vec::new();
            copy.handle(NOW, LinkInput::ShutDown, &mut out);
            copy.handle(NOW, input, &mut out);
            out.pop()
        };
        let (token, tag) = (token(of, self.shared), (0, RoundId::Release));
        // For a token that it does not know, the link reports completion without a request.
        let wake_up = WakeUp::None;
        let clean_up = LinkInput::CleanUp { key: key(), token, wake_up, leave: None, tag };
        if reports(clean_up) == Some(LinkEffect::Reply(tag, Reply::Unknown(Cause::ShutDown))) {
            return Entry::None;
        }
        // The link sends nothing for a token that was given up.
        let request = VoteRequest::Keep { token, ttl_ms: 1, repair: false, fence: None };
        let send = LinkInput::Send { key: key(), request, tag };
        if reports(send) == Some(LinkEffect::Reply(tag, Reply::Unknown(Cause::GivenUp))) {
            Entry::Pending
        } else {
            Entry::Claimed
        }
    }
}
