//! Tests of the checker on histories written by hand, in the notation of `notation.rs`.

use crate::client_protocol::{Capability, FailureReason};
use crate::history::{
    Act, Event, Header, History, LeftKey, Ns, Outcome as CommandOutcome, Phase, Record, SCHEMA,
    Window,
};
use crate::name::Name;
use crate::scenario::{AccessKind, Property, Scenario};

use super::{Observed, Outcome, Verdict, check as check_history};

mod causes;
mod exclusion;
mod fencing;
mod garbled;
mod holds;
mod keys;
mod measures;
pub(crate) mod notation;
mod outcome;
mod progress;
mod validity;
