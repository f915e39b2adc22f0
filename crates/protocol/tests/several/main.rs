//! Claims on several resources: the machine alone, and the shipped claims under it in a model world.

mod order;
mod world;
mod worlds;
