//! The network of faults: each fault, as both ends of a connection and the observer see it. The
//! tests play both ends themselves; those with real masters are in `tests/processes`.

mod choosing;
mod ends;
mod every;
mod losing;
mod passing;
mod support;
mod volume;
mod waiting;
