//! What holds for every input: time arithmetic, claims that are told anything, and one link
//! with a master that does anything to it, until it is healed.

mod claim;
mod clock;
mod gap;
mod link;
mod time;
mod wire;
