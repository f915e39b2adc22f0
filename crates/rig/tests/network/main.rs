//! The network of faults: each fault, as both ends of a connection and the observer see it. Tests
//! of `real.rs` need real masters. The other tests play both ends themselves.

#[macro_use(cases)]
extern crate redquorum_rig;

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
