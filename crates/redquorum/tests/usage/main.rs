//! Random usage of the library: a search for faults in programs that no test has thought of.
//!
//! A [`plan`] is drawn from a seed. [`run`] plays it on masters in memory or on real ones, and
//! checks what must hold in every run. A plan that fails is printed. More runs, and one run again:
//!
//! ```text
//! REDQUORUM_USAGE_RUNS=5000 cargo test -p redquorum --test usage memory
//! REDQUORUM_USAGE_SEED=17 REDQUORUM_USAGE_RUNS=1 cargo test -p redquorum --test usage memory
//! ```
//!
//! A seed draws the same plan each time. The library draws its own tokens and pauses, so a rare
//! violation may need several runs of one plan to show again.

mod backend;
mod plan;
mod proxy;
mod run;
mod search;

fn main() -> std::process::ExitCode {
    redquorum_rig::trials::run(search::cases())
}
