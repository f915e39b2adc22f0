//! Reads a scenario file: first as TOML, then piece by piece into the types, at last the sense of
//! the whole. What is wrong is told with its place and its mend, as much at once as can be seen.

use toml::de::DeTable;

use super::Scenario;
use super::problem::{Problem, Problems};

mod check;
mod explain;
mod shape;
mod tree;

/// How many errors of syntax are shown: behind the first few, the parser guesses.
const MOST_SYNTAX: usize = 3;

/// Reads a scenario. The file's name is for the messages, and for the scenario's name, which must
/// be the file's without `.toml`.
///
/// # Errors
/// All that is wrong with it.
pub fn read(file: &str, text: &str) -> Result<Scenario, Problems> {
    let problems = |list| Problems::new(file, text, list);
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let list = errors.iter().map(|error| {
            let told = explain::syntax(error.message());
            let span = error.span().unwrap_or(text.len()..text.len());
            Problem::new(text, span, told.message, told.mend)
        });
        let mut list: Vec<Problem> = list.collect();
        list.sort_by_key(|problem| problem.line);
        list.dedup_by_key(|problem| problem.line);
        list.truncate(MOST_SYNTAX);
        return Err(problems(list));
    }
    let scenario = shape::read(text, &root).map_err(problems)?;
    let found = check::check(file, &scenario);
    if found.is_empty() {
        return Ok(scenario);
    }
    let list = found.into_iter().map(|found| {
        let place = |place: &tree::Place| place.span(text, root.as_ref());
        let problem = Problem::new(text, place(&found.place), found.message, found.mend);
        match &found.also {
            Some((other, why)) => problem.also(text, place(other), why.clone()),
            None => problem,
        }
    });
    Err(problems(list.collect()))
}
