//! The situations by name.

use redquorum_scenario::named;

named! {
    /// A situation.
    pub enum Goal {
        /// A lease was granted by as few masters as possible, of three or more.
        BareQuorum = "bare-quorum", "a grant by the smallest possible quorum";
        /// A client held a lease while fewer masters than a quorum had its key.
        HeldWithoutQuorum = "held-without-quorum", "a lease held while no quorum had its key";
        Orphan = "orphan", "a key whose owner is dead";
        Repair = "repair", "an extension that created a key again";
        Zombie = "zombie", "a SET executed after its client gave up";
        LateReply = "late-reply", "a reply after the decision";
        LossInExtend = "loss-in-extend", "a loss during an extension";
        /// Two clients asked at once, and each got some masters but no quorum.
        SplitVote = "split-vote", "a split vote";
        ExtendAfterLoss = "extend-after-loss", "an extension refused because the lease was lost";
        /// A key that was set over one connection was deleted over another.
        CleanUpMoved = "clean-up-moved", "a clean-up completed on a new connection";
        Watchdog = "watchdog", "a watchdog that extended";
        GivenUp = "given-up", "an acquire cancelled under way";
        Late = "late", "a grant with nothing left of the TTL";
        NoQuorum = "no-quorum", "an acquire without replies from a quorum";
        StoppedInTime = "stopped-in-time", "a holder that checked its lease and stopped";
        HandOver = "hand-over", "a hand-over to a waiter";
        MasterError = "master-error", "a master that replied with an error";
        MasterBack = "master-back", "a master that was killed and restarted";
        /// The grants did not show one number, and a separate round certified one.
        Certified = "certified", "a fencing token certified in a second round";
        TokenRefused = "token-refused", "a write refused because of its fencing token";
        FencedRepair = "fenced-repair", "a repair of a lease with a fencing token";
        Distrusted = "distrusted", "a failed acquire with a distrusted master";
        TrustedAgain = "trusted-again", "a grant of a master that was distrusted before";
        HandleLeft = "handle-left", "a handle that outlived another of its lease";
        Prolonged = "prolonged", "a handle for which the lease was extended";
        Reacquired = "reacquired", "an owner that acquired again what it had lost";
        OppositeOrders = "opposite-orders", "several resources requested in opposite orders";
        CollectUndone = "collect-undone", "one of several resources released, another being taken";
        /// An acquire that waited went on as soon as the holder released.
        Woken = "woken", "an acquire that was woken by a release";
        Polled = "polled", "an acquire that was not woken and found the resource free by polling";
        /// A lease went from one client to the next waiter of its process, right behind the
        /// deletion of the key.
        HandOff = "hand-off", "a hand-off within a process";
        HandedOffGone = "handed-off-gone", "a waiter that gave up in its turn";
        /// A process had several leases in a row, and a waiter of another process came before its
        /// next one.
        Yielded = "yielded", "a turn for another process after several leases of one process";
        /// The first master was asked alone, and refused.
        RefusedFirst = "refused-first", "a refusal by the first master alone";
        /// The first master was asked alone and refused, and the others granted without it.
        FirstOverruled = "first-overruled", "a refusal by the first master that others overruled";
        /// The waiter before it was paused, or cut off, and stayed in the fair queues.
        PassedOver = "passed-over", "a grant to a fair waiter behind a silent one";
        Recycled = "recycled", "a client on its third connection to a master that resets them";
        Promoted = "promoted", "a grant of a master that refused as a replica before";
        /// The caller that had asked before did not poll its request meanwhile, and got a reply
        /// later.
        Unpolled = "unpolled", "a grant to another client than one that was not polled";
    }
}

impl Goal {
    /// The situations that a search with the library can see, or one with the machines.
    pub fn all(library: bool) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |goal| match goal {
            // The library does not report its tokens.
            Self::Certified | Self::Woken | Self::Polled | Self::Yielded | Self::FirstOverruled => {
                !library
            }
            // The machines of the simulation have no futures.
            Self::Unpolled => library,
            _ => true,
        })
    }
}
