//! One of several resources: the request for a lease on whichever is free, and semaphores.

use std::collections::BTreeSet;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redquorum_protocol::{Key, OneOf, OneOfStep, slot_of};

use crate::acquire::Acquire;
use crate::clock::Deadline;
use crate::error::{AcquireError, RunError};
use crate::holder::HeldBy;
use crate::lease::Lease;
use crate::redlock::Redlock;
use crate::shards::Shards;
use crate::shared::LockState;
use crate::together::all;

/// The most resources of one request.
const MOST: usize = 100;

/// A request for a lease on one of several resources, made by [`Redlock::acquire_any`] or by a
/// [`Semaphore`]. `.await` sends it; `.into_future()` makes it a future for `spawn`, `join!` and
/// the like.
///
/// The lease is an ordinary one, on the resource that [`Lease::resource`] names. Requests for that
/// resource alone exclude it, and it excludes them.
#[derive(Clone)]
#[must_use = "nothing is sent before the request is awaited"]
pub struct AcquireAny {
    /// Each resource, and the lock that it belongs to.
    candidates: Vec<(Arc<LockState>, Result<Key, AcquireError>)>,
    /// The request for each of them.
    request: Acquire,
}

impl AcquireAny {
    fn new<I>(shards: &Shards, resources: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let candidates = resources.into_iter().map(|name| {
            let lock_state = &shards.home(&name).lock_state;
            (lock_state.clone(), lock_state.key(name.as_ref()))
        });
        Self { candidates: candidates.collect(), request: shards.acquire([]) }
    }

    /// Asks for a lease with a fencing token: see [`Acquire::fenced`]. Tokens of different
    /// resources are not comparable.
    pub fn fenced(mut self) -> Self {
        self.request = self.request.fenced();
        self
    }

    /// Asks for a lease that others may share: see [`Acquire::shared`].
    pub fn shared(mut self) -> Self {
        self.request = self.request.shared();
        self
    }

