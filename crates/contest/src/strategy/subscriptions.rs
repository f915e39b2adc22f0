//! Subscriptions of one process to the channels of its locks, on one connection.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::StreamExt;
use redis::{Client, aio::PubSubSink, aio::PubSubStream};
use tokio::sync::Notify;

use super::{ApplyError, lock_error};

type Channels = Arc<Mutex<HashMap<String, Channel>>>;

/// The waiters of one channel. A message wakes one of them.
struct Channel {
    waiters: usize,
    woken: Arc<Notify>,
}

pub(super) struct Subscriptions {
    client: Client,
    channels: Channels,
    /// `None`: not connected.
    sink: Arc<tokio::sync::Mutex<Option<PubSubSink>>>,
}

impl Subscriptions {
    pub(super) fn new(client: Client) -> Self {
        Self { client, channels: Channels::default(), sink: Arc::default() }
    }

    pub(super) async fn join(&self, channel: &str) -> Result<Arc<Notify>, ApplyError> {
        let mut sink = self.sink.lock().await;
        let (woken, is_first) = {
            let mut channels = locked(&self.channels);
            let entry = channels
                .entry(channel.to_owned())
                .or_insert_with(|| Channel { waiters: 0, woken: Arc::default() });
            entry.waiters += 1;
            (entry.woken.clone(), entry.waiters == 1)
        };
        match &mut *sink {
            Some(sink) if is_first => sink.subscribe(channel).await.map_err(lock_error)?,
            Some(_) => {}
            None => *sink = Some(self.connect().await?),
        }
        Ok(woken)
    }

    pub(super) async fn leave(&self, channel: &str) {
        let mut sink = self.sink.lock().await;
        let is_last = {
            let mut channels = locked(&self.channels);
            let Some(entry) = channels.get_mut(channel) else { return };
            entry.waiters = entry.waiters.saturating_sub(1);
            let is_last = entry.waiters == 0;
            if is_last {
                channels.remove(channel);
            }
            is_last
        };
        if is_last
            && let Some(open) = &mut *sink
            && open.unsubscribe(channel).await.is_err()
        {
            *sink = None;
        }
    }

    pub(super) async fn ensure_connected(&self) -> Result<(), ApplyError> {
        let mut sink = self.sink.lock().await;
        if sink.is_none() {
            *sink = Some(self.connect().await?);
        }
        Ok(())
    }

    async fn connect(&self) -> Result<PubSubSink, ApplyError> {
        let (mut sink, stream) = self.client.get_async_pubsub().await.map_err(lock_error)?.split();
        tokio::spawn(receive(stream, self.channels.clone(), Arc::downgrade(&self.sink)));
        let channels: Vec<String> = locked(&self.channels).keys().cloned().collect();
        for channel in channels {
            sink.subscribe(channel).await.map_err(lock_error)?;
        }
        Ok(sink)
    }
}

/// Wakes a waiter for each message, and all waiters at the end of the connection.
async fn receive(
    mut stream: PubSubStream,
    channels: Channels,
    sink: std::sync::Weak<tokio::sync::Mutex<Option<PubSubSink>>>,
) {
    while let Some(message) = stream.next().await {
        if let Some(channel) = locked(&channels).get(message.get_channel_name()) {
            channel.woken.notify_one();
        }
    }
    if let Some(sink) = sink.upgrade() {
        *sink.lock().await = None;
    }
    locked(&channels).values().for_each(|channel| channel.woken.notify_waiters());
}

fn locked(channels: &Channels) -> MutexGuard<'_, HashMap<String, Channel>> {
    channels.lock().unwrap_or_else(PoisonError::into_inner)
}
