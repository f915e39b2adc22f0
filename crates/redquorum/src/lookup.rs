//! Lookup: the addresses of a host's name, by the resolver of the operating system.
//!
//! That resolver blocks its thread, and no one can end a look-up that hangs. So there is one
//! look-up at a time for each name, on a thread of its own. A dial that is given up leaves its
//! look-up behind, and the next dial waits for the same one. Tokio's pool of blocking threads
//! belongs to the program: if each dial started a look-up there, those that hang would fill it, and
//! the runtime would not end before they do.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redquorum_protocol::Time;
use tokio::sync::watch;

use crate::clock::Clock;

/// A result that no dial waited for is good for the next dial for this long. A slow resolver
/// answers mostly between two dials.
const FRESH: Duration = Duration::from_secs(2);

/// The most look-ups at a time. Sentinels can name any number of hosts.
const MOST: usize = 256;

type Resolve = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// A look-up under way, or its result.
type LookUp = watch::Receiver<Option<Found>>;

/// The look-ups of one lock.
#[derive(Clone)]
pub(crate) struct Lookups {
    resolve: Arc<Resolve>,
    running: Arc<Mutex<HashMap<Arc<str>, LookUp>>>,
}

/// What a look-up found, and when.
#[derive(Clone)]
struct Found {
    at: Time,
    /// The text of an error: the error itself cannot be shared.
    addresses: Result<Vec<SocketAddr>, (io::ErrorKind, String)>,
}

impl Default for Lookups {
    fn default() -> Self {
        Self::by(|host| Ok((host, 0).to_socket_addrs()?.collect()))
    }
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookups").finish_non_exhaustive()
    }
}

impl Lookups {
    pub(crate) fn by(
        resolve: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self { resolve: Arc::new(resolve), running: Arc::default() }
    }