    /// The TTL of the lease: see [`Acquire::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.request = self.request.ttl(ttl);
        self
    }

    /// How long to wait while all resources are taken, or no quorum answers: see
    /// [`Acquire::wait`]. Zero looks once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.request = self.request.wait(wait);
        self
    }

    /// Keeps others out for at least this long: see [`Acquire::at_least`].
    pub fn at_least(mut self, at_least: Duration) -> Self {
        self.request = self.request.at_least(at_least);
        self
    }

    /// Acquires one of the resources, runs `work` while the lease lasts, and gives it back: see
    /// [`Acquire::run`].
    ///
    /// # Errors
    /// Those of [`Acquire::run`].
    ///
    /// # Cancel safety
    /// That of [`Acquire::run`].
    pub async fn run<T>(
        self,
        max_hold: Duration,
        work: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<T, RunError> {
        let lease = self.into_future().await.map_err(RunError::NotAcquired)?;
        lease.run_and_release(max_hold, work).await
    }

    async fn send(self) -> Result<Lease, AcquireError> {
        let resources = self.candidates.len();
        if resources == 0 {
            return Err(AcquireError::NoResources);
        }
        if resources > MOST {
            return Err(AcquireError::TooManyResources { resources, most: MOST });
        }
        let candidates =
            self.candidates.into_iter().map(|(lock_state, key)| Ok((lock_state, key?)));
        let candidates = candidates.collect::<Result<Vec<_>, _>>()?;
        let mut seen = BTreeSet::new();
        if let Some((lock_state, twice)) = candidates.iter().find(|(_, key)| !seen.insert(key)) {
            return Err(AcquireError::NamedTwice { resource: lock_state.resource(twice).to_vec() });
        }
        if candidates.iter().any(|(lock_state, _)| lock_state.shared.is_forked()) {
            return Err(AcquireError::Forked);
        }
        // The time and the random numbers are those of one lock.
        let lock_state = &candidates[0].0;
        let clock = lock_state.clock;
        let end = Deadline::new(clock, clock.now().plus(self.request.longest_wait()));
        let request = &|place: usize, wait| {
            let (lock_state, key) = &candidates[place];
            self.request.of(lock_state, key).wait(wait)
        };
        let node_timeout = lock_state.config.node_timeout();
        let attempt = |place| {
            let request = request(place, Duration::ZERO);
            // Its refusal may be the error, if there is hardly time to wait.
            if end.remaining() <= 3 * node_timeout { request } else { request.unexplained() }
        };
        let random = lock_state.shared.with_rng(|rng| rng.random());
        let of_one_lock = candidates.chunk_by(|(one, _), (other, _)| Arc::ptr_eq(one, other));
        let taken = of_one_lock.flat_map(|candidates| {
            let keys: Vec<Key> = candidates.iter().map(|(_, key)| key.clone()).collect();
            candidates[0].0.shared.taken(&keys)
        });
        let taken: Vec<bool> = taken.collect();
        let (mut one_of, mut step) = OneOf::begin(random, !end.remaining().is_zero(), &taken);
        let mut refused = None;
        loop {
            step = match step {
                OneOfStep::Attempt(place) => match attempt(place).await {
                    Err(error) if error.is_retryable() => {
                        refused = Some(error);
                        one_of.refused()
                    }
                    result => return result,
                },
                OneOfStep::Look => {
                    let looks = one_of.others().map(|place| {
                        let (lock_state, key) = &candidates[place];
                        HeldBy::look(lock_state, key)
                    });
                    let held = all(looks).await;
                    let free = one_of.others().zip(held).filter(|(_, held)| held.is_free());
                    one_of.looked(free.map(|(place, _)| place).collect::<Vec<_>>())
                }
                _ => break,
            };
        }
        if let Some(refused) = refused.filter(|_| end.remaining().is_zero()) {
            return Err(refused);
        }
        // The first one that is given back ends the wait for the others.
        let head_start = one_of.head_start(node_timeout);
        let requests = (0..resources).map(|place| async move {
            if !matches!(step, OneOfStep::Wait(first) if first == place) {
                tokio::time::sleep(head_start).await;
            }
            request(place, end.remaining()).seen_taken().await
        });
        first_granted(requests).await
    }
}

/// The first lease that one of the requests gets, or the last error. The other requests are given
/// up, and so is a lease that one of them got at the same time.
async fn first_granted<F: Future<Output = Result<Lease, AcquireError>>>(
    requests: impl Iterator<Item = F>,
) -> Result<Lease, AcquireError> {
    let mut waiting: Vec<_> = requests.map(|request| Some(Box::pin(request))).collect();
    let mut last = None;
    poll_fn(|cx| {
        for request in &mut waiting {
            let Some(pending) = request else { continue };
            match pending.as_mut().poll(cx) {
                Poll::Ready(Ok(lease)) => return Poll::Ready(Ok(lease)),
                Poll::Ready(Err(error)) => {
                    *request = None;
                    // What concerns the lock as a whole concerns the other resources, too.
                    if !error.is_retryable() {
                        return Poll::Ready(Err(error));
                    }
                    last = Some(error);
                }
                Poll::Pending => {}
            }
        }
        match last.take_if(|_| waiting.iter().all(Option::is_none)) {
            Some(error) => Poll::Ready(Err(error)),
            None => Poll::Pending,
        }
    })
    .await
}

