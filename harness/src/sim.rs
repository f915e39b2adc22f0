//! The scenarios in virtual time.
//!
//! [`server`] is a master: a model of Redis as far as the lock can tell it from the real one. It
//! knows nothing of the rest; the differential test holds it against a real server.

pub mod server;
