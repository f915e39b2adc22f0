//! Properties for every input: time arithmetic, claims under any inputs, and one link with a master
//! that behaves arbitrarily until it is healed.

mod claim;
mod clock;
mod gap;
mod link;
mod time;
mod wire;
