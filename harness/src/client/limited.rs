//! Futures that are dropped instead of a poll, as a caller may drop them at any time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Chooses for each request how often its future is polled before it is dropped. `None`: until it
/// ends.
pub(crate) type ChoosePolls = dyn Fn() -> Option<u32> + Send + Sync;

/// A future that is polled at most so many times. When it is woken once more, it is dropped and
/// returns `None`: it may have a result then that it did not return.
pub(super) struct Limited<F> {
    future: Option<Pin<Box<F>>>,
    polls: Option<u32>,
}

impl<F> Limited<F> {
    pub(super) fn new(polls: Option<u32>, future: F) -> Self {
        Self { future: Some(Box::pin(future)), polls }
    }
}

impl<F: Future> Future for Limited<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls == Some(0) {
            self.future = None;
        }
        self.polls = self.polls.map(|polls| polls.saturating_sub(1));
        match &mut self.future {
            Some(future) => future.as_mut().poll(cx).map(Some),
            None => Poll::Ready(None),
        }
    }
}
