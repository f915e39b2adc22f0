//! Mutant: the mutations, by name.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redquorum_protocol::wire::{Command, write_command};
use redquorum_protocol::{Drift, TOKEN_LEN, Token};

use super::script::ScriptMutant;

/// What a mutant does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Mutant {
    /// Nothing: the baseline for all others.
    None,
    /// Does not check the clock when a quorum has granted, however long that took.
    NoDeadlineCheck,
    /// Counts the TTL from the first reply, not from before the first request.
    T0AfterFirstReply,
    /// Measures by the wall clock.
    WallClock,
    /// Takes ⌊N/2⌋ masters for a quorum.
    SmallQuorum,
    /// Deducts no drift allowance, except for the millisecond to which Redis expires keys.
    DriftIgnored,
    /// Deletes keys without a check of the token.
    PlainDel,
    /// Cleans up only where its SET was acknowledged.
    ReleaseAcknowledgedOnly,
    /// Extends keys without a check of the token.
    ExtendWithoutTokenCheck,
    /// Takes an extension for successful if one master still has the key.
    ExtendCountsMinority,
    /// Sets the same value in every attempt.
    OneToken,
    /// Counts the first master twice and does not ask the second. Nor does it check which server it
    /// has at which address.
    ServerTwice,
    /// Does not report that a lease is lost, and finds every lease held.
    SilentLoss,
    /// Takes any answer but a refusal for a grant, and silence as well.
    ErrorIsYes,
    /// Claims to keep a lease alive, and does not.
    NoWatchdog,
    /// Forgets an abandoned acquire and all that it has sent.
    LeaksCancelled,
    /// Counts the TTL of an extension from the first reply.
    ExtendsFromReply,
    /// Releases a majority of the masters, and leaves the others to expiry.
    ReleasesMajority,
    /// Measures by a clock that stops while the machine is suspended.
    ForgetsSuspend,
    /// Deducts a tenth less than the drift allowance.
    DriftShort,
    /// Sends every SET once more, later, on another connection.
    SendsAgain,
    /// Takes the largest number of its grants for its fencing token and certifies none. It sends no
    /// hint.
    LargestGrant,
    /// Takes the median of its grants' numbers for its fencing token and certifies none. It sends
    /// no hint.
    MedianGrant,
    /// Certifies the largest number that it has seen, not the q-th smallest.
    FollowsLargest,
    /// Counts the number that a master reported in an earlier hold.
    EarlierNumber,
    /// Certifies on any majority of the masters, even where other clients hold the key. It sends no
    /// hint.
    CertifiesAnywhere,
    /// Its counters stay at their end, as doubles do at 2⁵³, and its grants go on.
    StaysAtEnd,
    /// Sends the last possible number as a hint, and no master bounds it by its own clock.
    HintUnclamped,
    /// Releases a lease with the first of its handles.
    FirstReleaseFrees,
    /// Lets the owner of a lease re-enter without a check of the clock.
    ReentersDead,
    /// Keeps some of several resources while it waits for the others.
    KeepsSome,
    /// Waits for the remaining TTLs of holders: it ignores all wake-ups, and its own looks at
    /// the masters find nothing.
    DeafForEver,
    /// Wakes all waiters after a failed attempt, too.
    CallsAlways,
    /// Ignores the order of waiters, although it is set to fair queueing.
    JumpsQueue,
    /// Stays in the queue when its wait is over, whether it gave up or acquired.
    KeepsPlace,
    /// Moves to the tail of the queue whenever it asks for its position.
    LosesPlace,
}

