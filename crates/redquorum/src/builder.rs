//! Builder: the masters and options of a lock, checked once.

use std::collections::HashMap;
use std::fmt;
use std::panic::catch_unwind;
#[cfg(feature = "tls")]
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::{CLIENT_NAME, is_client_name};
use redquorum_protocol::{
    Backoff, BadOption, Bounds, ClientConfig, Drift, Fingerprint, Guard, HolderName, LockConfig,
    MAX_NODES, MastersId, NodeId, NodeSet, Quorum,
};
use tokio::runtime::Handle;
#[cfg(feature = "tls")]
use tokio_rustls::rustls;

use crate::clock::Clock;
use crate::connect::BadUrl;
use crate::driver::drive;
use crate::endpoint::{Credentials, CredentialsOf, Settings};
use crate::error::BuildError;
use crate::lookup::Lookups;
use crate::master::{IntoMaster, Master, Sealed, Shard, Target};
use crate::node::Node;
use crate::redlock::Redlock;
use crate::rng::{RetryPolicy, number};
use crate::shared::{LockState, Shared};
#[cfg(feature = "tls")]
use crate::tls::{Certificates, Files, Source, Tls};

/// Describes a [`Redlock`]. Made by [`Redlock::builder`].
///
/// [`build`](Builder::build) checks all options once, also against each other:
/// `drift + node timeout < TTL ≤ 24 h`, and 1 to 64 masters. Use three or five masters, which share
/// no host, power supply or disk. An even number gains little: four tolerate one failure, as three
/// do. Two masters of one name are refused. If one server has two names, the lock detects that when
/// it connects, and the server votes once. That needs the permission `INFO`; without it one server
/// with two names can break mutual exclusion.
#[derive(Clone)]
#[must_use = "nothing happens before `build`"]
pub struct Builder {
    pub(crate) masters: Vec<Master>,
    ttl: Duration,
    lock_delay: Duration,
    wait: Duration,
    fencing_counter_ttl: Duration,
    node_timeout: Duration,
    connect_timeout: Duration,
    drift: Drift,
    restart_guard: Option<Duration>,
    clock_guard: Option<Duration>,
    pub(crate) masters_id: Option<String>,
    pub(crate) moving_to: Vec<Master>,
    pub(crate) moving_to_id: Option<String>,
    pub(crate) shards: Vec<Shard>,
    pub(crate) moving_to_shards: Vec<Shard>,
    /// The masters of all shards, for the guard of one of them.
    pub(crate) table: Option<MastersId>,
    client_name: String,
    name: Option<String>,
    pub(crate) prefix: Vec<u8>,
    retry: Arc<dyn RetryPolicy>,
    wake_ups: bool,
    fair: bool,
    require_quorum: bool,
    tokio_clock: bool,
    #[cfg(test)]
    clock_for_tests: Option<Clock>,
    hash_resources: bool,
    credentials: Option<CredentialsOf>,
    #[cfg(feature = "tls")]
    tls: Source,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            masters: Vec::new(),
            ttl: Duration::from_secs(10),
            lock_delay: Duration::ZERO,
            wait: Duration::from_secs(10),
            fencing_counter_ttl: Duration::from_secs(30 * 24 * 60 * 60),
            node_timeout: Duration::from_millis(100),
            connect_timeout: Duration::from_secs(1),
            drift: Drift::default(),
            restart_guard: None,
            clock_guard: None,
            masters_id: None,
            moving_to: Vec::new(),
            moving_to_id: None,
            shards: Vec::new(),
            moving_to_shards: Vec::new(),
            table: None,
            client_name: CLIENT_NAME.into(),
            name: None,
            prefix: Vec::new(),
            retry: Arc::new(Backoff::default()),
            wake_ups: true,
            fair: false,
            require_quorum: false,
            tokio_clock: false,
            #[cfg(test)]
            clock_for_tests: None,
            hash_resources: false,
            credentials: None,
            #[cfg(feature = "tls")]
            tls: Source::default(),
        }
    }
}

/// See [`Builder::plan`].
#[doc(hidden)]
pub struct Plan {
    pub nodes: Vec<Arc<dyn Node>>,
    pub quorum: Quorum,
    pub guard: Option<Guard>,
    pub node_timeout: Duration,
    pub ttl: Duration,
    pub wait: Duration,
    pub prefix: Vec<u8>,
    pub drift: Drift,
}

