//! Annotations and the job summary in GitHub's format.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::human::observed;
use super::{Entry, Session};

pub(crate) fn annotation(file: Option<&Path>, line: usize, title: &str, text: &str) -> String {
    let place = match file {
        Some(file) => format!("file={},line={line},", property(&file.display().to_string())),
        None => String::new(),
    };
    format!("::error {place}title={}::{}\n", property(title), data(text))
}

/// The annotation of a run that needs attention.
pub(super) fn of(entry: &Entry) -> String {
    // The file of a scenario that comes with the program exists when the program runs in its own
    // repository.
    let base = entry.name.split('/').next().unwrap_or_default();
    let own = PathBuf::from(format!("scenarios/{base}.toml"));
    let file = entry.file.clone().or_else(|| Some(own).filter(|own| own.is_file()));
    let mut text = entry.differences().join("\n");
    _ = write!(text, "\nagain: {}", entry.again);
    let title = format!("{}: {}", entry.name, entry.word());
    annotation(file.as_deref(), entry.line, &title, &text)
}

/// Appends to the job summary, if the environment names one.
pub(super) fn summary(session: &Session, entries: &[Entry]) -> io::Result<()> {
    let Some(path) = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty()) else {
        return Ok(());
    };
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(table(session, entries).as_bytes())
}

fn table(session: &Session, entries: &[Entry]) -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', "<br>");
    let mut text = format!(
        "### redquorum-chaos\n\nseed `{}`, {}: {}\n\n\
         | | outcome | scenario | observed |\n|---|---|---|---|\n",
        session.seed,
        session.backend,
        cell(&session.masters)
    );
    for entry in entries {
        let sign = if entry.is_good() { "✅" } else { "❌" };
        _ = writeln!(
            text,
            "| {sign} | {} | `{}` | {} |",
            entry.word(),
            entry.name,
            cell(&observed(entry))
        );
    }
    text
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::super::Ended;
    use super::*;

    #[test]
    fn the_summary_is_a_table_that_no_text_breaks() {
        let entry = Entry::of("a/b", Ended::Skipped("this | that".to_owned()));
        let text = table(&Session::default(), &[entry]);
        assert!(text.ends_with("\n|---|---|---|---|\n| ✅ | skipped | `a/b` | this \\| that |\n"));
    }

    #[test]
    fn separators_in_an_annotation_are_escaped() {
        let line = annotation(Some(Path::new("a,b.toml")), 3, "x: y", "100 %\nnext: one");
        assert_eq!(line, "::error file=a%2Cb.toml,line=3,title=x%3A y::100 %25%0Anext: one\n");
    }
}
