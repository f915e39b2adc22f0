//! Visit: sends one master all requests, over one connection, and opens others to test them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::{Connection, ConnectionLike, RedisError, Value};

use super::server_info::{Info, Look, QueryResult, Settings, Unreached, Visit};
use super::{Address, ExamineOptions, init, permissions};

/// Timeout of a connection and of a reply: longer than that of any lock.
const PATIENCE: Duration = Duration::from_secs(2);

/// The number of `PING`s, and the time over which they are spread. The clock's rate is measured
/// over this time, too.
const PINGS: u32 = 20;
const WHILE: Duration = Duration::from_secs(1);

/// How many times the clock is read. The reading with the fastest reply counts.
const LOOKS: usize = 5;

/// A connection to a master for requests.
pub(super) struct Line<'a> {
    address: &'a Address,
    connection: Connection,
}

/// Visits a master.
pub(super) fn visit(address: &Address, wish: &ExamineOptions) -> Result<Visit, Unreached> {
    let mut line = Line::open(address)?;
    let start = Instant::now();
    let info = line.info()?;
    let settings = line.settings()?;
    let first = line.look(start)?;
    let pings = line.pings()?;
    let second = line.look(start)?;
    let clock = first.and_then(|first| Ok([first, second?]));
    let marker = line.marker()?;
    let is_master = info.as_ref().map_or(true, Info::is_master);
    let mut said = Visit { info, settings, pings, clock, marker, init: None, trials: Vec::new() };
    if let (true, Some(guard)) = (wish.init, wish.guard) {
        said.init = Some(init::mark(&mut line, guard, &said)?);
        said.marker = line.marker()?;
    }
    if is_master {
        said.trials = permissions::attempt(&mut line, &said, &wish.prefix)?;
    }
    Ok(said)
}

