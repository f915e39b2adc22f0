//! The situations of the decision table, and which strategies can be the answer to each.

use super::answer::{Answer, Decision, MissingRun};
use super::assessment::Assessment;
use super::candidate::{Candidate, Standing};
use super::summary::Verdict;
use crate::results::{Fault, Needs};

/// The strategies that present a fencing token to the resource.
const FENCED: &[&str] = &["redquorum-fenced"];

/// The strategies that apply an application in one statement, or without any protection.
const NO_DATABASE_LOCK: &[&str] = &["none", "atomic-update"];

/// What a reader needs a strategy for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Situation {
    /// One SQL statement can check the rule and apply the change.
    OneStatement,
    /// Several statements in one database belong together.
    SeveralStatements,
    /// One process can apply all requests for a resource.
    OneWorker,
    /// The work is outside of one database. It may run twice on occasion.
    RareDoubleRun,
    /// A double run is acceptable while a client is paused, but not when a Redis server fails.
    RedisFails,
    /// The work must not run twice, and the resource compares tokens.
    ComparesTokens,
    /// The work must not run twice, and the resource cannot compare tokens.
    CannotCompareTokens,
}

impl Situation {
    /// All situations, from the simplest tool to the most costly one.
    pub const ALL: [Self; 7] = [
        Self::OneStatement,
        Self::SeveralStatements,
        Self::OneWorker,
        Self::RareDoubleRun,
        Self::RedisFails,
        Self::ComparesTokens,
        Self::CannotCompareTokens,
    ];

    /// The condition in words: what follows "if".
    #[must_use]
    pub fn condition(self) -> &'static str {
        match self {
            Self::OneStatement => "the rule fits into one SQL statement",
            Self::SeveralStatements => "the rule takes several statements in one database",
            Self::OneWorker => "requests can wait for one worker that applies them in order",
            Self::RareDoubleRun => {
                "the work is outside of one database, and a rare double run is acceptable"
            }
            Self::RedisFails => {
                "the work is outside of one database, and no failure of a Redis server may cause \
                 a double run"
            }
            Self::ComparesTokens => {
                "the work is outside of one database, a double run loses money, and the resource \
                 can compare a token"
            }
            Self::CannotCompareTokens => {
                "the work is outside of one database, a double run loses money, and the resource \
                 cannot compare a token"
            }
        }
    }

    /// Answers the situation from the figures.
    #[must_use]
    pub fn decide(self, assessments: &[Assessment]) -> Decision {
        if self == Self::CannotCompareTokens {
            return self.warn(assessments);
        }
        let candidates: Vec<_> = assessments
            .iter()
            // A wrong strategy may be lucky in every run of a contest.
            .filter(|it| it.info.correct && self.admits(it))
            .map(|it| Candidate::new(it, self.required(it.info.needs), self.tolerated()))
            .collect();
        let (answer, mut evidence) = choose(&candidates);
        if matches!(answer, Answer::Incomplete { .. }) {
            return Decision { situation: self, answer, evidence: Vec::new() };
        }
        let rejected = merge(candidates.iter().filter_map(Candidate::rejection));
        evidence.extend(rejected.iter().map(|it| format!("not {it}")));
        if self == Self::ComparesTokens {
            let plain = oversold_when_paused(assessments);
            evidence.extend(plain.iter().map(|it| format!("without a token, {it}")));
        }
        Decision { situation: self, answer, evidence }
    }

    /// Whether a strategy fits the situation, whatever its figures.
    fn admits(self, assessment: &Assessment) -> bool {
        let name = assessment.info.name.as_str();
        let needs = assessment.info.needs;
        match self {
            Self::OneStatement => needs == Needs::Nothing,
            Self::SeveralStatements => needs == Needs::Nothing && !NO_DATABASE_LOCK.contains(&name),
            Self::OneWorker => needs == Needs::Worker,
            Self::RareDoubleRun => needs == Needs::OneRedis,
            Self::RedisFails => is_plain_lock(assessment),
            // A strategy without a token that was correct under the pause was lucky.
            Self::ComparesTokens => FENCED.contains(&name),
            Self::CannotCompareTokens => false,
        }
    }

    /// The faults under which the strategy must have been measured. For other faults, the reason
    /// why the contest does not offer them is enough.
    fn required(self, needs: Needs) -> &'static [Fault] {
        match (self, needs) {
            (Self::RedisFails, Needs::OneRedis) => &[Fault::RedisRestart, Fault::ReplicaPromoted],
            (Self::RedisFails, _) => &[Fault::MasterKilled, Fault::MasterHung],
            (Self::ComparesTokens, _) => &[Fault::PausePastTtl],
            _ => &[],
        }
    }

    /// The faults under which the strategy may be wrong.
    fn tolerated(self) -> &'static [Fault] {
        match self {
            Self::RareDoubleRun => {
                &[Fault::PausePastTtl, Fault::RedisRestart, Fault::ReplicaPromoted]
            }
            Self::RedisFails => &[Fault::PausePastTtl],
            _ => &[],
        }
    }

    /// Names the locks that oversold. No figures can recommend a lock here: without a token, a
    /// paused client writes after its lock has expired.
    fn warn(self, assessments: &[Assessment]) -> Decision {
        let evidence = oversold_when_paused(assessments);
        if !evidence.is_empty() {
            return Decision { situation: self, answer: Answer::NoStrategy, evidence };
        }
        let mut missing = Vec::new();
        for it in assessments.iter().filter(|it| is_plain_lock(it)) {
            let reason = match it.fault(Fault::PausePastTtl) {
                Verdict::NotOffered(reason) | Verdict::Failed(reason) => Some(reason),
                Verdict::NotRun => None,
                Verdict::Correct | Verdict::Wrong(_) => {
                    Some("the pause did not hit a critical section".to_owned())
                }
            };
            let strategies = vec![it.info.name.clone()];
            let run = (Fault::PausePastTtl).name();
            MissingRun { run, is_fault: true, strategies, reason }.add(&mut missing);
        }
        Decision { situation: self, answer: Answer::Incomplete { missing }, evidence }
    }
}

