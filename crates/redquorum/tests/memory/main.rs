//! The whole lock against masters in memory, in virtual time: no test here sleeps in real time.

mod any;
mod at_least;
mod cancel;
mod holder;
mod hostile;
mod leader;
mod lease;
mod lists;
mod many;
mod options;
mod reentry;
mod sharing;
mod shutdown;
mod signal;
mod support;
mod threads;
mod unpolled;
mod vanished;
mod wait;
