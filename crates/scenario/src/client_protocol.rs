//! The client protocol between the harness and a client process. Each message is one JSON object on
//! a line of the client's standard input or output. A driver for any other lock implements the same
//! protocol: see `docs/scenarios.md`.
//!
//! All stamps are nanoseconds of `CLOCK_MONOTONIC`, which the processes of one machine share.

use crate::named;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use redquorum_protocol::{BadOption, Fingerprint, MastersId, Quorum};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::name::Name;
use crate::units::millis;
use crate::words::{LeaseEffect, Step};
use crate::{Length, Scenario, is_default, is_true, quorum_of};

/// The environment variable with the addresses of the masters, separated by commas:
/// `redis://127.0.0.1:20001,…`. The addresses are those of the proxies.
pub const NODES_VARIABLE: &str = "REDQUORUM_NODES";
/// The environment variable with the [`Options`] as JSON.
pub const OPTIONS_VARIABLE: &str = "REDQUORUM_OPTIONS";
/// The version of the protocol.
pub const PROTOCOL: u32 = 1;
/// The longest line that a client may send, in bytes.
pub const LONGEST_LINE: usize = 1024 * 1024;

/// How long masters keep fencing counters for the clients of the harness: the library's default.
pub const FENCING_COUNTER_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The options of the lock, which every client receives.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// How long a master keeps a key, unless a request gives another TTL.
    pub ttl_ms: u64,
    /// How long a round waits for a master.
    pub node_timeout_ms: u64,
    /// The proportional drift allowance, in millionths of the TTL.
    pub drift_ppm: u32,
    /// The fixed part of the drift allowance.
    pub drift_ms: u64,
    /// Whether leases must carry a fencing token.
    pub fencing: bool,
    /// Distrust masters that may have forgotten leases of up to this TTL. If absent, trust them.
    pub restart_guard_ms: Option<u64>,
    /// With `restart_guard_ms`: also distrust masters whose clocks may have gained more than this,
    /// and deduct it from every lease. If absent, trust clocks.
    pub clock_guard_ms: Option<u64>,
    /// How much longer masters keep a key than a lease lives. If it is not 0, the client must list
    /// `lock_delay` among its features.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lock_delay_ms: u64,
    /// Whether the client may ask masters to notify waiters when a resource becomes free.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub wake_ups: bool,
    /// Whether waiting processes get the resource in the order in which they asked. Needs `fair`
    /// among the features of the client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fair: bool,
    /// The name of the holder, for the leases of this process. A client may ignore it.
    pub name: Option<String>,
    /// The name of the set of masters, given with a guard. The client cannot use the addresses for
    /// this: they are its own proxies.
    pub masters_id: Option<String>,
    /// The lock moves from one set of masters to another: the client needs `moves` among its
    /// features.
    pub moving: Option<Moving>,
}

/// The two sets of masters of a lock that moves: each lease needs a quorum of each.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    /// How many of the addresses, from the first on, are of the masters that it leaves.
    pub from: usize,
    /// The places of the addresses, counted from 1, of the masters that it moves to.
    pub to: Vec<usize>,
    /// The name of the set that it moves to, if the set that it leaves has one.
    pub masters_id: Option<String>,
}

impl Options {
    /// The masters behind so many addresses, and which of them are a quorum.
    pub fn quorum(&self, addresses: usize) -> Quorum {
        let moving = self.moving.as_ref();
        quorum_of(addresses, moving.map(|moving| (moving.from, moving.to.clone())))
    }

    /// The masters as markers name them, if the options name them.
    pub fn masters(&self) -> Option<MastersId> {
        let from = Fingerprint::of_name(self.masters_id.as_ref()?);
        let to = self.moving.as_ref().and_then(|moving| moving.masters_id.as_ref());
        Some(match to {
            Some(to) => MastersId::Moving { from, to: Fingerprint::of_name(to) },
            None => MastersId::Of(from),
        })
    }
}

const fn yes() -> bool {
    true
}

/// A request of the harness to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The number of the request. The reply carries the same number.
    pub id: u64,
    /// The client in the process that must execute the request. A client has at most one lease of a
    /// resource at a time. Each re-entry adds a handle to that lease.
    pub client: Name,
    /// The operation.
    #[serde(flatten)]
    pub op: Op,
}

