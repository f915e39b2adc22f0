//! Init: sets the boot markers of masters that have none, like the library's `initialize_masters`.
//!
//! Nothing is written before all masters were looked at. A marker that belongs to other locks shows
//! that the list is wrong, or the guard: then none is marked. Otherwise the masters that are marked
//! would refuse the clients that use them now.

use redis::Value;
use redquorum_protocol::Guard;
use redquorum_protocol::wire::Command;

use super::line::Line;
use super::server_info::{Info, Init, ServerInfo, Unreached, Visit, reply};
use super::{Address, checks};

/// Marks each master that has no marker, or none of them.
pub(super) fn mark_all(addresses: &[Address], all: &mut [ServerInfo], guard: Guard) {
    let obstacle = checks::obstacle_to_init(all, guard);
    for (address, server) in addresses.iter().zip(all) {
        let Ok(visit) = &mut server.visit else { continue };
        let done = match &obstacle {
            Some(why) if visit.marker == Ok(None) => Ok(Init::Withheld(why.clone())),
            _ => mark(address, guard, visit),
        };
        match done {
            Ok(init) => visit.init = Some(init),
            Err(why) => server.visit = Err(why),
        }
    }
}

/// Sets the boot marker of a master. Writes nothing if the marker's key holds anything.
fn mark(address: &Address, guard: Guard, visit: &mut Visit) -> Result<Init, Unreached> {
    let impossible = |why: &str| Ok(Init::Impossible(why.to_owned()));
    match (&visit.info, &visit.marker) {
        (Err(text), _) | (_, Err(text)) => return impossible(text),
        (Ok(info), _) if !Info::is_master(info) => return impossible("it is not a master"),
        (_, Ok(Some(_))) => return Ok(Init::Had),
        (Ok(_), Ok(None)) => {}
    }
    let Some(run_id) = visit.run_id() else { return impossible("its INFO has no run_id") };
    let mut line = Line::open(address)?;
    let command = Command::Initialize { marker: guard.marker(&run_id, visit.durable()) };
    let done = match reply(line.run(&command))? {
        Ok(Value::Okay) => Init::Marked,
        Ok(_) => Init::Had,
        Err(text) => Init::Impossible(text),
    };
    visit.marker = reply(line.marker())?;
    Ok(done)
}