impl IntoFuture for AcquireAny {
    type Output = Result<Lease, AcquireError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl Redlock {
    /// Asks for any one of several resources, and waits while all are taken or no quorum answers.
    ///
    /// If the one that it tries first is free, it takes one round trip; if another one is, three.
    /// If all are taken, it holds none, and waits: at first for one of them, drawn at random, and
    /// after a quarter to a half of a node timeout for all. The first one that is given back ends
    /// the wait. Name at least one and at most 100 resources.
    ///
    /// ```no_run
    /// # async fn f(lock: redquorum::Redlock) -> Result<(), redquorum::AcquireError> {
    /// let lease = lock.acquire_any(["printer:1", "printer:2", "printer:3"]).await?;
    /// println!("{}", lease.resource().escape_ascii());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`acquire`](Redlock::acquire), about one of the resources. And
    /// [`NoResources`](AcquireError::NoResources),
    /// [`TooManyResources`](AcquireError::TooManyResources),
    /// [`NamedTwice`](AcquireError::NamedTwice): nothing was sent.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up. The keys that it may have set, of any resource,
    /// are deleted in the background.
    pub fn acquire_any<I>(&self, resources: I) -> AcquireAny
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        AcquireAny::new(&Shards::from(self.clone()), resources)
    }

    /// A semaphore: at most `permits` clients at a time have a permit for `resource`. All clients
    /// must give the same number: see [`Semaphore`].
    pub fn semaphore(&self, resource: impl AsRef<[u8]>, permits: usize) -> Semaphore {
        Shards::from(self.clone()).semaphore(resource, permits)
    }
}

impl Shards {
    /// Asks for any one of several resources, each at its home: see [`Redlock::acquire_any`].
    pub fn acquire_any<I>(&self, resources: I) -> AcquireAny
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        AcquireAny::new(self, resources)
    }

    /// A semaphore, whose slots are spread over the shards: see [`Redlock::semaphore`].
    pub fn semaphore(&self, resource: impl AsRef<[u8]>, permits: usize) -> Semaphore {
        Semaphore { shards: self.clone(), resource: resource.as_ref().to_vec(), permits }
    }
}

/// A semaphore over independent masters: at most so many clients have a permit. Made by
/// [`Redlock::semaphore`].
///
/// A permit is a lease on one of as many resources as there are permits, the *slots*:
/// `gpu:permit:1` to `gpu:permit:4` of the semaphore `gpu` with 4 permits. So **at most `permits`
/// are out**, by the same argument and under the same assumptions as for any
/// [exclusive lease](crate#what-it-promises). A permit has the deadline, the watchdog, the loss and
/// the fencing token of its slot.
///
/// All clients must give the same number of permits: at most the largest number that any of them
/// gives are out. To raise the number, change the clients in any order. To lower it, do so, too:
/// the lower number holds once the permits of the last old client are over.
///
/// ```no_run
/// # async fn f(lock: redquorum::Redlock) -> Result<(), redquorum::RunError> {
/// # use std::time::Duration;
/// # async fn render(_slot: usize) {}
/// let gpus = lock.semaphore("gpu", 4);
/// let hour = Duration::from_secs(3_600);
/// gpus.acquire().run(hour, async |permit| {
///     render(gpus.slot(permit).unwrap_or_default()).await;
/// }).await
/// # }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    shards: Shards,
    resource: Vec<u8>,
    permits: usize,
}

impl Semaphore {
    /// Asks for a permit, and waits while all are out or no quorum answers: see
    /// [`Redlock::acquire_any`].
    pub fn acquire(&self) -> AcquireAny {
        // Too many are an error when the request is sent, and need no names.
        let slots = 1..=self.permits.min(MOST + 1);
        AcquireAny::new(&self.shards, slots.map(|slot| self.name(slot)))
    }

    /// The number of the slot that a permit of this semaphore is for, counted from 1: which of four
    /// devices to use, for instance. `None` for a lease of something else.
    pub fn slot(&self, permit: &Lease) -> Option<usize> {
        (1..=self.permits.min(MOST)).find(|slot| self.name(*slot) == permit.resource())
    }

    /// The number of permits.
    pub const fn permits(&self) -> usize {
        self.permits
    }

    fn name(&self, slot: usize) -> Vec<u8> {
        slot_of(&self.resource, slot)
    }
}