/// Chooses the fastest eligible candidate, if no figures are missing.
fn choose(candidates: &[Candidate<'_>]) -> (Answer, Vec<String>) {
    let mut missing = Vec::new();
    let mut eligible = Vec::new();
    for candidate in candidates {
        match &candidate.standing {
            Standing::Eligible => eligible.push(candidate),
            Standing::Rejected(_) => {}
            Standing::Unknown(runs) => runs.iter().for_each(|run| run.clone().add(&mut missing)),
        }
    }
    // A single candidate is the fastest one without a measurement.
    if eligible.len() > 1 {
        for candidate in eligible.iter().filter(|it| it.assessment.ratio().is_none()) {
            candidate.missing_throughput().add(&mut missing);
        }
    }
    if !missing.is_empty() {
        missing.sort_by_key(|run: &MissingRun| run.is_fault);
        return (Answer::Incomplete { missing }, Vec::new());
    }
    let ratio = |it: &Candidate<'_>| it.assessment.ratio().unwrap_or_default();
    eligible.sort_by(|a, b| ratio(b).total_cmp(&ratio(a)));
    let Some(best) = eligible.first() else { return (Answer::NoStrategy, Vec::new()) };
    let mut evidence = best.evidence();
    // A narrow lead may be noise: the reader sees both ratios.
    if let Some(next) = eligible.get(1) {
        let (count, name) = (eligible.len(), &next.assessment.info.name);
        let ratio = ratio(next);
        evidence.insert(0, format!("the fastest of {count}; the next is {name}, {ratio:.2} ×"));
    }
    let strategy = best.assessment.info.name.clone();
    (Answer::Use { strategy, ratio: best.assessment.ratio() }, evidence)
}

/// Whether the strategy takes a lock in Redis and presents no token.
fn is_plain_lock(assessment: &Assessment) -> bool {
    let info = &assessment.info;
    matches!(info.needs, Needs::OneRedis | Needs::SeveralMasters)
        && !FENCED.contains(&info.name.as_str())
}

fn oversold_when_paused(assessments: &[Assessment]) -> Vec<String> {
    let locks = assessments.iter().filter(|it| is_plain_lock(it));
    let pause = (Fault::PausePastTtl).name();
    merge(locks.filter_map(|it| match it.fault(Fault::PausePastTtl) {
        Verdict::Wrong(violations) if violations.corrupts() => {
            Some((it.info.name.as_str(), format!("{} under {pause}", violations.describe())))
        }
        _ => None,
    }))
}

/// Statements about strategies, one for each set of strategies with the same statement.
fn merge<'a>(statements: impl Iterator<Item = (&'a str, String)>) -> Vec<String> {
    let mut merged: Vec<(Vec<&str>, String)> = Vec::new();
    for (strategy, statement) in statements {
        match merged.iter_mut().find(|(_, it)| *it == statement) {
            Some((strategies, _)) => strategies.push(strategy),
            None => merged.push((vec![strategy], statement)),
        }
    }
    let line = |(names, text): &(Vec<&str>, String)| format!("{}: {text}", names.join(", "));
    merged.iter().map(line).collect()
}
