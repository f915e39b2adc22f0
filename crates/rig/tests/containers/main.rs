//! Masters in containers: what the rig promises of them, and that nothing is left behind. Each file
//! tests one promise; `support.rs` queries the engine from outside.

#[macro_use(cases)]
extern crate redquorum_rig;

mod clocks;
mod left_behind;
mod missing;
mod start;
mod support;
mod verbs;

fn main() -> std::process::ExitCode {
    if let Some(part) = std::env::var_os(support::CHILD) {
        return support::child(&part.to_string_lossy());
    }
    let cases =
        [start::cases(), verbs::cases(), clocks::cases(), left_behind::cases(), missing::cases()];
    redquorum_rig::trials::run(cases.into_iter().flatten())
}
