//! Mutants of the driver around the shipped machines, each with one error. They show that the rules
//! detect it.

/// An error of the driver. The machines are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineMutant {
    /// No error.
    None,
    /// When a connection dies, its unanswered clean-ups count as complete.
    TakesSilenceForPaid,
    /// A clean-up is not passed to the links of masters that have not replied.
    LeavesTheSilent,
    /// Old connections are not killed.
    KillsNobody,
    /// After a lost connection, `SET`s that may have been lost are sent again on the next one.
    SendsAgain,
    /// All attempts of a client have the same token.
    OneToken,
    /// A clean-up is written ahead of the commands that wait on its connection.
    CleansUpFirst,
    /// An unknown vote counts as a grant.
    TakesSilenceForGranted,
    /// A claim collects its lease with the time at which it asked for it.
    CollectsLate,
    /// No drift is deducted from the TTL. The model reverses this: keys expire one instant before
    /// the deadline.
    NoDrift,
    /// A loss is undone.
    RevivesLost,
    /// A lease is extended by less than its holder asked for.
    ExtendsByLess,
    /// The reply to an earlier round of extending counts for the current one.
    MixesRounds,
    /// A loss triggers no clean-up.
    LeavesTheLost,
    /// A link that failed to connect, or to complete a clean-up, does not try again.
    NeverTriesAgain,
    /// Replies stay unread.
    NeverReads,
    /// A claim does not receive the wake-ups of its waiter.
    DropsWakeUps,
    /// A claim that looks at a master does not receive the reply that the resource is free.
    DropsLooks,
    /// No clean-up wakes a waiter.
    WakesNobody,
    /// Every clean-up wakes a waiter, also that of a failed attempt.
    AlwaysWakes,
    /// A waiter that leaves the queue wakes no other.
    LeavesInSilence,
    /// Masters do not skip waiters whose connections are gone.
    PassesOverNobody,
    /// No waiter leaves the queues.
    NeverLeaves,
}

impl MachineMutant {
    /// All of them except [`MachineMutant::None`].
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
