//! Five bare sockets: one thread writes to them and waits with `poll`, without a runtime and
//! without a client library.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, poll};

/// A connection, and how many of its commands have no reply yet: a round waits for a quorum only.
struct Socket {
    stream: TcpStream,
    unanswered: usize,
}

#[derive(Clone)]
pub(crate) struct Raw(Arc<Mutex<Vec<Socket>>>);

impl Raw {
    pub(crate) fn connect(urls: &[String]) -> Self {
        let open = |url: &String| {
            let address = url.strip_prefix("redis://").expect("the rig's URLs are plain");
            let stream = TcpStream::connect(address.trim_end_matches('/')).expect("a master is up");
            stream.set_nodelay(true).expect("the option is known");
            Socket { stream, unanswered: 0 }
        };
        Self(Arc::new(Mutex::new(urls.iter().map(open).collect())))
    }

    /// Sends a command, to which the reply is one line, to all masters, and waits for the replies
    /// of a quorum.
    pub(crate) fn quorum_of(&self, command: &redis::Cmd) {
        let command = command.get_packed_command();
        let mut sockets = self.0.lock().expect("no contender panics");
        for socket in &mut *sockets {
            socket.stream.write_all(&command).expect("a master reads");
            socket.unanswered += 1;
        }
        let quorum = sockets.len() / 2 + 1;
        while sockets.iter().filter(|socket| socket.unanswered == 0).count() < quorum {
            let waiting = sockets.iter().filter(|socket| socket.unanswered > 0);
            let mut ready: Vec<PollFd<'_>> =
                waiting.map(|socket| PollFd::new(&socket.stream, PollFlags::IN)).collect();
            poll(&mut ready, None).expect("the sockets are open");
            let readable: Vec<bool> = ready.iter().map(|fd| !fd.revents().is_empty()).collect();
            let waiting = sockets.iter_mut().filter(|socket| socket.unanswered > 0);
            waiting.zip(readable).filter(|(_, ready)| *ready).for_each(|(socket, _)| socket.read());
        }
    }
}

impl Socket {
    /// Reads what has arrived. The socket must be readable.
    fn read(&mut self) {
        let mut bytes = [0; 512];
        let count = self.stream.read(&mut bytes).expect("a master is up");
        assert_ne!(count, 0, "a master closed the connection");
        let bytes = &bytes[..count];
        assert_ne!(bytes[0], b'-', "{}", String::from_utf8_lossy(bytes));
        self.unanswered -= bytes.iter().filter(|byte| **byte == b'\n').count();
    }
}
