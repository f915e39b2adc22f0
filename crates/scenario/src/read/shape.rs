//! Checks whether the pieces of a file have the shape of a scenario. Each client, step, fault and
//! table is read on its own, so that a wrong piece does not hide the others.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IntoDeserializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::explain::{self, Explanation};
use super::tree::narrowed;
use crate::problem::Problem;
use crate::{Client, Cluster, Expect, Fault, Lock, Scenario, Step, Variant};

const FIELDS: [&str; 9] =
    ["name", "about", "source", "cluster", "lock", "client", "fault", "expect", "variant"];
const OF_VARIANTS: [&str; 7] = ["name", "about", "cluster", "lock", "client", "fault", "expect"];

/// Reads the scenario, or reports the problem of every wrong piece.
pub(super) fn read(text: &str, root: &Spanned<DeTable<'_>>) -> Result<Scenario, Vec<Problem>> {
    let mut shape = Shape { text, problems: Vec::new() };
    shape.fields(root.as_ref(), &FIELDS, &["name", "about", "client"], 0..0);
    let whole = Scenario::deserialize(root.clone().into_deserializer());
    match whole {
        Ok(scenario) if shape.problems.is_empty() => Ok(scenario),
        Ok(_) => Err(shape.problems),
        Err(why) => {
            // The error is known already, unless the pieces are right and only the whole is wrong.
            if shape.problems.is_empty() {
                shape.problem(&why, 0..0);
            }
            Err(shape.problems)
        }
    }
}

struct Shape<'a> {
    text: &'a str,
    problems: Vec<Problem>,
}

impl Shape<'_> {
    /// An error about a whole value has no place of its own: it takes the value's place.
    fn problem(&mut self, why: &toml::de::Error, value: Range<usize>) {
        self.explained(explain::shape(why.message()), why.span().unwrap_or(value));
    }

    fn explained(&mut self, explained: Explanation, span: Range<usize>) {
        let Explanation { message, fix, word } = explained;
        let span = word.map_or(span.clone(), |word| narrowed(self.text, span, &word));
        self.problems.push(Problem::new(self.text, span, message, fix));
    }

    /// The pieces of a scenario or of a variant.
    fn fields(&mut self, table: &DeTable<'_>, known: &[&str], needed: &[&str], span: Range<usize>) {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            match name {
                _ if !known.contains(&name) => {
                    self.explained(explain::unknown_field(name, known), key.span());
                }
                "client" => self.each(key, value, Self::client),
                "fault" => self.each(key, value, Self::piece::<Fault>),
                "variant" => self.each(key, value, Self::variant),
                "cluster" => self.piece::<Cluster>(value),
                "lock" => self.piece::<Lock>(value),
                "expect" => self.piece::<Expect>(value),
                _ => self.piece::<String>(value),
            }
        }
        for name in needed {
            if !table.keys().any(|key| key.get_ref() == name) {
                self.explained(explain::shape(&format!("missing field `{name}`")), span.clone());
            }
        }
    }

    fn piece<T: DeserializeOwned>(&mut self, value: &Spanned<DeValue<'_>>) {
        if let Err(why) = T::deserialize(value.clone().into_deserializer()) {
            self.problem(&why, value.span());
        }
    }

    fn each(
        &mut self,
        key: &Spanned<Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        of: fn(&mut Self, &Spanned<DeValue<'_>>),
    ) {
        match value.as_ref() {
            DeValue::Array(list) => list.iter().for_each(|value| of(self, value)),
            _ => {
                let name = key.get_ref();
                let what = format!("there can be several: `{name}` is a list");
                let fix = format!("write the header with two brackets: `[[{name}]]`");
                self.problems.push(Problem::new(self.text, key.span(), what, fix));
            }
        }
    }

    fn client(&mut self, value: &Spanned<DeValue<'_>>) {
        let before = self.problems.len();
        let script = value.as_ref().as_table().and_then(|table| table.get("script"));
        if let Some(steps) = script.and_then(|script| script.as_ref().as_array()) {
            steps.iter().for_each(|step| self.piece::<Step>(step));
        }
        if self.problems.len() == before {
            self.piece::<Client>(value);
        }
    }

    fn variant(&mut self, value: &Spanned<DeValue<'_>>) {
        match value.as_ref().as_table() {
            Some(table) => {
                self.fields(table, &OF_VARIANTS, &["name", "about", "expect"], value.span());
            }
            None => self.piece::<Variant>(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_fields_are_those_of_the_types() {
        fn fields<T: schemars::JsonSchema>() -> Vec<String> {
            let schema = serde_json::to_value(schemars::schema_for!(T)).unwrap();
            let mut names: Vec<String> =
                schema["properties"].as_object().unwrap().keys().cloned().collect();
            names.sort();
            names
        }
        let sorted = |mut names: Vec<&'static str>| {
            names.sort_unstable();
            names
        };
        assert_eq!(fields::<Scenario>(), sorted(FIELDS.to_vec()));
        assert_eq!(fields::<Variant>(), sorted(OF_VARIANTS.to_vec()));
    }
}
