//! The command `redquorum-mutant`: a client with a deliberate bug. `--mutant NAME` runs this mutant
//! with the client protocol, and `--list` prints all mutants.

use std::process::ExitCode;

use redquorum_scenario::Mutant;

const USAGE: u8 = 64;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let why = match words.as_slice() {
        ["--list"] => {
            Mutant::clients()
                .for_each(|mutant| println!("{:<26} {}", mutant.name(), mutant.about()));
            return ExitCode::SUCCESS;
        }
        ["--mutant", name] => match name.parse() {
            Ok(mutant) => be(mutant),
            Err(why) => why,
        },
        _ => "usage: redquorum-mutant --mutant NAME, or --list".to_owned(),
    };
    eprintln!("redquorum-mutant: {why}");
    ExitCode::from(USAGE)
}

#[cfg(unix)]
fn be(mutant: Mutant) -> String {
    match redquorum_harness::mutants::run(mutant) {
        Ok(never) => match never {},
        Err(why) => why,
    }
}

#[cfg(not(unix))]
fn be(_: Mutant) -> String {
    "clients run on Unix systems only: use Linux, macOS or WSL".to_owned()
}