/// An operation that a client must execute.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// Acquire the resource. Wait at most `wait_ms` while it is taken; 0 means one attempt.
    Acquire {
        /// The resource.
        resource: Name,
        /// How long the masters must keep the key. 0 is allowed only with `again`: the TTL is that
        /// of the [`Options`], and a lease that is held keeps its deadline.
        ttl_ms: u64,
        /// How long to wait.
        wait_ms: u64,
        /// Acquire as the owner of the lease that the client has for this resource: if the lease is
        /// still held, add another handle to it. Needs `reenter` among the features of the client.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
        /// Acquire a shared lease: other clients may have shared ones at the same time, and none an
        /// exclusive one. Needs `shared` among the features of the client.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        shared: bool,
    },
    /// Acquire all of these resources, or none. Wait at most `wait_ms` while one is taken; 0 means
    /// one attempt. The reply describes each lease in [`ClientReply::each`].
    AcquireAll {
        /// The resources.
        resources: Vec<Name>,
        /// How long the masters must keep the keys.
        ttl_ms: u64,
        /// How long to wait.
        wait_ms: u64,
        /// Acquire shared leases. Needs `shared` among the features of the client.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        shared: bool,
    },
    /// Acquire one of these resources. Wait at most `wait_ms` while all are taken; 0 means to look
    /// once. The reply says which it is: [`ClientReply::resource`].
    AcquireAny {
        /// The resources, one or more.
        resources: Vec<Name>,
        /// How long the masters must keep the key.
        ttl_ms: u64,
        /// How long to wait.
        wait_ms: u64,
        /// Acquire a shared lease. Needs `shared` among the features of the client.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        shared: bool,
    },
    /// Extend the lease.
    Extend {
        /// The resource of the lease.
        resource: Name,
        /// How long the masters must keep the key from now on.
        ttl_ms: u64,
    },
    /// Keep extending the lease in the background.
    KeepAlive {
        /// The resource of the lease.
        resource: Name,
        /// The longest time for which to keep the lease.
        max_ms: u64,
    },
    /// Release the lease.
    Release {
        /// The resource of the lease.
        resource: Name,
    },
    /// Release the leases of all of these resources. If one was no longer held, the reply is not
    /// `ok`.
    ReleaseAll {
        /// The resources.
        resources: Vec<Name>,
    },
    /// Cancel a request in progress. The reply to that request is `cancelled`. Needs `cancel`
    /// among the features of the client.
    Cancel {
        /// The number of the request to cancel.
        request: u64,
    },
    /// A step of the critical section, which the harness executes when the reply arrives. Reply at
    /// once. With a `check`, reply `lost` if the lease of that resource is not held.
    Step {
        /// The readable name of the step: `write R`.
        name: Name,
        /// The resource of the lease to check first, if any.
        check: Option<Name>,
    },
}

