//! How to reach a master, and a line: a connection to one master for requests, and what the doctor
//! asks over it.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::server_info::{Info, Look, QueryError, Settings, Unreached, reply};
use redis::{
    Client, Connection, ConnectionAddr, ConnectionLike, IntoConnectionInfo, RedisConnectionInfo,
    RedisError, Value,
};
use redquorum_protocol::wire::{Command, marker};

/// How to reach a master, and as which user. Never shows a secret.
#[derive(Clone)]
pub(crate) struct Address {
    /// The name in findings.
    pub(crate) name: String,
    /// The name that a lock uses in the fingerprint of its set of masters.
    pub(crate) spelled: String,
    /// Connects without a handshake, so that the doctor can tell what the master refuses.
    pub(super) client: Client,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    database: i64,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("name", &self.name).finish_non_exhaustive()
    }
}

const FORM: &str = "write redis://[[user]:password@]host[:port][/database] or unix:///path";

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// The error in the URL. Never repeats the URL, which may contain a password.
    pub(crate) fn read(url: &str) -> Result<Self, String> {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        if matches!(scheme.as_deref(), Some("rediss" | "valkeys")) {
            return Err(
                "TLS is not built into this program: give an address of the master without \
                        TLS, such as a tunnel's end"
                    .to_owned(),
            );
        }
        let info = url.into_connection_info().map_err(|error| {
            // The detail is a part of the URL.
            let detail = error.detail().filter(|detail| !detail.is_empty());
            let why = error.to_string();
            let why = detail.map_or_else(|| why.clone(), |detail| why.replace(detail, "…"));
            format!("not a Redis URL ({why}): {FORM}")
        })?;
        let redis = info.redis_settings();
        let (user, password) = (redis.username(), redis.password());
        let (user, password) = (user.map(str::to_owned), password.map(str::to_owned));
        let database = redis.db();
        if user.is_some() && password.is_none() {
            return Err(format!("a user without a password: {FORM}"));
        }
        let mut name = match info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let host = host.to_ascii_lowercase();
                if host.contains(':') {
                    format!("[{host}]:{port}")
                } else {
                    format!("{host}:{port}")
                }
            }
            ConnectionAddr::Unix(path) => path.display().to_string(),
            _ => return Err(format!("this kind of address is not supported: {FORM}")),
        };
        let spelled = format!("{name}/{database}");
        if database != 0 {
            name = format!("{name}/{database}");
        }
        let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
        let client = Client::open(info.set_redis_settings(bare))
            .map_err(|_| format!("not a Redis URL: {FORM}"))?;
        Ok(Self { name, spelled, client, user, password, database })
    }

    /// Reads several URLs, and numbers those with equal names.
    ///
    /// # Errors
    ///
    /// The error in the first bad URL.
    pub(crate) fn read_all(urls: &[String]) -> Result<Vec<Self>, String> {
        let mut all: Vec<Self> = Vec::new();
        for (index, url) in urls.iter().enumerate() {
            let mut one = Self::read(url).map_err(|why| format!("URL {}: {why}", index + 1))?;
            if all.iter().any(|other| other.name == one.name) {
                one.name = format!("{} (URL {})", one.name, index + 1);
            }
            all.push(one);
        }
        Ok(all)
    }

    /// Removes the password from a master's reply, which may repeat it.
    fn conceal(&self, text: &str) -> String {
        let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match self.password.as_deref().filter(|secret| !secret.is_empty()) {
            Some(secret) => clean.replace(secret, "…"),
            None => clean,
        }
    }
}

/// Timeout of a connection and of a reply: longer than that of any lock.
const VISIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The number of `PING`s, and the time over which they are spread. The clock's rate is measured
/// over this time, too.
const PINGS: u32 = 20;
const WHILE: Duration = Duration::from_secs(1);

/// How many times the clock is read.
const LOOKS: usize = 5;

/// See the [module](self).
pub(super) struct Line<'a> {
    address: &'a Address,
    connection: Connection,
}

impl<'a> Line<'a> {
    /// Connects and authenticates.
    pub(super) fn open(address: &'a Address) -> Result<Self, Unreached> {
        let connect = || {
            let connection = address.client.get_connection_with_timeout(VISIT_TIMEOUT)?;
            connection.set_read_timeout(Some(VISIT_TIMEOUT))?;
            connection.set_write_timeout(Some(VISIT_TIMEOUT))?;
            Ok(connection)
        };
        let connection = connect().map_err(|error| unreached(address, &error))?;
        let mut line = Self { address, connection };
        let login = address.password.as_deref().map(|password| {
            let words = ["AUTH"].into_iter().chain(address.user.as_deref());
            words.chain([password]).collect::<Vec<_>>()
        });
        let database = address.database.to_string();
        let select = (address.database != 0).then(|| vec!["SELECT", &database]);
        for words in login.into_iter().chain(select) {
            reply(line.ask(&words))?.map_err(Unreached::Refused)?;
        }
        Ok(line)
    }

    /// Opens another connection to the same master.
    pub(super) fn another(&self) -> Result<Self, Unreached> {
        Self::open(self.address)
    }

