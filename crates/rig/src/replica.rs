//! Replicas: how a replica follows its master, when it has all the master's data, and how it is cut
//! off. Called by `masters.rs`.

use std::{
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use crate::{RespValue, RigError, lock, node::Node};

/// A replica answers within microseconds, gets its master's writes within a millisecond, and a copy
/// of everything within a second.
const TIMEOUT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(2);

/// For masters with replicas: the master starts a copy without waiting for a second replica.
pub(crate) const DIRECTIVES: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

/// The role of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Follows,
    /// It gets nothing more.
    Lags,
    /// It is the master now.
    TookOver,
}

/// The replica of a master: the server, and its role.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) node: Node,
    part: Mutex<Part>,
}

impl Replica {
    /// Makes a server the replica of a master, and returns when it has a copy of the data.
    pub(crate) fn new(node: Node, master: &Node) -> Result<Self, RigError> {
        let replica = Self { node, part: Mutex::new(Part::Follows) };
        replica.follow(master)?;
        Ok(replica)
    }

    /// Whether it is the master now.
    pub(crate) fn took_over(&self) -> bool {
        *lock(&self.part) == Part::TookOver
    }

    /// From now on it gets nothing more; it has all that its master had executed before. The
    /// replica itself cuts the link: a stopped replica would find the stream in its socket.
    pub(crate) fn lag(&self, master: &Node) -> Result<(), RigError> {
        let mut part = lock(&self.part);
        match *part {
            Part::Lags => Ok(()),
            Part::TookOver => Err(self.gone()),
            Part::Follows => {
                self.wait_for(master)?;
                self.promote()?;
                *part = Part::Lags;
                Ok(())
            }
        }
    }

    /// It follows again, and gets all that its master had executed before. Does nothing if it is
    /// the master by now.
    pub(crate) fn catch_up(&self, master: &Node) -> Result<(), RigError> {
        let mut part = lock(&self.part);
        if *part == Part::TookOver {
            return Ok(());
        }
        if *part == Part::Lags {
            self.follow(master)?;
            *part = Part::Follows;
        }
        self.wait_for(master)
    }

    /// Kills its master and takes over. A replica that does not lag has all that the master had
    /// executed before.
    pub(crate) fn take_over(&self, master: &Node) -> Result<(), RigError> {
        let mut part = lock(&self.part);
        match *part {
            Part::TookOver => return Err(self.gone()),
            Part::Follows => self.wait_for(master)?,
            Part::Lags => {}
        }
        master.kill()?;
        if *part == Part::Follows {
            self.promote()?;
        }
        *part = Part::TookOver;
        Ok(())
    }

    fn follow(&self, master: &Node) -> Result<(), RigError> {
        let address = master.host.inside()?;
        self.replica_of([&address.ip().to_string(), &address.port().to_string()])?;
        self.until("it does not get a copy of its master", || {
            let info = self.info()?;
            Ok(value(&info, "master_link_status") == Some("up"))
        })
    }

    fn promote(&self) -> Result<(), RigError> {
        self.replica_of(["NO", "ONE"])?;
        if value(&self.info()?, "role") == Some("master") {
            return Ok(());
        }
        Err(self.failed("it still follows its master after REPLICAOF NO ONE".to_owned()))
    }

    /// Waits until it has all data that its master had at the call.
    fn wait_for(&self, master: &Node) -> Result<(), RigError> {
        let offset = |info: &str, name| value(info, name).and_then(|text| text.parse::<u64>().ok());
        let wanted = offset(&master.info("replication")?, "master_repl_offset");
        let Some(wanted) = wanted else {
            return Err(self.failed("INFO of its master has no master_repl_offset".to_owned()));
        };
        self.until("it does not get what its master has", || {
            let info = self.info()?;
            let up = value(&info, "master_link_status") == Some("up");
            Ok(up && offset(&info, "slave_repl_offset").is_some_and(|has| has >= wanted))
        })
    }

    fn until(
        &self,
        what: &str,
        holds: impl Fn() -> Result<bool, RigError>,
    ) -> Result<(), RigError> {
        let until = Instant::now() + TIMEOUT;
        while !holds()? {
            if Instant::now() >= until {
                return Err(self.failed(format!("{what} within {TIMEOUT:?}")));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    fn info(&self) -> Result<String, RigError> {
        self.node.info("replication")
    }

    /// Sends `REPLICAOF` with these arguments.
    fn replica_of(&self, [host, port]: [&str; 2]) -> Result<(), RigError> {
        match self.node.command(&[b"REPLICAOF", host.as_bytes(), port.as_bytes()])? {
            RespValue::Status(_) => Ok(()),
            reply => Err(self.failed(format!("it replies {reply:?}"))),
        }
    }

    fn gone(&self) -> RigError {
        self.failed("it is the master: there is no other to follow".to_owned())
    }

    fn failed(&self, why: String) -> RigError {
        RigError::Replica { node: self.node.number, why }
    }
}

/// The value of a line of `INFO`.
pub(crate) fn value<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}
