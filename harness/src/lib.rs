//! Fault injection for multi-master Redis locks.

#[cfg(unix)]
pub mod client;
#[cfg(unix)]
pub mod client_check;
pub mod history;
pub mod judge;
#[cfg(unix)]
pub mod process;
pub mod sabotage;
pub mod scenario;
#[cfg(unix)]
pub mod stamp;
pub mod talk;
