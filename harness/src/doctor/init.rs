//! Init: sets the boot marker of a master that has none, like the library's `initialize_masters`.

use redis::Value;
use redquorum_protocol::Guard;
use redquorum_protocol::wire::Command;

use super::line::Line;
use super::server_info::{Info, Init, Unreached, Visit, reply};

/// Sets the boot marker of a master. Writes nothing if the marker's key holds anything.
pub(super) fn mark(line: &mut Line<'_>, guard: Guard, visit: &Visit) -> Result<Init, Unreached> {
    let impossible = |why: &str| Ok(Init::Impossible(why.to_owned()));
    match (&visit.info, &visit.marker) {
        (Err(text), _) | (_, Err(text)) => return impossible(text),
        (Ok(info), _) if !Info::is_master(info) => return impossible("it is not a master"),
        (_, Ok(Some(_))) => return Ok(Init::Had),
        (Ok(_), Ok(None)) => {}
    }
    let Some(run_id) = visit.run_id() else { return impossible("its INFO has no run_id") };
    let command = Command::Initialize { marker: guard.marker(&run_id, visit.durable()) };
    Ok(match reply(line.run(&command))? {
        Ok(Value::Okay) => Init::Marked,
        Ok(_) => Init::Had,
        Err(text) => Init::Impossible(text),
    })
}
