//! The situations by name.

use crate::named::named;

named! {
    /// A situation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum Goal {
        /// A lease was granted by as few masters as possible, of three or more.
        BareQuorum = "bare-quorum", "a grant by as few masters as can be";
        /// A client held a lease while fewer masters than a quorum had its key.
        HollowHold = "hollow-hold", "a lease that was believed and not true";
        Orphan = "orphan", "a key whose owner is dead";
        Repair = "repair", "an extension that made a key anew";
        Zombie = "zombie", "a SET executed after its client gave up";
        LateReply = "late-reply", "an answer after the verdict";
        LossInExtend = "loss-in-extend", "a loss during an extension";
        /// Two clients asked at once, and each got some masters but no quorum.
        SplitVote = "split-vote", "a split vote";
        ExtendAfterLoss = "extend-after-loss", "an extension refused, the lease being lost";
        /// What a broken connection left behind was deleted over another connection.
        PaidAnew = "paid-anew", "a debt paid on a new connection";
        Watchdog = "watchdog", "a watchdog that extended";
        GivenUp = "given-up", "an acquire given up under way";
        Late = "late", "a grant with nothing left of the TTL";
        NoQuorum = "no-quorum", "too few masters that answer";
        StoppedInTime = "stopped-in-time", "a holder that looked, and stopped";
        HandOver = "hand-over", "a hand-over to one that waited";
        MasterError = "master-error", "a master that answered with an error";
        MasterBack = "master-back", "a master that died and came back";
        /// The grants did not show one number, and a separate round certified one.
        Certified = "certified", "a fencing token certified in a second round";
        FencedOff = "fenced-off", "a register that refused a fencing token";
        FencedRepair = "fenced-repair", "a repair of a lease with a fencing token";
        Distrusted = "distrusted", "an acquire that failed, with a master that is distrusted";
        TrustedAgain = "trusted-again", "a grant of a master that had been distrusted";
        HandleLeft = "handle-left", "a handle that outlived another of its lease";
        Prolonged = "prolonged", "a handle for which the lease was extended";
        AskedAnew = "asked-anew", "an owner that asked anew for what it had lost";
        OppositeOrders = "opposite-orders", "several resources, wanted in opposite orders";
        Undone = "undone", "one of several resources given up, another being taken";
        /// An acquire that waited went on as soon as the holder released.
        Woken = "woken", "an acquire that was woken by a release";
        FoundOut = "found-out", "an acquire that was not woken, and found out by a look";
        /// A lease went from one client to the next waiter of its process, right behind the
        /// deletion of the key.
        HandOff = "hand-off", "a hand-off within a process";
        HandedOffGone = "handed-off-gone", "a waiter that gave up in its turn";
        /// A process had several leases in a row, and a waiter of another process came before its
        /// next one.
        Yielded = "yielded", "a turn for another process, after several leases in a row of one process";
        /// The first master was asked alone, and refused.
        RefusedFirst = "refused-first", "a first master that refused for all";
        /// The first master was asked alone and refused, and the others granted without it.
        Disbelieved = "disbelieved", "a first master that was not believed";
    }
}
