//! Plays a plan on the real master and on a model, and finds the first difference.

use std::time::{Duration, Instant};

use redquorum_redis_model::{Persistence, Server};

use crate::model::{Master, Model, right};
use crate::plan::{Step, plan};
use crate::real::Real;
use crate::world::{Seen, compare};

/// The results of the real master.
pub(crate) struct Record {
    pub(crate) persistence: Persistence,
    pub(crate) plan: Vec<Step>,
    pub(crate) seen: Vec<Seen>,
}

/// The first step at which a model differs, and the difference.
pub(crate) struct Difference {
    pub(crate) step: usize,
    what: String,
}

impl Record {
    pub(crate) fn new(persistence: Persistence, plan: Vec<Step>) -> Self {
        let mut real = Real::start(persistence);
        let seen = plan.iter().map(|step| real.step(step)).collect();
        Self { persistence, plan, seen }
    }

    pub(crate) fn of_seed(seed: u64, steps: usize, persistence: Persistence) -> Self {
        Self::new(persistence, plan(seed, steps, persistence))
    }

    pub(crate) fn replies(&self) -> usize {
        self.replies_until(self.seen.len() - 1)
    }

    pub(crate) fn replies_until(&self, step: usize) -> usize {
        let until = self.seen[..=step].iter().flat_map(|seen| &seen.messages);
        until.map(|messages| messages.replies.len()).sum()
    }

    /// Plays the plan on a model.
    pub(crate) fn play(&self, master: impl Master) -> Result<(), Difference> {
        let mut model = Model::new(master);
        for (step, (what, seen)) in self.plan.iter().zip(&self.seen).enumerate() {
            compare(seen, &model.step(what, seen.wall))
                .map_err(|what| Difference { step, what })?;
        }
        Ok(())
    }
}

/// Fails if the model differs, with the smallest plan that it can find in some seconds.
pub(crate) fn check(seed: u64, record: &Record) {
    let model = |record: &Record| -> Server { right(record.persistence) };
    let Err(first) = record.play(model(record)) else { return };
    let (mut plan, mut what) = (record.plan[..=first.step].to_vec(), first.what);
    let began = Instant::now();
    let mut size = plan.len() / 2;
    while size > 0 {
        let mut from = 0;
        while from < plan.len() && began.elapsed() < Duration::from_secs(30) {
            let mut fewer = plan.clone();
            fewer.drain(from..(from + size).min(plan.len()));
            let record = Record::new(record.persistence, fewer);
            match record.play(model(&record)) {
                Err(difference) => {
                    plan = record.plan[..=difference.step].to_vec();
                    what = difference.what;
                }
                Ok(()) => from += size,
            }
        }
        size /= 2;
    }
    let persistence = record.persistence;
    panic!(
        "seed {seed}, {persistence:?}, step {}: {what}\nafter these {} steps: {plan:#?}",
        first.step,
        plan.len()
    );
}
