//! Futures that their callers do not poll to the end at once: they are dropped instead of a poll,
//! or left alone for a while, as in a `select!` that runs another branch.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::sleep;

/// How a caller neglects the future of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neglect {
    /// How often the caller polls the future before.
    pub polls: u32,
    /// How long the caller leaves it alone.
    pub idle: Duration,
    /// Whether the caller then drops the future. Otherwise it polls it to its end.
    pub drops: bool,
}

/// Chooses for each request whether and how its caller neglects it.
pub(crate) type ChooseNeglect = dyn Fn() -> Option<Neglect> + Send + Sync;

/// Awaits a future, and neglects it if told so. When the future is woken once more than it may be
/// polled, it is left alone, and `tell` is called if that takes any time. `None`: the future was
/// dropped. It may have had a result then that it did not return.
pub async fn limited<F: Future>(
    neglect: Option<Neglect>,
    future: F,
    tell: impl FnOnce(Duration),
) -> Option<F::Output> {
    let mut future = pin!(future);
    let Some(Neglect { mut polls, idle, drops }) = neglect else { return Some(future.await) };
    let polled = poll_fn(|context| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        future.as_mut().poll(context).map(Some)
    });
    if let Some(result) = polled.await {
        return Some(result);
    }
    if !idle.is_zero() {
        tell(idle);
        sleep(idle).await;
    }
    if drops { None } else { Some(future.await) }
}
