//! Whether a strategy can be the answer to a situation.

use super::answer::MissingRun;
use super::assessment::{Assessment, BASELINE, expected_faults};
use super::summary::Verdict;
use crate::results::{Fault, Workload};

/// The workloads without which nothing is known about a strategy.
const REQUIRED_WORKLOADS: &[Workload] = &[Workload::Rush, Workload::LastPlace];

/// A strategy that fits a situation.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    pub(super) assessment: &'a Assessment,
    pub(super) standing: Standing,
    /// What a user should know if the candidate is chosen.
    caveats: Vec<String>,
}

/// What the figures say about a candidate.
#[derive(Debug)]
pub(super) enum Standing {
    /// It was correct where the situation needs it.
    Eligible,
    /// It was wrong, or is not offered, as this reason says.
    Rejected(String),
    /// These runs are missing.
    Unknown(Vec<MissingRun>),
}

impl<'a> Candidate<'a> {
    /// Examines the runs of a strategy. Under `required` faults it must have been measured, under
    /// `tolerated` faults it may have been wrong.
    pub(super) fn new(assessment: &'a Assessment, required: &[Fault], tolerated: &[Fault]) -> Self {
        let mut examination = Examination::default();
        for workload in Workload::ALL {
            let needed = REQUIRED_WORKLOADS.contains(&workload);
            examination.workload(assessment, workload, needed);
        }
        for fault in Fault::ALL {
            examination.fault(assessment, fault, required.contains(&fault), tolerated);
        }
        let Examination { rejection, missing, caveats } = examination;
        let standing = match rejection {
            // A wrong run decides, whatever else is missing.
            Some(reason) => Standing::Rejected(reason),
            None if missing.is_empty() => Standing::Eligible,
            None => Standing::Unknown(missing),
        };
        Self { assessment, standing, caveats }
    }

    /// The figures in favour of the candidate, then its caveats.
    pub(super) fn evidence(&self) -> Vec<String> {
        let measured = self.assessment.measured();
        let mut evidence = Vec::new();
        if let Some(ratio) = self.assessment.ratio().filter(|_| !self.is_baseline()) {
            evidence.push(format!("{ratio:.2} × the throughput of {BASELINE}"));
        }
        let runs = self.assessment.workloads.iter().map(|(_, summary)| summary.wrong);
        if runs.chain(self.assessment.faults.iter().map(|(_, it)| it.wrong)).sum::<usize>() == 0 {
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

    /// The name of the strategy, and why it is not the answer.
    pub(super) fn rejection(&self) -> Option<(&'a str, String)> {
        match &self.standing {
            Standing::Rejected(reason) => Some((&self.assessment.info.name, reason.clone())),
            Standing::Eligible | Standing::Unknown(_) => None,
        }
    }

    /// The runs that its ratio lacks.
    pub(super) fn missing_throughput(&self) -> MissingRun {
        let run = (Workload::Throughput).name();
        MissingRun { run, is_fault: false, strategies: vec![self.name()], reason: None }
    }

    fn is_baseline(&self) -> bool {
        self.assessment.info.name == BASELINE
    }

    fn name(&self) -> String {
        self.assessment.info.name.clone()
    }
}

/// What the runs of a strategy have shown so far.
#[derive(Debug, Default)]
struct Examination {
    rejection: Option<String>,
    missing: Vec<MissingRun>,
    caveats: Vec<String>,
}

impl Examination {
    fn workload(&mut self, assessment: &Assessment, workload: Workload, needed: bool) {
        let name = workload.name();
        match assessment.workload(workload) {
            Verdict::Correct => {}
            Verdict::Wrong(violations) => {
                self.reject(format!("{} in {name}", violations.describe()));
            }
            Verdict::NotOffered(reason) if needed => self.reject(format!("not offered, {reason}")),
            Verdict::Failed(error) => self.lack(assessment, name, false, Some(error)),
            Verdict::NotRun if needed => self.lack(assessment, name, false, None),
            Verdict::NotOffered(_) | Verdict::NotRun => {}
        }
    }

    fn fault(
        &mut self,
        assessment: &Assessment,
        fault: Fault,
        required: bool,
        tolerated: &[Fault],
    ) {
        let name = fault.name();
        let tolerated = tolerated.contains(&fault);
        let expected = required || expected_faults(assessment.info.needs).contains(&fault);
        match assessment.fault(fault) {
            Verdict::Correct => {}
            Verdict::Wrong(violations) => {
                let statement = format!("{} under {name}", violations.describe());
                if violations.corrupts() && !tolerated {
                    self.reject(statement);
                } else {
                    self.caveats.push(statement);
                }
            }
            Verdict::NotOffered(reason) if required => {
                self.lack(assessment, name, true, Some(reason));
            }
            Verdict::NotOffered(_) if expected => {
                self.caveats.push(format!("{name} is not offered here"));
            }
            Verdict::Failed(error) if expected => self.lack(assessment, name, true, Some(error)),
            Verdict::NotRun if expected && !tolerated => self.lack(assessment, name, true, None),
            Verdict::NotRun if expected => self.caveats.push(format!("{name} was not run")),
            Verdict::NotOffered(_) | Verdict::Failed(_) | Verdict::NotRun => {}
        }
    }

    fn reject(&mut self, reason: String) {
        self.rejection.get_or_insert(reason);
    }

    fn lack(
        &mut self,
        assessment: &Assessment,
        run: &'static str,
        is_fault: bool,
        reason: Option<String>,
    ) {
        let strategies = vec![assessment.info.name.clone()];
        self.missing.push(MissingRun { run, is_fault, strategies, reason });
    }
}
