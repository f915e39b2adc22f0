//! The situations of the decision table, which strategies can be the answer to each, and the
//! answer with the figures that it rests on.

use std::fmt;

use super::{Assessment, BASELINE, Verdict, expected_faults};
use crate::names::titled;
use crate::results::{Fault, Needs, Workload};

/// A row of the decision table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The situation.
    pub situation: Situation,
    /// The answer.
    pub answer: Answer,
    /// The figures behind the answer, one short statement each.
    pub evidence: Vec<String>,
}

/// The answer to a situation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Use this strategy.
    Use {
        /// The name of the strategy.
        strategy: String,
    },
    /// No strategy of the contest is correct in this situation.
    NoStrategy,
    /// The contest lacks runs that the answer depends on.
    Incomplete {
        /// The missing runs.
        missing: Vec<MissingRun>,
    },
}

impl Answer {
    /// The command of a contest that has the missing runs. It makes all of them: figures of
    /// different contests cannot be compared.
    pub fn command(&self) -> Option<String> {
        let Self::Incomplete { missing } = self else { return None };
        // Another contest on the same servers does not change a reason.
        let runs: Vec<_> = missing.iter().filter(|it| it.reason.is_none()).collect();
        let faults = runs.iter().filter(|it| it.is_fault).map(|it| format!(" --fault {}", it.run));
        (!runs.is_empty()).then(|| format!("cargo contest{}", faults.collect::<String>()))
    }
}

/// Runs that a contest lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRun {
    /// The name of the workload or of the fault.
    pub run: &'static str,
    /// Whether `run` names a fault.
    pub is_fault: bool,
    /// The strategies without this run.
    pub strategies: Vec<String>,
    /// The reason, where the contest has one: not offered, or an error.
    pub reason: Option<String>,
}

impl MissingRun {
    fn of(it: &Assessment, run: &'static str, is_fault: bool, reason: Option<String>) -> Self {
        Self { run, is_fault, strategies: vec![it.info.name.clone()], reason }
    }

    /// Adds a run, and merges it with one that differs only in its strategy.
    fn add(self, to: &mut Vec<Self>) {
        let same = to.iter_mut().find(|it| it.run == self.run && it.reason == self.reason);
        match same {
            Some(same) => same.strategies.extend(self.strategies),
            None => to.push(self),
        }
    }
}

impl fmt::Display for MissingRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, strategies, reason, .. } = self;
        write!(f, "{run} of {}", strategies.join(", "))?;
        reason.as_ref().map_or(Ok(()), |reason| write!(f, " ({reason})"))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Use { strategy } => f.write_str(strategy),
            Self::NoStrategy => f.write_str("no strategy"),
            Self::Incomplete { missing } => {
                let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
                write!(f, "missing: {}", missing.join("; "))
            }
        }
    }
}

/// The strategies that present a fencing token to the resource.
const FENCED: &[&str] = &["redquorum-fenced"];

/// The strategies that apply an application in one statement, or without any protection.
const NO_DATABASE_LOCK: &[&str] = &["none", "atomic-update"];

titled! {
    /// What a reader needs a strategy for, from the simplest tool to the most costly one. The title
    /// is the condition: what follows "if".
    #[non_exhaustive]
    pub enum Situation {
        OneStatement "the rule fits into one SQL statement",
        SeveralStatements "the rule takes several statements in one database",
        OneWorker "requests can wait for one worker that applies them in order",
        RareDoubleRun
            "the work is outside of one database, and a rare double run is acceptable",
        RedisFails
            "the work is outside of one database, and no failure of a Redis server may cause a \
             double run",
        ComparesTokens
            "the work is outside of one database, a double run loses money, and the resource can \
             compare a token",
        CannotCompareTokens
            "the work is outside of one database, a double run loses money, and the resource \
             cannot compare a token",
    }
}

impl Situation {
    /// Answers the situation from the figures.
    pub fn decide(self, assessments: &[Assessment]) -> Decision {
        if self == Self::CannotCompareTokens {
            return self.warn(assessments);
        }
        let candidates: Vec<_> = assessments
            .iter()
            // A wrong strategy may be lucky in every run of a contest.
            .filter(|it| it.info.correct && self.admits(it))
            .map(|it| Candidate::new(it, self))
            .collect();
        let (answer, mut evidence) = choose(&candidates);
        if matches!(answer, Answer::Incomplete { .. }) {
            return Decision { situation: self, answer, evidence: Vec::new() };
        }
        let rejected = merge(
            candidates
                .iter()
                .filter_map(|it| Some((it.assessment.info.name.as_str(), it.rejection.clone()?))),
        );
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
            let run = (Fault::PausePastTtl).name();
            MissingRun::of(it, run, true, reason).add(&mut missing);
        }
        Decision { situation: self, answer: Answer::Incomplete { missing }, evidence }
    }
}

