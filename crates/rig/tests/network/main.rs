//! The network of faults: each harm, seen from both ends of a connection and by the observer. Tests
//! of `real.rs` need real masters; the others are both ends themselves.

/// A list of tests: `with_masters` those that need a server, `plain` those that do not.
macro_rules! cases {
    ($($kind:ident: $test:ident),* $(,)?) => {
        vec![$(redquorum_rig::trials::$kind(stringify!($test), $test)),*]
    };
}

mod choosing;
mod ends;
mod losing;
mod passing;
mod real;
mod support;
mod volume;
mod waiting;

fn main() -> std::process::ExitCode {
    let cases = [
        passing::cases(),
        ends::cases(),
        volume::cases(),
        losing::cases(),
        waiting::cases(),
        choosing::cases(),
        real::cases(),
    ];
    redquorum_rig::trials::run(cases.into_iter().flatten())
}
