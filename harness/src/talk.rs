//! The client protocol: what the harness and a client process say to each other, one JSON object a
//! line, on the client's standard input and output. A driver for any other lock speaks it, too;
//! `docs/scenarios.md` tells how.
//!
//! All stamps are nanoseconds of `CLOCK_MONOTONIC`, which the processes of one machine share.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::name::Name;
use crate::scenario::Scenario;
use crate::units::millis;

/// The environment variable with the addresses of the masters, separated by commas:
/// `redis://127.0.0.1:20001,…`. They are those of the proxies.
pub const NODES_VARIABLE: &str = "REDQUORUM_NODES";
/// The environment variable with the [`Options`] as JSON.
pub const OPTIONS_VARIABLE: &str = "REDQUORUM_OPTIONS";
/// The version of the protocol.
pub const PROTOCOL: u32 = 1;
/// The longest line that a client may say, in bytes.
pub const LONGEST_LINE: usize = 1024 * 1024;

/// How long masters remember fencing counters for the clients of the harness: the library's default.
pub const FENCING_MEMORY: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The options of the lock, given to every client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// How long a master keeps a key, unless a request says otherwise.
    pub ttl_ms: u64,
    /// How long a round waits for a master.
    pub node_timeout_ms: u64,
    /// The drift allowance, in millionths of the TTL.
    pub drift_ppm: u32,
    /// Its fixed part.
    pub drift_ms: u64,
    /// Whether leases shall carry a fencing token.
    pub fencing: bool,
    /// Distrust masters that may have forgotten leases of up to this TTL; if not given, trust them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard_ms: Option<u64>,
    /// With `guard_ms`: distrust also masters whose clocks may have gained more than this, and deduct it
    /// from every lease; if not given, trust clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_guard_ms: Option<u64>,
    /// How much longer masters keep a key than a lease lives. Needs `grace` among what the client can, if it
    /// is not 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub grace_ms: u64,
    /// Whether masters may be asked to tell who waits when a resource becomes free.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub wake_ups: bool,
    /// Whether processes that wait come in the order in which they asked. Needs `fair` among what the client can.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fair: bool,
    /// What the set of masters is called under a guard: addresses are proxies of the client's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

const fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
const fn is_yes(is: &bool) -> bool {
    *is
}

/// What the harness says to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its number. The answer carries it, too.
    pub id: u64,
    /// Which of the clients in the process shall do it. A client has at most one lease of a
    /// resource at a time, with as many handles as it has acquired it again.
    pub client: Name,
    /// What to do.
    #[serde(flatten)]
    pub op: Op,
}

/// What a client shall do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Op {
    /// Acquire the resource; wait at most so long while it is taken, 0: one attempt.
    Acquire {
        /// What to lock.
        resource: Name,
        /// How long the masters shall keep it. 0, only with `again`: as the [`Options`] say, and the
        /// deadline of a lease that is held stands.
        ttl_ms: u64,
        /// How long to wait.
        wait_ms: u64,
        /// As the owner of the lease of it that the client has: another handle of that, if it is still
        /// held. Needs `reenter` among what the client can.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// Acquire all of these resources, or none; wait at most so long while one is taken, 0: one attempt.
    /// The answer tells of each lease in [`Answer::each`].
    AcquireAll {
        /// What to lock.
        resources: Vec<Name>,
        /// How long the masters shall keep them.
        ttl_ms: u64,
        /// How long to wait.
        wait_ms: u64,
    },
    /// Extend the lease.
    Extend {
        /// Whose.
        resource: Name,
        /// How long the masters shall keep it from now on.
        ttl_ms: u64,
    },
    /// Keep extending the lease in the background.
    KeepAlive {
        /// Whose.
        resource: Name,
        /// At most so long.
        max_ms: u64,
    },
    /// Release the lease.
    Release {
        /// Whose.
        resource: Name,
    },
    /// Release the leases of all of these. Where one was not held any more, the answer is not `ok`.
    ReleaseAll {
        /// Whose.
        resources: Vec<Name>,
    },
    /// Give up a request that is under way; it is answered with `cancelled`.
    Cancel {
        /// The request's number.
        request: u64,
    },
    /// A step of the critical section, which the harness does when the answer arrives. Answer at
    /// once, or, with a `check`, answer `lost` if the lease of that resource is not held.
    Step {
        /// For people: `write R`.
        name: Name,
        /// The lease to check first, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        check: Option<Name>,
    },
}

impl Op {
    /// Its name on the wire.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Acquire { .. } => "acquire",
            Self::AcquireAll { .. } => "acquire_all",
            Self::Extend { .. } => "extend",
            Self::KeepAlive { .. } => "keep_alive",
            Self::Release { .. } => "release",
            Self::ReleaseAll { .. } => "release_all",
            Self::Cancel { .. } => "cancel",
            Self::Step { .. } => "step",
        }
    }
}

/// What a client can do beyond acquire, release, step and cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Can {
    /// It stamps deadlines (`deadline_ns`); otherwise it says `valid_ms`.
    Deadline,
    /// It extends.
    Extend,
    /// It gives fencing tokens.
    Fence,
    /// It distrusts masters that may have forgotten, if it is given `guard_ms`.
    Guard,
    /// It distrusts masters whose clocks have stepped, if it is given `clock_guard_ms`.
    ClockGuard,
    /// Its keys outlive its leases by `grace_ms`, unless they are released.
    Grace,
    /// It keeps the order of those who wait in different processes, if it is told `fair`.
    Fair,
    /// It waits (`wait_ms`); otherwise the harness asks again.
    Wait,
    /// It extends in the background.
    KeepAlive,
    /// It says `lost` when a lease ends that was not released.
    Lost,
    /// It lets the owner of a lease acquire it again (`again`), and says how many handles are out.
    Reenter,
    /// It acquires several resources at once (`acquire_all`, `release_all`).
    Several,
}

