//! Finding: the result of one check, and how to fix it.

use serde::Serialize;

/// The severity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// Limits the lock, which may be intended.
    Warn,
    /// The lock does not work, or an assumption of its promise does not hold or is about to break.
    Error,
}

impl Level {
    /// The name of the level.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// See the [module](self).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Finding {
    /// The severity.
    pub(crate) level: Level,
    /// The master that it concerns. `None` means all of them together.
    pub(crate) master: Option<String>,
    /// The name of the check, for programs.
    pub(crate) check: &'static str,
    /// The result, in one line.
    pub(crate) text: String,
    /// How to fix it, for every level but `Ok`.
    pub(crate) fix: Option<String>,
}

impl Finding {
    /// A check that passed.
    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { level: Level::Ok, master: None, check, text: text.into(), fix: None }
    }

    /// A check that failed, and its fix.
    pub(super) fn bad(
        level: Level,
        check: &'static str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { level, master: None, check, text: text.into(), fix: Some(fix.into()) }
    }

    /// A warning.
    pub(super) fn warn(
        check: &'static str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::bad(Level::Warn, check, text, fix)
    }

    /// An error.
    pub(super) fn error(
        check: &'static str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::bad(Level::Error, check, text, fix)
    }
}
