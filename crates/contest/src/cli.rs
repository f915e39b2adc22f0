//! The command line: starts what its options say.

use std::process::ExitCode;

use clap::Parser;

use crate::{
    contest,
    options::{Command, Options, code},
    results::{Fault, Workload},
    run,
    strategy::Kind,
};

/// Runs the program.
pub fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            // Help and version go to standard output.
            let _printed = error.print();
            return ExitCode::from(if error.use_stderr() { code::USAGE } else { 0 });
        }
    };
    if options.list {
        list();
        return ExitCode::SUCCESS;
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("contest: the runtime does not start: {error}");
            return ExitCode::from(code::INTERNAL);
        }
    };
    let exit = runtime.block_on(async {
        match &options.command {
            Some(Command::Applicant { socket }) => match run::child(socket).await {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("applicant: {error}");
                    code::INTERNAL
                }
            },
            None => contest::run(&options).await,
        }
    });
    // A server that hangs does not keep the process.
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    ExitCode::from(exit)
}

fn list() {
    let print = |heading: &str, names: &[(&str, &str)]| {
        println!("{heading}:");
        names.iter().for_each(|(name, title)| println!("  {name:<18} {title}"));
    };
    print("strategies", &Kind::ALL.map(|kind| (kind.name(), kind.title())));
    print("\nworkloads", &Workload::ALL.map(|workload| (workload.name(), workload.title())));
    print("\nfaults", &Fault::ALL.map(|fault| (fault.name(), fault.title())));
}
