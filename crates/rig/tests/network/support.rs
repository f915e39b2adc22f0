//! Both ends of connections through a network, and the events that its observer received.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use redquorum_rig::network::{
    Message, MessageFault, Network, Rule, RuleId, Side, Traffic, TrafficEvent,
};

/// A limit that allows for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long a test waits before it concludes that nothing arrives.
const SILENCE: Duration = Duration::from_millis(40);

pub(crate) const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
pub(crate) const PONG: &[u8] = b"+PONG\r\n";

pub(crate) fn request(words: &str) -> Vec<u8> {
    let words: Vec<&str> = words.split(' ').collect();
    let body: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{body}", words.len()).into_bytes()
}

pub(crate) fn on(side: Side, fault: MessageFault) -> Rule {
    Rule { side, ..Rule::all(fault) }
}

/// A rule for commands of this name, and for replies to them.
pub(crate) fn about(name: &'static str, side: Side, fault: MessageFault) -> Rule {
    let matches = move |message: &Message<'_>| {
        message.command.first().is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    Rule { matches: Some(Arc::new(matches)), ..on(side, fault) }
}

/// The events that the observer received.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<(Mutex<Vec<Traffic>>, Condvar)>);

impl Seen {
    pub(crate) fn observer(&self) -> impl FnMut(Traffic) + Send + 'static {
        let seen = self.clone();
        move |traffic| {
            seen.0.0.lock().unwrap().push(traffic);
            seen.0.1.notify_all();
        }
    }

    pub(crate) fn all(&self) -> Vec<Traffic> {
        self.0.0.lock().unwrap().clone()
    }

    /// All events, as short lines without times: `forwarded 1 PING`.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.all().iter().map(line).collect()
    }

    /// The lines of replies.
    pub(crate) fn replied(&self) -> Vec<String> {
        self.lines().into_iter().filter(|line| line.starts_with("replied")).collect()
    }

    /// Waits until this line was reported `times` times.
    pub(crate) fn wait_for(&self, wanted: &str, times: usize) {
        let until = Instant::now() + TIMEOUT;
        let mut seen = self.0.0.lock().unwrap();
        while seen.iter().filter(|traffic| line(traffic) == wanted).count() < times {
            let left = until.saturating_duration_since(Instant::now());
            let lines: Vec<String> = seen.iter().map(line).collect();
            assert!(!left.is_zero(), "not reported: {wanted}, but {lines:#?}");
            seen = self.0.1.wait_timeout(seen, left).unwrap().0;
        }
    }
}

fn line(traffic: &Traffic) -> String {
    let of = |side: &Side| if *side == Side::Request { "request" } else { "reply" };
    let (what, number, command, end) = match &traffic.event {
        TrafficEvent::Opened => return "opened".to_owned(),
        TrafficEvent::Closed => return "closed".to_owned(),
        TrafficEvent::Struck { side: Side::Both, .. } => return "struck connection".to_owned(),
        TrafficEvent::Forwarded { number, command, duplicate } => {
            ("forwarded".to_owned(), number, command, if *duplicate { " again" } else { "" })
        }
        TrafficEvent::Replied { number, command, duplicate, .. } => {
            ("replied".to_owned(), number, command, if *duplicate { " again" } else { "" })
        }
        TrafficEvent::Delivered { number, command } => {
            ("delivered".to_owned(), number, command, "")
        }
        TrafficEvent::Lost { number, side, command } => {
            (format!("lost {}", of(side)), number, command, "")
        }
        TrafficEvent::Struck { number, side, command, .. } => {
            (format!("struck {}", of(side)), number, command, "")
        }
        other => panic!("unknown: {other:?}"),
    };
    let words = command.iter().map(|word| format!(" {}", String::from_utf8_lossy(word)));
    format!("{what} {number}{}{end}", words.collect::<String>())
}

