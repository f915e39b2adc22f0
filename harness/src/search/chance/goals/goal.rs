//! The situations by name.

use std::fmt;

/// A situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Goal {
    /// A lease was granted by as few masters as possible, of three or more.
    BareQuorum,
    /// A client held a lease while fewer masters than a quorum had its key.
    HollowHold,
    /// A client died while it held a lease.
    Orphan,
    /// An extension found a key missing and created it again.
    Repair,
    /// A master set a key after its client had given the attempt up.
    Zombie,
    /// The reply to a SET came after the acquire had its result.
    LateReply,
    /// A lease was lost while it was being extended.
    LossInExtend,
    /// Two clients asked at once, and each got some masters but no quorum.
    SplitVote,
    /// An extension was refused because the lease was lost.
    ExtendAfterLoss,
    /// What a broken connection left behind was deleted over another connection.
    PaidAnew,
    /// A watchdog extended a lease.
    Watchdog,
    /// An acquire was cancelled while it was under way.
    GivenUp,
    /// A quorum granted, but nothing was left of the TTL.
    Late,
    /// Too few masters replied.
    NoQuorum,
    /// A client checked its lease and found that it was over.
    StoppedInTime,
    /// A resource went from its holder to a waiter.
    HandOver,
    /// A master replied with an error.
    MasterError,
    /// A master died, and came back before the end.
    MasterBack,
    /// The grants did not show one number, and a separate round certified one.
    Certified,
    /// A register refused a fencing token.
    FencedOff,
    /// An extension of a lease with a fencing token found a key missing and created it again.
    FencedRepair,
    /// An acquire failed, and a master that might have granted it is distrusted.
    Distrusted,
    /// A master that had forgotten, and was distrusted for it, granted to a client with a guard.
    TrustedAgain,
    /// One of several handles of a lease was released, and the lease lived on.
    HandleLeft,
    /// An owner acquired again for longer than it had, and its lease was extended.
    Prolonged,
    /// An owner acquired again a resource that it had lost, and asked the masters like any client.
    AskedAnew,
    /// Two clients that wanted the same resources at once named them in opposite orders.
    OppositeOrders,
    /// A quorum granted one of several resources, and the client gave it up since another was
    /// taken.
    Undone,
    /// An acquire that waited went on as soon as the holder released.
    Woken,
    /// An acquire that waited got no wake-up, and found the resource free when it looked at a
    /// master.
    FoundOut,
    /// A lease went from one client to the next waiter of its process, right behind the deletion of
    /// the key.
    Heir,
    /// The next waiter of a process gave up when its turn had come.
    HeirGone,
    /// A process had several leases in a row, and a waiter of another process came before its next
    /// one.
    Guest,
    /// The first master was asked alone, and refused.
    RefusedFirst,
    /// The first master was asked alone and refused, and the others granted without it.
    Disbelieved,
}

impl Goal {
    /// All of them.
    pub const ALL: [Self; 35] = [
        Self::BareQuorum,
        Self::HollowHold,
        Self::Orphan,
        Self::Repair,
        Self::Zombie,
        Self::LateReply,
        Self::LossInExtend,
        Self::SplitVote,
        Self::ExtendAfterLoss,
        Self::PaidAnew,
        Self::Watchdog,
        Self::GivenUp,
        Self::Late,
        Self::NoQuorum,
        Self::StoppedInTime,
        Self::HandOver,
        Self::MasterError,
        Self::MasterBack,
        Self::Certified,
        Self::FencedOff,
        Self::FencedRepair,
        Self::Distrusted,
        Self::TrustedAgain,
        Self::HandleLeft,
        Self::Prolonged,
        Self::AskedAnew,
        Self::OppositeOrders,
        Self::Undone,
        Self::Woken,
        Self::FoundOut,
        Self::Heir,
        Self::HeirGone,
        Self::Guest,
        Self::RefusedFirst,
        Self::Disbelieved,
    ];

    /// Its name, for people and for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BareQuorum => "bare-quorum",
            Self::HollowHold => "hollow-hold",
            Self::Orphan => "orphan",
            Self::Repair => "repair",
            Self::Zombie => "zombie",
            Self::LateReply => "late-reply",
            Self::LossInExtend => "loss-in-extend",
            Self::SplitVote => "split-vote",
            Self::ExtendAfterLoss => "extend-after-loss",
            Self::PaidAnew => "paid-anew",
            Self::Watchdog => "watchdog",
            Self::GivenUp => "given-up",
            Self::Late => "late",
            Self::NoQuorum => "no-quorum",
            Self::StoppedInTime => "stopped-in-time",
            Self::HandOver => "hand-over",
            Self::MasterError => "master-error",
            Self::MasterBack => "master-back",
            Self::Certified => "certified",
            Self::FencedOff => "fenced-off",
            Self::FencedRepair => "fenced-repair",
            Self::Distrusted => "distrusted",
            Self::TrustedAgain => "trusted-again",
            Self::HandleLeft => "handle-left",
            Self::Prolonged => "prolonged",
            Self::AskedAnew => "asked-anew",
            Self::OppositeOrders => "opposite-orders",
            Self::Undone => "undone",
            Self::Woken => "woken",
            Self::FoundOut => "found-out",
            Self::Heir => "heir",
            Self::HeirGone => "heir-gone",
            Self::Guest => "guest",
            Self::RefusedFirst => "refused-first",
            Self::Disbelieved => "disbelieved",
        }
    }

    /// What it is, in a few words.
    pub const fn about(self) -> &'static str {
        match self {
            Self::BareQuorum => "a grant by as few masters as can be",
            Self::HollowHold => "a lease that was believed and not true",
            Self::Orphan => "a key whose owner is dead",
            Self::Repair => "an extension that made a key anew",
            Self::Zombie => "a SET executed after its client gave up",
            Self::LateReply => "an answer after the verdict",
            Self::LossInExtend => "a loss during an extension",
            Self::SplitVote => "a split vote",
            Self::ExtendAfterLoss => "an extension refused, the lease being lost",
            Self::PaidAnew => "a debt paid on a new connection",
            Self::Watchdog => "a watchdog that extended",
            Self::GivenUp => "an acquire given up under way",
            Self::Late => "a grant with nothing left of the TTL",
            Self::NoQuorum => "too few masters that answer",
            Self::StoppedInTime => "a holder that looked, and stopped",
            Self::HandOver => "a hand-over to one that waited",
            Self::MasterError => "a master that answered with an error",
            Self::MasterBack => "a master that died and came back",
            Self::Certified => "a fencing token certified in a second round",
            Self::FencedOff => "a register that refused a fencing token",
            Self::FencedRepair => "a repair of a lease with a fencing token",
            Self::Distrusted => "an acquire that failed, with a master that is distrusted",
            Self::TrustedAgain => "a grant of a master that had been distrusted",
            Self::HandleLeft => "a handle that outlived another of its lease",
            Self::Prolonged => "a handle for which the lease was extended",
            Self::AskedAnew => "an owner that asked anew for what it had lost",
            Self::OppositeOrders => "several resources, wanted in opposite orders",
            Self::Undone => "one of several resources given up, another being taken",
            Self::Woken => "an acquire that was woken by a release",
            Self::FoundOut => "an acquire that was not woken, and found out by a look",
            Self::Heir => "a hand-over within a process",
            Self::HeirGone => "an heir that gave up in its turn",
            Self::Guest => "a guest, after several leases in a row of one process",
            Self::RefusedFirst => "a first master that refused for all",
            Self::Disbelieved => "a first master that was not believed",
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
