//! A client without a protocol: it sends the commands of the test over one connection. It shows
//! what happens to a careless lock, and monitors what the library sends.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};

use crate::support::{Real, S};

pub(crate) struct Raw(BufReader<TcpStream>);

impl Raw {
    pub(crate) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        stream.set_read_timeout(Some(5 * S)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self(BufReader::new(stream))
    }

    /// Sends a command of words without spaces, and does not wait for the reply.
    pub(crate) fn send(&mut self, command: &str) {
        let line = format!("{command}\r\n");
        self.0.get_mut().write_all(line.as_bytes()).expect("it is sent");
    }

    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.line()
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).expect("an answer");
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }
}

/// All commands that one master executes, from all clients.
pub(crate) struct Monitor<'a> {
    masters: &'a Real,
    node: usize,
    lines: Raw,
    looks: u32,
}

impl<'a> Monitor<'a> {
    pub(crate) fn start(masters: &'a Real, node: usize) -> Self {
        let mut lines = Raw::connect(masters.port(node));
        assert_eq!(lines.ask("MONITOR"), "+OK");
        Self { masters, node, lines, looks: 0 }
    }

    /// The commands since the last call that contain this word.
    pub(crate) fn seen(&mut self, word: &str) -> Vec<String> {
        self.looks += 1;
        let end = format!("end-of-look-{}.", self.looks);
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
