//! Futures that are polled together.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Waits for all of them. The first poll polls each, so that all are in progress at once.
pub(crate) async fn all<'a, F>(futures: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'a,
{
    let mut open: Vec<(usize, Boxed<'a, F::Output>)> = Vec::new();
    open.extend(futures.enumerate().map(|(at, future)| (at, Box::pin(future) as Boxed<'a, _>)));
    let mut done: Vec<(usize, F::Output)> = Vec::with_capacity(open.len());
    poll_fn(|cx| {
        open.retain_mut(|(at, future)| match future.as_mut().poll(cx) {
            Poll::Ready(output) => {
                done.push((*at, output));
                false
            }
            Poll::Pending => true,
        });
        if open.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, output)| output).collect()
}

pub(crate) async fn first<'a, F>(futures: impl Iterator<Item = F>) -> F::Output
where
    F: Future + Send + 'a,
{
    let mut open: Vec<Boxed<'a, F::Output>> = Vec::new();
    open.extend(futures.map(|future| Box::pin(future) as Boxed<'a, _>));
    poll_fn(|cx| {
        let ready = open.iter_mut().find_map(|future| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        });
        ready.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
