//! A line: one connection to one master, for the commands that look at masters themselves. A lock
//! has its own connections, which hide what a master says.
//!
//! ```text
//! Node ─▶ Line::open: connect, AUTH, SELECT ─▶ ask, run: a command, its reply ─▶ Value
//! ```
//!
//! A line speaks RESP2 unless its user says `HELLO 3`, and has one command in transit. It says
//! nothing by itself but the log-in, so that its user learns which command a master refuses. No
//! text that it returns has a password.

use std::fmt;
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use redquorum::connect::{Connection, Hello, Node};
use redquorum_protocol::wire::{Command, Frame, parse, readable, write_command};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Timeout of a connection and of a reply: longer than that of any sensible lock.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// The longest reply that is read: `CLIENT LIST` has up to 400 bytes for each connection, so this
/// is that of 150 000.
const MAX_REPLY: usize = 64 << 20;

/// Why there is no connection, or none any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unreached {
    /// The connection failed or ended.
    Down(String),
    /// The master does not reply. It accepts connections, or its state is unknown.
    Silent(String),
    /// The master refuses access, with this error.
    Refused(String),
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Down(text) | Self::Silent(text) | Self::Refused(text)) = self;
        f.write_str(text)
    }
}

/// Why a command has no reply of use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AskError {
    /// The master replied with this error to this command. The line can be used.
    Refused(String),
    /// The line cannot be used any more.
    Unreached(Unreached),
}

impl From<Unreached> for AskError {
    fn from(why: Unreached) -> Self {
        Self::Unreached(why)
    }
}

/// Separates what a master replied, which may be an error, from a connection that broke.
pub(crate) fn reply<T>(result: Result<T, AskError>) -> Result<Result<T, String>, Unreached> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(AskError::Refused(text)) => Ok(Err(text)),
        Err(AskError::Unreached(why)) => Err(why),
    }
}

/// A reply that is no error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    /// Nothing.
    Nil,
    /// A number.
    Integer(i64),
    /// Bytes, or a line such as `OK`.
    Bytes(Vec<u8>),
    /// Elements; those of a map are names and values in turn. An error in it is its text.
    List(Vec<Self>),
}

impl Value {
    fn of(frame: Frame<'_>) -> Self {
        match frame {
            Frame::Null => Self::Nil,
            Frame::Integer(number) => Self::Integer(number),
            Frame::Simple(bytes) | Frame::Bulk(bytes) | Frame::Error(bytes) => {
                Self::Bytes(bytes.to_vec())
            }
            Frame::Array(all) | Frame::Map(all) | Frame::Push(all) => {
                Self::List(all.into_iter().map(Self::of).collect())
            }
        }
    }

    /// Whether it is `OK`.
    pub(crate) fn is_ok(&self) -> bool {
        matches!(self, Self::Bytes(bytes) if bytes == b"OK")
    }

    /// All of it as words; lists are flattened, and `Nil` has none.
    pub(crate) fn words(&self) -> Vec<String> {
        match self {
            Self::Nil => Vec::new(),
            Self::Integer(number) => vec![number.to_string()],
            Self::Bytes(bytes) => vec![String::from_utf8_lossy(bytes).into_owned()],
            Self::List(all) => all.iter().flat_map(Self::words).collect(),
        }
    }
}

/// See the [module](self).
pub(crate) struct Line {
    node: Arc<dyn Node>,
    /// The log-in of this connection: no text may show its password.
    hello: Hello,
    connection: Box<dyn Connection>,
    incoming: Vec<u8>,
}

