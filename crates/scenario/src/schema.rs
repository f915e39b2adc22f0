//! The JSON Schema of scenario files, for editors.

use super::Scenario;

/// The JSON Schema of scenario files.
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(Scenario);
    schema.insert(
        "$id".to_owned(),
        "https://github.com/redquorum/redquorum/scenario.schema.json".into(),
    );
    schema.insert("title".to_owned(), "A scenario of redquorum-chaos".into());
    schema.into()
}
