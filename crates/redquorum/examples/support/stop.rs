//! The end of a service: Ctrl-C from a person, or SIGTERM from the service manager.

use std::io;

/// Waits for the first of the two signals, and returns its name.
///
/// Await it once. After the first call, a signal no longer ends the process by itself, and a signal
/// that arrives while no task waits for it is lost.
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
