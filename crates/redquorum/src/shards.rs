//! Shards: resources that are spread over several locks, each over masters of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::{BadOption, Fingerprint, MastersId, check_shard_name, home};

use crate::acquire::{Acquire, TryAcquire};
use crate::builder::{Builder, Plan};
use crate::error::BuildError;
use crate::master::{IntoMaster, Sealed, Shard};
use crate::redlock::Redlock;
use crate::report::Unfinished;
use crate::several::AcquireAll;
use crate::together::all;

/// Several locks, the shards of one family of resources, each over masters of its own: for a fleet
/// that outgrows one quorum. Made by [`Builder::build_shards`]. A cheap handle: clone it into every
/// task.
///
/// Each resource has one *home*, the shard that its key belongs to. All clients with the same
/// shards agree on it, so a lease is as safe as one of the lock over the home's masters alone. What
/// concerns one resource goes through its [`home`](Shards::home): see who holds it, or lead.
///
/// ```no_run
/// # async fn f(shards: redquorum::Shards) -> Result<(), Box<dyn std::error::Error>> {
/// let lease = shards.acquire("invoice:42").await?;
/// let held_by = shards.home("invoice:43").holder("invoice:43").await?;
/// # drop((lease, held_by)); Ok(()) }
/// ```
///
/// A lock over one set of masters is its own only shard: `Shards::from(lock)`.
///
/// **To add or remove a shard is a [move](Builder::moving_to_shards)**: some resources change
/// hands.
#[derive(Clone)]
pub struct Shards(Arc<Table>);

/// The locks, and which of them a key belongs to.
struct Table {
    /// The names of the shards that the client knows, and of those that it moves to. They are the
    /// same if it does not move.
    names: [Vec<String>; 2],
    /// The lock of a key with these homes, as places among the names.
    places: BTreeMap<[usize; 2], usize>,
    locks: Vec<(String, Redlock)>,
}

/// The locks to build.
struct Layout {
    names: [Vec<String>; 2],
    places: BTreeMap<[usize; 2], usize>,
    /// Each with its name.
    builders: Vec<(String, Builder)>,
}

impl Builder {
    /// Spreads the resources over these shards: names, and the masters of each. Give no other
    /// masters, and build by [`build_shards`](Builder::build_shards). All other options are those
    /// of each shard. A second call replaces the shards of the first.
    ///
    /// The home of a resource depends on the names of the shards and on nothing else: give all
    /// clients the same names, in any order, and keep them while masters are replaced. A name has 1
    /// to 64 letters, digits, `-`, `_` or `.`. [How the home is
    /// found](https://github.com/redquorum/redquorum/blob/main/docs/wire.md#shards), for other
    /// programs.
    ///
    /// With a [guard](Builder::restart_guard), the masters of all shards know the whole table of
    /// shards, or its [name](Builder::masters_id): they refuse a client with another one.
    ///
    /// ```no_run
    /// # async fn f() -> Result<(), redquorum::BuildError> {
    /// let shards = redquorum::Redlock::builder()
    ///     .shards([
    ///         ("east", ["redis://e1", "redis://e2", "redis://e3"]),
    ///         ("west", ["redis://w1", "redis://w2", "redis://w3"]),
    ///     ])
    ///     .build_shards()
    ///     .await?;
    /// # drop(shards); Ok(()) }
    /// ```
    pub fn shards<N: Into<String>, M: IntoMaster>(
        mut self,
        shards: impl IntoIterator<Item = (N, impl IntoIterator<Item = M>)>,
    ) -> Self {
        self.shards = named(shards);
        self
    }

    /// Moves to other shards while clients run: more of them, fewer, or ones with other masters. A
    /// resource whose home changes, or whose home gets other masters, needs a quorum of both, as
    /// that of a lock that [moves](Builder::moving_to). All others need their home alone, as
    /// before. Name all shards that there will be, also those that stay.
    ///
    /// The steps are those of any move, for all shards at once, and so is the rule: **never let
    /// clients of the old shards alone run beside clients of the new shards alone.** See
    /// [`docs/moving.md`](https://github.com/redquorum/redquorum/blob/main/docs/moving.md#shards).
    /// To give a lock of one set of masters a second shard, name those masters as its first shard.
    pub fn moving_to_shards<N: Into<String>, M: IntoMaster>(
        mut self,
        shards: impl IntoIterator<Item = (N, impl IntoIterator<Item = M>)>,
    ) -> Self {
        self.moving_to_shards = named(shards);
        self
    }

