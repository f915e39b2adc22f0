//! Referee: a Redis of its own where each critical section marks itself, so that another that begins
//! before it ends is seen.
//!
//! A mark ends with its critical section, or at the deadline of its lease: somebody who was killed holds
//! nothing after that. It is set only where there is none, so one that is refused to somebody whose lease
//! still stands when the refusal is read is an overlap, and nothing else is.

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

    /// The critical section of `who` begins. Whether it is alone.
    pub(crate) async fn mark(&mut self, what: &str, who: u64, left: Duration) -> io::Result<bool> {
        // All processes are on one machine, whose clock all of them read.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let until = (now + left).as_millis();
        let said = self.ask(&format!("SET mark:{what} {who} NX PXAT {until}")).await?;
        match said.as_str() {
            "+OK" => Ok(true),
            "$-1" => Ok(false),
            other => Err(io::Error::other(format!("the referee says {other}"))),
        }
    }

    /// It ends.
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
