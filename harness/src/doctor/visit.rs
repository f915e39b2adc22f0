//! Visit: sends one master all requests, over one line, and opens others to test them.

use std::time::Instant;

use super::line::Line;
use super::server_info::{Info, Unreached, Visit, reply};
use super::{Address, ExamineOptions, permissions};

/// Visits a master.
pub(super) fn visit(address: &Address, options: &ExamineOptions) -> Result<Visit, Unreached> {
    let mut line = Line::open(address)?;
    let start = Instant::now();
    let info = reply(line.info())?;
    let settings = reply(line.settings())?;
    let first = reply(line.look(start))?;
    let pings = reply(line.pings())?;
    let second = reply(line.look(start))?;
    let clock = first.and_then(|first| Ok([first, second?]));
    let marker = reply(line.marker())?;
    let is_master = info.as_ref().map_or(true, Info::is_master);
    let mut visit = Visit { info, settings, pings, clock, marker, init: None, trials: Vec::new() };
    if is_master {
        visit.trials = permissions::attempt(&mut line, &visit, &options.prefix)?;
    }
    Ok(visit)
}
