//! The rig's network between applicants and their servers: it adds latency, follows a master that
//! moves, and can break a connection between a commit and its reply.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redquorum_rig::network::{self, Message, MessageFault, Rule, Side};

/// The number of the database; masters are counted from 1.
const DATABASE: usize = 0;
/// The commit whose reply is lost, counted from 1.
const LOST: u64 = 10;

#[derive(Debug)]
pub(crate) struct Network {
    inner: network::Network,
    /// The replies to commits so far.
    commits: Arc<AtomicU64>,
}

impl Network {
    /// Adds `delay` to each round trip.
    pub(crate) fn start(delay: Duration) -> io::Result<Self> {
        let inner = network::Network::start(|_| {})?;
        inner.strike(Rule { side: Side::Request, ..Rule::all(MessageFault::Delay(delay)) });
        Ok(Self { inner, commits: Arc::default() })
    }

    /// The address of the database for applicants.
    pub(crate) fn before_database(&self, upstream: SocketAddr) -> io::Result<SocketAddr> {
        self.inner.upstream(DATABASE, Some(upstream));
        self.inner.listen_opaque("applicants", DATABASE)
    }

    /// The address of a master for applicants.
    pub(crate) fn before_master(
        &self,
        number: usize,
        upstream: SocketAddr,
    ) -> io::Result<SocketAddr> {
        self.lead_to(number, upstream);
        self.inner.listen("applicants", number)
    }

    /// New connections to a master go to this server.
    pub(crate) fn lead_to(&self, number: usize, upstream: SocketAddr) {
        self.inner.upstream(number, Some(upstream));
    }

    /// The database executes one commit whose connection breaks instead of its reply.
    pub(crate) fn lose_reply_of_a_commit(&self) {
        const COMMIT: &[u8] = b"COMMIT";
        let commits = self.commits.clone();
        let matches = move |message: &Message<'_>| {
            let query = message.command.first().map_or(&[][..], Vec::as_slice);
            let is_commit = query.windows(COMMIT.len()).any(|window| window == COMMIT);
            commits.fetch_add(u64::from(is_commit), Ordering::Relaxed);
            is_commit
        };
        self.inner.strike(Rule {
            nodes: Some(vec![DATABASE]),
            side: Side::Reply,
            matches: Some(Arc::new(matches)),
            from: LOST,
            count: Some(1),
            ..Rule::all(MessageFault::Reset)
        });
    }

    pub(crate) fn has_lost_reply(&self) -> bool {
        self.commits.load(Ordering::Relaxed) >= LOST
    }
}