impl Can {
    /// Everything: what the built-in client can, and those of the simulation.
    pub const ALL: [Self; 12] = [
        Self::Deadline,
        Self::Extend,
        Self::Fence,
        Self::Guard,
        Self::ClockGuard,
        Self::Grace,
        Self::Fair,
        Self::Wait,
        Self::KeepAlive,
        Self::Lost,
        Self::Reenter,
        Self::Several,
    ];
}

/// Why a client did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Somebody else holds the resource.
    Taken,
    /// Too few masters answered.
    NoQuorum,
    /// Nothing was left of the TTL.
    Late,
    /// The lease is not held any more.
    Lost,
    /// The request was cancelled.
    Cancelled,
    /// The client cannot do that.
    Unsupported,
    /// Anything else.
    Error,
}

/// What a client answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The request's number.
    pub id: u64,
    /// Whether it was done.
    pub ok: bool,
    /// The lock's value on the masters, as it is in the commands. Bytes that are no text as
    /// `hex:…`. Optional: lets the report say who is who.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Name>,
    /// When the library was called. Optional.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_ns: Option<i64>,
    /// When the library returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ns: Option<i64>,
    /// The deadline of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<i64>,
    /// What is left of the lease as the library returned, where it has no deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_ms: Option<u64>,
    /// The fencing token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// How many handles of the lease are out: of an acquire with `again`, more than 1 if it is the lease that
    /// the client had; of a release, those that are left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handles: Option<u64>,
    /// Of several resources: what was granted of each, in the order of the request. What is not said here
    /// holds as it is said for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<Each>,
    /// Why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Why>,
    /// The same for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// What was granted of one of several resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Each {
    /// As [`Answer::token`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Name>,
    /// As [`Answer::deadline_ns`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<i64>,
    /// As [`Answer::fence`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
}

impl Answer {
    /// All stamps in it.
    pub(crate) fn stamps(&mut self) -> impl Iterator<Item = &mut Option<i64>> {
        let each = self.each.iter_mut().map(|each| &mut each.deadline_ns);
        [&mut self.from_ns, &mut self.at_ns, &mut self.deadline_ns].into_iter().chain(each)
    }

    /// What was granted of the resource at this place of the request.
    pub(crate) fn of(&self, place: usize) -> Each {
        let of = self.each.get(place).cloned().unwrap_or_default();
        Each {
            token: of.token.or_else(|| self.token.clone()),
            deadline_ns: of.deadline_ns.or(self.deadline_ns),
            fence: of.fence.or(self.fence),
        }
    }
}

/// What a client says unasked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Notice {
    /// It is connected and waits for requests: its first words.
    Ready {
        /// [`PROTOCOL`].
        protocol: u32,
        /// What it can do.
        #[serde(default)]
        can: Vec<Can>,
        /// What it is, for reports.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// A lease ended that was not released.
    Lost {
        /// Whose client.
        client: Name,
        /// Which resource.
        resource: Name,
        /// When it was told.
        at_ns: i64,
    },
    /// The watchdog extended a lease, or a request for another handle did that was cancelled.
    Extended {
        /// Whose client.
        client: Name,
        /// Which resource.
        resource: Name,
        /// When it was told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_ns: Option<i64>,
        /// The new deadline.
        deadline_ns: i64,
    },
}

/// Anything that a client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// An answer.
    Answer(Answer),
    /// A notice.
    Notice(Notice),
}

impl Said {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it, for its author.
    pub fn read(line: &str) -> Result<Self, String> {
        let value: serde_json::Value =
            serde_json::from_str(line).map_err(|why| format!("it is not JSON: {why}"))?;
        let object = value.as_object().ok_or("it is not a JSON object")?;
        if object.contains_key("event") {
            serde_json::from_value(value).map(Self::Notice).map_err(|why| why.to_string())
        } else if object.contains_key("id") {
            serde_json::from_value(value).map(Self::Answer).map_err(|why| why.to_string())
        } else {
            Err("it has neither an `id` (an answer) nor an `event` (a notice)".to_owned())
        }
    }
}

impl Options {
    /// What a process of a scenario is told: in whole milliseconds, which a scenario's lengths are.
    pub fn of(scenario: &Scenario, process: &str) -> Self {
        let lock = scenario.options_of(process);
        Self {
            ttl_ms: millis(lock.ttl.0),
            node_timeout_ms: millis(lock.node_timeout.0),
            drift_ppm: lock.drift_ppm,
            drift_ms: millis(lock.drift.0),
            fencing: lock.fencing,
            guard_ms: lock.guard.map(|guard| millis(guard.0)),
            clock_guard_ms: lock.clock_guard.map(|bound| millis(bound.0)),
            grace_ms: millis(lock.grace.0),
            wake_ups: lock.wake_ups,
            fair: lock.fair,
            fleet: lock.guard.map(|_| scenario.fleet_of(process)),
        }
    }

    /// The TTL.
    pub const fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}