impl Line {
    /// Connects, authenticates, and selects the database.
    ///
    /// # Errors
    /// There is no connection in time, or the master refuses the log-in.
    pub(crate) async fn open(node: &Arc<dyn Node>) -> Result<Self, Unreached> {
        let connected = match timeout(PATIENCE, node.connect()).await {
            Ok(connected) => connected.map_err(|error| broken(&error)),
            Err(_) => Err(silent()),
        };
        if connected.is_err() {
            // A node of several addresses begins with another one next time.
            node.failed();
        }
        let connection = connected?;
        let (node, hello) = (node.clone(), node.hello());
        let mut line = Self { node, hello, connection, incoming: Vec::new() };
        let Hello { username, password, database } = line.hello.clone();
        if let Some(password) = password {
            let words = [Some("AUTH".to_owned()), username, Some(password)];
            let words: Vec<String> = words.into_iter().flatten().collect();
            let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
            line.log_in(&words).await?;
        }
        if database != 0 {
            line.log_in(&[b"SELECT", database.to_string().as_bytes()]).await?;
        }
        Ok(line)
    }

    async fn log_in(&mut self, words: &[&[u8]]) -> Result<(), Unreached> {
        reply(self.ask(words).await)?.map(drop).map_err(Unreached::Refused)
    }

    /// Opens another connection to the same master.
    ///
    /// # Errors
    /// Those of [`Line::open`].
    pub(crate) fn another(&self) -> impl Future<Output = Result<Self, Unreached>> + use<> {
        let node = self.node.clone();
        async move { Self::open(&node).await }
    }

    /// Sends a command given as words, and waits for its reply.
    ///
    /// # Errors
    /// The error of the master, or that of the connection.
    pub(crate) async fn ask(&mut self, words: &[&[u8]]) -> Result<Value, AskError> {
        let mut bytes = Vec::new();
        write_command(&mut bytes, words);
        self.exchange(&bytes).await
    }

    /// Sends a command of the lock, and waits for its reply.
    ///
    /// # Errors
    /// The error of the master, or that of the connection.
    pub(crate) async fn run(&mut self, command: &Command) -> Result<Value, AskError> {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        self.exchange(&bytes).await
    }

    async fn exchange(&mut self, bytes: &[u8]) -> Result<Value, AskError> {
        let write = async {
            self.connection.write_all(bytes).await?;
            self.connection.flush().await
        };
        let mut written = timeout(PATIENCE, write).await.map_err(|_| silent())?;
        // A master that hangs up may have said why.
        if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            written = Ok(());
        }
        written.map_err(|error| broken(&error))?;
        let read = timeout(PATIENCE, self.read()).await;
        let value = read.unwrap_or_else(|_| Err(silent().into()));
        if let Err(AskError::Unreached(_)) = value {
            self.node.failed();
        }
        value
    }

    /// Reads one reply.
    async fn read(&mut self) -> Result<Value, AskError> {
        loop {
            let parsed = parse(&self.incoming, MAX_REPLY);
            let parsed = parsed.map_err(|error| Unreached::Down(error.to_string()))?;
            if let Some((frame, used)) = parsed {
                let value = match self.hello.conceal(frame) {
                    Frame::Error(text) => Err(refusal(&readable(text))),
                    frame => Ok(Value::of(frame)),
                };
                self.incoming.drain(..used);
                return value;
            }
            let count = self.connection.read_buf(&mut self.incoming).await;
            if count.map_err(|error| broken(&error))? == 0 {
                return Err(Unreached::Down("closed by the master".to_owned()).into());
            }
        }
    }
}

/// The beginnings of errors that are no reply to a command: the master says so to any.
const NO_ACCESS: [&str; 3] = ["NOAUTH", "DENIED", "ERR max number of clients"];

fn refusal(text: &str) -> AskError {
    let text = text.trim().to_owned();
    match NO_ACCESS.iter().any(|beginning| text.starts_with(beginning)) {
        true => Unreached::Refused(text).into(),
        false => AskError::Refused(text),
    }
}

fn silent() -> Unreached {
    Unreached::Silent(format!("it does not answer within {PATIENCE:?}"))
}

fn broken(error: &io::Error) -> Unreached {
    match error.kind() {
        io::ErrorKind::TimedOut => Unreached::Silent(format!("it does not answer: {error}")),
        _ => Unreached::Down(error.to_string()),
    }
}