    /// Checks all options, and connects to all masters of all shards: see
    /// [`build`](Builder::build). Without [`shards`](Builder::shards), the masters are the only
    /// shard, `all`.
    ///
    /// # Errors
    /// Those of [`build`](Builder::build). [`BuildError::Shard`] names the shard.
    ///
    /// # Cancel safety
    /// Dropping the future drops the locks.
    pub async fn build_shards(self) -> Result<Shards, BuildError> {
        let layout = self.layout()?;
        let builds = layout.builders.into_iter().map(|(name, builder)| async move {
            match builder.build().await {
                Ok(lock) => Ok((name, lock)),
                // These concern all shards.
                Err(error @ (BuildError::Options(_) | BuildError::NoRuntime)) => Err(error),
                Err(error) => Err(error.of_shard(&name)),
            }
        });
        let locks = all(builds).await.into_iter().collect::<Result<_, _>>()?;
        Ok(Shards(Arc::new(Table { names: layout.names, places: layout.places, locks })))
    }

    /// What the lock of this resource connects to: see [`plan`](Builder::plan).
    ///
    /// # Errors
    /// Those of [`build_shards`](Builder::build_shards) about options and addresses.
    #[doc(hidden)]
    pub fn plan_of(&self, resource: &[u8]) -> Result<Plan, BuildError> {
        let Layout { names, places, builders } = self.clone().layout()?;
        let key = [self.prefix.as_slice(), resource].concat();
        builders[place(&names, &places, &key)].1.plan()
    }

    /// What [`build_shards`](Builder::build_shards) connects to, lock by lock: see
    /// [`plan`](Builder::plan).
    ///
    /// # Errors
    /// Those of [`build_shards`](Builder::build_shards) about options and addresses.
    #[doc(hidden)]
    pub fn plans(&self) -> Result<Vec<(String, Plan)>, BuildError> {
        let builders = self.clone().layout()?.builders.into_iter();
        builders.map(|(name, builder)| Ok((name, builder.plan()?))).collect()
    }

    /// The locks of all shards.
    fn layout(mut self) -> Result<Layout, BuildError> {
        let (old, new) =
            (std::mem::take(&mut self.shards), std::mem::take(&mut self.moving_to_shards));
        let options = BuildError::Options;
        if old.is_empty() && new.is_empty() {
            let (names, places) = one_shard();
            let builders = vec![(names[0][0].clone(), self)];
            return Ok(Layout { names, places, builders });
        }
        if !self.masters.is_empty() || !self.moving_to.is_empty() {
            return Err(options(BadOption::MastersBesideShards));
        }
        let ids = [self.masters_id.take(), self.moving_to_id.take()];
        let old = Set::of(old, &ids[0], &self)?;
        let new = if new.is_empty() { None } else { Some(Set::of(new, &ids[1], &self)?) };
        if let Some(new) = &new {
            if ids[0].is_some() != ids[1].is_some() {
                return Err(options(BadOption::MoveHalfNamed));
            }
            if new.id == old.id {
                return Err(options(BadOption::MovesToItself));
            }
        }
        self.table = Some(match &new {
            None => MastersId::Of(old.id),
            Some(new) => MastersId::Moving { from: old.id, to: new.id },
        });
        let new = new.as_ref().unwrap_or(&old);
        let (mut places, mut builders) = (BTreeMap::new(), Vec::new());
        for (from, shard) in old.shards.iter().enumerate() {
            for (to, next) in new.shards.iter().enumerate() {
                // A key that changes hands leaves a shard that goes, or gets to one that comes.
                let both = |name: &String| {
                    old.names().any(|it| it == name) && new.names().any(|it| it == name)
                };
                if shard.name != next.name && both(&shard.name) && both(&next.name) {
                    continue;
                }
                let mut builder = self.clone();
                builder.masters.clone_from(&shard.masters);
                if old.addresses[from] != new.addresses[to] {
                    builder.moving_to.clone_from(&next.masters);
                }
                let name = if shard.name == next.name {
                    shard.name.clone()
                } else {
                    format!("{}>{}", shard.name, next.name)
                };
                places.insert([from, to], builders.len());
                builders.push((name, builder));
            }
        }
        let names = [old.names().cloned().collect(), new.names().cloned().collect()];
        Ok(Layout { names, places, builders })
    }
}

fn named<N: Into<String>, M: IntoMaster>(
    shards: impl IntoIterator<Item = (N, impl IntoIterator<Item = M>)>,
) -> Vec<Shard> {
    let shard = |name: N, masters| Shard { name: name.into(), masters };
    let shards = shards.into_iter().map(|(name, masters)| {
        shard(name, masters.into_iter().map(|it| it.into_master(Sealed)).collect())
    });
    shards.collect()
}

/// All shards of a client, checked.
struct Set {
    shards: Vec<Shard>,
    /// The addresses of the masters of each.
    addresses: Vec<BTreeSet<String>>,
    id: Fingerprint,
}