/// Declares methods that set the option of the same name.
macro_rules! setters {
    ($($(#[$docs:meta])* $option:ident: $type:ty;)*) => {
        impl Redlock {
    /// Starts the description of a lock.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
            $(
                $(#[$docs])*
                pub fn $option(mut self, $option: $type) -> Self {
                    self.$option = $option;
                    self
                }
            )*
        }
    };
}

setters! {
    /// The TTL of a lease, unless a request sets its own. The deadline is the TTL less
    /// [drift](Builder::drift). A master keeps the key for the TTL and the [lock
    /// delay](Builder::lock_delay). Default 10 s, rounded down to milliseconds; longer than drift
    /// plus node timeout, at most 24 h.
    ///
    /// A longer TTL costs availability after a crash of its holder: others wait for it to expire. A
    /// shorter TTL costs work: the holder must extend more often, and a shorter pause of the
    /// process loses the lease.
    ttl: Duration;

    /// How much longer masters keep a key than the lease lives, for resources that cannot check
    /// [fencing tokens](crate::Lease::fencing_token). A write that the holder sent, or was about to
    /// send, when its lease ended has that time to arrive before another client can hold the
    /// resource. Chubby calls it lock-delay.
    ///
    /// Default zero; rounded down to milliseconds. TTL + lock delay is at most 24 h, and with a
    /// [guard](Builder::restart_guard) at most its `max_ttl`. If a master's clock runs fast, the
    /// lock delay is shorter by the time that the clock gains, at most the [drift](Builder::drift).
    /// The deadline of a lease stays the same. A write that takes longer than the delay is not
    /// covered.
    ///
    /// [`release`](crate::Lease::release) says that nothing is in progress: it frees the resource
    /// at once. A lease that is lost, or **dropped without a release**, keeps others out until the
    /// lock delay is over, counted from the end of the lease. A failed acquire leaves nothing
    /// behind. Give acquires a [wait](Builder::wait) longer than TTL + lock delay if they are to
    /// outlast a holder that died.
    lock_delay: Duration;

    /// How long [`acquire`](Redlock::acquire) waits, unless a request sets its own wait. Default
    /// 10 s. Zero: one attempt. [`Duration::MAX`]: for ever.
    wait: Duration;

    /// How long one round waits for the masters' replies.
    ///
    /// Default 100 ms, at least 1 ms. A round waits this long only if its result is not clear
    /// before: one slow master does not slow a plain acquire down. Set it well above the usual
    /// round trip. If masters left earlier attempts of a waiting acquire unanswered, its next
    /// attempts wait longer, up to a quarter of TTL − drift; the last attempt does not.
    node_timeout: Duration;

    /// How long a connection may take to come up, in the background. Default 1 s, at least the node
    /// timeout. [`build`](Builder::build) waits this long if a master hangs.
    ///
    /// If a name has several addresses, they belong to one master. The next address is tried in
    /// parallel after 250 ms, or sooner if the earlier ones fail or the timeout leaves less time.
    /// The next connect begins behind an address on which the handshake failed.
    connect_timeout: Duration;

    /// How long a master keeps the fencing counter of a resource after its last fenced grant or
    /// extension. Default 30 days, at least TTL + lock delay, at most ten years. When a counter has
    /// expired, the clients' wall clocks replace it: set the time longer than the error of any of
    /// them. A counter takes about a hundred bytes and the resource's name twice.
    fencing_counter_ttl: Duration;

    /// Whether an acquire that waits subscribes to a notification when the resource becomes free.
    /// Default: yes.
    ///
    /// It then sleeps until the notification, or until what is left of the holder's TTL is over,
    /// and looks at one master about every second in case a message was lost. Without wake-ups, and
    /// where masters forbid `HELLO`, `SUBSCRIBE` or `PUBLISH`, it retries with the pauses of
    /// [`retry`](Builder::retry). Its own leases notify other waiters in either case.
    wake_ups: bool;

    /// Whether processes take turns. Default: no, a new acquire may win before processes that wait.
    /// [`docs/waiting.md`](https://github.com/redquorum/redquorum/blob/main/docs/waiting.md#fair-locks)
    /// describes the queue.
    ///
    /// Masters refuse the first attempt of an acquire while a waiter is in their queues. Then the
    /// acquire enqueues, and attempts only while it is first in the queues of a quorum. That
    /// includes [`try_acquire`](crate::Redlock::try_acquire), and an acquire with a wait of zero.
    /// Once a quorum keeps its position, **each other process gets the lease before it at most
    /// once**. A waiter whose connection is gone is passed over at once. Up to 1000 waiters that
    /// hang block a free resource for at most 5.25 s together. An acquire of several
    /// resources enqueues only for the one that it waits for.
    ///
    /// All clients of the resource must have this option: clients without it pass the queue by,
    /// though all clients exclude each other. A position belongs to one request. Lost masters, and
    /// masters whose clocks jump, may cost a waiter its position. Masters must allow its
    /// [commands](https://github.com/redquorum/redquorum/blob/main/docs/wire.md#permissions): where
    /// too few do, the lock keeps no order.
    ///
    /// An uncontended acquire is still one round trip. An acquire that has to wait costs one more,
    /// and up to one node timeout where masters are silent.
    fair: bool;

    /// Whether [`build`](Builder::build) fails if no quorum of masters is
    /// [usable](crate::Health::usable). It then takes one more round trip, and at most one node
    /// timeout. Default: no. So a service can start before its masters do, and you can build a lock
    /// to [mark](crate::Redlock::initialize_masters) new masters.
    require_quorum: bool;

    /// Whether the events and spans of the feature `tracing` show a hash in place of a resource's
    /// name. Default: no. The hash is the same in every process, so that traces can be joined. It
    /// is no secret: it can be computed from the name. Errors and reports keep the name.
    #[cfg(feature = "tracing")]
    hash_resources: bool;
}

impl Builder {
    /// Adds a master: a URL, a client of the `redis` crate, or your own [`Node`]. See
    /// [`IntoMaster`].
    ///
    /// [`build`](Builder::build) reports a faulty URL.
    pub fn master(mut self, master: impl IntoMaster) -> Self {
        self.masters.push(master.into_master(Sealed));
        self
    }

    /// Adds masters: [`master`](Builder::master) for each.
    pub fn masters<M: IntoMaster>(self, masters: impl IntoIterator<Item = M>) -> Self {
        masters.into_iter().fold(self, Self::master)
    }

    /// The allowance for clocks that run at different rates: millionths of the TTL, and a fixed
    /// part. Default 10 000 (1 %) and 2 ms; at least 1 ms in all. It is deducted from every lease.
    /// A clock that drifts by more than this breaks mutual exclusion, so lower it only if you know
    /// your clocks.
    pub fn drift(mut self, ppm: u32, fixed: Duration) -> Self {
        self.drift = Drift { ppm, fixed };
        self
    }

    #[cfg(feature = "serde")]
    pub(crate) fn drift_ppm(mut self, ppm: u32) -> Self {
        self.drift.ppm = ppm;
        self
    }

    #[cfg(feature = "serde")]
    pub(crate) fn drift_fixed(mut self, fixed: Duration) -> Self {
        self.drift.fixed = fixed;
        self
    }

    /// Guards the lock against masters that forget: restarts without `appendfsync always`, power
    /// losses, `FLUSHALL`, failovers to a replica. Default: no guard.
    /// [`docs/reference.md`](https://github.com/redquorum/redquorum/blob/main/docs/reference.md#masters-that-forget-keys)
    /// lists what it does not detect, such as the eviction of single keys.
    ///
    /// `max_ttl` is the longest TTL, with its [lock delay](Builder::lock_delay), of any lease that
    /// any client takes on these masters. No request may ask for more. A master that may have
    /// forgotten leases grants nothing for `max_ttl`, its drift and 2 s more, by this client's
    /// monotonic clock. Leases that the master has not forgotten are extended and released as
    /// usual.
    ///
    /// A master is recognized by a boot marker, the key `redquorum:boot`; a master without one is
    /// distrusted. So **a first use on new masters waits for this long**, unless
    /// [`initialize_masters`](Redlock::initialize_masters) marks them. While a majority is
    /// distrusted, acquires end with [`NoQuorum`](crate::AcquireError::NoQuorum), and the report
    /// names the distrust.
    ///
    /// All clients of the masters must have the same guard. A client without a guard voids it for
    /// the others. A client with another `max_ttl`, or another [list of
    /// masters](Builder::masters_id), sees that in its reports. The guard costs no round trip.
    pub fn restart_guard(mut self, max_ttl: Duration) -> Self {
        self.restart_guard = Some(max_ttl);
        self
    }

    /// Guards the lock also against masters whose clocks step ahead or run fast: such a master
    /// drops keys too early, and would grant a rival. It needs a [restart
    /// guard](Builder::restart_guard). Default: clocks are trusted.
    /// [`docs/reference.md`](https://github.com/redquorum/redquorum/blob/main/docs/reference.md#clock-steps)
    /// lists what it does not detect, such as a clock that steps up and back between two readings.
    ///
    /// `bound` is the time that a clock may gain undetected while a lease lives: at least 1 ms and
    /// less than the guard's `max_ttl`, rounded down to milliseconds. **It is deducted from every
    /// lease**: TTL > bound + drift + node timeout. 500 ms to 1 s is right for most: above four
    /// round trips, and above twice the differences that NTP leaves between masters. A bound that
    /// is too narrow costs availability, not safety.
    ///
    /// A master that was seen to step is distrusted for `max_ttl` and its drift. A client that has
    /// not yet measured a master's clock for that long compares it with the clocks of the other
    /// masters that replied. It counts the master only if that clock is ahead of none of them by
    /// more than half of the bound. Leases that are alive are extended and released as usual. The
    /// guard costs one command to each master every half `max_ttl`.
    ///
    /// All clients of the masters must have the same bound: a client with another one sees that in
    /// its reports.
    pub fn clock_guard(mut self, bound: Duration) -> Self {
        self.clock_guard = Some(bound);
        self
    }

    /// Names the set of masters, for clients with a [guard](Builder::restart_guard) that reach the
    /// same masters under different addresses. Without a guard it does nothing.
    ///
    /// Two clients with different lists of masters can both win a resource. To detect that, a guard
    /// writes a hash of the set into every boot marker. Default: the hash is over the names of all
    /// masters as they are given here, each `host:port` or path with its database, in any order.
    ///
    /// A client that finds the marker of another set acquires nothing, whatever its other masters
    /// reply, and the report names [`OtherMasters`](crate::report::Distrust::OtherMasters). A
    /// master that cannot be reached shows no marker, and between lists without a common master
    /// nothing is detected. With a name, the guard compares the name **and does not compare the
    /// lists**: give the same name only to clients whose masters are the same, and another when the
    /// set changes.
    pub fn masters_id(mut self, id: impl Into<String>) -> Self {
        self.masters_id = Some(id.into());
        self
    }

    /// Moves the lock to other masters while its clients run. Each lease then needs a quorum of
    /// [`masters`](Builder::masters) **and** a quorum of these, with one token and one deadline. A
    /// master that is in both lists, under the same name, is asked once. It still takes one round
    /// trip. A second call replaces the masters of the first.
    ///
    /// A client that moves shares a master with every client of the old masters, and with every one
    /// of the new masters. Those two need not share one: **never let clients of the old masters
    /// alone run beside clients of the new masters alone.** So restart all clients with
    /// `moving_to`, and then all with the new masters alone. With a
    /// [guard](Builder::restart_guard), `redquorum masters` takes the masters through the steps of
    /// a move, and they refuse clients of a wrong step. Without one, wait for the longest TTL and
    /// [lock delay](Builder::lock_delay) after the last old client has ended, before you start the
    /// first new one.
    /// [`docs/moving.md`](https://github.com/redquorum/redquorum/blob/main/docs/moving.md) has the
    /// procedure.
    ///
    /// Fencing tokens grow across the move, if a fenced lease of a client that moves was between
    /// one of the old masters and one of the new ones. The lock is available while both sets have a
    /// quorum; reports name the set that has none.
    ///
    /// ```no_run
    /// # async fn f() -> Result<(), redquorum::BuildError> {
    /// let lock = redquorum::Redlock::builder()
    ///     .masters(["redis://db1", "redis://db2", "redis://db3"])
    ///     .moving_to(["redis://db2", "redis://db3", "redis://db4"])
    ///     .build()
    ///     .await?;
    /// assert_eq!(lock.masters(), 4);
    /// # Ok(()) }
    /// ```
    pub fn moving_to<M: IntoMaster>(mut self, masters: impl IntoIterator<Item = M>) -> Self {
        self.moving_to = masters.into_iter().map(|it| it.into_master(Sealed)).collect();
        self
    }

    /// The [name](Builder::masters_id) of the set of masters that the lock [moves
    /// to](Builder::moving_to), for a lock that has a name for the set that it leaves. Its clients
    /// have this name as their `masters_id` once the move is over.
    pub fn moving_to_id(mut self, id: impl Into<String>) -> Self {
        self.moving_to_id = Some(id.into());
        self
    }

    /// The name of the connections in `CLIENT LIST`, so that whoever looks at a master sees whose
    /// they are: for instance the service. One word of ASCII, at most 128 bytes. A master that
    /// refuses it shows none. Default `redquorum`. With a [guard](Builder::restart_guard), the hash
    /// of the [set of masters](Builder::masters_id) follows behind a `/`: two hashes with a `>`
    /// between, for a lock that [moves](Builder::moving_to).
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = name.into();
        self
    }

    /// The name of the holder, for the leases of this lock: for instance `billing-7`, or a host and
    /// a process id. Text of 1 to 40 bytes without control characters. Default: none.
    ///
    /// Everybody else can then see who has a resource: in the report of
    /// [`Taken`](crate::AcquireError::Taken), by [`holder`](Redlock::holder), or by `redis-cli
    /// GET`. The name is a part of the key's value, so it needs no further key or command. It does
    /// not decide who owns the lease: two clients may have the same one.
    ///
    /// ```
    /// let name = format!("{}/{}", "web-3", std::process::id());
    /// let builder = redquorum::Redlock::builder().name(name);
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The bytes in front of every resource in its key, without a separator. They count towards the
    /// 1 MiB that a key may have. Default: none.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.prefix = prefix.as_ref().to_vec();
        self
    }

    /// How long an acquire that waits pauses between attempts when no notification wakes it:
    /// without [`wake_ups`](Builder::wake_ups), while no quorum answers, and when several clients
    /// asked at the same moment and none got a quorum. Default: a random pause of up to 10 ms,
    /// doubled with every attempt, up to 250 ms.
    ///
    /// Give a [`Backoff`], a function of the attempt and a random number, or your own
    /// [`RetryPolicy`]:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redquorum::{Backoff, Redlock};
    /// let builder = Redlock::builder().retry(Backoff::Fixed(Duration::from_millis(20)));
    /// let builder = builder.retry(|attempt: u32, random: u64| {
    ///     Duration::from_millis(u64::from(attempt) * 10 + random % 10)
    /// });
    /// ```
    pub fn retry(mut self, policy: impl RetryPolicy) -> Self {
        self.retry = Arc::new(policy);
        self
    }

    /// Takes the time from Tokio's clock, which tests can pause, instead of the system's clock.
    /// Only for tests: that clock stops while the machine is suspended.
    pub fn tokio_clock_for_tests(mut self) -> Self {
        self.tokio_clock = true;
        self
    }

    #[cfg(test)]
    pub(crate) const fn clock_for_tests(mut self, clock: Clock) -> Self {
        self.clock_for_tests = Some(clock);
        self
    }

    /// Asks for the user and password before each connection, in place of those in URLs: for
    /// passwords that change while the service runs. `credentials` gets the name of the master,
    /// such as `db1:6379`, and must return at once: it runs in a task of the runtime, and once in
    /// [`build`](Builder::build). Fetch a token that takes time in a task of your own, and return
    /// the latest. An own [`Node`] returns its credentials from [`Node::hello`].
    ///
    /// A connection stays logged in after the password of its user was changed. Redis closes the
    /// connections of a user that is deleted; the lock then connects with the new credentials. Give
    /// masters both passwords until every client has the new one.
    ///
    /// ```
    /// use std::sync::{Arc, RwLock};
    ///
    /// use redquorum::{Redlock, connect::Credentials};
    ///
    /// let latest = Arc::new(RwLock::new("first password".to_owned()));
    /// let reader = latest.clone();
    /// let builder = Redlock::builder()
    ///     .master("redis://db1")
    ///     .credentials(move |_master| Credentials::password(reader.read().unwrap().as_str()));
    /// *latest.write().unwrap() = "second password".to_owned();
    /// ```
    pub fn credentials(
        mut self,
        credentials: impl Fn(&str) -> Credentials + Send + Sync + 'static,
    ) -> Self {
        self.credentials = Some(Arc::new(credentials));
        self
    }

    /// Trusts the certificate authorities in this PEM text, instead of those of the operating
    /// system. They are read once: use [`certificates`](Builder::certificates) for ones that are
    /// renewed while the service runs.
    #[cfg(feature = "tls")]
    pub fn tls_ca(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.tls = Source::Fixed(self.tls.given().ca(pem));
        self
    }

    /// Authenticates to masters by this certificate chain and its private key; both are PEM text.
    /// They are read once: use [`certificates`](Builder::certificates) for ones that are renewed
    /// while the service runs.
    #[cfg(feature = "tls")]
    pub fn tls_identity(mut self, chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.tls = Source::Fixed(self.tls.given().identity(chain, key));
        self
    }

    /// Trusts the certificate authorities in this PEM file, instead of those of the operating
    /// system. Files are read before each connection, so they may be renewed at any time: put the
    /// new one in place by a rename. Files replace [`tls_ca`](Builder::tls_ca) and
    /// [`tls_identity`](Builder::tls_identity).
    #[cfg(feature = "tls")]
    pub fn tls_ca_file(self, path: impl Into<PathBuf>) -> Self {
        self.tls_files(|files| files.ca = Some(path.into()))
    }

    /// Authenticates to masters by the certificate chain in this PEM file, and the key in
    /// [`tls_key_file`](Builder::tls_key_file). See [`tls_ca_file`](Builder::tls_ca_file).
    #[cfg(feature = "tls")]
    pub fn tls_cert_file(self, path: impl Into<PathBuf>) -> Self {
        self.tls_files(|files| files.cert = Some(path.into()))
    }

    /// The private key of [`tls_cert_file`](Builder::tls_cert_file), in PEM.
    #[cfg(feature = "tls")]
    pub fn tls_key_file(self, path: impl Into<PathBuf>) -> Self {
        self.tls_files(|files| files.key = Some(path.into()))
    }

    #[cfg(feature = "tls")]
    fn tls_files(mut self, set: impl FnOnce(&mut Files)) -> Self {
        let mut files = self.tls.files();
        set(&mut files);
        self.tls = Source::Files(files);
        self
    }

    /// Asks for the certificates before each TLS connection, in place of
    /// [`tls_ca`](Builder::tls_ca) and [`tls_identity`](Builder::tls_identity): for ones that are
    /// renewed while the service runs, as those of cert-manager, Vault or a service mesh.
    /// `certificates` gets the name of the master or Sentinel, such as `db1:6379`, and must return
    /// at once: it runs in a task of the runtime, and once in [`build`](Builder::build). It may
    /// read small local files. Where the certificates cannot be used, the connection fails, the
    /// report says why, and the next attempt asks again.
    ///
    /// An open connection goes on after its certificates have expired.
    ///
    /// ```
    /// use redquorum::{Redlock, connect::Certificates};
    ///
    /// let read = |file: &str| std::fs::read(format!("/run/secrets/{file}")).unwrap_or_default();
    /// let builder = Redlock::builder().master("rediss://db1").certificates(move |_master| {
    ///     Certificates::new().ca(read("ca.pem")).identity(read("tls.pem"), read("tls.key"))
    /// });
    /// ```
    #[cfg(feature = "tls")]
    pub fn certificates(
        mut self,
        certificates: impl Fn(&str) -> Certificates + Send + Sync + 'static,
    ) -> Self {
        self.tls = Source::Asked(Arc::new(certificates));
        self
    }

    /// Connects by this configuration of rustls, in place of [`tls_ca`](Builder::tls_ca),
    /// [`tls_identity`](Builder::tls_identity) and [`certificates`](Builder::certificates): for
    /// another cryptographic provider, such as one with a FIPS certificate, for a verifier of your
    /// own, or for keys that never leave their hardware.
    ///
    /// The type is that of the `rustls` crate, which
    /// [`connect::rustls`](crate::connect::rustls) re-exports. So a new major version of it is a
    /// new major version of this crate.
    #[cfg(feature = "tls")]
    pub fn tls_config(mut self, config: impl Into<Arc<rustls::ClientConfig>>) -> Self {
        self.tls = Source::Own(config.into());
        self
    }

    /// Checks all options, and connects to all masters. It returns once each was tried: after at
    /// most the connect timeout, whether or not they are up. An acquire never waits for a
    /// connection, so the first one behind a `build` that did not wait would find no quorum.
    ///
    /// # Errors
    /// * [`BuildError::Options`], [`Address`](BuildError::Address),
    ///   [`Duplicate`](BuildError::Duplicate), [`Tls`](BuildError::Tls): correct what the error
    ///   names.
    /// * [`BuildError::NoQuorum`]: only with [`require_quorum`](Builder::require_quorum).
    /// * [`BuildError::NoRuntime`]: it was not called inside a Tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping the future drops the lock.
    pub async fn build(self) -> Result<Redlock, BuildError> {
        let (require_quorum, lock) = (self.require_quorum, self.start()?);
        lock.tried().await;
        if require_quorum {
            let health = lock.health().await;
            if !health.has_quorum() {
                return Err(BuildError::NoQuorum(health.report));
            }
        }
        Ok(lock)
    }

    /// Checks the options against each other.
    fn checked(&self) -> Result<(LockConfig, Option<Guard>), BadOption> {
        let &Self { ttl, drift, node_timeout, connect_timeout, .. } = self;
        if !self.shards.is_empty() || !self.moving_to_shards.is_empty() {
            return Err(BadOption::Sharded);
        }
        let mut config = LockConfig::new(self.masters.len(), ttl, drift, node_timeout)?
            .with_lock_delay(self.lock_delay)?;
        let guard = self.guard_of_masters()?;
        if let Some(guard) = guard {
            let bound = guard.clock_bound().unwrap_or_default();
            config = config.with_max_ttl(guard.max_ttl())?.with_clock_bound(bound)?;
        }
        if connect_timeout < node_timeout {
            return Err(BadOption::ConnectTimeoutTooShort { connect_timeout, node_timeout });
        }
        config.with_fencing(self.fencing_counter_ttl)?;
        if !is_client_name(&self.client_name) {
            return Err(BadOption::ClientName);
        }
        if let Some(name) = &self.name {
            config = config.with_name(HolderName::new(name)?);
        }
        self.retry.check()?;
        let is_half = self.masters_id.is_some() != self.moving_to_id.is_some();
        if is_half && !self.moving_to.is_empty() {
            return Err(BadOption::MoveHalfNamed);
        }
        Ok((config, guard))
    }

    fn start(self) -> Result<Redlock, BuildError> {
        let (config, guard) = self.checked().map_err(BuildError::Options)?;
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        // Tokio reports a runtime without timers only by a panic. Check here: in a task the panic
        // would go unnoticed.
        catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO)))
            .map_err(|_| BuildError::NoRuntime)?;
        let (nodes, quorum) = self.nodes()?;
        let (config, guard) = self.over(config, guard, &nodes, quorum);
        let clock = if self.tokio_clock { Clock::tokio() } else { Clock::System };
        #[cfg(test)]
        let clock = self.clock_for_tests.unwrap_or(clock);
        let names: Vec<Arc<str>> = nodes.iter().map(|node| node.name().into()).collect();
        let client_config = ClientConfig {
            quorum,
            node_timeout: self.node_timeout,
            bounds: Bounds::for_node_timeout(self.node_timeout),
            wake_ups: self.wake_ups,
            fair: self.fair,
            guard,
            // 0 is the inbox of a waiter that is not woken.
            inbox: number().max(1),
        };
        let shared =
            Arc::new(Shared::new(client_config, names, clock, self.retry, self.hash_resources));
        // `redquorum masters` sees by the name whether clients of an earlier step are connected.
        let client_name: Arc<str> = match guard.and_then(Guard::masters_id) {
            Some(masters_id) => format!("{}/{masters_id}", self.client_name).into(),
            None => self.client_name.into(),
        };
        for (node, connector) in NodeId::all(nodes.len()).zip(nodes) {
            let (limit, name) = (self.connect_timeout, client_name.clone());
            runtime.spawn(drive(shared.clone(), node, connector, limit, name));
        }
        runtime.spawn(shared.clone().wake_leases());
        let lock_state = LockState {
            shared,
            clock,
            config,
            wait: self.wait,
            fencing_counter_ttl: self.fencing_counter_ttl,
            prefix: self.prefix,
        };
        Ok(Redlock { lock_state: Arc::new(lock_state) })
    }

    /// The TTL of a lease unless a request sets its own: what [`ttl`](Builder::ttl) set.
    #[doc(hidden)]
    pub const fn default_ttl(&self) -> Duration {
        self.ttl
    }

    /// The wait of a request unless it sets its own: what [`wait`](Builder::wait) set.
    #[doc(hidden)]
    pub const fn default_wait(&self) -> Duration {
        self.wait
    }

    /// What a lock by this description connects to, without a connection: for programs that look at
    /// masters, such as `redquorum doctor`.
    ///
    /// # Errors
    /// Those of [`build`](Builder::build) about options and addresses.
    #[doc(hidden)]
    pub fn plan(&self) -> Result<Plan, BuildError> {
        let (config, guard) = self.checked().map_err(BuildError::Options)?;
        let (nodes, quorum) = self.nodes()?;
        let (_, guard) = self.over(config, guard, &nodes, quorum);
        Ok(Plan {
            guard,
            quorum,
            nodes,
            node_timeout: self.node_timeout,
            ttl: self.ttl,
            wait: self.wait,
            prefix: self.prefix.clone(),
            drift: self.drift,
        })
    }

    fn guard_of_masters(&self) -> Result<Option<Guard>, BadOption> {
        let Some(max_ttl) = self.restart_guard else {
            let alone = self.clock_guard.map(|_| BadOption::ClockBoundWithoutGuard);
            return alone.map_or(Ok(None), Err);
        };
        let guard = Guard::new(max_ttl, self.drift, number())?;
        self.clock_guard.map_or(Ok(guard), |bound| guard.with_clock_bound(bound)).map(Some)
    }

    /// The options of a lock over these masters.
    fn over(
        &self,
        config: LockConfig,
        guard: Option<Guard>,
        nodes: &[Arc<dyn Node>],
        quorum: Quorum,
    ) -> (LockConfig, Option<Guard>) {
        let set = |set: NodeSet, name: &Option<String>| match name {
            Some(name) => Fingerprint::of_name(name),
            None => Fingerprint::of_addresses(set.iter().map(|it| address(&*nodes[it.index()]))),
        };
        let masters_id = self.table.unwrap_or_else(|| match quorum.moves() {
            None => MastersId::Of(set(quorum.all(), &self.masters_id)),
            Some([from, to]) => MastersId::Moving {
                from: set(from, &self.masters_id),
                to: set(to, &self.moving_to_id),
            },
        });
        (config.with_quorum(quorum), guard.map(|guard| guard.over(masters_id)))
    }

    /// The masters, and which of them are a quorum. Behind those of the lock there are those that
    /// it moves to and does not have.
    fn nodes(&self) -> Result<(Vec<Arc<dyn Node>>, Quorum), BuildError> {
        let mut nodes: Vec<Arc<dyn Node>> = Vec::new();
        let settings = self.settings()?;
        let [from, to] =
            [(0, &self.masters), (self.masters.len(), &self.moving_to)].map(|(before, masters)| {
                let mut seen = HashMap::new();
                let mut set = Vec::new();
                for (index, master) in masters.iter().enumerate() {
                    let number = before + index + 1;
                    let node = master
                        .node(&settings)
                        .map_err(|error| BuildError::Address { number, error })?;
                    let known = nodes.iter().position(|it| it.name() == node.name());
                    let first = seen.insert(node.name(), number);
                    let moved = known.filter(|it| address(&*nodes[*it]) != address(&*node));
                    if let Some(first) = first.or(moved.map(|at| at + 1)) {
                        let name = node.name();
                        return Err(BuildError::Duplicate { first, second: number, name });
                    }
                    set.push(known.unwrap_or(nodes.len()));
                    if known.is_none() {
                        nodes.push(node);
                    }
                }
                Ok(set)
            });
        let [from, to] = [from?, to?];
        if nodes.len() > MAX_NODES {
            return Err(BuildError::Options(BadOption::TooManyMasters { masters: nodes.len() }));
        }
        let [from, to]: [NodeSet; 2] =
            [from, to].map(|set| set.into_iter().map(NodeId::new).collect());
        Ok(match to.is_empty() {
            true => (nodes, Quorum::joint(from, from)),
            false if from == to => return Err(BuildError::Options(BadOption::MovesToItself)),
            false => (nodes, Quorum::joint(from, to)),
        })
    }

    /// The names of the masters and their databases.
    pub(crate) fn addresses(&self) -> Result<Vec<String>, BuildError> {
        Ok(self.nodes()?.0.iter().map(|node| address(&**node)).collect())
    }

    fn settings(&self) -> Result<Settings, BuildError> {
        #[cfg(feature = "tls")]
        let tls = {
            let tls_name = |master: &Master| match &master.0 {
                Ok(Target::Endpoint(endpoint)) => endpoint.is_tls().then(|| endpoint.name()),
                Ok(Target::Sentinel(sentinel)) => sentinel.tls_name(),
                _ => None,
            };
            let first = self.masters.iter().chain(&self.moving_to).find_map(tls_name);
            let checked = first.map(|name| Tls::checked(self.tls.clone(), &name));
            checked.transpose().map_err(BuildError::Tls)?
        };
        Ok(Settings {
            limit: self.connect_timeout,
            lookups: Lookups::default(),
            #[cfg(feature = "tls")]
            tls,
            credentials: self.credentials.clone(),
        })
    }
}

