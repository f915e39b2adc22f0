//! What fails, where it can be shown, and what it is expected to do to each strategy.

use std::time::Duration;

use crate::{
    database::Product,
    masters::Source,
    recommend::Violations,
    results::{Fault, Figures, Needs, Workload},
    strategy::Kind,
};

impl Fault {
    /// Whether one applicant is paused inside its critical section while others apply.
    pub(crate) const fn pauses_an_applicant(self) -> bool {
        matches!(self, Self::PausePastTtl | Self::RedisRestart | Self::ReplicaPromoted)
    }

    /// The TTL of locks while it happens: short only where locks are to expire.
    pub(crate) const fn ttl(self) -> Duration {
        if let Self::PausePastTtl = self { Duration::from_secs(1) } else { TTL }
    }

    pub(crate) const fn timeout(self) -> Duration {
        if let Self::MasterKilled = self { Duration::from_secs(3) } else { TIMEOUT }
    }
}

pub(crate) const TTL: Duration = Duration::from_secs(10);
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn not_offered(
    kind: Kind,
    fault: Option<Fault>,
    product: Product,
    source: &Source,
) -> Option<&'static str> {
    if product == Product::Sqlite {
        match kind {
            Kind::Pessimistic => return Some("SQLite has no row locks"),
            Kind::NamedLock | Kind::NamedLockEarly => return Some("SQLite has no named locks"),
            _ => {}
        }
    }
    if matches!(source, Source::Memory) && kind.needs() == Needs::OneRedis {
        return Some("a lock on one Redis needs redis-server, which is not installed");
    }
    match fault? {
        Fault::CommitReplyLost if product == Product::Sqlite => {
            Some("SQLite is embedded: there is no connection that breaks")
        }
        Fault::PausePastTtl | Fault::CommitReplyLost => None,
        _ if !kind.needs().uses_redis() => Some("the strategy uses no Redis"),
        _ if matches!(source, Source::Remote(_)) => {
            Some("the contest does not break masters that it did not start")
        }
        Fault::ReplicaPromoted if matches!(source, Source::Memory) => {
            Some("masters in memory have no replicas")
        }
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// No lost update and no oversold place, and all places are taken.
    Exact,
    /// No lost update and no oversold place. Applicants may get errors.
    Safe,
    /// Lost updates or oversold places.
    Violation,
    /// Lost updates, and deadlocks.
    ViolationAndDeadlocks,
    Anything,
}

pub(crate) fn expectation(
    kind: Kind,
    workload: Workload,
    fault: Option<Fault>,
    product: Product,
) -> Expectation {
    let one_redis = kind.needs() == Needs::OneRedis;
    match fault {
        _ if !kind.correct() => match (workload, fault, product) {
            (Workload::Rush, None, Product::MariaDb) if kind == Kind::None => {
                Expectation::ViolationAndDeadlocks
            }
            (Workload::Rush, None, Product::MariaDb) => Expectation::Violation,
            _ => Expectation::Anything,
        },
        None if workload.shape().at_once => Expectation::Exact,
        None => Expectation::Safe,
        Some(Fault::PausePastTtl) if one_redis || kind == Kind::Redquorum => Expectation::Violation,
        Some(Fault::RedisRestart | Fault::ReplicaPromoted) if one_redis => Expectation::Violation,
        Some(Fault::MasterKilled) if one_redis => Expectation::Safe,
        Some(_) => Expectation::Exact,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Expected,
    /// A wrong strategy, or a fault, was not caught.
    NotCaught,
    /// A correct strategy lost updates, oversold places, or left places free.
    Wrong,
}

impl Expectation {
    pub(crate) fn verdict(self, workload: Workload, figures: &Figures) -> Verdict {
        let violations = Violations::of(workload, figures);
        match self {
            Self::Exact if !violations.is_none() => Verdict::Wrong,
            Self::Safe if violations.corrupts() => Verdict::Wrong,
            Self::Violation if !violations.corrupts() => Verdict::NotCaught,
            Self::ViolationAndDeadlocks if figures.lost_updates == 0 || figures.deadlocks == 0 => {
                Verdict::NotCaught
            }
            _ => Verdict::Expected,
        }
    }
}
