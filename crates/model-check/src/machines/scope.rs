//! The bounds of a run, and the list of runs.

use std::fmt;

use super::super::counted;
use redquorum_scenario::Mutant;

/// The bounds. Everything without a bound here is unlimited: messages, timers, ends of claims and
/// expiries come in every order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// A name for it.
    pub name: &'static str,
    /// The number of masters, three at most.
    pub masters: usize,
    /// The number of clients, two at most. Each is a process with one claim at a time.
    pub clients: usize,
    /// The clients that ask for shared leases, one bit each.
    pub readers: u8,
    /// The number of claims that each client may start.
    pub claims: u8,
    /// The number of attempts of each client, in all its claims together.
    pub attempts: u8,
    /// Whether a claim retries by itself.
    pub waits: bool,
    /// Whether it waits in the masters' queues and is woken.
    pub wakes: bool,
    /// Whether connections are subscribed from the start, as in a process that has waited before.
    pub subscribed: bool,
    /// Whether masters keep waiters that they cannot wake, as if these had asked within the last
    /// second. Otherwise masters drop them.
    pub fresh: bool,
    /// What happened before the start.
    pub start: Start,
    /// Whether the caller waits for the reply to a release. Otherwise it drops the future at once.
    pub release: bool,
    /// The number of extension rounds of each client's lease.
    pub rounds: u8,
    /// Whether the watchdog may be started.
    pub watchdog: bool,
    /// The number of connections, and of attempts to connect, that break in total.
    pub cuts: u8,
    /// The number of links that treat a slow connection as stalled.
    pub stalls: u8,
    /// The number of commands to which a master replies with an error, or with `NOSCRIPT`.
    pub errors: u8,
    /// The number of client processes that die.
    pub deaths: u8,
    /// The number of wake-ups that are lost.
    pub lost_wake_ups: u8,
    /// The number of queue positions that lapse while their clients live.
    pub lapses: u8,
    /// Whether clocks of claims move. Otherwise no claim times out and no lease reaches its
    /// deadline.
    pub clocks: bool,
    /// Whether the first client's clock stands still all the same. Its lease then ends only by its
    /// actions.
    pub still: bool,
    /// Whether states that differ only in the order of masters or of clients count as one.
    pub canonicalize: bool,
    /// Whether an event is taken alone if no other event needs to be tried before it.
    pub reduce: bool,
}

/// Where a run starts. Other runs explore the way to this start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// No client has asked yet.
    Nothing,
    /// The first client holds the lease.
    Held,
    /// The first client holds the lease, and the second waits for it.
    Awaited,
    /// Another process holds the lease, and both clients wait for it; each may be first in any
    /// queue. The other process releases one master after the other.
    Others,
}

/// A fault of which a [`Scope`] allows a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Cut,
    Stall,
    Error,
    Death,
    LostWakeUp,
    Lapse,
}

/// The number of kinds of faults.
const FAULTS: usize = 6;

/// How often each fault has happened on the way to a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spent(pub(super) [u8; FAULTS]);

impl Spent {
    pub(super) const fn spend(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    pub(super) const fn of(&self, fault: Fault) -> u8 {
        self.0[fault as usize]
    }
}

/// How often each bound of a [`Scope`] has prevented an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Withheld {
    pub(super) claims: u64,
    pub(super) attempts: u64,
    pub(super) rounds: u64,
    faults: [u64; FAULTS],
}

impl Withheld {
    /// Adds the counts for one client in one state.
    pub(super) const fn add(&mut self, other: Self) {
        self.claims += other.claims;
        self.attempts += other.attempts;
        self.rounds += other.rounds;
    }
}

/// The first client asks for shared leases.
const FIRST: u8 = 1;
/// The second client asks for shared leases.
const SECOND: u8 = 2;
/// Both clients ask for shared leases.
const BOTH: u8 = 3;

impl Scope {
    /// Whether a client asks for shared leases.
    pub(super) const fn reads(&self, client: usize) -> bool {
        self.readers >> client & 1 == 1
    }

