//! A connection for text commands, with a longer timeout than the rig's: a busy disk slows a master
//! that syncs before every reply.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

pub(crate) struct Talk(BufReader<TcpStream>);

impl Talk {
    pub(crate) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(BufReader::new(stream))
    }

    /// The reply as it is on the wire, but without the frame of a long text.
    pub(crate) fn ask(&mut self, words: &str) -> String {
        self.0.get_mut().write_all(format!("{words}\r\n").as_bytes()).unwrap();
        let line = self.line();
        let Some(length) = line.strip_prefix('$').and_then(|digits| digits.parse().ok()) else {
            return line;
        };
        let mut text = vec![0; length];
        self.0.read_exact(&mut text).unwrap();
        self.line();
        String::from_utf8(text).unwrap()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}
