//! The whole lock against masters in memory, in virtual time: no test here sleeps in real time.

mod cancel;
mod clock;
mod contention;
mod extend;
mod fair;
mod faults;
mod fencing;
mod grace;
mod guard;
mod lease;
mod many;
mod reentry;
mod run;
mod several;
mod shutdown;
mod signal;
mod support;
mod threads;
mod wait;
mod waiting;
mod watchdog;
