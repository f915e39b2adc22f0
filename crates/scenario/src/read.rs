//! Reads a scenario file: first as TOML, then piece by piece into the types. Finally, it checks the
//! sense of the whole. Each problem has its place and its fix, and one read reports as many
//! problems as it can find.

use toml::de::DeTable;

use super::Scenario;
use super::problem::{Problem, Problems};

mod check;
mod explain;
mod shape;
mod tree;

/// The number of syntax errors that are shown. After the first few, the parser guesses.
const MOST_SYNTAX: usize = 3;

/// Reads a scenario. Messages name the file. The scenario's name must be the file's without
/// `.toml`.
///
/// # Errors
/// All problems of the file.
pub fn read(file: &str, text: &str) -> Result<Scenario, Problems> {
    let problems = |list| Problems::new(file, text, list);
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let list = errors.iter().map(|error| {
            let why = explain::syntax(error.message());
            let span = error.span().unwrap_or(text.len()..text.len());
            Problem::new(text, span, why.message, why.fix)
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
        let problem = Problem::new(text, place(&found.place), found.message, found.fix);
        match &found.also {
            Some((other, why)) => problem.also(text, place(other), why.clone()),
            None => problem,
        }
    });
    Err(problems(list.collect()))
}

/// Whether a scenario that was not read from a file makes sense.
pub fn makes_sense(scenario: &Scenario) -> bool {
    check::check("", scenario).is_empty()
}

/// The line of a run's expectation in a scenario's text: the place to correct if the result
/// differs. `name` is the name of the run, with its variant.
pub fn line_of(text: &str, name: &str) -> usize {
    let Ok(root) = DeTable::parse(text) else { return 1 };
    let place = tree::Place::default();
    let place = match name.split_once('/') {
        None => place.key("expect"),
        Some((_, variant)) => {
            let variants = root.as_ref().get("variant").and_then(|list| list.as_ref().as_array());
            let of = |table: &toml::Spanned<toml::de::DeValue<'_>>| {
                let name = table.as_ref().get("name").and_then(|name| name.as_ref().as_str());
                name == Some(variant)
            };
            let index = variants.and_then(|list| list.iter().position(of)).unwrap_or_default();
            place.key("variant").index(index).key("expect")
        }
    };
    let span = place.span(text, root.as_ref());
    Problem::new(text, span, String::new(), String::new()).line
}
