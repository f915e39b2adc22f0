//! The command `redquorum-chaos`.

use std::process::ExitCode;

use redquorum_harness::real::{Choice, Ground, Setup};
use redquorum_harness::scenario::Scenario;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("client") => redquorum_harness::client::main(),
        Some("client-check") => {
            let command = std::env::args().nth(2).unwrap_or_default();
            match redquorum_harness::client_check::check(&command, &mut std::io::stdout()) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::from(1),
                Err(why) => {
                    eprintln!("{why}");
                    ExitCode::from(3)
                }
            }
        }
        Some(path) => {
            let start = std::time::Instant::now();
            let scenario: Scenario =
                toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
            let choice =
                if std::env::args().nth(2).is_some() { Choice::Container } else { Choice::Process };
            let ground = Ground::prepare(&Setup { choice, ..Setup::default() }).unwrap();
            eprintln!("{}", ground.describe());
            for run in scenario.runs() {
                let history = ground
                    .run(&run, 1, &mut |what| eprintln!("{:?} {what}", start.elapsed()))
                    .unwrap();
                history.write(&mut std::io::stdout()).unwrap();
            }
            ExitCode::SUCCESS
        }
        _ => ExitCode::SUCCESS,
    }
}
