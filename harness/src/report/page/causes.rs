//! One sentence for each cause of violations.

use crate::scenario::Cause;

pub(super) const fn meaning(cause: Cause) -> &'static str {
    match cause {
        Cause::ClockStep => "the clock of a master was set forward, so a token expired early.",
        Cause::ClockRate => "the clock of a master ran too fast, so a token expired early.",
        Cause::ClockStrobe => "the clock of a master jumped to and fro, so a token expired early.",
        Cause::NodeRestart => "a master restarted and forgot the tokens that it had.",
        Cause::NodeFlush => "FLUSHALL on a master removed the tokens that it had.",
        Cause::NodeEvict => "a master that ran out of memory evicted tokens.",
        Cause::NodePowerLoss => {
            "a master lost its power, and the tokens that were not on its disk."
        }
        Cause::NodeFailover => "a replica without the newest tokens replaced its master.",
        Cause::NodeCounter => "the fencing counters of masters are at their end.",
        Cause::ClientClock => {
            "a lost fencing counter began anew from a client's wall clock that is behind."
        }
        Cause::ClientRate => "the clock by which a client measures its leases ran too slow.",
        Cause::ClientPause => {
            "a client was paused between its last look at the deadline and its write."
        }
        Cause::ResourceDelay => {
            "a write that a client sent in time arrived after the end of its lease."
        }
        Cause::NodeLists => "clients know different masters, and their quorums need not share one.",
        Cause::MaxTtl => "guards of clients have different longest TTLs.",
        Cause::LateWrite => {
            "a client wrote after its lease had ended, without looking at the deadline."
        }
        Cause::Bug => "no fault explains it: a bug of the lock under test.",
        Cause::Unknown => "the record does not tell.",
    }
}
