//! No protection: two transactions read the same counter, and the second overwrites the first.

use super::{Application, ApplyError, Boxed, Reply, Strategy, transaction::sign_up_held};

/// Reads, checks and writes in one transaction.
pub(super) struct NoLock;

impl Strategy for NoLock {
    fn apply<'a>(&'a self, application: &'a Application) -> Boxed<'a, Result<Reply, ApplyError>> {
        Box::pin(sign_up_held(application))
    }
}
