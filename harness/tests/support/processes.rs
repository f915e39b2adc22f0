//! Masters in processes for tests that run scenarios themselves.

use redquorum_harness::real::{Choice, RealBackend, Setup};

/// The backend, with the built-in client of the program under test.
pub(crate) fn processes() -> RealBackend {
    let setup = Setup { choice: Choice::Process, ..Setup::default() };
    let client = [env!("CARGO_BIN_EXE_redquorum-chaos").into(), "client".into()];
    RealBackend::prepare(&setup).unwrap().with_command("built-in", client.into())
}