    /// Whether one client asks for shared leases and the other does not.
    pub(super) const fn is_mixed(&self) -> bool {
        matches!(self.readers, FIRST | SECOND)
    }

    /// How often a fault may happen.
    pub(super) const fn bound(&self, fault: Fault) -> u8 {
        match fault {
            Fault::Cut => self.cuts,
            Fault::Stall => self.stalls,
            Fault::Error => self.errors,
            Fault::Death => self.deaths,
            Fault::LostWakeUp => self.lost_wake_ups,
            Fault::Lapse => self.lapses,
        }
    }

    /// Whether the bounds allow a fault. If not, it is counted.
    pub(super) const fn affords(
        &self,
        spent: Spent,
        fault: Fault,
        withheld: &mut Withheld,
    ) -> bool {
        let affords = spent.of(fault) < self.bound(fault);
        if !affords {
            withheld.faults[fault as usize] += 1;
        }
        affords
    }

    /// Whether a waiter may have to find by itself that the resource is free.
    pub(super) const fn loses_wake_ups(&self) -> bool {
        self.lost_wake_ups > 0
            || self.lapses > 0
            || self.deaths > 0 && matches!(self.start, Start::Others)
    }

    /// No bound is exceeded, and no fault happens: the base of the others.
    pub const CALM: Self = Self {
        name: "calm",
        masters: 3,
        clients: 2,
        readers: 0,
        claims: 1,
        attempts: 1,
        waits: false,
        wakes: false,
        subscribed: false,
        fresh: false,
        start: Start::Nothing,
        release: false,
        rounds: 0,
        watchdog: false,
        cuts: 0,
        stalls: 0,
        errors: 0,
        deaths: 0,
        lost_wake_ups: 0,
        lapses: 0,
        clocks: false,
        still: false,
        canonicalize: true,
        reduce: true,
    };

    /// Small runs, for tests of a few seconds.
    pub const SMALL: [Self; 9] = [
        Self { name: "rivals", masters: 2, clocks: true, ..Self::CALM },
        Self { name: "rivals who try again", masters: 1, attempts: 2, waits: true, ..Self::DEEP },
        Self { name: "link", masters: 1, claims: 2, attempts: 2, cuts: 2, ..Self::ALONE },
        Self { name: "lease", masters: 1, rounds: 1, watchdog: true, cuts: 1, ..Self::DEEP_ALONE },
        Self { name: "waiter", masters: 1, start: Start::Awaited, cuts: 1, ..Self::WAKES },
        Self { name: "two waiters", masters: 1, clocks: false, cuts: 1, deaths: 1, ..Self::WAIT },
        Self { name: "readers", masters: 2, clocks: true, readers: BOTH, ..Self::CALM },
        Self { name: "reader and writer", masters: 2, clocks: true, readers: FIRST, ..Self::CALM },
        Self {
            name: "reader and writer that wait",
            masters: 1,
            clocks: false,
            readers: FIRST,
            cuts: 1,
            ..Self::WAIT
        },
    ];