impl Op {
    /// The name of the operation on the wire.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Acquire { .. } => "acquire",
            Self::AcquireAll { .. } => "acquire_all",
            Self::AcquireAny { .. } => "acquire_any",
            Self::Extend { .. } => "extend",
            Self::KeepAlive { .. } => "keep_alive",
            Self::Release { .. } => "release",
            Self::ReleaseAll { .. } => "release_all",
            Self::Cancel { .. } => "cancel",
            Self::Step { .. } => "step",
        }
    }

    /// The resources of the leases that the operation is about, in the order of the request. For a
    /// step, the resource whose lease the client checks.
    pub fn resources(&self) -> &[Name] {
        match self {
            Self::Acquire { resource, .. }
            | Self::Extend { resource, .. }
            | Self::KeepAlive { resource, .. }
            | Self::Release { resource } => std::slice::from_ref(resource),
            Self::AcquireAll { resources, .. }
            | Self::AcquireAny { resources, .. }
            | Self::ReleaseAll { resources } => resources,
            Self::Step { check, .. } => check.as_slice(),
            Self::Cancel { .. } => &[],
        }
    }

    /// The TTL that the operation names.
    pub const fn ttl_ms(&self) -> Option<u64> {
        match self {
            Self::Acquire { ttl_ms: 0, .. } => None,
            Self::Acquire { ttl_ms, .. }
            | Self::AcquireAll { ttl_ms, .. }
            | Self::AcquireAny { ttl_ms, .. }
            | Self::Extend { ttl_ms, .. } => Some(*ttl_ms),
            Self::KeepAlive { .. }
            | Self::Release { .. }
            | Self::ReleaseAll { .. }
            | Self::Cancel { .. }
            | Self::Step { .. } => None,
        }
    }

    /// How long the client may wait for a resource that is taken.
    pub const fn wait_ms(&self) -> u64 {
        match self {
            Self::Acquire { wait_ms, .. }
            | Self::AcquireAll { wait_ms, .. }
            | Self::AcquireAny { wait_ms, .. } => *wait_ms,
            Self::Extend { .. }
            | Self::KeepAlive { .. }
            | Self::Release { .. }
            | Self::ReleaseAll { .. }
            | Self::Cancel { .. }
            | Self::Step { .. } => 0,
        }
    }

    /// Whether the client asks as the owner of a lease that it has: a re-entry.
    pub const fn is_again(&self) -> bool {
        matches!(self, Self::Acquire { again: true, .. })
    }

    /// Whether the client asks for shared leases.
    pub const fn is_shared(&self) -> bool {
        matches!(
            self,
            Self::Acquire { shared: true, .. }
                | Self::AcquireAll { shared: true, .. }
                | Self::AcquireAny { shared: true, .. }
        )
    }

    /// Whether the operation acquires one of its resources, and not all.
    pub const fn is_any(&self) -> bool {
        matches!(self, Self::AcquireAny { .. })
    }

    /// The position of the resource that a reply to an operation [on any of them](Self::is_any) is
    /// about: the granted one. Without one it is the first.
    pub fn chosen(&self, reply: &ClientReply) -> usize {
        let all = self.resources().iter();
        let chosen =
            reply.resource.as_ref().and_then(|chosen| all.clone().position(|it| it == chosen));
        chosen.unwrap_or(0)
    }

    /// What the operation does to the leases of its resources.
    pub const fn effect(&self) -> LeaseEffect {
        match self {
            Self::Acquire { .. } | Self::AcquireAll { .. } | Self::AcquireAny { .. } => {
                LeaseEffect::Acquires
            }
            Self::Extend { .. } => LeaseEffect::Extends,
            Self::KeepAlive { .. } => LeaseEffect::Keeps,
            Self::Release { .. } | Self::ReleaseAll { .. } => LeaseEffect::Releases,
            Self::Cancel { .. } | Self::Step { .. } => LeaseEffect::None,
        }
    }

    /// Whether the operation acquires one resource or several.
    pub const fn is_acquire(&self) -> bool {
        matches!(self.effect(), LeaseEffect::Acquires)
    }

    /// Whether the operation releases one resource or several.
    pub const fn is_release(&self) -> bool {
        matches!(self.effect(), LeaseEffect::Releases)
    }

    /// The operation that a step of a script asks of its client. Work is none. `usual` is the TTL
    /// of the lock. Only a client that `waits` by itself is asked to wait. `slots` has the slots of
    /// the permits that it has: a step names the lease of one by its semaphore.
    pub fn of_step(
        step: &Step,
        usual: Duration,
        waits: bool,
        slots: &BTreeMap<Name, Name>,
    ) -> Option<Self> {
        let ttl_ms = |ttl: &Option<Length>| millis(ttl.map_or(usual, |ttl| ttl.0));
        let held = |resource: &Name| slots.get(resource).unwrap_or(resource).clone();
        Some(match step {
            Step::Acquire { resource, also, permits, shared, wait, ttl, again, .. } => {
                let wait_ms = if waits { millis(wait.0) } else { 0 };
                // The step names no TTL: 0 keeps the deadline of the lease that the client holds.
                let ttl_ms = if *again && ttl.is_none() { 0 } else { ttl_ms(ttl) };
                let shared = *shared;
                if permits.is_some() {
                    Self::AcquireAny { resources: step.slots(), ttl_ms, wait_ms, shared }
                } else if also.is_empty() {
                    let resource = resource.clone();
                    Self::Acquire { resource, ttl_ms, wait_ms, again: *again, shared }
                } else {
                    let resources = step.acquires().cloned().collect();
                    Self::AcquireAll { resources, ttl_ms, wait_ms, shared }
                }
            }
            Step::Extend { resource, ttl } => {
                Self::Extend { resource: held(resource), ttl_ms: ttl_ms(ttl) }
            }
            Step::Keep { resource, most } => {
                Self::KeepAlive { resource: held(resource), max_ms: millis(most.0) }
            }
            Step::Release { resource, also } if also.is_empty() => {
                Self::Release { resource: held(resource) }
            }
            Step::Release { .. } => {
                Self::ReleaseAll { resources: step.releases().map(held).collect() }
            }
            Step::Touch { held: lease, .. } => {
                Self::Step { name: step.to_string().into(), check: lease.as_ref().map(held) }
            }
            Step::Work(_) => return None,
        })
    }
}

