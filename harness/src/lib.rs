//! Fault injection for multi-master Redis locks.

pub mod director;
pub mod history;
pub mod judge;
pub mod scenario;
pub mod talk;
