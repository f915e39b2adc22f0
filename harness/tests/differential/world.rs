//! The visible behaviour of a master, and the comparison of two masters.

use std::sync::Arc;

use redquorum_protocol::RunId;
use redquorum_protocol::wire::Greeting;
use redquorum_redis_model::{ServerReply, Value, Wall};

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
