//! The rig with real `redis-server` processes: what it promises, and that nothing is left behind.
//! Each file tests one promise; `support.rs` inspects processes from outside.

#[cfg(unix)]
#[macro_use(cases)]
extern crate redquorum_rig;

#[cfg(unix)]
mod binary;
#[cfg(unix)]
#[path = "../both/mod.rs"]
mod both;
#[cfg(unix)]
mod clock_clients;
#[cfg(unix)]
mod left_behind;
#[cfg(unix)]
mod network;
#[cfg(unix)]
mod own;
#[cfg(unix)]
mod support;
#[cfg(unix)]
#[path = "../network/support.rs"]
#[expect(dead_code, reason = "the tests of the network use the rest")]
mod wire;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    if let Some(end) = std::env::var_os(left_behind::CHILD) {
        return left_behind::child(&end);
    }
    if std::env::var_os(clock_clients::CHILD).is_some() {
        return clock_clients::child();
    }
    let both = both::tests().map(|(name, test)| {
        redquorum_rig::trials::with_masters(name, move || test(redquorum_rig::Masters::builder()))
    });
    let own = [
        own::cases(),
        network::cases(),
        clock_clients::cases(),
        left_behind::cases(),
        binary::cases(),
    ];
    redquorum_rig::trials::run(both.chain(own.into_iter().flatten()))
}

#[cfg(not(unix))]
fn main() {
    let error = redquorum_rig::Masters::start(1).unwrap_err();
    assert!(matches!(error, redquorum_rig::RigError::Unsupported), "{error}");
}
