//! What the doctor asks a master over a [`Line`], and reads from its clocks.

use std::time::{Duration, Instant};

use redquorum_protocol::RunId;
use redquorum_protocol::wire::marker as marker_of;
use tokio::time::sleep;

use super::server_info::{Info, Settings};
use crate::line::{AskError, Line, Value};
use crate::look::Look;

/// The number of `PING`s, and the time over which they are spread. The clock's rate is measured
/// over this time, too.
const PINGS: u32 = 20;
const WHILE: Duration = Duration::from_secs(1);

/// How many times the clock is read.
const LOOKS: usize = 5;

pub(super) async fn info(line: &mut Line) -> Result<Info, AskError> {
    Ok(Info::read(&line.ask(&[b"INFO"]).await?.words().concat()))
}

pub(super) async fn settings(line: &mut Line) -> Result<Settings, AskError> {
    Ok(Settings::read(&line.ask(&[b"CONFIG", b"GET", b"*append*"]).await?.words()))
}

/// What a boot marker says of a master: its process, and whether it syncs every write.
///
/// # Errors
/// There is no reply. A command that is forbidden shows nothing.
pub(crate) async fn identity(line: &mut Line) -> Result<(Option<RunId>, bool), AskError> {
    let info = if_allowed(info(line).await)?.unwrap_or_default();
    let settings = if_allowed(settings(line).await)?.unwrap_or_default();
    let durable = settings.durable() && info.was_no_replica;
    Ok((info.run_id, durable))
}

fn if_allowed<T>(asked: Result<T, AskError>) -> Result<Option<T>, AskError> {
    match asked {
        Ok(value) => Ok(Some(value)),
        Err(AskError::Refused(_)) => Ok(None),
        Err(why) => Err(why),
    }
}

/// The boot marker. A value that is no text becomes `?`, as in the lock.
pub(super) async fn marker(line: &mut Line) -> Result<Option<String>, AskError> {
    Ok(match line.ask(&[b"GET", b"redquorum:boot"]).await? {
        Value::Nil => None,
        Value::Bytes(bytes) => marker_of(&bytes).map(|marker| marker.to_string()),
        _ => Some("?".to_owned()),
    })
}

pub(super) async fn pings(line: &mut Line) -> Result<Vec<Duration>, AskError> {
    let (start, mut took) = (Instant::now(), Vec::new());
    for number in 1..=PINGS {
        let sent = Instant::now();
        if let Err(why) = line.ask(&[b"PING"]).await {
            // The measurement of the clock's rate needs its time all the same.
            sleep(WHILE.saturating_sub(start.elapsed())).await;
            return Err(why);
        }
        took.push(sent.elapsed());
        let next = WHILE * number / PINGS;
        if start.elapsed() > 3 * WHILE {
            break;
        }
        sleep(next.saturating_sub(start.elapsed())).await;
    }
    Ok(took)
}

/// Reads the clock several times. The reading with the fastest reply counts.
pub(super) async fn look(line: &mut Line, start: Instant) -> Result<Look, AskError> {
    let mut best: Option<Look> = None;
    for _ in 0..LOOKS {
        let look = Look::at(line, start).await?;
        if best.is_none_or(|best| look.slack < best.slack) {
            best = Some(look);
        }
    }
    best.ok_or_else(|| AskError::Refused("it was not asked".to_owned()))
}
