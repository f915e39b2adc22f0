//! The end of a service: Ctrl-C from a person, SIGTERM from whatever runs it.

use std::io;

/// Returns which of the two came, at the first one.
///
/// Await it once: a signal that comes while no task waits for it is lost, and no longer ends the
/// process by itself after the first call.
pub(crate) async fn stop() -> io::Result<&'static str> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted.map(|()| "Ctrl-C"),
            _ = terminate.recv() => Ok("SIGTERM"),
        }
    }
    #[cfg(not(unix))]
    {
        tokio::signal::ctrl_c().await.map(|()| "Ctrl-C")
    }
}
