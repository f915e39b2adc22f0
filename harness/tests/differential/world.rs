//! The visible behaviour of a master, and the comparison of two masters.

use redquorum_harness::sim::server::{ServerReply, Wall};
use redquorum_protocol::{Cause, Reply};

#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The wall clock at this step. It is an input of the model and not compared.
    pub(crate) wall: Wall,
    /// The replies on each connection that had any.
    pub(crate) heard: Vec<ReceivedMessage>,
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

pub(crate) fn compare(real: &Seen, model: &Seen) -> Result<(), String> {
    let same = |what: &str, same| {
        if same { Ok(()) } else { Err(format!("{what}: {real:#?}\n but the model: {model:#?}")) }
    };
    same("other keys", real.count == model.count)?;
    let nothing = ReceivedMessage::default();
    let on = |seen: &'_ Seen, number| seen.heard.iter().position(|it| it.number == number);
    for number in real.heard.iter().chain(&model.heard).map(|it| it.number) {
        let [it, its] =
            [real, model].map(|seen| on(seen, number).map_or(&nothing, |index| &seen.heard[index]));
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

fn alike(real: &ServerReply, model: &ServerReply) -> bool {
    match (real, model) {
        // Redis adds the line of the script.
        (
            ServerReply::Reply(Reply::Unknown(Cause::Error(real))),
            ServerReply::Reply(Reply::Unknown(Cause::Error(model))),
        ) => real.starts_with(&**model),
        // The rig's own connections have ids, too.
        (
            ServerReply::Greeting { run_id: real, boot, durable, .. },
            ServerReply::Greeting { run_id: model, boot: its, durable: lasts, .. },
        ) => (real, boot, durable) == (model, its, lasts),
        _ => real == model,
    }
}
