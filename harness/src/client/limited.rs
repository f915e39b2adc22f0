//! Futures that are dropped instead of a poll, as a caller may drop them at any time.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Chooses for each request how often its future is polled before it is dropped. `None`: until it
/// ends.
pub(crate) type ChoosePolls = dyn Fn() -> Option<u32> + Send + Sync;

/// Polls a future at most so many times. When it is woken once more, it is dropped, and the result
/// is `None`: the future may have a result then that it did not return.
pub(super) async fn limited<F: Future>(mut polls: Option<u32>, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let poll = poll_fn(|context| match &mut polls {
        Some(0) => Poll::Ready(None),
        left => {
            *left = left.map(|left| left - 1);
            future.as_mut().poll(context).map(Some)
        }
    });
    poll.await
}