    /// Sends a command given as words.
    pub(super) fn ask(&mut self, words: &[&str]) -> Result<Value, QueryError> {
        let mut packed = redis::Cmd::new();
        for word in words {
            packed.arg(*word);
        }
        self.ask_packed(&packed.get_packed_command())
    }

    /// Sends a command of the lock.
    pub(super) fn run(&mut self, command: &Command) -> Result<Value, QueryError> {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        self.ask_packed(&bytes)
    }

    fn ask_packed(&mut self, bytes: &[u8]) -> Result<Value, QueryError> {
        let reply = self.connection.req_packed_command(bytes).and_then(Value::extract_error);
        reply.map_err(|error| match error.code() {
            // The master replies this to every command, so it is no reply to this one.
            Some(code) if code != "NOAUTH" => {
                QueryError::Refused(server_text(self.address, &error))
            }
            _ => QueryError::Unreached(unreached(self.address, &error)),
        })
    }

    pub(super) fn info(&mut self) -> Result<Info, QueryError> {
        Ok(Info::read(&words(&self.ask(&["INFO"])?).concat()))
    }

    pub(super) fn settings(&mut self) -> Result<Settings, QueryError> {
        Ok(Settings::read(&words(&self.ask(&["CONFIG", "GET", "*append*"])?)))
    }

    /// The boot marker. A value that is no text becomes `?`, as in the lock.
    pub(super) fn marker(&mut self) -> Result<Option<String>, QueryError> {
        Ok(match self.ask(&["GET", "redquorum:boot"])? {
            Value::Nil => None,
            Value::BulkString(bytes) => marker(&bytes).map(|marker| marker.to_string()),
            _ => Some("?".to_owned()),
        })
    }

    pub(super) fn pings(&mut self) -> Result<Vec<Duration>, QueryError> {
        let (start, mut took) = (Instant::now(), Vec::new());
        for number in 1..=PINGS {
            let sent = Instant::now();
            if let Err(why) = self.ask(&["PING"]) {
                // The measurement of the clock's rate needs its time all the same.
                std::thread::sleep(WHILE.saturating_sub(start.elapsed()));
                return Err(why);
            }
            took.push(sent.elapsed());
            let next = WHILE * number / PINGS;
            if start.elapsed() > 3 * WHILE {
                break;
            }
            std::thread::sleep(next.saturating_sub(start.elapsed()));
        }
        Ok(took)
    }

    /// Reads the clock several times. The reading with the fastest reply counts.
    pub(super) fn look(&mut self, start: Instant) -> Result<Look, QueryError> {
        let mut best: Option<Look> = None;
        for _ in 0..LOOKS {
            let (sent, wall) = (start.elapsed(), wall_micros());
            let reply = words(&self.ask(&["TIME"])?);
            let slack = (start.elapsed().saturating_sub(sent)) / 2;
            let number = |index: usize| reply.get(index).and_then(|text| text.parse::<i64>().ok());
            let (Some(seconds), Some(micros)) = (number(0), number(1)) else {
                return Err(QueryError::Refused(format!("no time: {reply:?}")));
            };
            let micros = seconds.saturating_mul(1_000_000).saturating_add(micros);
            let here = wall.saturating_add(micros_of(slack));
            let ahead = micros.saturating_sub(here);
            let look = Look { at: sent + slack, slack, micros, ahead };
            if best.is_none_or(|best| look.slack < best.slack) {
                best = Some(look);
            }
        }
        best.ok_or_else(|| QueryError::Refused("it was not asked".to_owned()))
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
        Unreached::Silent(format!("it does not answer within {VISIT_TIMEOUT:?}"))
    } else {
        Unreached::Down(address.conceal(&error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_distinguishes_masters_and_has_no_credentials() {
        let name = |url| Address::read(url).unwrap().name;
        assert_eq!(name("redis://DB1"), "db1:6379");
        assert_eq!(name("redis://us:hunter2@db1:7001/3"), "db1:7001/3");
        assert_eq!(name("redis://[::1]:7001"), "[::1]:7001");
        assert_eq!(name("unix:///run/redis.sock?pass=hunter2"), "/run/redis.sock");
        let twice = ["redis://a".to_owned(), "redis://:hunter2@a".to_owned()];
        let twice = Address::read_all(&twice).unwrap();
        assert_eq!(twice[1].name, "a:6379 (URL 2)");
        assert!(!format!("{twice:?}").contains("hunter2"));
    }

    #[test]
    fn a_bad_url_is_refused_with_a_fix_and_is_not_repeated() {
        for url in [
            "db1:6379:hunter2",
            "http://:hunter2@db1",
            "redis://:hunter2@db1:port",
            "redis://:hunter2@db1/minus",
            "redis://hunter2@db1",
            "rediss://:hunter2@db1",
        ] {
            let why = Address::read(url).unwrap_err();
            assert!(!why.contains("hunter2"), "{url}: {why}");
            assert!(why.contains("write redis://") || why.contains("without TLS"), "{why}");
        }
    }

    #[test]
    fn a_password_in_a_reply_is_concealed() {
        let address = Address::read("redis://:hunter2@db1").unwrap();
        assert_eq!(address.conceal("ERR unknown\r\n'hunter2'"), "ERR unknown  '…'");
    }
}