    /// All runs of `redquorum-chaos model-check`. Each has another wide bound.
    pub const ALL: [Self; 29] = [
        Self { name: "rivals", clocks: true, ..Self::CALM },
        Self { name: "rivals cut off", cuts: 1, ..Self::CALM },
        Self { name: "rivals, a client dies", masters: 2, cuts: 1, deaths: 1, ..Self::DEEP },
        Self {
            name: "rivals on one master",
            masters: 1,
            cuts: 1,
            stalls: 1,
            errors: 1,
            ..Self::DEEP
        },
        Self { name: "rivals who try again", masters: 1, attempts: 2, waits: true, ..Self::DEEP },
        Self {
            name: "link",
            masters: 1,
            claims: 2,
            attempts: 2,
            cuts: 3,
            stalls: 1,
            errors: 1,
            ..Self::ALONE
        },
        Self { name: "links", cuts: 2, ..Self::ALONE },
        Self { name: "acquire", masters: 2, attempts: 2, waits: true, cuts: 1, ..Self::DEEP_ALONE },
        Self { name: "lease", rounds: 1, ..Self::DEEP_ALONE },
        Self {
            name: "watchdog",
            masters: 1,
            rounds: 2,
            watchdog: true,
            cuts: 1,
            ..Self::DEEP_ALONE
        },
        Self {
            name: "waiter",
            masters: 1,
            start: Start::Held,
            subscribed: true,
            cuts: 1,
            ..Self::WAKES
        },
        Self {
            name: "waiter that misses a wake-up",
            masters: 1,
            start: Start::Awaited,
            still: true,
            cuts: 1,
            lost_wake_ups: 1,
            ..Self::WAKES
        },
        Self {
            name: "waiter with a position that lapses",
            masters: 1,
            start: Start::Awaited,
            lapses: 1,
            ..Self::WAKES
        },
        Self {
            name: "waiter that meets an error",
            masters: 1,
            start: Start::Held,
            fresh: true,
            still: true,
            errors: 1,
            ..Self::WAKES
        },
        Self {
            name: "waiter on two masters",
            masters: 2,
            start: Start::Awaited,
            still: true,
            deaths: 1,
            ..Self::WAKES
        },
        Self {
            name: "waiter on three masters",
            start: Start::Held,
            subscribed: true,
            clocks: false,
            ..Self::WAKES
        },
        Self {
            name: "rivals who both wait",
            masters: 2,
            subscribed: true,
            clocks: false,
            ..Self::WAKES
        },
        // With clocks, two attempts of each client are out of reach: more than 40 million states.
        Self { name: "two waiters", masters: 1, clocks: false, cuts: 1, deaths: 1, ..Self::WAIT },
        Self {
            name: "two waiters whose clocks move",
            masters: 1,
            attempts: 1,
            cuts: 1,
            deaths: 1,
            ..Self::WAIT
        },
        Self {
            name: "two waiters that are new",
            masters: 1,
            clocks: false,
            fresh: true,
            cuts: 1,
            ..Self::WAIT
        },
        Self { name: "two waiters on two masters", masters: 2, clocks: false, ..Self::WAIT },
        Self { name: "readers", clocks: true, readers: BOTH, ..Self::CALM },
        Self { name: "reader and writer", clocks: true, readers: FIRST, ..Self::CALM },
        Self { name: "reader and writer cut off", cuts: 1, readers: FIRST, ..Self::CALM },
        Self {
            name: "reader and writer on one master",
            masters: 1,
            readers: FIRST,
            cuts: 1,
            stalls: 1,
            errors: 1,
            ..Self::DEEP
        },
        Self { name: "writer that waits for a reader", readers: FIRST, cuts: 1, ..Self::WAITER },
        Self { name: "reader that waits for a writer", readers: SECOND, cuts: 1, ..Self::WAITER },
        Self {
            name: "two readers that wait",
            masters: 1,
            readers: BOTH,
            clocks: false,
            cuts: 1,
            deaths: 1,
            ..Self::WAIT
        },
        Self {
            name: "reader and writer that wait",
            masters: 1,
            readers: FIRST,
            clocks: false,
            cuts: 1,
            deaths: 1,
            ..Self::WAIT
        },
    ];

    /// One client with every action on one lease.
    const ONE: Self =
        Self { name: "one", claims: 2, attempts: 2, waits: true, clocks: true, ..Self::ALONE };
    /// One client holds the lease, and the other waits for it.
    pub(super) const WAITER: Self = Self { masters: 1, start: Start::Awaited, ..Self::WAKES };
    /// Both clients wait for the lease of another process.
    const WAITERS: Self = Self { masters: 1, still: true, ..Self::WAIT };

