//! Pages of HTML: the base that all of them extend, its style, and how templates are filled. Each
//! page is one file that needs no network.
//!
//! Templates only arrange what they are given, and escape all of it.

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior};
use serde::Serialize;

/// An environment that has `base.html` with its `style.css`, for the templates of a program.
///
/// # Errors
///
/// These templates are part of the program, so an error is a defect of the program.
pub fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    // A misspelled field is an error, not an empty cell.
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // The file extension decides the escaping: `.html` is escaped; `.css` and `.js` are text of the
    // program.
    environment.set_auto_escape_callback(|name| match name.ends_with(".html") {
        true => AutoEscape::Html,
        false => AutoEscape::None,
    });
    environment.add_template("base.html", include_str!("page/base.html"))?;
    environment.add_template("style.css", include_str!("page/style.css"))?;
    Ok(environment)
}

/// Fills a template with values.
///
/// # Errors
///
/// The template is not there, or names something that the values do not have.
pub fn fill(
    environment: &Environment<'_>,
    name: &str,
    values: &impl Serialize,
) -> io::Result<String> {
    let template = environment.get_template(name).map_err(io::Error::other)?;
    template.render(Serde(values)).map_err(io::Error::other)
}