impl Mutant {
    /// All variants, the honest one first.
    pub const ALL: [Self; 36] = [
        Self::None,
        Self::NoDeadlineCheck,
        Self::T0AfterFirstReply,
        Self::WallClock,
        Self::SmallQuorum,
        Self::DriftIgnored,
        Self::PlainDel,
        Self::ReleaseAcknowledgedOnly,
        Self::ExtendWithoutTokenCheck,
        Self::ExtendCountsMinority,
        Self::OneToken,
        Self::ServerTwice,
        Self::SilentLoss,
        Self::ErrorIsYes,
        Self::NoWatchdog,
        Self::LeaksCancelled,
        Self::ExtendsFromReply,
        Self::ReleasesMajority,
        Self::ForgetsSuspend,
        Self::DriftShort,
        Self::SendsAgain,
        Self::LargestGrant,
        Self::MedianGrant,
        Self::FollowsLargest,
        Self::EarlierNumber,
        Self::CertifiesAnywhere,
        Self::StaysAtEnd,
        Self::HintUnclamped,
        Self::FirstReleaseFrees,
        Self::ReentersDead,
        Self::KeepsSome,
        Self::DeafForEver,
        Self::CallsAlways,
        Self::JumpsQueue,
        Self::KeepsPlace,
        Self::LosesPlace,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::NoDeadlineCheck => "no-deadline-check",
            Self::T0AfterFirstReply => "t0-after-first-reply",
            Self::WallClock => "wall-clock",
            Self::SmallQuorum => "small-quorum",
            Self::DriftIgnored => "drift-ignored",
            Self::PlainDel => "plain-del",
            Self::ReleaseAcknowledgedOnly => "release-acknowledged-only",
            Self::ExtendWithoutTokenCheck => "extend-without-token-check",
            Self::ExtendCountsMinority => "extend-counts-minority",
            Self::OneToken => "one-token",
            Self::ServerTwice => "server-twice",
            Self::SilentLoss => "silent-loss",
            Self::ErrorIsYes => "error-is-yes",
            Self::NoWatchdog => "no-watchdog",
            Self::LeaksCancelled => "leaks-cancelled",
            Self::ExtendsFromReply => "extends-from-reply",
            Self::ReleasesMajority => "releases-majority",
            Self::ForgetsSuspend => "forgets-suspend",
            Self::DriftShort => "drift-short",
            Self::SendsAgain => "sends-again",
            Self::LargestGrant => "largest-grant",
            Self::MedianGrant => "median-grant",
            Self::FollowsLargest => "follows-largest",
            Self::EarlierNumber => "earlier-number",
            Self::CertifiesAnywhere => "certifies-anywhere",
            Self::StaysAtEnd => "stays-at-end",
            Self::HintUnclamped => "hint-unclamped",
            Self::FirstReleaseFrees => "first-release-frees",
            Self::ReentersDead => "reenters-dead",
            Self::KeepsSome => "keeps-some",
            Self::DeafForEver => "deaf-for-ever",
            Self::CallsAlways => "calls-always",
            Self::JumpsQueue => "jumps-queue",
            Self::KeepsPlace => "keeps-place",
            Self::LosesPlace => "loses-place",
        }
    }

    /// A one-line description of the bug.
    pub const fn about(self) -> &'static str {
        match self {
            Self::None => "nothing is wrong: must pass everything",
            Self::NoDeadlineCheck => "hands out a lease that is over already",
            Self::T0AfterFirstReply => "counts the TTL from the first reply",
            Self::WallClock => "measures by a clock that can be set",
            Self::SmallQuorum => "takes half of the masters, rounded down, for a quorum",
            Self::DriftIgnored => "deducts no drift from the TTL (but 1 ms)",
            Self::PlainDel => "deletes the key of any holder",
            Self::ReleaseAcknowledgedOnly => "cleans up only where its SET was acknowledged",
            Self::ExtendWithoutTokenCheck => "extends the key of any holder",
            Self::ExtendCountsMinority => "extends if one master still has the key",
            Self::OneToken => "sets the same value in every attempt",
            Self::ServerTwice => "counts the first master for the second, too",
            Self::SilentLoss => "does not report that a lease is lost",
            Self::ErrorIsYes => "takes an error, or silence, for a yes",
            Self::NoWatchdog => "keeps no lease alive",
            Self::LeaksCancelled => "leaves behind what a cancelled acquire has set",
            Self::ExtendsFromReply => "counts the TTL of an extension from the first reply",
            Self::ReleasesMajority => "gives back a majority of the masters only",
            Self::ForgetsSuspend => "measures by a clock that stops while the machine is suspended",
            Self::DriftShort => "deducts a tenth less than the drift allowance",
            Self::SendsAgain => "sends every SET once more, later, on another connection",
            Self::LargestGrant => "takes the largest number of its grants for the fencing token",
            Self::MedianGrant => "takes the median of its grants' numbers for the fencing token",
            Self::FollowsLargest => "certifies the largest number, however far ahead of the others",
            Self::EarlierNumber => "counts what a master's counter showed in an earlier hold",
            Self::CertifiesAnywhere => "certifies a number where another client holds the key",
            Self::StaysAtEnd => "goes on counting where numbers end, and counts in place",
            Self::HintUnclamped => "hints at the last number there is, and is believed",
            Self::FirstReleaseFrees => "gives a lease back with the first of its handles",
            Self::ReentersDead => "lets its owner into a lease that is over",
            Self::KeepsSome => "keeps some of several resources while it waits for the others",
            Self::DeafForEver => "receives no wake-up, and finds nothing by looks, while it waits",
            Self::CallsAlways => "wakes all waiters after a failed attempt, too",
            Self::JumpsQueue => "attempts out of turn in a fair queue",
            Self::KeepsPlace => "does not leave the queue when its wait is over",
            Self::LosesPlace => "goes to the end of the queue whenever it asks for its position",
        }
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

    /// Encodes a command as the mutant does. The reply is read like one to the honest command.
    pub fn encode(self, command: &Command, out: &mut Vec<u8>) {
        match (self, command) {
            (Self::PlainDel, Command::Delete { key, .. }) => write_command(out, &[b"DEL", key]),
            (Self::ExtendWithoutTokenCheck, Command::Keep { key, ttl_ms, .. }) => {
                write_command(out, &[b"PEXPIRE", key, ttl_ms.to_string().as_bytes()]);
            }
            _ => match self.script_mutant().filter(|script_mutant| script_mutant.is_about(command))
            {
                Some(script_mutant) => script_mutant.encode(command, out),
                None => self.with_token(command).encode(out),
            },
        }
    }

    /// The check that the mutant's scripts leave out.
    #[must_use]
    pub const fn script_mutant(self) -> Option<ScriptMutant> {
        match self {
            Self::CertifiesAnywhere => Some(ScriptMutant::Uncompared),
            Self::HintUnclamped => Some(ScriptMutant::Unclamped),
            Self::StaysAtEnd => Some(ScriptMutant::Endless),
            _ => None,
        }
    }

    /// Whether the mutation often breaks the lock within the lock's assumptions, so that
    /// random runs find it. All other mutations need a scenario of their own. There, a fault sets a
    /// counter to its end, messages come in one order among very many, or processes wait in the
    /// queue. Or the mutation only causes extra work and breaks nothing.
    pub const fn shows_inside(self) -> bool {
        !matches!(
            self,
            Self::FollowsLargest
                | Self::StaysAtEnd
                | Self::CertifiesAnywhere
                | Self::CallsAlways
                | Self::JumpsQueue
                | Self::KeepsPlace
                | Self::LosesPlace
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

    /// The command with the value that the mutant sets for its token.
    #[must_use]
    pub fn with_token(self, command: &Command) -> Command {
        let mut command = command.clone();
        if let Command::Set { token, .. }
        | Command::Guarded { token, .. }
        | Command::Keep { token, .. }
        | Command::Certify { token, .. }
        | Command::Delete { token, .. } = &mut command
        {
            *token = self.on_the_wire(*token);
        }
        command
    }

    /// The value that the mutant sets for a token. The machines get a fresh token in every attempt,
    /// since their links would keep two attempts apart otherwise. On the wire, only the client's
    /// own half is left.
    #[must_use]
    pub fn on_the_wire(self, token: Token) -> Token {
        let mut bytes = *token.as_bytes();
        if self == Self::OneToken {
            bytes[TOKEN_LEN / 2..].fill(0);
        }
        Token::new(bytes)
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mutant {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = Self::ALL.into_iter();
        all.clone().find(|mutant| mutant.name() == name).ok_or_else(|| {
            let names: Vec<_> = all.map(Self::name).collect();
            format!("there is no mutant {name:?}; there are {}", names.join(", "))
        })
    }
}
