//! `new`: writes a scenario to start from, which can run as it is.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use super::words::{complain, say};
use crate::report::Code;
use redquorum_scenario::is_name_char;

pub(super) fn main(name: &str) -> Result<Code, Code> {
    if name.is_empty() || !name.chars().all(is_name_char) {
        let fix = "use lower-case letters, digits and `-`, as in `two-masters-restart`";
        return Err(complain(Code::Usage, &format!("`{name}` is no name for a scenario"), fix));
    }
    let folder = Path::new(if Path::new("scenarios").is_dir() { "scenarios" } else { "" });
    let path = folder.join(format!("{name}.toml"));
    // Creates the file only if it does not exist, so that it overwrites nothing.
    let file = OpenOptions::new().write(true).create_new(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(text(name).as_bytes()));
    let path = path.display();
    match written {
        Ok(()) => say(&format!("{path} is written; run it: redquorum-chaos {path}")),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let fix = "choose another name, or edit that file";
            Err(complain(Code::Usage, &format!("{path} exists already"), fix))
        }
        Err(error) => {
            let wrong = format!("{path} cannot be written: {error}");
            Err(complain(Code::Environment, &wrong, "look at the folder's permissions"))
        }
    }
}

/// The text of a new scenario.
fn text(name: &str) -> String {
    include_str!("template.toml").replace("NAME", name)
}
