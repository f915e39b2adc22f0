//! The rows of the decision table.

use serde::Serialize;

use crate::recommend::{Answer, Recommendation, Situation};

/// A row: if the condition holds, then use the strategy.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    condition: &'static str,
    /// `use`, `no-strategy` or `incomplete`.
    kind: &'static str,
    /// Whether no lock can be the answer, as opposed to none of those in the contest.
    no_lock_suffices: bool,
    strategy: Option<Strategy>,
    missing: Vec<String>,
    /// The command that makes the missing runs.
    command: Option<String>,
    evidence: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Strategy {
    name: String,
    title: String,
    needs: &'static str,
}

/// The rows of the decision table, in the order of the situations.
pub(super) fn rows(recommendation: &Recommendation) -> Vec<Row> {
    let rows = recommendation.decisions.iter().map(|decision| {
        let (kind, strategy, missing) = match &decision.answer {
            Answer::Use { strategy, .. } => {
                ("use", describe(recommendation, strategy), [].as_slice())
            }
            Answer::NoStrategy => ("no-strategy", None, [].as_slice()),
            Answer::Incomplete { missing } => ("incomplete", None, missing.as_slice()),
        };
        let missing = missing.iter().map(ToString::to_string).collect();
        let condition = decision.situation.condition();
        let no_lock_suffices = decision.situation == Situation::CannotCompareTokens;
        let command = decision.answer.command();
        let evidence = decision.evidence.clone();
        Row { condition, kind, no_lock_suffices, strategy, missing, command, evidence }
    });
    rows.collect()
}

fn describe(recommendation: &Recommendation, name: &str) -> Option<Strategy> {
    let found = recommendation.assessments.iter().find(|it| it.info.name == name);
    found.map(|it| Strategy {
        name: name.to_owned(),
        title: it.info.title.clone(),
        needs: it.info.needs.title(),
    })
}