named! {
    /// A feature of a client beyond acquire, release and step. The built-in client and the clients
    /// of the simulation have those of [`Capability::of_this_lock`].
    pub enum Capability {
        /// The client stamps deadlines (`deadline_ns`); otherwise it sends `valid_ms`.
        Deadline = "deadline",
        /// The client extends leases.
        Extend = "extend",
        /// The client returns fencing tokens.
        Fence = "fence",
        /// The client distrusts masters that may have forgotten, if it gets `restart_guard_ms`.
        RestartGuard = "restart_guard",
        /// The client distrusts masters whose clocks have stepped, if it gets `clock_guard_ms`.
        ClockGuard = "clock_guard",
        /// The client's keys outlive its leases by `lock_delay_ms`, unless it releases them.
        LockDelay = "lock_delay",
        /// The client keeps the order of waiters across processes, if it gets `fair`.
        Fair = "fair",
        /// The client waits (`wait_ms`); otherwise the harness repeats the request.
        Wait = "wait",
        /// The client extends leases in the background.
        KeepAlive = "keep_alive",
        /// The client sends `lost` when a lease ends without a release.
        Lost = "lost",
        /// The client lets the owner of a lease acquire it again (`again`), and returns how many
        /// handles are out.
        Reenter = "reenter",
        /// The client acquires several resources at once (`acquire_all`, `release_all`).
        Several = "several",
        /// The client acquires one of several resources (`acquire_any`), and says which
        /// (`resource`).
        Any = "any",
        /// The client acquires shared leases (`shared`).
        Shared = "shared",
        /// The client cancels a request in progress, and gives up what that request may have set.
        Cancel = "cancel",
        /// The client never sets the token of an earlier attempt.
        FreshTokens = "fresh_tokens",
        /// The client moves from one set of masters to another (`moving`).
        Moves = "moves",
        /// The client extends every lease by itself until its release, and cannot do otherwise. Its
        /// leases end at their deadlines only if it sends `extended`.
        Renews = "renews",
    }
}

impl Capability {
    /// What the lock of this repository can do: all but what only other locks need.
    pub fn of_this_lock() -> Vec<Self> {
        Self::ALL.into_iter().filter(|can| *can != Self::Renews).collect()
    }

    /// What a client must be able to do for a step, beyond acquire, release and access.
    pub fn needed_by(step: &Step) -> impl Iterator<Item = Self> {
        let kind = match step {
            Step::Acquire { again: true, .. } => Some(Self::Reenter),
            Step::Acquire { permits: Some(_), .. } => Some(Self::Any),
            Step::Extend { .. } => Some(Self::Extend),
            Step::Keep { .. } => Some(Self::KeepAlive),
            Step::Touch { under: Some(_), .. } => Some(Self::Fence),
            Step::Acquire { .. } | Step::Release { .. } if step.is_of_several() => {
                Some(Self::Several)
            }
            Step::Acquire { .. }
            | Step::Release { .. }
            | Step::Touch { under: None, .. }
            | Step::Work(_) => None,
        };
        let shared = step.is_shared().then_some(Self::Shared);
        kind.into_iter().chain(shared).chain(step.cancel().map(|_| Self::Cancel))
    }
}

named! {
    /// Why a request to a client failed.
    pub enum FailureReason {
        Taken = "taken", "another client holds the resource";
        NoQuorum = "no-quorum", "too few masters answer";
        /// The library does not say which of the other reasons it has.
        Refused = "refused", "the lock refuses";
        Late = "late", "nothing is left of the TTL";
        Lost = "lost", "the lease is no longer held";
        Cancelled = "cancelled", "the request was cancelled";
        Unsupported = "unsupported", "the client does not support it";
        /// Any other reason.
        Error = "error", "an error";
    }
}

