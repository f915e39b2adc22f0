//! Drivers that go wrong, each in one way, around the machines that are shipped: they show that the
//! rules see it.

/// One way to go wrong. The machines know nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blunder {
    /// Nothing is wrong.
    None,
    /// When a connection dies, the clean-ups that wait on it are taken for answered.
    TakesSilenceForPaid,
    /// A clean-up is not handed to the links of masters that have not answered.
    LeavesTheSilent,
    /// Old connections are not killed.
    KillsNobody,
    /// What a lost connection may have lost of `SET`s is sent again on the next.
    SendsAgain,
    /// All attempts of a client have one token.
    OneToken,
    /// A clean-up is written ahead of what waits on its connection.
    CleansUpFirst,
    /// An unknown vote is taken for a grant.
    TakesSilenceForGranted,
    /// A claim comes for its lease with the clock of when it asked for it.
    CollectsLate,
    /// No drift is deducted from the TTL. Said the other way round: keys go an instant before the
    /// deadline.
    NoDrift,
    /// A loss is undone.
    RevivesLost,
    /// A lease is extended by less than its holder asked for.
    ExtendsByLess,
    /// The answer to an earlier round of extending counts for the one under way.
    MixesRounds,
    /// A loss cleans up nothing.
    LeavesTheLost,
    /// A link that could not connect, or pay, does not try again.
    NeverTriesAgain,
    /// Answers are left unread.
    NeverReads,
    /// A claim is not told of the wake-ups of its waiter.
    DropsWakeUps,
    /// A claim that looks at a master is not told that the resource is free.
    DropsLooks,
    /// No clean-up wakes a waiter.
    WakesNobody,
    /// Every clean-up does, also that of an attempt that failed.
    AlwaysWakes,
    /// A waiter that leaves the queue wakes no other.
    LeavesInSilence,
    /// Masters do not pass over waiters whose connections are gone.
    PassesOverNobody,
    /// No waiter leaves the queues.
    NeverLeaves,
}

impl Blunder {
    /// All of them, but for [`Blunder::None`].
    pub const ALL: [Self; 22] = [
        Self::TakesSilenceForPaid,
        Self::LeavesTheSilent,
        Self::KillsNobody,
        Self::SendsAgain,
        Self::OneToken,
        Self::CleansUpFirst,
        Self::TakesSilenceForGranted,
        Self::CollectsLate,
        Self::NoDrift,
        Self::RevivesLost,
        Self::ExtendsByLess,
        Self::MixesRounds,
        Self::LeavesTheLost,
        Self::NeverTriesAgain,
        Self::NeverReads,
        Self::DropsWakeUps,
        Self::DropsLooks,
        Self::WakesNobody,
        Self::AlwaysWakes,
        Self::LeavesInSilence,
        Self::PassesOverNobody,
        Self::NeverLeaves,
    ];
}