/// Visits all masters at the same time. The results are in their order.
pub(crate) async fn on_each<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    nodes: &[Arc<dyn Node>],
    visit: impl Fn(Arc<dyn Node>) -> F,
) -> Vec<T> {
    // All of them run before the first is awaited.
    let visits: Vec<_> = nodes.iter().map(|node| tokio::spawn(visit(node.clone()))).collect();
    let mut results = Vec::new();
    for visited in visits {
        // No visit is aborted, so the only error is a panic.
        results.push(visited.await.unwrap_or_else(|panic| resume_unwind(panic.into_panic())));
    }
    results
}

/// Asks all masters at the same time, each over a line of its own. An error is for people.
pub(crate) async fn on_all<T: Send + 'static, F: Future<Output = Result<T, AskError>> + Send>(
    nodes: &[Arc<dyn Node>],
    ask: impl Fn(Line) -> F + Clone + Send + 'static,
) -> Vec<Result<T, String>> {
    let visit = |node: Arc<dyn Node>| {
        let ask = ask.clone();
        async move {
            let line = Line::open(&node).await.map_err(|why| why.to_string())?;
            ask(line).await.map_err(|why| match why {
                AskError::Refused(text) => text,
                AskError::Unreached(why) => why.to_string(),
            })
        }
    };
    on_each(nodes, visit).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use redquorum::connect::Connecting;
    use tokio::net::{TcpListener, TcpStream};

    /// A master at this port, with a password.
    struct At(u16);

    impl Node for At {
        fn name(&self) -> String {
            "master".to_owned()
        }

        fn hello(&self) -> Hello {
            Hello { username: None, password: Some("hunter2".to_owned()), database: 3 }
        }

        fn connect(&self) -> Connecting<'_> {
            let connecting = TcpStream::connect(("127.0.0.1", self.0));
            Box::pin(async { Ok(Box::new(connecting.await?) as Box<dyn Connection>) })
        }
    }

    /// A line to a server that says this, whatever it is asked.
    async fn to(says: &'static str) -> Result<Line, Unreached> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let node: Arc<dyn Node> = Arc::new(At(listener.local_addr().unwrap().port()));
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(says.as_bytes()).await.unwrap();
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        });
        Line::open(&node).await
    }

    #[tokio::test]
    async fn replies_are_values_and_errors_are_told_apart() {
        let says = "+OK\r\n+OK\r\n$5\r\nvalue\r\n*2\r\n:1\r\n%1\r\n+a\r\n$-1\r\n-ERR no\r\n\
                    -ERR unknown hunter2\r\n-NOAUTH Authentication required.\r\n";
        let mut line = to(says).await.unwrap();
        let mut replies = Vec::new();
        for _ in 0..5 {
            replies.push(line.ask(&[b"PING"]).await);
        }
        let list = Value::List(vec![
            Value::Integer(1),
            Value::List(vec![Value::Bytes(b"a".to_vec()), Value::Nil]),
        ]);
        assert_eq!(list.words(), ["1", "a"]);
        let refused = |text: &str| Err(AskError::Refused(text.to_owned()));
        let no_access = Unreached::Refused("NOAUTH Authentication required.".to_owned());
        let expected = [
            Ok(Value::Bytes(b"value".to_vec())),
            Ok(list),
            refused("ERR no"),
            // The password is in the rest.
            refused("ERR"),
            Err(no_access.into()),
        ];
        assert_eq!(replies, expected);
    }

    #[tokio::test]
    async fn a_log_in_that_fails_is_refused_and_nonsense_is_down() {
        let opened = |result: Result<Line, Unreached>| result.map(drop).unwrap_err();
        let why = opened(to("-WRONGPASS invalid\r\n").await);
        assert_eq!(why, Unreached::Refused("WRONGPASS invalid".to_owned()));
        let why = opened(to("+OK\r\n-ERR DB index is out of range\r\n").await);
        assert_eq!(why, Unreached::Refused("ERR DB index is out of range".to_owned()));
        let why = opened(to("-DENIED protected\r\n").await);
        assert_eq!(why, Unreached::Refused("DENIED protected".to_owned()));
        assert!(matches!(opened(to("HTTP/1.1 400\r\n").await), Unreached::Down(_)));
    }
}
