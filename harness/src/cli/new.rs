//! `new`: writes a scenario to start from, which can run as it is.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use super::words::{complain, say};
use crate::report::Code;
use redquorum_scenario::{FaultKind, is_name_char};

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
    let names = FaultKind::names();
    let group = |name: &&str| name.split_once('.').map(|(group, _)| group.to_owned());
    let groups = names.chunk_by(|one, next| group(one) == group(next));
    let faults: Vec<String> = groups.flat_map(lines).collect();
    include_str!("template.toml").replace("#   FAULTS\n", &faults.concat()).replace("NAME", name)
}

/// The names of faults in lines of a comment.
fn lines(names: &[&str]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let word = if index + 1 < names.len() { format!("{name}, ") } else { (*name).to_owned() };
        match lines.last_mut() {
            Some(line) if line.len() + word.len() <= 96 => line.push_str(&word),
            _ => lines.push(format!("#   {word}")),
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_scenario_names_all_faults_and_can_be_read() {
        let text = text("mine");
        for name in FaultKind::names() {
            let is_name = |word: &str| word.trim_end_matches(',') == name;
            assert!(text.split_whitespace().any(is_name), "{name}");
        }
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        assert!(redquorum_scenario::read("mine.toml", &text).is_ok());
    }
}