impl<'a> Line<'a> {
    /// Connects and authenticates.
    pub(super) fn open(address: &'a Address) -> Result<Self, Unreached> {
        let connection = address.client.get_connection_with_timeout(PATIENCE);
        let connection = connection.map_err(|error| unreached(address, &error))?;
        let bounded = connection
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| connection.set_write_timeout(Some(PATIENCE)));
        bounded.map_err(|error| unreached(address, &error))?;
        let mut line = Self { address, connection };
        if let Some(password) = &address.password {
            let words = ["AUTH"].into_iter().chain(address.user.as_deref());
            let words: Vec<&str> = words.chain([password.as_str()]).collect();
            line.ask(&words)?.map_err(Unreached::Refused)?;
        }
        if address.database != 0 {
            let database = address.database.to_string();
            line.ask(&["SELECT", &database])?.map_err(Unreached::Refused)?;
        }
        Ok(line)
    }

    /// Opens another connection to the same master.
    pub(super) fn another(&self) -> Result<Self, Unreached> {
        Self::open(self.address)
    }

    /// Sends a command given as words. The outer error means that the connection is unusable.
    pub(super) fn ask(&mut self, words: &[&str]) -> Result<QueryResult<Value>, Unreached> {
        let mut packed = redis::Cmd::new();
        for word in words {
            packed.arg(*word);
        }
        self.ask_packed(&packed.get_packed_command())
    }

    /// Sends a command given as bytes of the wire.
    pub(super) fn ask_packed(&mut self, bytes: &[u8]) -> Result<QueryResult<Value>, Unreached> {
        let said = self.connection.req_packed_command(bytes).and_then(Value::extract_error);
        match said {
            Ok(value) => Ok(Ok(value)),
            Err(error) => match error.code() {
                // The master replies this to every command, so it is no reply to this one.
                Some("NOAUTH") => Err(Unreached::Refused(self.text(&error))),
                Some(_) => Ok(Err(self.text(&error))),
                None => Err(unreached(self.address, &error)),
            },
        }
    }

    fn text(&self, error: &RedisError) -> String {
        server_text(self.address, error)
    }

    pub(super) fn info(&mut self) -> Result<QueryResult<Info>, Unreached> {
        let said = self.ask(&["INFO"])?;
        Ok(said.map(|value| Info::read(&words(&value).concat())))
    }

    fn settings(&mut self) -> Result<QueryResult<Settings>, Unreached> {
        let said = self.ask(&["CONFIG", "GET", "*append*"])?;
        Ok(said.map(|value| Settings::read(&words(&value))))
    }

    /// The boot marker. A marker that is no plain text becomes `?`, as in the lock.
    fn marker(&mut self) -> Result<QueryResult<Option<String>>, Unreached> {
        let said = self.ask(&["GET", "redquorum:boot"])?;
        Ok(said.map(|value| match value {
            Value::Nil => None,
            Value::BulkString(bytes) if bytes.is_empty() => None,
            Value::BulkString(bytes) => {
                let plain = bytes.len() <= 256 && bytes.iter().all(|c| matches!(c, b' '..=b'~'));
                let text = plain.then(|| String::from_utf8_lossy(&bytes).into_owned());
                Some(text.unwrap_or_else(|| "?".to_owned()))
            }
            _ => Some("?".to_owned()),
        }))
    }

    fn pings(&mut self) -> Result<QueryResult<Vec<Duration>>, Unreached> {
        let (start, mut took) = (Instant::now(), Vec::new());
        for number in 1..=PINGS {
            let sent = Instant::now();
            if let Err(text) = self.ask(&["PING"])? {
                // The measurement of the clock's rate needs its time all the same.
                std::thread::sleep(WHILE.saturating_sub(start.elapsed()));
                return Ok(Err(text));
            }
            took.push(sent.elapsed());
            let next = WHILE * number / PINGS;
            if start.elapsed() > 3 * WHILE {
                break;
            }
            std::thread::sleep(next.saturating_sub(start.elapsed()));
        }
        Ok(Ok(took))
    }

    fn look(&mut self, start: Instant) -> Result<QueryResult<Look>, Unreached> {
        let mut best: Option<Look> = None;
        for _ in 0..LOOKS {
            let (sent, wall) = (start.elapsed(), wall_micros());
            let said = match self.ask(&["TIME"])? {
                Ok(said) => words(&said),
                Err(text) => return Ok(Err(text)),
            };
            let slack = (start.elapsed().saturating_sub(sent)) / 2;
            let number = |index: usize| said.get(index).and_then(|text| text.parse::<i64>().ok());
            let (Some(seconds), Some(micros)) = (number(0), number(1)) else {
                return Ok(Err(format!("no time: {said:?}")));
            };
            let micros = seconds.saturating_mul(1_000_000).saturating_add(micros);
            let here = wall.saturating_add(micros_of(slack));
            let ahead = micros.saturating_sub(here);
            let look = Look { at: sent + slack, slack, micros, ahead };
            if best.is_none_or(|best| look.slack < best.slack) {
                best = Some(look);
            }
        }
        Ok(best.ok_or_else(|| "it was not asked".to_owned()))
    }
}

/// The wall clock of this machine, in microseconds.
fn wall_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, micros_of)
}

fn micros_of(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}

/// The words of a reply. Arrays and maps are flattened.
pub(super) fn words(value: &Value) -> Vec<String> {
    match value {
        Value::Array(all) | Value::Set(all) => all.iter().flat_map(words).collect(),
        Value::Map(all) => {
            all.iter().flat_map(|(name, value)| [words(name), words(value)].concat()).collect()
        }
        Value::BulkString(bytes) => vec![String::from_utf8_lossy(bytes).into_owned()],
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => vec![text.clone()],
        Value::Int(number) => vec![number.to_string()],
        Value::Okay => vec!["OK".to_owned()],
        _ => Vec::new(),
    }
}

fn server_text(address: &Address, error: &RedisError) -> String {
    let code = error.code().unwrap_or_default();
    let detail = error.detail().unwrap_or_default();
    let text =
        if detail.starts_with(code) { detail.to_owned() } else { format!("{code} {detail}") };
    address.conceal(text.trim())
}

fn unreached(address: &Address, error: &RedisError) -> Unreached {
    if error.code().is_some() {
        Unreached::Refused(server_text(address, error))
    } else if error.is_timeout() {
        Unreached::Silent(format!("it does not answer within {PATIENCE:?}"))
    } else {
        Unreached::Down(address.conceal(&error.to_string()))
    }
}
