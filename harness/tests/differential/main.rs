//! The model of Redis, compared with the real server. Both execute random sequences of commands,
//! clock steps, rates, restarts, pauses and lost connections. The test compares every reply
//! exactly.
//!
//! - `plan.rs` draws the steps.
//! - `real.rs` plays them on a `redis-server`, `model.rs` on a model. It also has models with
//!   deliberate errors. The comparison must notice each of them.
//! - `compare.rs` compares the results, and finds the first difference.
//! - `single.rs` covers what random steps do not reach.
//!
//! `REDQUORUM_SEED=N` plays other plans, `REDQUORUM_STEPS=N` a longer one.

#[cfg(unix)]
mod compare;
#[cfg(unix)]
mod model;
#[cfg(unix)]
mod plan;
#[cfg(unix)]
mod real;
#[cfg(unix)]
mod single;

#[cfg(unix)]
mod cases {
    use redquorum_redis_model::Persistence;
    use redquorum_rig::clocks_supported;
    use redquorum_rig::trials::{Case, plain, with_masters};

    use super::compare::{Record, check};
    use super::model;

    /// Steps for each kind of persistence, which give more than 10 000 commands.
    const STEPS: usize = 7000;

    fn number(variable: &str, default: usize) -> usize {
        std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
    }

    fn record(persistence: Persistence) -> (u64, Record) {
        let seed = number("REDQUORUM_SEED", 1) as u64 * 3 + persistence as u64;
        let record = Record::of_seed(seed, number("REDQUORUM_STEPS", STEPS), persistence);
        println!("seed {seed}, {persistence:?}: {} replies", record.replies());
        (seed, record)
    }

    fn alike(persistence: Persistence) {
        let (seed, record) = record(persistence);
        assert!(record.replies() * 2 > record.plan.len() * 3, "{}", record.replies());
        check(seed, &record);
        model::all_noticed(&record);
    }

    pub(super) fn all() -> Vec<Case> {
        let mut all = crate::single::all();
        all.extend(compared());
        all
    }

    fn compared() -> Vec<Case> {
        if let Err(why) = clocks_supported() {
            return vec![plain("without_clocks_there_is_no_comparison", move || {
                println!("{why}");
            })];
        }
        vec![
            with_masters("without_persistence", || alike(Persistence::None)),
            with_masters("synced_every_second", || alike(Persistence::AofEverysec)),
            with_masters("synced_always", || alike(Persistence::AofAlways)),
        ]
    }
}

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    redquorum_rig::trials::run(cases::all())
}

#[cfg(not(unix))]
fn main() {
    eprintln!("a real master is stopped by signals: use Linux");
}
