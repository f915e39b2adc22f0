//! Claims on several resources: the machine alone, and the shipped claims under it in a model
//! world.

#[path = "../support/chance.rs"]
mod chance;
mod order;
mod world;
mod worlds;
