//! The visible behaviour of a master, and the comparison of the real master with a model: plays a
//! plan on both, and finds the first difference.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::model::{Master, Model, right};
use crate::plan::{Step, plan};
use crate::real::Real;
use redquorum_protocol::RunId;
use redquorum_protocol::wire::Greeting;
use redquorum_redis_model::{Persistence, Server, ServerReply, Value, Wall};

#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The wall clock at this step. It is an input of the model and not compared.
    pub(crate) wall: Wall,
    /// The replies on each connection that had any.
    pub(crate) messages: Vec<ReceivedMessage>,
    /// The connections that ended, perhaps before all replies had arrived.
    pub(crate) cut: Vec<usize>,
    /// The number of keys, including expired keys that Redis has not removed.
    pub(crate) count: Option<usize>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ReceivedMessage {
    pub(crate) number: usize,
    pub(crate) replies: Vec<ServerReply>,
    pub(crate) dropped: bool,
}

/// The run ids of a master, in order of appearance.
#[derive(Default)]
pub(crate) struct Runs(Vec<RunId>);

impl Runs {
    /// Replaces the run id by its number, which is the same for the real master and the model.
    pub(crate) fn rename(&mut self, greeting: &mut Greeting) {
        let run_id = greeting.run_id.take().expect("no ACL forbids it");
        let known = self.0.iter().position(|known| *known == run_id);
        let number = known.unwrap_or_else(|| {
            self.0.push(run_id);
            self.0.len() - 1
        });
        greeting.run_id = Some(RunId(Arc::from(number.to_string())));
    }
}

pub(crate) fn compare(real: &Seen, model: &Seen) -> Result<(), String> {
    let same = |what: &str, same| {
        if same { Ok(()) } else { Err(format!("{what}: {real:#?}\n but the model: {model:#?}")) }
    };
    same("other keys", real.count == model.count)?;
    let nothing = ReceivedMessage::default();
    let on = |seen: &'_ Seen, number| seen.messages.iter().position(|it| it.number == number);
    for number in real.messages.iter().chain(&model.messages).map(|it| it.number) {
        let [it, its] = [real, model]
            .map(|seen| on(seen, number).map_or(&nothing, |index| &seen.messages[index]));
        same("another end", it.dropped == its.dropped)?;
        // Redis writes replies at the end of a turn. Replies on a connection that was killed in the
        // same turn are lost.
        let lost = real.cut.contains(&number) && it.replies.len() < its.replies.len();
        same("another number of replies", lost || it.replies.len() == its.replies.len())?;
        let all = it.replies.iter().zip(&its.replies).all(|(real, model)| alike(real, model));
        same("another reply", all)?;
    }
    Ok(())
}

/// Whether a reply of the real master is as the model's.
pub(crate) fn alike(real: &ServerReply, model: &ServerReply) -> bool {
    match (real, model) {
        // Redis adds the line of the script.
        (ServerReply::Value(Value::Error(real)), ServerReply::Value(Value::Error(model))) => {
            real.starts_with(model)
        }
        // Redis has more to say of itself in reply to `HELLO`.
        (ServerReply::Value(Value::Map(real)), ServerReply::Value(Value::Map(model))) => {
            model.chunks(2).all(|pair| real.chunks(2).any(|real| real == pair))
        }
        // The rig's own connections have ids, too.
        (ServerReply::Greeting(real), ServerReply::Greeting(model)) => {
            (&real.run_id, &real.boot, real.durable) == (&model.run_id, &model.boot, model.durable)
        }
        _ => real == model,
    }
}

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
