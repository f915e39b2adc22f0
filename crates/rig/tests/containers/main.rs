//! Masters in containers: what the rig promises of them, and that nothing is left behind. Each file
//! tests one promise; `support.rs` queries the engine from outside.

#[macro_use(cases)]
extern crate redquorum_rig;

#[path = "../both/mod.rs"]
mod both;
mod left_behind;
mod missing;
mod support;

fn main() -> std::process::ExitCode {
    if let Some(part) = std::env::var_os(support::CHILD) {
        return support::child(&part.to_string_lossy());
    }
    let both = both::tests().map(|(name, test)| {
        redquorum_rig::trials::with_containers(name, move || test(support::containers()))
    });
    let own = [left_behind::cases(), missing::cases()];
    redquorum_rig::trials::run(both.chain(own.into_iter().flatten()))
}
