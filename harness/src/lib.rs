//! Fault injection for multi-master Redis locks.

pub mod client;
pub mod history;
pub mod judge;
pub mod scenario;
pub mod stamp;
pub mod talk;
