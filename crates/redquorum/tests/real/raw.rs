//! A client without a protocol: it sends the commands of the test over one connection. It shows
//! what happens to a careless lock, and monitors what the library sends.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use redquorum_rig::Masters;

use crate::support::{CALM, unique};

pub(crate) struct Raw(BufReader<TcpStream>);

impl Raw {
    pub(crate) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        stream.set_read_timeout(Some(5 * CALM)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self(BufReader::new(stream))
    }

    /// Sends a command of words without spaces, and does not wait for the reply.
    pub(crate) fn send(&mut self, command: &str) {
        let line = format!("{command}\r\n");
        self.0.get_mut().write_all(line.as_bytes()).expect("it is sent");
    }

    /// Sends a command and returns its reply of one line.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.line()
    }

    /// The next line from the master.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).expect("an answer");
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    /// Whether the other side has closed the connection, in whatever way.
    pub(crate) fn is_at_end(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }

    /// Waits for the end of the connection, and returns whether it was a reset.
    pub(crate) fn is_cut_off(&mut self) -> bool {
        self.0.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
    }
}

/// All commands that one master executes, from all clients.
pub(crate) struct Monitor<'a> {
    masters: &'a Masters,
    node: usize,
    lines: Raw,
}

impl<'a> Monitor<'a> {
    pub(crate) fn start(masters: &'a Masters, node: usize) -> Self {
        let mut lines = Raw::connect(masters.port(node));
        assert_eq!(lines.ask("MONITOR"), "+OK");
        Self { masters, node, lines }
    }

    /// The commands since the last call that contain this word.
    pub(crate) fn seen(&mut self, word: &str) -> Vec<String> {
        let end = unique("end-of-look");
        self.masters.ask(self.node, &format!("ECHO {end}")).expect("an echo");
        let mut seen = Vec::new();
        loop {
            let line = self.lines.line();
            if line.contains(&end) {
                return seen;
            }
            if line.contains(word) {
                seen.push(line);
            }
        }
    }
}

/// The value in a line of [`Monitor`] that sets `key`: `… "SET" "key" "value" …`.
pub(crate) fn value_set(line: &str, key: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!("\"SET\" \"{key}\" \""))?;
    // A token is any bytes, and a quote in it is escaped.
    let (value, _) = rest.split_once("\" \"NX\"")?;
    Some(value.to_owned())
}