/// The reply of a client to a request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientReply {
    /// The number of the request.
    pub id: u64,
    /// Whether the request succeeded.
    pub ok: bool,
    /// Of several resources from which the client could choose, the one that was granted.
    pub resource: Option<Name>,
    /// The lock's value on the masters, as in the commands. Bytes that are not text appear as
    /// `hex:…`. Or its start: some hexadecimal digits, and `…`. Optional: with it, the report can
    /// identify the clients.
    pub token: Option<Name>,
    /// When the client called the library. Optional.
    pub from_ns: Option<i64>,
    /// When the library returned.
    pub at_ns: Option<i64>,
    /// The deadline of the lease.
    pub deadline_ns: Option<i64>,
    /// The remaining validity of the lease when the library returned, for a client without
    /// deadlines.
    pub valid_ms: Option<u64>,
    /// The fencing token.
    pub fence: Option<u64>,
    /// How many handles of the lease are out. After an acquire with `again`: more than 1 if it is
    /// the lease that the client had. After a release: the handles that are left.
    pub handles: Option<u64>,
    /// For several resources: the grant of each one, in the order of the request. A field that is
    /// absent here has the value that the reply gives for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<Each>,
    /// Why the request failed.
    pub why: Option<FailureReason>,
    /// The reason as readable text.
    pub text: Option<String>,
}

impl fmt::Display for ClientReply {
    /// The text of the reply, as a line of the client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(self).map(|text| shown(&text));
        f.write_str(&text.unwrap_or("its answer".to_owned()))
    }
}

/// The lock that a client announces with its [`ready`](Notice::Ready), if it names one:
/// `redis-py Lock 5.2.1`.
pub fn announced(name: Option<String>, version: Option<String>) -> Option<String> {
    let version = version.map(|version| format!(" {version}")).unwrap_or_default();
    name.map(|name| shown(&(name + &version)))
}

/// A client's output in a form that is safe to show: bounded, without control characters.
pub fn shown(text: &str) -> String {
    const LONGEST: usize = 300;
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = clean.take(LONGEST).collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    short
}

/// The grant of one of several resources.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Each {
    /// See [`ClientReply::token`].
    pub token: Option<Name>,
    /// See [`ClientReply::deadline_ns`].
    pub deadline_ns: Option<i64>,
    /// See [`ClientReply::fence`].
    pub fence: Option<u64>,
}

impl ClientReply {
    /// All stamps in the reply.
    pub fn stamps(&mut self) -> impl Iterator<Item = &mut Option<i64>> {
        let each = self.each.iter_mut().map(|each| &mut each.deadline_ns);
        [&mut self.from_ns, &mut self.at_ns, &mut self.deadline_ns].into_iter().chain(each)
    }

    /// The grant of the resource at this position of the request.
    pub fn of(&self, place: usize) -> Each {
        let of = self.each.get(place).cloned().unwrap_or_default();
        Each {
            token: of.token.or_else(|| self.token.clone()),
            deadline_ns: of.deadline_ns.or(self.deadline_ns),
            fence: of.fence.or(self.fence),
        }
    }
}

/// A call of the library for a request. A request that needs none has one all the same, which
/// returns at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The number of the request.
    pub id: u64,
    /// See [`ClientReply::from_ns`].
    pub from_ns: i64,
}

impl Call {
    /// The reply to the request, when the call has returned.
    pub fn reply(self, at_ns: i64, result: Result<(), RequestError>) -> ClientReply {
        let ok = result.is_ok();
        let (why, text) = result.err().map(|error| (error.why, error.text)).unzip();
        let (id, from_ns, at_ns, text) = (self.id, Some(self.from_ns), Some(at_ns), text.flatten());
        ClientReply { id, ok, from_ns, at_ns, why, text, ..ClientReply::default() }
    }

    /// The reply to a request that was granted one resource. `handles` is for a re-entry.
    pub fn granted(self, at_ns: i64, grant: Each, handles: Option<u64>) -> ClientReply {
        let Each { token, deadline_ns, fence } = grant;
        ClientReply { token, deadline_ns, fence, handles, ..self.reply(at_ns, Ok(())) }
    }

    /// The reply to a request that was granted several resources.
    pub fn granted_all(self, at_ns: i64, each: Vec<Each>) -> ClientReply {
        let deadline_ns = each.iter().filter_map(|each| each.deadline_ns).min();
        ClientReply { deadline_ns, each, ..self.reply(at_ns, Ok(())) }
    }
}

