//! Lie: the ways to be wrong, by name.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redquorum_protocol::wire::{Command, write_command};
use redquorum_protocol::{Drift, TOKEN_LEN, Token};

use super::lax::Laxity;

/// What a saboteur gets wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Lie {
    /// Nothing: what all others are compared with.
    None,
    /// It does not look at the clock when a quorum has granted, however long that took.
    NoDeadlineCheck,
    /// It counts the TTL from the first reply, not from before the first request.
    T0AfterFirstReply,
    /// It measures by the wall clock.
    WallClock,
    /// It takes ⌊N/2⌋ masters for a quorum.
    SmallQuorum,
    /// It deducts nothing for clocks of different rates, but for the millisecond to which Redis
    /// expires keys.
    DriftIgnored,
    /// It deletes keys without a look at whose they are.
    PlainDel,
    /// It cleans up only where its SET was acknowledged.
    ReleaseAcknowledgedOnly,
    /// It extends keys without a look at whose they are.
    ExtendWithoutTokenCheck,
    /// One master that still has the key is enough for it to extend.
    ExtendCountsMinority,
    /// It sets the same value in every attempt.
    OneToken,
    /// It counts the first master twice, and does not ask the second; nor does it look which server
    /// it has at which address.
    ServerTwice,
    /// It tells nobody that a lease is lost, and finds every lease held.
    SilentLoss,
    /// Whatever a master said, or if it said nothing: not to be refused is to be granted.
    ErrorIsYes,
    /// It says that it keeps a lease alive, and does not.
    NoWatchdog,
    /// It forgets an acquire that is given up, with what it has sent.
    LeaksCancelled,
    /// It counts the TTL of an extension from the first reply.
    ExtendsFromReply,
    /// It gives back a majority of the masters, and leaves the others to time.
    ReleasesMajority,
    /// It measures by a clock that stops while the machine is suspended.
    ForgetsSuspend,
    /// It deducts a tenth less than the drift allowance.
    DriftShort,
    /// It sends every SET once more, later, on another connection.
    SendsAgain,
    /// It takes the largest number of its grants for its fencing token, and certifies none; nor does it give
    /// a hint.
    LargestGrant,
    /// The same with the median of the numbers.
    MedianGrant,
    /// It certifies the largest number that it has seen, not the q-th smallest.
    FollowsLargest,
    /// It counts what a master said of its counter in an earlier hold.
    EarlierNumber,
    /// It certifies on any majority of the masters, whoever holds the key there; nor does it give a hint.
    CertifiesAnywhere,
    /// Its counters stay at their end, as doubles do at 2⁵³, and its grants go on.
    StaysAtEnd,
    /// It hints at the last number there is, and no master bounds that by its own clock.
    HintUnclamped,
    /// It gives a lease back with the first of its handles.
    FirstReleaseFrees,
    /// It lets the owner of a lease in again without a look at the clock.
    ReentersDead,
    /// Of several resources it keeps what it has while it waits for the others.
    KeepsSome,
    /// It waits for what holders have left of their TTLs: it hears no word of a master, and learns nothing
    /// when it looks.
    DeafForEver,
    /// It has all who wait called when an attempt failed, too.
    CallsAlways,
    /// It is told to keep the order of those who wait, and does not.
    JumpsQueue,
    /// It keeps its place in the line when it gives up, and when it has what it waited for.
    KeepsPlace,
    /// It goes back to the end of the line whenever it asks whose turn it is.
    LosesPlace,
}

impl Lie {
    /// All of them, the honest one first.
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

    /// Its name on the command line.
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

