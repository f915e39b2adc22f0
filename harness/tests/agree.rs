//! The simulation compared with real masters: every scenario gets the same verdict on real masters
//! and in virtual time, property by property and cause by cause. A machine that stalls can spoil a
//! run in real time, so a run may be repeated twice.

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    use redquorum_checker::{Outcome, check};
    use redquorum_harness::real::{Backend, BackendKind, ScenarioRunner, Setup};
    use redquorum_rig::trials::{run, thrice, with_masters};
    use redquorum_scenario::Mutant;
    use redquorum_scenario::embedded_runs;
    use redquorum_simulator;

    let mut cases = Vec::new();
    for run in embedded_runs().chain(found()) {
        cases.push(with_masters(&run.name.clone(), move || {
            let setup = Setup { backend: BackendKind::Process, ..Setup::default() };
            let client = [env!("CARGO_BIN_EXE_redquorum-chaos").into(), "client".into()];
            let backend = Backend::prepare(&setup).unwrap();
            let backend = backend.with_command("built-in", client.into());
            if let Err(why) = backend.can(&run) {
                // Printed, and not counted as agreement: only the simulation can run this scenario.
                println!("{}: only in virtual time: {why}", run.name);
                return;
            }
            let virtual_ = check(&redquorum_simulator::run(&run, 1, Mutant::None));
            assert_eq!(virtual_.outcome, Outcome::AsExpected, "{:?}", virtual_.differences);
            thrice(|| {
                let real = check(&backend.run(&run, 1, None, &mut |_| {}).unwrap());
                assert_eq!(
                    (real.outcome, &real.observed, &real.because),
                    (virtual_.outcome, &virtual_.observed, &virtual_.because),
                    "real: {:#?}\nvirtual: {:#?}",
                    real.findings,
                    virtual_.findings,
                );
            });
        }));
    }
    assert!(cases.len() > 40, "there are scenarios to compare");
    run(cases)
}

/// The results of an exhaustive search: the smallest schedule of each class of failures.
#[cfg(unix)]
fn found() -> Vec<redquorum_scenario::Scenario> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/found");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let read = |file: std::path::PathBuf| {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut run = redquorum_scenario::read(&file.file_name().unwrap().to_string_lossy(), &text)
            .unwrap_or_else(|problems| panic!("{problems}"));
        run.name = format!("found/{}", run.name);
        run
    };
    let all: Vec<_> = files.map(read).collect();
    assert!(all.len() > 6, "{} are there", all.len());
    all
}

#[cfg(not(unix))]
fn main() {}
