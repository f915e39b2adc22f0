//! The exit codes of all commands: those of `sysexits.h`, `timeout` and `env` where they have one.

use std::process::ExitCode;

use redquorum::{AcquireError, BuildError};

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub(crate) u8);

impl Code {
    pub(crate) const SUCCESS: Self = Self(0);
    /// The answer is no: nobody holds the resource, or a check found an error.
    pub(crate) const NO: Self = Self(1);
    /// The command line, a file or a variable is wrong.
    pub(crate) const USAGE: Self = Self(64);
    /// The input is wrong.
    pub(crate) const DATA: Self = Self(65);
    /// No quorum of masters answered.
    pub(crate) const UNAVAILABLE: Self = Self(69);
    /// A fault of this program.
    pub(crate) const INTERNAL: Self = Self(70);
    /// The operating system refused something.
    pub(crate) const SYSTEM: Self = Self(71);
    /// The lease was lost, and the command was stopped.
    pub(crate) const LOST: Self = Self(74);
    /// Somebody else has the resource.
    pub(crate) const TAKEN: Self = Self(75);
    /// The command was stopped, since it held the lease for as long as it may.
    pub(crate) const TIME_OUT: Self = Self(124);
    /// The command is there and cannot be executed.
    pub(crate) const NOT_EXECUTABLE: Self = Self(126);
    /// There is no such command.
    pub(crate) const NOT_FOUND: Self = Self(127);

    /// A signal ended the command, or this program while it waited.
    pub(crate) const fn of_signal(signal: i32) -> Self {
        Self(128_u8.wrapping_add(signal.to_le_bytes()[0]))
    }

    /// Why there is no lock.
    pub(crate) const fn of_build(error: &BuildError) -> Self {
        match error {
            BuildError::NoQuorum(_) => Self::UNAVAILABLE,
            BuildError::Shard { error, .. } => Self::of_build(error),
            BuildError::NoRuntime | BuildError::Runtime(_) => Self::SYSTEM,
            _ => Self::USAGE,
        }
    }

    /// Why there is no lease.
    pub(crate) const fn of_acquire(error: &AcquireError) -> Self {
        if error.is_taken() {
            return Self::TAKEN;
        }
        if error.is_unavailable() {
            return Self::UNAVAILABLE;
        }
        match error {
            AcquireError::Options { .. }
            | AcquireError::NoResources
            | AcquireError::TooManyResources { .. }
            | AcquireError::NamedTwice { .. } => Self::USAGE,
            _ => Self::INTERNAL,
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.0)
    }
}
