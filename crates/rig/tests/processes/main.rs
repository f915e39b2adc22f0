//! The rig with real `redis-server` processes: what it promises, and that nothing is left behind.
//! Each file tests one promise; `support.rs` inspects processes from outside.

#[cfg(unix)]
#[macro_use(cases)]
extern crate redquorum_rig;

#[cfg(unix)]
mod binary;
#[cfg(unix)]
mod clock_clients;
#[cfg(unix)]
mod clocks;
#[cfg(unix)]
mod left_behind;
#[cfg(unix)]
mod persistence;
#[cfg(unix)]
mod replicas;
#[cfg(unix)]
mod start;
#[cfg(unix)]
mod support;
#[cfg(unix)]
mod verbs;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    if let Some(end) = std::env::var_os(left_behind::CHILD) {
        return left_behind::child(&end);
    }
    if let Ok(task) = std::env::var(clock_clients::CHILD) {
        return clock_clients::child(&task);
    }
    let cases = [
        start::cases(),
        verbs::cases(),
        persistence::cases(),
        replicas::cases(),
        clocks::cases(),
        clock_clients::cases(),
        left_behind::cases(),
        binary::cases(),
    ];
    redquorum_rig::trials::run(cases.into_iter().flatten())
}

#[cfg(not(unix))]
fn main() {
    let error = redquorum_rig::Masters::start(1).unwrap_err();
    assert!(matches!(error, redquorum_rig::RigError::Unsupported), "{error}");
}
