//! The lock as programs use it. Most tests run twice: on masters in memory, in virtual time, and on
//! real masters (`support.rs` has the trait of both). Simulated masters alone would behave as we
//! believe that Redis does.
//!
//! The known faults of other lock libraries are among the tests. Not here, because this library has
//! no such feature: a fencing counter on one master, a majority instead of the quorum of a
//! semaphore, and two keys of one lock concatenated into one. A wall clock for elapsed time is not
//! here either, because no test can step the clock of its machine.
//!
//! `raw.rs` has a client without a protocol. Without a `redis-server`, the tests `real::` are
//! reported as ignored.

#[macro_use]
mod support;

mod access;
mod cleanup;
mod connections;
mod deadline;
mod ends;
mod fencing;
mod guard;
mod keys;
mod monitor;
mod moving;
mod outages;
mod outcomes;
mod refusals;
mod resource;
mod several;
mod shards;
mod sharing;
mod tls;
mod waking;
mod zombies;

fn main() -> std::process::ExitCode {
    let cases = [
        access::cases(),
        cleanup::cases(),
        connections::cases(),
        deadline::cases(),
        ends::cases(),
        fencing::cases(),
        guard::cases(),
        keys::cases(),
        moving::cases(),
        outages::cases(),
        outcomes::cases(),
        refusals::cases(),
        resource::cases(),
        several::cases(),
        shards::cases(),
        sharing::cases(),
        tls::cases(),
        waking::cases(),
        zombies::cases(),
    ];
    redquorum_rig::trials::run(cases.into_iter().flatten())
}
