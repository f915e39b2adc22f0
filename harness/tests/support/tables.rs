//! Tables of documents that a command printed. A document has them between two marks:
//!
//! ```text
//! <!-- printed by: just mutants -->
//! | a | table |
//! <!-- printed: 0123456789ab -->
//! ```
//!
//! `just evidence` runs the command and writes its table and the digest of the table. The test
//! `tidy` refuses a table that was changed since.

use std::ops::Range;

const BEGIN: &str = "<!-- printed by: ";
const END: &str = "<!-- printed: ";
const CLOSE: &str = " -->";

/// A table of a document.
#[derive(Debug)]
pub(crate) struct Table {
    /// The command that printed it.
    pub(crate) command: String,
    /// Which of the tables that the command prints, counted from 1.
    #[cfg_attr(test, expect(dead_code, reason = "`tidy` compares digests"))]
    pub(crate) number: usize,
    /// Where the table is in the document.
    pub(crate) place: Range<usize>,
    /// The digest that the document gives, and its place.
    pub(crate) digest: (String, Range<usize>),
}

/// The tables of a document that commands printed.
///
/// # Errors
///
/// The line of a mark that is not complete.
pub(crate) fn tables(text: &str) -> Result<Vec<Table>, String> {
    let mut tables = Vec::new();
    let mut from = 0;
    while let Some(begin) = text[from..].find(BEGIN).map(|at| from + at) {
        let broken =
            || format!("line {}: a mark without an end", text[..begin].lines().count() + 1);
        let name = begin + BEGIN.len();
        let name_end = name + text[name..].find(CLOSE).ok_or_else(broken)?;
        let start = name_end + CLOSE.len() + "\n".len();
        let end = start + text.get(start..).and_then(|rest| rest.find(END)).ok_or_else(broken)?;
        let digest = end + END.len();
        let digest_end = digest + text[digest..].find(CLOSE).ok_or_else(broken)?;
        let (command, number) = match text[name..name_end].rsplit_once(", table ") {
            Some((command, number)) => (command, number.parse().map_err(|_| broken())?),
            None => (&text[name..name_end], 1),
        };
        tables.push(Table {
            command: command.to_owned(),
            number,
            place: start..end,
            digest: (text[digest..digest_end].to_owned(), digest..digest_end),
        });
        from = digest_end;
    }
    Ok(tables)
}

/// The digest of a table's text.
pub(crate) fn digest(table: &str) -> String {
    sha1_smol::Sha1::from(table.trim()).digest().to_string()[..12].to_owned()
}
