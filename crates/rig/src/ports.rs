//! Chooses the ports of the masters. `builder.rs` calls it when it starts them.
//!
//! It does not bind port 0, because that gives a port from the range from which the kernel also
//! serves *outgoing* connections. While a master is dead, a client that keeps reconnecting to such
//! a port can get that very port as its own. It then connects to itself, and the master cannot come
//! back. So the choice is below that range (Linux: from 32768, macOS: from 49152).
//!
//! The directory named after a port claims it. Among all rigs of a machine, also in other
//! processes, none takes the port of a master that is currently killed. The claim does not bind
//! other programs: a server that finds its port in use is started again on the next one.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, Hasher, RandomState},
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
};

/// The next port: a wanted one, else one that is free at this moment.
pub(crate) fn next(wanted: &mut VecDeque<u16>) -> u16 {
    // The check only saves a start in vain. If all of these are in use, the start detects it.
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let free = || (0..100).map(|_| random_port()).find(is_free).unwrap_or_else(random_port);
    wanted.pop_front().unwrap_or_else(free)
}

/// The directory of the master on this port, which also claims the port.
///
/// It is short, because the path of a Unix socket may have about a hundred bytes and the socket is
/// in this directory.
pub(crate) fn directory(port: u16) -> PathBuf {
    let temp = std::env::temp_dir();
    std::path::absolute(&temp).unwrap_or(temp).join(format!("redquorum-{port}"))
}

/// Random, so that rigs that start at the same time do not try the same ports.
fn random_port() -> u16 {
    20_000 + u16::try_from(random() % 12_000).expect("less than a range of ports")
}

/// A number that no other call returns, also in other processes, with a probability near one.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
