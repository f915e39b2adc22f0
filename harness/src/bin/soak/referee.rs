//! Referee: a separate Redis in which each critical section sets a mark, so that overlapping
//! sections are detected.
//!
//! A mark ends with its critical section, or at the deadline of its lease: a killed client holds
//! nothing after that. A client can set a mark only if there is none. If it is refused, and its
//! lease is still valid when it reads the refusal, two critical sections overlap. Nothing else
//! counts as an overlap.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

const UNMARK: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) end return 0";

pub(crate) struct Referee(BufReader<TcpStream>);

impl Referee {
    pub(crate) async fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Begins the critical section of `who`. Returns whether it is the only one.
    pub(crate) async fn mark(&mut self, what: &str, who: u64, left: Duration) -> io::Result<bool> {
        // All processes run on one machine and read the same clock.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let until = (now + left).as_millis();
        let said = self.ask(&format!("SET mark:{what} {who} NX PXAT {until}")).await?;
        match said.as_str() {
            "+OK" => Ok(true),
            "$-1" => Ok(false),
            other => Err(io::Error::other(format!("the referee says {other}"))),
        }
    }

    /// Ends a critical section.
    pub(crate) async fn unmark(&mut self, what: &str, who: u64) -> io::Result<()> {
        self.ask(&format!("EVAL \"{UNMARK}\" 1 mark:{what} {who}")).await.map(drop)
    }

    async fn ask(&mut self, words: &str) -> io::Result<String> {
        self.0.get_mut().write_all(format!("{words}\r\n").as_bytes()).await?;
        let mut line = String::new();
        self.0.read_line(&mut line).await?;
        Ok(line.trim_end().to_owned())
    }
}