impl Set {
    fn of(
        shards: Vec<Shard>,
        name: &Option<String>,
        options: &Builder,
    ) -> Result<Self, BuildError> {
        let (mut seen, mut addresses) = (BTreeSet::new(), Vec::new());
        for shard in &shards {
            let wrong = |bad| BuildError::Options(bad).of_shard(&shard.name);
            check_shard_name(&shard.name).map_err(wrong)?;
            if !seen.insert(&shard.name) {
                return Err(wrong(BadOption::ShardTwice));
            }
            if shard.masters.is_empty() {
                return Err(wrong(BadOption::NoMasters));
            }
            let mut builder = options.clone();
            builder.masters.clone_from(&shard.masters);
            let masters = builder.addresses().map_err(|error| error.of_shard(&shard.name))?;
            addresses.push(masters.into_iter().collect());
        }
        if shards.is_empty() {
            return Err(BuildError::Options(BadOption::NoMasters));
        }
        let id = match name {
            Some(name) => Fingerprint::of_name(name),
            None => Fingerprint::of_shards(shards.iter().zip(&addresses).map(
                |(shard, addresses): (_, &BTreeSet<String>)| {
                    (&*shard.name, addresses.iter().collect())
                },
            )),
        };
        Ok(Self { shards, addresses, id })
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        self.shards.iter().map(|shard| &shard.name)
    }
}

/// The place of the lock of a key among all locks.
fn place(names: &[Vec<String>; 2], places: &BTreeMap<[usize; 2], usize>, key: &[u8]) -> usize {
    let home =
        |names: &[String]| home(key, names.iter().map(String::as_str)).expect("there is a shard");
    let homes = names.each_ref().map(|names| home(names));
    let place = places.get(&homes).copied();
    debug_assert!(place.is_some(), "a key changes hands from {homes:?}, which both stay");
    place.unwrap_or_default()
}

impl Shards {
    /// The lock that a resource belongs to: for all that a [`Redlock`] can do with it alone.
    ///
    /// Ask for each resource anew: others belong elsewhere, also those that a semaphore of this
    /// name consists of.
    pub fn home(&self, resource: impl AsRef<[u8]>) -> &Redlock {
        let any = &self.0.locks[0].1;
        if self.0.locks.len() == 1 {
            return any;
        }
        match any.lock_state.key(resource.as_ref()) {
            Ok(key) => &self.0.locks[place(&self.0.names, &self.0.places, &key)].1,
            // Its request returns the error.
            Err(_) => any,
        }
    }

    /// Asks for a resource, and waits while it is taken or no quorum of its home answers: see
    /// [`Redlock::acquire`].
    pub fn acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        self.home(&resource).acquire(resource)
    }

    /// Asks for a resource once: see [`Redlock::try_acquire`].
    pub fn try_acquire(&self, resource: impl AsRef<[u8]>) -> TryAcquire {
        self.home(&resource).try_acquire(resource)
    }

    /// Asks for several resources, each at its home: all are granted or none. See
    /// [`Redlock::acquire_all`]. It takes one round trip if all are free, and needs a quorum of
    /// every home.
    pub fn acquire_all<I>(&self, resources: I) -> AcquireAll
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let none = self.0.locks[0].1.acquire_all::<[&[u8]; 0]>([]);
        resources.into_iter().fold(none, |all, it| all.and(self.home(&it), [it]))
    }

    /// Each lock, with the name of its shard: to look at the [health](Redlock::health), the
    /// [counters](Redlock::stats) or the masters of each. Of a client that
    /// [moves](Builder::moving_to_shards), also those of resources that change hands, named by both
    /// shards: `east>west`.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Redlock)> {
        self.0.locks.iter().map(|(name, lock)| (&**name, lock))
    }

    /// Ends all locks: see [`Redlock::shutdown`].
    ///
    /// # Errors
    /// [`Unfinished`] if `timeout` passes first, with the keys of all shards.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the locks shut down, and the clean-ups go on.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), Unfinished> {
        let ends = all(self.iter().map(|(_, lock)| lock.shutdown(timeout))).await;
        let unfinished = ends.into_iter().filter_map(Result::err);
        unfinished.reduce(Unfinished::and).map_or(Ok(()), Err)
    }
}

impl From<Redlock> for Shards {
    fn from(lock: Redlock) -> Self {
        let (names, places) = one_shard();
        let locks = vec![(names[0][0].clone(), lock)];
        Self(Arc::new(Table { names, places, locks }))
    }
}

/// What is the same for all locks without shards.
fn one_shard() -> ([Vec<String>; 2], BTreeMap<[usize; 2], usize>) {
    ([0, 1].map(|_| vec!["all".into()]), [([0, 0], 0)].into())
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
