//! The client processes that the simulation can run: the shipped machines, honest or mutant, or the
//! library itself (`library.rs`).

use redquorum_protocol::Time;

use crate::client_machine::{Clocks, Honest, InputContext, Process, ProcessEvent};
use redquorum_scenario::Mutant;
use redquorum_scenario::client_protocol::Options;

/// A client process: gets events and returns effects, and reads no clock.
pub trait SimulatedProcess {
    /// Starts a process with so many masters, which it dials.
    fn start(
        options: Options,
        nodes: usize,
        mutant: Mutant,
        context: &mut InputContext<'_>,
    ) -> Self;

    /// Whether the process has tried every master.
    fn is_ready(&self) -> bool;

    /// Handles an event and adds its effects.
    fn handle(&mut self, event: ProcessEvent, context: &mut InputContext<'_>);

    /// When to report [`ProcessEvent::Wake`], by the monotonic clock.
    fn next_wake(&self, clocks: Clocks) -> Time;
}

/// The shipped machines, honest or mutant.
#[derive(Clone, Debug)]
pub enum AnyProcess {
    Honest(Process<Honest>),
    Mutant(Process<Mutant>),
}

impl SimulatedProcess for AnyProcess {
    fn start(
        options: Options,
        nodes: usize,
        mutant: Mutant,
        context: &mut InputContext<'_>,
    ) -> Self {
        match mutant {
            Mutant::None => Self::Honest(Process::start(options, nodes, Honest, context)),
            mutant => Self::Mutant(Process::start(options, nodes, mutant, context)),
        }
    }

    fn is_ready(&self) -> bool {
        match self {
            Self::Honest(process) => process.is_ready(),
            Self::Mutant(process) => process.is_ready(),
        }
    }

    fn handle(&mut self, event: ProcessEvent, context: &mut InputContext<'_>) {
        match self {
            Self::Honest(process) => process.handle(event, context),
            Self::Mutant(process) => process.handle(event, context),
        }
    }

    fn next_wake(&self, clocks: Clocks) -> Time {
        match self {
            Self::Honest(process) => process.next_wake(clocks),
            Self::Mutant(process) => process.next_wake(clocks),
        }
    }
}