    /// The addresses of a host, in the resolver's order, with this port. Dropping the future leaves
    /// the look-up to the next caller.
    pub(crate) async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![(address, port).into()]);
        }
        let mut look_up = self.join(host)?;
        let found = match look_up.wait_for(Option::is_some).await {
            Ok(found) => found.clone(),
            Err(_) => None,
        };
        self.forget(host, &look_up);
        let found = found.ok_or_else(|| io::Error::other("the look-up of the name panicked"))?;
        let mut addresses = found.addresses.map_err(|(kind, text)| io::Error::new(kind, text))?;
        addresses.iter_mut().for_each(|address| address.set_port(port));
        Ok(addresses)
    }

    /// The look-up of this host: the one that is under way or has just ended, or a new one.
    fn join(&self, host: &str) -> io::Result<LookUp> {
        let now = Clock::System.now();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of_use = |look_up: &LookUp| match &*look_up.borrow() {
            Some(found) => now.since(found.at) < FRESH,
            None => look_up.has_changed().is_ok(),
        };
        running.retain(|_, look_up| is_of_use(look_up));
        if let Some(look_up) = running.get(host) {
            return Ok(look_up.clone());
        }
        if running.len() >= MOST {
            return Err(io::Error::other("too many names are being looked up"));
        }
        let (host, resolve) = (Arc::<str>::from(host), self.resolve.clone());
        let (sender, look_up) = watch::channel(None);
        let name = host.clone();
        std::thread::Builder::new().name("redquorum-lookup".into()).spawn(move || {
            let addresses = resolve(&name).map_err(|error| (error.kind(), error.to_string()));
            let found = Found { at: Clock::System.now(), addresses };
            // The lock may be gone.
            _ = sender.send(Some(found));
        })?;
        running.insert(host, look_up.clone());
        Ok(look_up)
    }

    /// The look-up has ended, and a dial has its result: the next one looks again, since a name may
    /// move.
    fn forget(&self, host: &str, ended: &LookUp) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.get(host).is_some_and(|look_up| look_up.same_channel(ended)) {
            running.remove(host);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc::{Sender, channel};

    use tokio::time::timeout;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A resolver that finds what the test sends, and counts its look-ups.
    fn resolver() -> (Lookups, Sender<SocketAddr>, Arc<AtomicUsize>) {
        let (sender, answers) = channel();
        let (answers, count) = (Mutex::new(answers), Arc::new(AtomicUsize::new(0)));
        let counts = count.clone();
        let lookups = Lookups::by(move |_| {
            counts.fetch_add(1, SeqCst);
            let answer = answers.lock().unwrap().recv();
            answer.map(|address| vec![address]).map_err(|_| io::ErrorKind::NotFound.into())
        });
        (lookups, sender, count)
    }

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 6379))
    }

    #[tokio::test(start_paused = true)]
    async fn dials_that_give_up_leave_one_look_up_which_the_next_one_shares() {
        let (lookups, answers, count) = resolver();
        for _ in 0..100 {
            // Each dial is of a master of its own: they have one name, and several ports.
            timeout(1_000 * MS, lookups.addresses("db1", 6379)).await.unwrap_err();
        }
        assert_eq!(lookups.running.lock().unwrap().len(), 1);
        let both =
            async { tokio::join!(lookups.addresses("db1", 6379), lookups.addresses("db1", 6379)) };
        let answer = async { answers.send(address(1)).unwrap() };
        let ((first, second), ()) = tokio::join!(both, answer);
        assert_eq!((first.unwrap(), second.unwrap()), (vec![address(1)], vec![address(1)]));
        assert_eq!(count.load(SeqCst), 1);
        // A name may have moved since.
        answers.send(address(2)).unwrap();
        assert_eq!(lookups.addresses("db1", 6379).await.unwrap(), [address(2)]);
        assert_eq!(count.load(SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_that_came_between_two_dials_is_not_lost() {
        let (lookups, answers, count) = resolver();
        timeout(MS, lookups.addresses("db1", 6379)).await.unwrap_err();
        let mut ended = lookups.running.lock().unwrap()["db1"].clone();
        answers.send(address(1)).unwrap();
        ended.wait_for(Option::is_some).await.unwrap();
        assert_eq!(lookups.addresses("db1", 6379).await.unwrap(), [address(1)]);
        assert_eq!(count.load(SeqCst), 1);
    }

    #[tokio::test]
    async fn names_do_not_wait_for_each_other_and_their_number_has_a_bound() {
        let (lookups, answers, count) = resolver();
        let dials: Vec<_> = (0..MOST).map(|number| lookups.join(&format!("db{number}"))).collect();
        assert!(dials.iter().all(Result::is_ok));
        let error = lookups.addresses("one-more", 6379).await.unwrap_err();
        assert!(error.to_string().contains("too many names"), "{error}");
        assert_eq!(lookups.addresses("::1", 6379).await.unwrap(), ["[::1]:6379".parse().unwrap()]);
        drop(answers);
        for dial in dials {
            dial.unwrap().wait_for(Option::is_some).await.unwrap();
        }
        assert_eq!(count.load(SeqCst), MOST);
        let error = lookups.addresses("db0", 6379).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn a_resolver_that_panics_ends_only_its_look_up() {
        let lookups = Lookups::by(|_| panic!("planted"));
        for _ in 0..3 {
            let error = lookups.addresses("db1", 6379).await.unwrap_err();
            assert!(error.to_string().contains("panicked"), "{error}");
        }
        assert!(lookups.running.lock().unwrap().is_empty());
    }

    #[test]
    fn a_look_up_that_hangs_does_not_hold_the_runtime() {
        let (lookups, answers, _) = resolver();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .max_blocking_threads(1)
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            for host in ["db1", "db2", "db3"] {
                timeout(MS, lookups.addresses(host, 6379)).await.unwrap_err();
            }
            // The program's own blocking task has its thread.
            tokio::task::spawn_blocking(|| ()).await.unwrap();
        });
        drop(runtime);
        drop(answers);
    }
}