#[derive(Debug)]
struct Candidate<'a> {
    assessment: &'a Assessment,
    /// Why it was wrong, or is not offered. A wrong run decides, whatever else is missing.
    rejection: Option<String>,
    missing: Vec<MissingRun>,
    /// What a user should know if the candidate is chosen.
    caveats: Vec<String>,
}

impl<'a> Candidate<'a> {
    fn new(assessment: &'a Assessment, situation: Situation) -> Self {
        let mut this =
            Self { assessment, rejection: None, missing: Vec::new(), caveats: Vec::new() };
        for workload in Workload::ALL {
            // Without these, nothing is known about a strategy.
            let needed = matches!(workload, Workload::Rush | Workload::LastPlace);
            let name = workload.name();
            match assessment.workload(workload) {
                Verdict::Wrong(violations) => {
                    this.reject(format!("{} in {name}", violations.describe()));
                }
                Verdict::NotOffered(reason) if needed => {
                    this.reject(format!("not offered, {reason}"));
                }
                Verdict::Failed(error) => this.lack(name, false, Some(error)),
                Verdict::NotRun if needed => this.lack(name, false, None),
                Verdict::Correct | Verdict::NotOffered(_) | Verdict::NotRun => {}
            }
        }
        for fault in Fault::ALL {
            let name = fault.name();
            let tolerated = situation.tolerated().contains(&fault);
            let needs = assessment.info.needs;
            let required = situation.required(needs).contains(&fault);
            let expected = required || expected_faults(needs).contains(&fault);
            match assessment.fault(fault) {
                Verdict::Wrong(violations) => {
                    let statement = format!("{} under {name}", violations.describe());
                    if violations.corrupts() && !tolerated {
                        this.reject(statement);
                    } else {
                        this.caveats.push(statement);
                    }
                }
                Verdict::NotOffered(reason) if required => this.lack(name, true, Some(reason)),
                Verdict::NotOffered(_) if expected => {
                    this.caveats.push(format!("{name} is not offered here"));
                }
                Verdict::Failed(error) if expected => this.lack(name, true, Some(error)),
                Verdict::NotRun if expected && !tolerated => this.lack(name, true, None),
                Verdict::NotRun if expected => this.caveats.push(format!("{name} was not run")),
                _ => {}
            }
        }
        this
    }

    fn reject(&mut self, reason: String) {
        self.rejection.get_or_insert(reason);
    }

    fn lack(&mut self, run: &'static str, is_fault: bool, reason: Option<String>) {
        self.missing.push(MissingRun::of(self.assessment, run, is_fault, reason));
    }

    /// The figures in favour of the candidate, then its caveats.
    fn evidence(&self) -> Vec<String> {
        let mut evidence = Vec::new();
        if let Some(ratio) = self.assessment.ratio()
            && self.assessment.info.name != BASELINE
        {
            evidence.push(format!("{ratio:.2} × the throughput of {BASELINE}"));
        }
        if let (measured, 0) = self.assessment.measured() {
            evidence.push(format!("correct in all {measured} runs"));
        }
        evidence.extend(self.caveats.iter().cloned());
        let stalls = self.assessment.faults.iter().filter_map(|(fault, summary)| {
            let seconds = summary.stall_ms()? / 1000.0;
            Some(format!("stalled for {seconds:.1} s under {}", (*fault).name()))
        });
        evidence.extend(stalls);
        evidence
    }
}

/// Chooses the fastest eligible candidate, if no figures are missing.
fn choose(candidates: &[Candidate<'_>]) -> (Answer, Vec<String>) {
    let mut missing = Vec::new();
    let (mut eligible, lacking): (Vec<_>, Vec<_>) =
        candidates.iter().filter(|it| it.rejection.is_none()).partition(|it| it.missing.is_empty());
    lacking.iter().flat_map(|it| &it.missing).for_each(|run| run.clone().add(&mut missing));
    // A single candidate is the fastest one without a measurement.
    if eligible.len() > 1 {
        for candidate in eligible.iter().filter(|it| it.assessment.ratio().is_none()) {
            let run = (Workload::Throughput).name();
            MissingRun::of(candidate.assessment, run, false, None).add(&mut missing);
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
    (Answer::Use { strategy }, evidence)
}

/// Whether the strategy takes a lock in Redis and presents no token.
fn is_plain_lock(assessment: &Assessment) -> bool {
    let info = &assessment.info;
    info.needs.uses_redis() && !FENCED.contains(&info.name.as_str())
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
    let line = |(text, names): (String, Vec<&str>)| format!("{}: {text}", names.join(", "));
    group(statements).into_iter().map(line).collect()
}

/// Statements, each with the strategies that it is about.
pub(crate) fn group<'a>(
    statements: impl Iterator<Item = (&'a str, String)>,
) -> Vec<(String, Vec<&'a str>)> {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for (strategy, statement) in statements {
        match groups.iter_mut().find(|(it, _)| *it == statement) {
            Some((_, names)) if names.contains(&strategy) => {}
            Some((_, names)) => names.push(strategy),
            None => groups.push((statement, vec![strategy])),
        }
    }
    groups
}
