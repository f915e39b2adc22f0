//! A connection that stays open, for commands in words whose replies fit on one line.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

pub(crate) struct Talk(BufReader<TcpStream>);

impl Talk {
    pub(crate) fn connect(port: u16) -> Self {
        Self(BufReader::new(TcpStream::connect(("127.0.0.1", port)).unwrap()))
    }

    pub(crate) fn ask(&mut self, words: &str) -> String {
        self.0.get_mut().write_all(format!("{words}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}
