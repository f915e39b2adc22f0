//! The list of all mutants, each with one name. `just mutants` prints which scenarios, and which
//! rules of the model check, catch each of them.

use std::str::FromStr;
use std::time::Duration;

use redquorum_protocol::{Drift, TOKEN_LEN, Token};
crate::named! {
    /// What a mutant does wrong.
    pub enum Mutant {
        None = "none", "nothing is wrong: must pass everything";
        NoDeadlineCheck = "no-deadline-check", "hands out a lease that is over already";
        T0AfterFirstReply = "t0-after-first-reply", "counts the TTL from the first reply";
        WallClock = "wall-clock", "measures by a clock that can be set";
        SmallQuorum = "small-quorum", "takes half of the masters, rounded down, for a quorum";
        DriftIgnored = "drift-ignored", "deducts no drift from the TTL (but 1 ms)";
        PlainDel = "plain-del", "deletes the key of any holder";
        ReleaseAcknowledgedOnly = "release-acknowledged-only",
            "cleans up only where its SET was acknowledged";
        ExtendWithoutTokenCheck = "extend-without-token-check", "extends the key of any holder";
        ExtendCountsMinority = "extend-counts-minority", "extends if one master still has the key";
        OneToken = "one-token", "sets the same value in every attempt";
        /// Nor does it ask the second, or check which server it has at which address.
        ServerTwice = "server-twice", "counts the first master for the second, too";
        SilentLoss = "silent-loss", "does not report that a lease is lost";
        ErrorIsYes = "error-is-yes", "takes an error, or silence, for a yes";
        NoWatchdog = "no-watchdog", "keeps no lease alive";
        LeaksCancelled = "leaks-cancelled", "leaves behind what a cancelled acquire has set";
        ExtendsFromReply = "extends-from-reply",
            "counts the TTL of an extension from the first reply";
        ReleasesMajority = "releases-majority", "gives back a majority of the masters only";
        ForgetsSuspend = "forgets-suspend",
            "measures by a clock that stops while the machine is suspended";
        DriftShort = "drift-short", "deducts a tenth less than the drift allowance";
        SendsAgain = "sends-again", "sends every SET once more, later, on another connection";
        /// It certifies none, and sends no hint.
        LargestGrant = "largest-grant",
            "takes the largest number of its grants for the fencing token";
        /// It certifies none, and sends no hint.
        MedianGrant = "median-grant",
            "takes the median of its grants' numbers for the fencing token";
        FollowsLargest = "follows-largest",
            "certifies the largest number, however far ahead of the others";
        EarlierNumber = "earlier-number",
            "counts what a master's counter showed in an earlier hold";
        /// It sends no hint.
        CertifiesAnywhere = "certifies-anywhere",
            "certifies a number where another client holds the key";
        /// Doubles do so at 2⁵³.
        StaysAtEnd = "stays-at-end", "goes on counting where numbers end, and counts in place";
        HintUnclamped = "hint-unclamped", "hints at the last number there is, and is believed";
        FirstReleaseFrees = "first-release-frees",
            "gives a lease back with the first of its handles";
        ReentersDead = "reenters-dead", "lets its owner into a lease that is over";
        KeepsSome = "keeps-some", "keeps some of several resources while it waits for the others";
        /// It waits for the remaining TTLs of holders.
        NeverWoken = "never-woken",
            "receives no wake-up, and finds nothing by looks, while it waits";
        CallsAlways = "calls-always", "wakes all waiters after a failed attempt, too";
        JumpsQueue = "jumps-queue", "attempts out of turn in a fair queue";
        KeepsPlace = "keeps-place", "does not leave the queue when its wait is over";
        LosesPlace = "loses-place",
            "goes to the end of the queue whenever it asks for its position";
        PassesWaiters = "passes-waiters",
            "shares a resource although another client waits to have it alone";
        Evicts = "evicts", "shares a resource that another client has alone";
        NewestEnd = "newest-end", "lets a shared key end with the newest of its holders";
        KeepsEnd = "keeps-end", "leaves the end of a shared key where it is when it releases";
        /// It takes a majority of masters for a permit, each of which hands out all permits.
        CountsPermits = "counts-permits", "lets each master count the permits of a semaphore";
        RepairsUnmarked = "repairs-unmarked",
            "creates keys again on a master that lost its boot marker";
        ExtendsUnadmitted = "extends-unadmitted",
            "extends its leases on masters that admit it no more, since the lock has moved on";
        CountsUnion = "counts-union",
            "takes a majority of both sets together for a quorum, while it moves";
        // Only in the model check.
        AssumesCleanUps = "assumes-clean-ups",
            "counts the clean-ups of a dead connection as complete";
        CleansUpFirst = "cleans-up-first", "writes a clean-up ahead of the commands before it";
        KillsNone = "kills-none", "does not kill its old connections";
        NeverRetries = "never-retries", "does not try again after a failed connect or clean-up";
        NeverReads = "never-reads", "leaves replies unread";
        RevivesLost = "revives-lost", "holds a lost lease again";
        LeavesLost = "leaves-lost", "cleans up nothing after a loss";
        ExtendsByLess = "extends-by-less", "extends a lease by less than its holder asked for";
        MixesRounds = "mixes-rounds", "counts the reply to an earlier round of extending";
        DropsLooks = "drops-looks", "ignores a look that finds the resource free";
        WakesNone = "wakes-none", "wakes no waiter by its clean-ups";
        LeavesInSilence = "leaves-in-silence", "wakes no waiter when it leaves the queue";
        WakesGone = "wakes-gone", "has scripts that wake waiters whose connections are gone";
    }
}