    /// What is wrong with it, in one line.
    pub const fn about(self) -> &'static str {
        match self {
            Self::None => "nothing is wrong: must pass everything",
            Self::NoDeadlineCheck => "hands out a lease that is over already",
            Self::T0AfterFirstReply => "counts the TTL from the first reply",
            Self::WallClock => "measures by a clock that can be set",
            Self::SmallQuorum => "takes half of the masters, rounded down, for a quorum",
            Self::DriftIgnored => "deducts no drift from the TTL (but 1 ms)",
            Self::PlainDel => "deletes the key whoever holds it",
            Self::ReleaseAcknowledgedOnly => "cleans up only where its SET was acknowledged",
            Self::ExtendWithoutTokenCheck => "extends the key whoever holds it",
            Self::ExtendCountsMinority => "extends if one master still has the key",
            Self::OneToken => "sets the same value in every attempt",
            Self::ServerTwice => "counts the first master for the second, too",
            Self::SilentLoss => "tells nobody that a lease is lost",
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
            Self::CertifiesAnywhere => "certifies a number where somebody else holds the key",
            Self::StaysAtEnd => "goes on counting where numbers end, and counts in place",
            Self::HintUnclamped => "hints at the last number there is, and is believed",
            Self::FirstReleaseFrees => "gives a lease back with the first of its handles",
            Self::ReentersDead => "lets its owner into a lease that is over",
            Self::KeepsSome => "keeps some of several resources while it waits for the others",
            Self::DeafForEver => "hears nobody and looks in vain while it waits",
            Self::CallsAlways => "calls all who wait when an attempt failed, too",
            Self::JumpsQueue => "keeps no order of those who wait, though it says so",
            Self::KeepsPlace => "does not leave the line when its wait is over",
            Self::LosesPlace => "goes to the end of the line whenever it asks whose turn it is",
        }
    }

    /// The drift allowance that it makes of the one in the options.
    #[must_use]
    pub const fn drift(self, honest: Drift) -> Drift {
        match self {
            // The least that the machines take.
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

    /// The bytes that it makes of a command. The answer is read as if it had been honest.
    pub fn encode(self, command: &Command, out: &mut Vec<u8>) {
        match (self, command) {
            (Self::PlainDel, Command::Delete { key, .. }) => write_command(out, &[b"DEL", key]),
            (Self::ExtendWithoutTokenCheck, Command::Keep { key, ttl_ms, .. }) => {
                write_command(out, &[b"PEXPIRE", key, ttl_ms.to_string().as_bytes()]);
            }
            _ => match self.laxity().filter(|lax| lax.is_about(command)) {
                Some(lax) => lax.encode(command, out),
                None => self.with_token(command).encode(out),
            },
        }
    }

    /// What masters are not asked to do.
    #[must_use]
    pub const fn laxity(self) -> Option<Laxity> {
        match self {
            Self::CertifiesAnywhere => Some(Laxity::Uncompared),
            Self::HintUnclamped => Some(Laxity::Unclamped),
            Self::StaysAtEnd => Some(Laxity::Endless),
            _ => None,
        }
    }

    /// Whether it does harm inside the assumptions of the lock often enough to be come by. Else a
    /// scenario must be made for it: somebody sets a counter to its end, or messages come in one order
    /// among very many, or processes wait in line; or what it does is busy, and not wrong.
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

    /// The hint that it makes of the one that its wall clock gives. Without one counters count by
    /// ones, and go apart: what is wrong shows where no clock hides it.
    #[must_use]
    pub const fn hint(self, honest: u64) -> u64 {
        match self {
            Self::HintUnclamped => u64::MAX,
            Self::LargestGrant | Self::MedianGrant | Self::CertifiesAnywhere => 0,
            _ => honest,
        }
    }

    /// The command with the value that it sets for its token.
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

    /// The value that it sets for a token. The machines see a fresh one in every attempt, or their
    /// links would keep two attempts apart; on the wire only the client's own half is left.
    #[must_use]
    pub fn on_the_wire(self, token: Token) -> Token {
        let mut bytes = *token.as_bytes();
        if self == Self::OneToken {
            bytes[TOKEN_LEN / 2..].fill(0);
        }
        Token::new(bytes)
    }
}

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Lie {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = Self::ALL.into_iter();
        all.clone().find(|lie| lie.name() == name).ok_or_else(|| {
            let names: Vec<_> = all.map(Self::name).collect();
            format!("there is no mutant {name:?}; there are {}", names.join(", "))
        })
    }
}