    /// The bounds in which a mutant of the driver breaks a rule; none for other mutants.
    pub const fn against(mutant: Mutant) -> Option<Self> {
        let cut = Self { cuts: 1, ..Self::ONE };
        let one = Self { masters: 1, ..cut };
        let lease = Self { cuts: 0, claims: 1, attempts: 1, ..one };
        Some(match mutant {
            Mutant::ReleaseAcknowledgedOnly
            | Mutant::LeavesLost
            | Mutant::CleansUpFirst
            | Mutant::OneToken
            | Mutant::NoDeadlineCheck
            | Mutant::RevivesLost
            | Mutant::NeverReads => Self::ONE,
            Mutant::AssumesCleanUps
            | Mutant::KillsNone
            | Mutant::SendsAgain
            | Mutant::ErrorIsYes => cut,
            Mutant::DriftIgnored => Self { rounds: 1, ..lease },
            Mutant::MixesRounds => Self { rounds: 2, ..lease },
            Mutant::ExtendsByLess => Self { rounds: 1, ..one },
            Mutant::NeverRetries => Self { cuts: 2, ..one },
            Mutant::NeverWoken | Mutant::WakesNone | Mutant::CallsAlways | Mutant::KeepsPlace => {
                Self::WAITER
            }
            Mutant::DropsLooks => Self { lost_wake_ups: 1, ..Self::WAITER },
            Mutant::LeavesInSilence => Self::WAITERS,
            Mutant::Evicts => Self { masters: 1, readers: FIRST, ..Self::CALM },
            Mutant::WakesGone => Self { deaths: 1, ..Self::WAITERS },
            _ => return None,
        })
    }

    /// The base for claims that wait in queues and are woken.
    const WAKES: Self = Self { attempts: 2, waits: true, wakes: true, clocks: true, ..Self::CALM };
    /// The base for claims that wait behind another process.
    const WAIT: Self = Self { start: Start::Others, ..Self::WAKES };
    const ALONE: Self = Self { clients: 1, ..Self::CALM };
    const DEEP: Self = Self { clocks: true, ..Self::CALM };
    const DEEP_ALONE: Self = Self { clients: 1, clocks: true, release: true, ..Self::CALM };

    /// The bounds in words.
    pub fn bounds(&self) -> String {
        let yes = |is: bool, what: &str| is.then(|| what.to_owned());
        let parts = [
            Some(format!("{} masters", self.masters)).filter(|_| self.masters > 1),
            Some("1 master".to_owned()).filter(|_| self.masters == 1),
            counted(u8::try_from(self.clients).unwrap_or(u8::MAX), "client"),
            counted(self.claims, "claim").map(|text| text + " of each"),
            counted(self.attempts, "attempt").map(|text| text + " of each"),
            yes(self.readers == FIRST, "leases of the first are shared"),
            yes(self.readers == SECOND, "leases of the second are shared"),
            yes(self.readers == BOTH, "leases are shared"),
            yes(self.waits, "claims try again by themselves"),
            yes(self.wakes, "and wait in queues"),
            yes(self.subscribed, "connections are subscribed"),
            yes(self.fresh, "waiters are new to the masters"),
            yes(self.start == Start::Held, "the first holds the lease at the start"),
            yes(
                self.start == Start::Awaited,
                "the first holds the lease at the start, the second waits",
            ),
            yes(self.start == Start::Others, "both wait for another's lease at the start"),
            yes(self.release, "releases are waited for"),
            yes(self.clocks, "clocks and timers of claims"),
            yes(self.still, "but not of the first client"),
            counted(self.rounds, "extension"),
            yes(self.watchdog, "the watchdog"),
            counted(self.cuts, "broken connection"),
            counted(self.stalls, "stalled connection"),
            counted(self.errors, "error"),
            counted(self.deaths, "death"),
            counted(self.lost_wake_ups, "lost wake-up"),
            counted(self.lapses, "lapsed position"),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claims, attempts, rounds, faults } = self;
        let [cuts, stalls, errors, deaths, wake_ups, lapses] = faults;
        write!(
            f,
            "{claims} claims, {attempts} attempts, {rounds} rounds, {cuts} cuts, {stalls} stalls, \
             {errors} errors, {deaths} deaths, {wake_ups} wake-ups, {lapses} lapses"
        )
    }
}
