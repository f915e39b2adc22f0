//! The network of faults: each harm, seen from both ends of a connection and by the observer. Tests
//! of `real.rs` need real masters; the others are both ends themselves.

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