/// Why a client did not do what a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// See [`ClientReply::why`].
    pub why: FailureReason,
    /// See [`ClientReply::text`].
    pub text: Option<String>,
}

impl RequestError {
    /// An error with a readable reason.
    pub fn new(why: FailureReason, text: impl Into<String>) -> Self {
        Self { why, text: Some(text.into()) }
    }
}

impl From<BadOption> for RequestError {
    fn from(bad: BadOption) -> Self {
        Self::new(FailureReason::Error, bad.to_string())
    }
}

impl From<FailureReason> for RequestError {
    fn from(why: FailureReason) -> Self {
        Self { why, text: None }
    }
}

/// A message that a client sends without a request.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Notice {
    /// The client is connected and waits for requests. This is its first message.
    Ready {
        /// [`PROTOCOL`].
        protocol: u32,
        /// The features of the client.
        #[serde(default)]
        can: Vec<Capability>,
        /// The name of the lock, for reports.
        name: Option<String>,
        /// The version of the lock, for reports.
        version: Option<String>,
    },
    /// A lease ended without a release.
    Lost {
        /// The client.
        client: Name,
        /// The resource.
        resource: Name,
        /// When the client was notified of the loss.
        at_ns: i64,
    },
    /// The watchdog extended a lease, or a cancelled request for another handle did.
    Extended {
        /// The client.
        client: Name,
        /// The resource.
        resource: Name,
        /// When the client was notified of the extension.
        at_ns: Option<i64>,
        /// The new deadline.
        deadline_ns: i64,
    },
    /// The caller of a request stops polling the future of its library. Only clients in virtual
    /// time do so.
    Unpolled {
        /// The client.
        client: Name,
        /// The number of the request.
        request: u64,
        /// When the caller stops.
        from_ns: i64,
        /// When the caller polls the future again, or drops it.
        to_ns: i64,
    },
}

/// Any message that a client sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ClientLine {
    /// A reply.
    Reply(ClientReply),
    /// A notice.
    Notice(Notice),
}

impl From<ClientReply> for ClientLine {
    fn from(reply: ClientReply) -> Self {
        Self::Reply(reply)
    }
}

impl From<Notice> for ClientLine {
    fn from(notice: Notice) -> Self {
        Self::Notice(notice)
    }
}

impl ClientLine {
    /// Parses a line.
    ///
    /// # Errors
    /// Returns the defect of the line, for the author of the client.
    pub fn read(line: &str) -> Result<Self, String> {
        let value: serde_json::Value =
            serde_json::from_str(line).map_err(|why| format!("it is not JSON: {why}"))?;
        let object = value.as_object().ok_or("it is not a JSON object")?;
        if object.contains_key("event") {
            serde_json::from_value(value).map(Self::Notice).map_err(|why| why.to_string())
        } else if object.contains_key("id") {
            serde_json::from_value(value).map(Self::Reply).map_err(|why| why.to_string())
        } else {
            Err("it has neither an `id` (an answer) nor an `event` (a notice)".to_owned())
        }
    }
}

impl Options {
    /// The options for a process of a scenario, in whole milliseconds. The lengths in a scenario
    /// are whole milliseconds, too.
    pub fn of(scenario: &Scenario, process: &str) -> Self {
        let lock = scenario.options_of(process);
        let list = scenario.list_of(process);
        let mut names = list.names().filter(|_| lock.guard.is_some());
        let (masters_id, other) = (names.next(), names.next());
        let moving = list.moves().map(|(from, to)| Moving { from, to, masters_id: other });
        Self {
            ttl_ms: millis(lock.ttl.0),
            node_timeout_ms: millis(lock.node_timeout.0),
            drift_ppm: lock.drift_ppm,
            drift_ms: millis(lock.drift.0),
            fencing: lock.fencing,
            restart_guard_ms: lock.guard.map(|guard| millis(guard.0)),
            clock_guard_ms: lock.clock_guard.map(|bound| millis(bound.0)),
            lock_delay_ms: millis(lock.lock_delay.0),
            wake_ups: lock.wake_ups,
            fair: lock.fair,
            name: lock.names.then(|| process.to_owned()),
            masters_id,
            moving,
        }
    }

    /// The TTL.
    pub const fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}
