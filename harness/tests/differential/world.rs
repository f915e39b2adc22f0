//! What was seen of a master, and when two masters were seen to do the same.

use redquorum_harness::sim::server::{Reply, Wall};
use redquorum_protocol::{Answer, Cause};

/// What a step brought to light.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// What its wall clock shows at this step: not compared, but told to the model.
    pub(crate) wall: Wall,
    /// Of each connection of which something was seen.
    pub(crate) heard: Vec<Heard>,
    /// The connections that ended: maybe before all their replies had come.
    pub(crate) cut: Vec<usize>,
    /// How many keys it has, those included that have expired unseen.
    pub(crate) count: Option<usize>,
}

/// What came on one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// The number of the connection.
    pub(crate) number: usize,
    pub(crate) replies: Vec<Reply>,
    /// The master closed it.
    pub(crate) dropped: bool,
}

/// The first difference.
pub(crate) fn compare(real: &Seen, model: &Seen) -> Result<(), String> {
    let same = |what: &str, same| {
        if same { Ok(()) } else { Err(format!("{what}: {real:#?}\n but the model: {model:#?}")) }
    };
    same("other keys", real.count == model.count)?;
    let nothing = Heard::default();
    let on = |seen: &'_ Seen, number| seen.heard.iter().position(|it| it.number == number);
    for number in real.heard.iter().chain(&model.heard).map(|it| it.number) {
        let [it, its] =
            [real, model].map(|seen| on(seen, number).map_or(&nothing, |index| &seen.heard[index]));
        same("another end", it.dropped == its.dropped)?;
        // Redis writes replies at the end of a turn: of a connection that was killed in the same
        // turn they are lost.
        let lost = real.cut.contains(&number) && it.replies.len() < its.replies.len();
        same("another number of replies", lost || it.replies.len() == its.replies.len())?;
        let all = it.replies.iter().zip(&its.replies).all(|(real, model)| alike(real, model));
        same("another reply", all)?;
    }
    Ok(())
}

fn alike(real: &Reply, model: &Reply) -> bool {
    match (real, model) {
        // Redis adds the line of the script.
        (
            Reply::Answer(Answer::Unknown(Cause::Error(real))),
            Reply::Answer(Answer::Unknown(Cause::Error(model))),
        ) => real.starts_with(&**model),
        // The rig's own connections have ids too.
        (
            Reply::Greeting { run_id: real, boot, durable, .. },
            Reply::Greeting { run_id: model, boot: its, durable: lasts, .. },
        ) => (real, boot, durable) == (model, its, lasts),
        _ => real == model,
    }
}