/// A network between one client, `c1`, and one master, 1. The test plays both.
pub(crate) struct Wire {
    pub(crate) network: Network,
    pub(crate) master: TcpListener,
    pub(crate) address: SocketAddr,
    pub(crate) seen: Seen,
}

impl Wire {
    pub(crate) fn new() -> Self {
        let seen = Seen::default();
        let observer = seen.observer();
        Self { seen, ..Self::observed_by(observer) }
    }

    /// With a client's connection, and the master's end of it.
    pub(crate) fn open() -> (Self, Half, Half) {
        let wire = Self::new();
        let (client, master) = wire.pair();
        (wire, client, master)
    }

    /// With a connection, and a rule that was struck after that.
    pub(crate) fn struck(rule: Rule) -> (Self, Half, Half, RuleId) {
        let (wire, client, master) = Self::open();
        let rule = wire.network.strike(rule);
        (wire, client, master, rule)
    }

    /// A network with this observer. `seen` stays empty.
    pub(crate) fn observed_by(observer: impl FnMut(Traffic) + Send + 'static) -> Self {
        let network = Network::start(observer).unwrap();
        let master = TcpListener::bind("127.0.0.1:0").unwrap();
        network.upstream(1, Some(master.local_addr().unwrap()));
        let address = network.listen("c1", 1).unwrap();
        Self { network, master, address, seen: Seen::default() }
    }

    pub(crate) fn client(&self) -> Half {
        Half::new(TcpStream::connect(self.address).unwrap())
    }

    pub(crate) fn accept(&self) -> Half {
        Half::new(self.master.accept().unwrap().0)
    }

    /// A client's connection, and the master's end of it.
    pub(crate) fn pair(&self) -> (Half, Half) {
        (self.client(), self.accept())
    }

    /// Whether no connection reaches the master.
    pub(crate) fn no_connection_arrives(&self) -> bool {
        self.master.set_nonblocking(true).unwrap();
        std::thread::sleep(SILENCE);
        let knocked = self.master.accept().is_ok();
        self.master.set_nonblocking(false).unwrap();
        !knocked
    }
}

pub(crate) struct Half(pub(crate) TcpStream);

impl Half {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    #[track_caller]
    pub(crate) fn gets(&mut self, bytes: &[u8]) {
        let mut got = vec![0; bytes.len()];
        self.0.read_exact(&mut got).unwrap();
        assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(bytes));
    }

    #[track_caller]
    pub(crate) fn gets_nothing(&mut self) {
        self.0.set_read_timeout(Some(SILENCE)).unwrap();
        let mut byte = [0];
        match self.0.read(&mut byte) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => panic!("{other:?}, {byte:?}"),
        }
        self.0.set_read_timeout(Some(TIMEOUT)).unwrap();
    }

    #[track_caller]
    pub(crate) fn is_reset(&mut self) {
        assert_eq!(self.0.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }

    #[track_caller]
    pub(crate) fn is_finished(&mut self) {
        assert_eq!(self.0.read(&mut [0]).unwrap(), 0);
    }

    /// Closes the connection with RST.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(&self.0).set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// Ends the connection with RST or FIN.
    pub(crate) fn end(self, reset: bool) {
        if reset { self.reset() } else { drop(self) }
    }

    #[track_caller]
    pub(crate) fn has_ended(&mut self, reset: bool) {
        if reset { self.is_reset() } else { self.is_finished() }
    }

    pub(crate) fn finish(&self) {
        self.0.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

/// Sends a request, which reaches the master.
#[track_caller]
pub(crate) fn ping(client: &mut Half, master: &mut Half) {
    client.send(PING);
    master.gets(PING);
}

/// Sends a reply, which reaches the client.
#[track_caller]
pub(crate) fn pong(client: &mut Half, master: &mut Half) {
    master.send(PONG);
    client.gets(PONG);
}

#[track_caller]
pub(crate) fn both_are_reset(client: &mut Half, master: &mut Half) {
    client.is_reset();
    master.is_reset();
}
