//! Replicas: how a replica follows its master, when it has all the master's data, and how it is cut
//! off. Called by code that has both, in processes (`masters.rs`) and in containers
//! (`containers/mod.rs`).

use std::{
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::{RespValue, RigError};

/// A replica answers within microseconds, gets its master's writes within a millisecond, and a copy
/// of everything within a second.
const PATIENCE: Duration = Duration::from_secs(5);
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
pub(crate) struct Replica<N> {
    /// Counted from 1: the master's number.
    number: usize,
    pub(crate) node: N,
    part: Mutex<Part>,
}

/// A server that accepts commands.
pub(crate) trait Queryable {
    fn asked(&self, command: &[&[u8]]) -> Result<RespValue, RigError>;
}

impl<N: Queryable> Replica<N> {
    /// A server that will [follow](Self::follow) the master of this number.
    pub(crate) fn new(number: usize, node: N) -> Self {
        Self { number, node, part: Mutex::new(Part::Follows) }
    }

    /// Whether it is the master now.
    pub(crate) fn took_over(&self) -> bool {
        *self.part() == Part::TookOver
    }

    /// From now on it gets nothing more; it has all that its master had executed before. The
    /// replica itself cuts the link: a stopped replica would find the stream in its socket.
    pub(crate) fn lag(&self, master: &impl Queryable) -> Result<(), RigError> {
        let mut part = self.part();
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

    /// It follows again. Does nothing if it is the master by now.
    pub(crate) fn catch_up(
        &self,
        master: impl FnOnce() -> Result<SocketAddr, RigError>,
    ) -> Result<(), RigError> {
        let mut part = self.part();
        if *part == Part::Lags {
            self.follow(master()?)?;
            *part = Part::Follows;
        }
        Ok(())
    }

    /// Takes over from a master, which is ended in the process. A replica that does not lag has all
    /// that the master had executed before.
    pub(crate) fn take_over(
        &self,
        master: &impl Queryable,
        end: impl FnOnce() -> Result<(), RigError>,
    ) -> Result<(), RigError> {
        let mut part = self.part();
        match *part {
            Part::TookOver => return Err(self.gone()),
            Part::Follows => self.wait_for(master)?,
            Part::Lags => {}
        }
        end()?;
        if *part == Part::Follows {
            self.promote()?;
        }
        *part = Part::TookOver;
        Ok(())
    }

    /// Makes it the replica of a master, and returns when it has a copy of the data.
    pub(crate) fn follow(&self, master: SocketAddr) -> Result<(), RigError> {
        let (host, port) = (master.ip().to_string(), master.port().to_string());
        self.say(&[b"REPLICAOF", host.as_bytes(), port.as_bytes()])?;
        self.until("it does not get a copy of its master", || {
            let info = info(&self.node)?;
            Ok(value(&info, "master_link_status") == Some("up"))
        })
    }

    fn promote(&self) -> Result<(), RigError> {
        self.say(&[b"REPLICAOF", b"NO", b"ONE"])?;
        let info = info(&self.node)?;
        match value(&info, "role") {
            Some("master") => Ok(()),
            _ => Err(self.failed("it was told to follow nobody, and follows".to_owned())),
        }
    }

    /// Waits until it has all data that its master had at the call.
    fn wait_for(&self, master: &impl Queryable) -> Result<(), RigError> {
        let offset = |info: &str, name| value(info, name).and_then(|text| text.parse::<u64>().ok());
        let wanted = offset(&info(master)?, "master_repl_offset");
        let Some(wanted) = wanted else {
            return Err(self.failed("its master does not tell how much it has sent".to_owned()));
        };
        self.until("it does not get what its master has", || {
            let info = info(&self.node)?;
            let up = value(&info, "master_link_status") == Some("up");
            Ok(up && offset(&info, "slave_repl_offset").is_some_and(|has| has >= wanted))
        })
    }

    fn until(
        &self,
        what: &str,
        is_so: impl Fn() -> Result<bool, RigError>,
    ) -> Result<(), RigError> {
        let until = Instant::now() + PATIENCE;
        while !is_so()? {
            if Instant::now() >= until {
                return Err(self.failed(format!("{what} within {PATIENCE:?}")));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    fn say(&self, command: &[&[u8]]) -> Result<(), RigError> {
        match self.node.asked(command)? {
            RespValue::Status(_) => Ok(()),
            said => Err(self.failed(format!("it says {said:?}"))),
        }
    }

    fn gone(&self) -> RigError {
        self.failed("it is the master: there is no other to follow".to_owned())
    }

    fn failed(&self, why: String) -> RigError {
        RigError::Replica { node: self.number, why }
    }

    /// A panic elsewhere does not change the role of the servers.
    fn part(&self) -> MutexGuard<'_, Part> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error for a master without a replica.
pub(crate) fn none(node: usize) -> RigError {
    let why = "there is none: start the masters with the builder's `replicas`".to_owned();
    RigError::Replica { node, why }
}

fn info(server: &impl Queryable) -> Result<String, RigError> {
    let reply = server.asked(&[b"INFO", b"replication"])?;
    Ok(reply.text().unwrap_or_default().into_owned())
}

fn value<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}