impl Mutant {
    /// The mutants of a client process, the honest one first. The others are mutations of the
    /// drivers in the model check, with links and masters that no client process has.
    pub fn clients() -> impl Iterator<Item = Self> + Clone {
        Self::ALL.iter().copied().filter(|mutant| *mutant < Self::AssumesCleanUps)
    }

    /// The scenario that catches it on real masters in the tests of the suite.
    pub const fn scenario(self) -> Option<&'static str> {
        Some(match self {
            Self::NoDeadlineCheck => "pause-in-flight",
            Self::T0AfterFirstReply | Self::ExtendsFromReply => "slow-replies",
            Self::WallClock => "client-wall-clock",
            Self::SmallQuorum | Self::ErrorIsYes => "majority-killed",
            Self::DriftIgnored => "clock-within-drift",
            Self::PlainDel => "pause-in-critical-section",
            Self::ReleaseAcknowledgedOnly => "reply-lost",
            Self::ExtendWithoutTokenCheck => "extend-after-amnesia",
            Self::ExtendCountsMinority => "extend-needs-a-quorum",
            Self::OneToken => "calm",
            Self::ServerTwice => "one-server-twice",
            Self::SilentLoss => "holder-cut-off-stops",
            Self::NoWatchdog => "watchdog",
            Self::LeaksCancelled => "cancelled-acquire",
            Self::ReleasesMajority => "one-master-hung",
            Self::LargestGrant | Self::MedianGrant => "fenced-counters-apart",
            Self::FollowsLargest => "fenced-counter-poisoned/apart",
            Self::EarlierNumber | Self::HintUnclamped => "fenced-again",
            Self::CertifiesAnywhere => "fenced-certify-late",
            Self::StaysAtEnd => "fenced-counter-poisoned/three-at-end",
            Self::KeepsSome => "several/one-taken",
            Self::NeverWoken => "wake-up-lost",
            Self::CallsAlways => "waiters-at-peace",
            Self::JumpsQueue => "fair/queues",
            Self::KeepsPlace => "fair/first-gives-up",
            Self::LosesPlace => "fair/patient",
            Self::PassesWaiters => "shared/steady-readers",
            Self::Evicts => "shared/taken",
            Self::NewestEnd => "shared/ends-apart",
            Self::KeepsEnd => "shared/reader-dies",
            Self::CountsPermits => "semaphore-split",
            Self::RepairsUnmarked => "repair-after-amnesia",
            Self::ExtendsUnadmitted => "moving/old-holder-ends",
            Self::CountsUnion => "moving-one-set-down",
            _ => return None,
        })
    }

    /// The drift allowance that the mutant uses instead of the configured one.
    #[must_use]
    pub const fn drift(self, honest: Drift) -> Drift {
        match self {
            // The smallest allowance that the machines accept.
            Self::DriftIgnored => Drift { ppm: 0, fixed: Duration::from_millis(1) },
            Self::DriftShort => Drift {
                ppm: honest.ppm - honest.ppm / 10,
                fixed: honest
                    .fixed
                    .saturating_sub(Duration::from_nanos(honest.fixed.subsec_nanos() as u64 / 10)),
            },
            _ => honest,
        }
    }

    /// Whether the mutation often breaks the lock within the lock's assumptions, so that
    /// random runs find it. All other mutations need a scenario of their own. There, a fault sets a
    /// counter to its end, messages come in one order among very many, or the record must show
    /// which process overtook another. Or readers with leases of different lengths meet a writer in
    /// one order. Or the mutation only causes extra work and breaks nothing.
    pub const fn shows_inside(self) -> bool {
        !matches!(
            self,
            Self::FollowsLargest
                | Self::StaysAtEnd
                | Self::CertifiesAnywhere
                | Self::CallsAlways
                | Self::JumpsQueue
                | Self::LosesPlace
                | Self::PassesWaiters
                | Self::NewestEnd
                | Self::KeepsEnd
                | Self::CountsPermits
                | Self::RepairsUnmarked
                | Self::ExtendsUnadmitted
                | Self::CountsUnion
        )
    }

    /// The hint that the mutant sends instead of the honest one. Without hints, counters count by
    /// ones and diverge. The bug then shows, since no clock hides it.
    #[must_use]
    pub const fn hint(self, honest: u64) -> u64 {
        match self {
            Self::HintUnclamped => u64::MAX,
            Self::LargestGrant | Self::MedianGrant | Self::CertifiesAnywhere => 0,
            _ => honest,
        }
    }

    /// The value that the mutant sets for a token. The machines get a fresh token in every attempt,
    /// since their links would keep two attempts apart otherwise. On the wire, only the client's
    /// own half is left.
    #[must_use]
    pub fn on_the_wire(self, token: Token) -> Token {
        match self {
            Self::OneToken => token.with(|bytes| bytes[TOKEN_LEN / 2..].fill(0)),
            _ => token,
        }
    }
}

impl FromStr for Mutant {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::clients().find(|mutant| mutant.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::clients().map(Self::name).collect();
            format!("there is no mutant {name:?}; there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Mutant;

    #[test]
    fn names_are_read_back_and_a_wrong_name_is_answered_with_all() {
        for mutant in Mutant::clients() {
            assert_eq!(mutant.name().parse(), Ok(mutant));
        }
        assert!("no-such".parse::<Mutant>().unwrap_err().contains("silent-loss"));
        assert!("revives-lost".parse::<Mutant>().is_err(), "no client process has it");
    }
}
