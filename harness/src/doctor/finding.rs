//! Finding: one thing that was looked at, and what to do about it.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// It takes something away from the lock, which may be meant so.
    Warn,
    /// The lock does not work with it, or its promise does not hold.
    Error,
}

impl Level {
    /// Its name.
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
    /// How bad it is.
    pub(crate) level: Level,
    /// Whom it concerns; all of them together without one.
    pub(crate) master: Option<String>,
    /// What was looked at, a word for programs.
    pub(crate) check: &'static str,
    /// What is the matter, in a line.
    pub(crate) text: String,
    /// What to do about it; for every level but ok.
    pub(crate) mend: Option<String>,
}

impl Finding {
    /// All is well.
    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { level: Level::Ok, master: None, check, text: text.into(), mend: None }
    }

    /// It is not, and this mends it.
    pub(super) fn bad(
        level: Level,
        check: &'static str,
        text: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { level, master: None, check, text: text.into(), mend: Some(mend.into()) }
    }

    /// A warning.
    pub(super) fn warn(
        check: &'static str,
        text: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self::bad(Level::Warn, check, text, mend)
    }

    /// An error.
    pub(super) fn error(
        check: &'static str,
        text: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self::bad(Level::Error, check, text, mend)
    }
}