impl Master {
    fn node(&self, settings: &Settings) -> Result<Arc<dyn Node>, BadUrl> {
        Ok(match self.0.as_ref().map_err(Clone::clone)? {
            Target::Own(node) => node.clone(),
            Target::Endpoint(endpoint) => {
                Arc::new(endpoint.clone().with_settings(settings.clone()))
            }
            Target::Sentinel(sentinel) => Arc::new(sentinel.resolver(settings)),
        })
    }
}

/// The name of a master and its database.
fn address(node: &dyn Node) -> String {
    format!("{}/{}", node.name(), node.hello().database)
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |shards: &[Shard]| -> Vec<String> {
            shards.iter().map(|shard| shard.name.clone()).collect()
        };
        f.debug_struct("Builder")
            .field("masters", &self.masters.len())
            .field("ttl", &self.ttl)
            .field("lock_delay", &self.lock_delay)
            .field("wait", &self.wait)
            .field("node_timeout", &self.node_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("drift", &self.drift)
            .field("restart_guard", &self.restart_guard)
            .field("clock_guard", &self.clock_guard)
            .field("masters_id", &self.masters_id)
            .field("moving_to", &self.moving_to.len())
            .field("moving_to_id", &self.moving_to_id)
            .field("shards", &names(&self.shards))
            .field("moving_to_shards", &names(&self.moving_to_shards))
            .field("client_name", &self.client_name)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
