//! No lock at all: one worker per recruitment applies requests one after another.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use tokio::sync::{mpsc, oneshot};

use super::{Application, ApplyError, Reply, lock_error, sql::sign_up};

const LENGTH: usize = 1024;

type Job = (Application, oneshot::Sender<Result<Reply, ApplyError>>);

#[derive(Default)]
pub(crate) struct Queue {
    workers: Mutex<HashMap<i64, mpsc::Sender<Job>>>,
}

impl Queue {
    fn worker(&self, recruitment: i64) -> mpsc::Sender<Job> {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let start = || {
            let (sender, jobs) = mpsc::channel(LENGTH);
            tokio::spawn(work(jobs));
            sender
        };
        workers.entry(recruitment).or_insert_with(start).clone()
    }

    pub(super) async fn apply(&self, application: &Application) -> Result<Reply, ApplyError> {
        let ended = || lock_error("the worker ended");
        let (sender, reply) = oneshot::channel();
        let job = (application.clone(), sender);
        self.worker(application.recruitment).send(job).await.map_err(|_| ended())?;
        reply.await.map_err(|_| ended())?
    }
}

async fn work(mut jobs: mpsc::Receiver<Job>) {
    while let Some((application, reply)) = jobs.recv().await {
        let result = sign_up(&application, || true).await;
        // An applicant that gave up does not wait for it.
        let _sent = reply.send(result);
    }
}
