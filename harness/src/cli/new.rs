//! `new`: writes a scenario to start from, which can run as it is.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use super::Code;
use super::words::{complain, say};

const TEMPLATE: &str = include_str!("template.toml");

/// The text of a new scenario.
pub(super) fn text(name: &str) -> String {
    TEMPLATE.replace("NAME", name)
}

pub(super) fn main(name: &str) -> Code {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(good) {
        complain(
            &format!("`{name}` is no name for a scenario"),
            "use lower-case letters, digits and `-`, as in `two-masters-restart`",
        );
        return Code::Usage;
    }
    let folder = Path::new("scenarios");
    let folder = if folder.is_dir() { folder } else { Path::new("") };
    let path = folder.join(format!("{name}.toml"));
    // Creates the file only if it does not exist, so that it overwrites nothing.
    let file = OpenOptions::new().write(true).create_new(true).open(&path);
    match file.and_then(|mut file| file.write_all(text(name).as_bytes())) {
        Ok(()) => {
            let path = path.display();
            say(&format!("{path} is written; run it: redquorum-chaos {path}"))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let wrong = format!("{} exists already", path.display());
            complain(&wrong, "choose another name, or edit that file");
            Code::Usage
        }
        Err(error) => {
            let wrong = format!("{} cannot be written: {error}", path.display());
            complain(&wrong, "look at the folder's permissions");
            Code::Environment
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_a_scenario() {
        let scenario = crate::scenario::read("a-b.toml", &text("a-b"));
        let scenario = scenario.unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(scenario.name, "a-b");
        assert!(!scenario.faults.is_empty());
    }
}
