//! The request handler. Requests run concurrently, each in a task of its own. A lease has a task
//! that reports its loss, and one that reports the moves of its deadline while it is kept alive.
//!
//! [`ClientLeases`] has the rules for leases. The handler locks it until the harness has been told
//! what changed, so messages are in the order of the changes.

use std::collections::HashMap;
use std::future::{Future, IntoFuture};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{ChooseNeglect, Output, limited, stamp};
use redquorum::{AcquireError, Deadline, ExtendError, Lease, Leases, Owner, Shards};
use redquorum_scenario::client_leases::{
    ClientLeases, LeaseKey, LeaseRecord, release_result, worse,
};
use redquorum_scenario::client_protocol::{
    Call, ClientReply, Each, FailureReason, Notice, Op, Request, RequestError,
};
use redquorum_scenario::name::Name;
use redquorum_scenario::units::nanos;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

/// The requests in flight, and the leases.
pub struct RequestHandler {
    output: Output,
    shards: Shards,
    fencing: bool,
    neglect: Box<ChooseNeglect>,
    state: Mutex<HandlerState>,
}

#[derive(Default)]
struct HandlerState {
    /// Acquires in flight, by the number of their request.
    acquiring: HashMap<u64, oneshot::Sender<()>>,
    leases: ClientLeases<Held, Deadline>,
    /// Whoever made the requests is gone.
    closed: bool,
}

impl HandlerState {
    /// Whether a lease of this key can be added. A client of a shared lease is granted another one,
    /// but a lease is named by its client and its resource, so the first one would be forgotten.
    fn may_hold(&mut self, key: &LeaseKey) -> Result<(), RequestError> {
        match self.leases.find(key) {
            Ok(record) if record.held().is_ok() && !record.lease.lease.is_lost() => {
                let text = format!("{} holds {}: ask `again`, or by another client", key.0, key.1);
                Err(RequestError::new(FailureReason::Error, text))
            }
            _ => Ok(()),
        }
    }
}

/// The handles of a lease.
struct Held {
    lease: Arc<Lease>,
    /// The handles from re-entries.
    others: Vec<Lease>,
    /// The owner that acquired the lease. A re-entry acquires as the same owner.
    owner: Owner,
    /// The tasks that use the lease. They end with this value.
    tasks: JoinSet<()>,
    /// The task of the extension in flight.
    extension: Option<AbortHandle>,
}

impl Held {
    /// The lease, once no task uses it. The other handles are dropped.
    async fn into_lease(mut self) -> Lease {
        self.tasks.shutdown().await;
        Arc::into_inner(self.lease).expect("only tasks have clones")
    }
}

/// How often the deadline of a lease is polled while it may move. The library does not report an
/// extension that no caller awaits, so the notice of an extension may be late by this time. A loss
/// is reported at once.
const LOOK: Duration = Duration::from_millis(2);

impl RequestHandler {
    /// A handler that acquires by this lock, and tells `output` what becomes of it. With `fencing`,
    /// exclusive leases get a fencing token.
    pub fn new(
        output: Output,
        shards: Shards,
        fencing: bool,
        neglect: Box<ChooseNeglect>,
    ) -> Arc<Self> {
        Arc::new(Self { output, shards, fencing, neglect, state: Mutex::default() })
    }

    /// Cancels what is under way, and gives all leases back: whoever made the requests is gone.
    pub async fn close(&self) {
        let (acquiring, leases) = {
            let mut state = self.state();
            state.closed = true;
            (std::mem::take(&mut state.acquiring), state.leases.take_all())
        };
        for cancel in acquiring.into_values() {
            // The send fails if the acquire has ended meanwhile.
            let _ = cancel.send(());
        }
        let mut releases = JoinSet::new();
        for held in leases {
            releases.spawn(async { held.into_lease().await.release().await });
        }
        releases.join_all().await;
    }

    /// Handles a line from the harness, and returns at once.
    pub fn take(self: &Arc<Self>, line: &str) {
        match serde_json::from_str::<Request>(line) {
            Ok(request) => self.handle(request),
            Err(why) => self.output.refuse_line(line, &why),
        }
    }

    /// Handles a request, and returns at once.
    pub fn handle(self: &Arc<Self>, Request { id, client, op }: Request) {
        let begun = match op {
            Op::Acquire { resource, ttl_ms, wait_ms, again, shared } => {
                let ttl = Some(ttl_ms).filter(|ttl| *ttl > 0).map(Duration::from_millis);
                let wait = Duration::from_millis(wait_ms);
                self.acquire(id, (client, resource), (ttl, wait, shared), again);
                Ok(())
            }
            Op::AcquireAll { resources, ttl_ms, wait_ms, shared } => {
                let (ttl, wait) = (Duration::from_millis(ttl_ms), Duration::from_millis(wait_ms));
                self.acquire_all(id, (client, resources), (ttl, wait, shared));
                Ok(())
            }
            Op::AcquireAny { resources, ttl_ms, wait_ms, shared } => {
                let (ttl, wait) = (Duration::from_millis(ttl_ms), Duration::from_millis(wait_ms));
                self.acquire_any(id, (client, resources), (ttl, wait, shared));
                Ok(())
            }
            Op::ReleaseAll { resources } => {
                self.release_all(id, &client, resources);
                Ok(())
            }
            Op::Extend { resource, ttl_ms } => {
                self.extend(id, &(client, resource), Duration::from_millis(ttl_ms))
            }
            Op::KeepAlive { resource, max_ms } => {
                self.keep_alive(id, &(client, resource), Duration::from_millis(max_ms))
            }
            Op::Release { resource } => self.release(id, &(client, resource)),
            Op::Cancel { request } => {
                self.cancel(id, request);
                Ok(())
            }
            Op::Step { check: None, .. } => {
                self.output.done(id, Ok(()));
                Ok(())
            }
            Op::Step { check: Some(resource), .. } => self.check(id, &(client, resource)),
        };
        if let Err(error) = begun {
            self.output.done(id, Err(error));
        }
    }

    fn state(&self) -> MutexGuard<'_, HandlerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A deadline with its stamp. The clock is read before the remaining time, so that the stamp is
    /// early rather than late.
    fn stamped(&self, deadline: Deadline) -> (Deadline, i64) {
        let now = self.output.now();
        (deadline, stamp::later(now, deadline.remaining()))
    }

    fn acquire(
        self: &Arc<Self>,
        id: u64,
        key: LeaseKey,
        (ttl, wait, shared): (Option<Duration>, Duration, bool),
        again: bool,
    ) {
        let owner = self.state().leases.reentered(&key, again).map(|held| held.owner.clone());
        let owner = owner.unwrap_or_default();
        let request = self.shards.acquire(key.1.as_str()).owner(&owner).wait(wait);
        let request = match ttl {
            Some(ttl) => request.ttl(ttl),
            None => request,
        };
        let request = if self.fencing && !shared { request.fenced() } else { request };
        let request = if shared { request.shared() } else { request };
        let (unpolled, handler, whose) = (self.unpolled(id, &key.0), self.clone(), key.clone());
        let attempt = self.attempt(id, request.into_future(), move |idle| {
            unpolled(idle);
            handler.give_up(&mut handler.state(), &whose, again);
        });
        let (handler, whose) = (self.clone(), key.clone());
        let given_up = move |state: &mut HandlerState| handler.give_up(state, &whose, again);
        let handler = self.clone();
        let granted = move |state: &mut HandlerState, call: Call, at_ns, lease: Lease| {
            if lease.handles() > 1 {
                return handler.reenter(state, call, at_ns, (&key, lease));
            }
            if let Err(held) = state.may_hold(&key) {
                return call.reply(at_ns, Err(held));
            }
            call.granted(at_ns, handler.hold(state, key, owner, lease), None)
        };
        self.answer(attempt, granted, given_up);
    }

    /// Tells the harness the result of an attempt: what `granted` makes of a lease, or why there is
    /// none. `given_up` notes that it was cancelled or dropped.
    fn answer<T: Send>(
        self: &Arc<Self>,
        attempt: impl Future<Output = (Call, i64, Option<Result<T, AcquireError>>)> + Send + 'static,
        granted: impl FnOnce(&mut HandlerState, Call, i64, T) -> ClientReply + Send + 'static,
        given_up: impl FnOnce(&mut HandlerState) + Send + 'static,
    ) {
        let handler = self.clone();
        tokio::spawn(async move {
            let (call, at_ns, result) = attempt.await;
            let mut state = handler.state();
            let reply = match result {
                // Nobody would release it.
                Some(Ok(_)) if state.closed => {
                    call.reply(at_ns, Err(FailureReason::Cancelled.into()))
                }
                Some(Ok(lease)) => granted(&mut state, call, at_ns, lease),
                Some(Err(error)) => call.reply(at_ns, Err(failure(&error))),
                None => {
                    given_up(&mut state);
                    call.reply(at_ns, Err(FailureReason::Cancelled.into()))
                }
            };
            handler.output.tell(reply);
            drop(state);
        });
    }

    /// Notes that the caller of an acquire leaves it alone. The round of a re-entry goes on, and
    /// may extend the lease, if there still is one.
    fn give_up(self: &Arc<Self>, state: &mut HandlerState, key: &LeaseKey, again: bool) {
        if again && let Ok(record) = state.leases.find(key) {
            self.watch(record);
        }
    }

    /// Awaits an acquire that can be cancelled. `tell` is called if it is left alone, and for how
    /// long. Returns the call, the stamp of its end, and its result: `None` if it was cancelled or
    /// dropped.
    fn attempt<F: Future, T: FnOnce(Duration)>(
        self: &Arc<Self>,
        id: u64,
        request: F,
        tell: T,
    ) -> impl Future<Output = (Call, i64, Option<F::Output>)> + use<F, T> {
        // Registered in the order in which requests are read, so that a cancel finds its request.
        let (cancel, cancelled) = oneshot::channel();
        self.state().acquiring.insert(id, cancel);
        let (handler, neglect) = (self.clone(), (self.neglect)());
        async move {
            let call = handler.output.call(id);
            let result = tokio::select! {
                // `biased`: report a win even if the cancel comes at the same moment.
                biased;
                result = limited(neglect, request, tell) => result,
                _ = cancelled => None,
            };
            // The request has been dropped by now.
            let at_ns = handler.output.now();
            handler.state().acquiring.remove(&id);
            (call, at_ns, result)
        }
    }

    /// Tells the harness that the caller of a request leaves it alone for some time.
    fn unpolled(&self, request: u64, client: &Name) -> impl FnOnce(Duration) + use<> {
        let (output, client) = (self.output.clone(), client.clone());
        move |idle| {
            let from_ns = output.now();
            let to_ns = from_ns.saturating_add(nanos(idle));
            output.tell(Notice::Unpolled { client, request, from_ns, to_ns });
        }
    }

    /// Adds a lease that was granted, and returns the grant.
    fn hold(
        self: &Arc<Self>,
        state: &mut HandlerState,
        key: LeaseKey,
        owner: Owner,
        lease: Lease,
    ) -> Each {
        let deadline = self.stamped(lease.deadline());
        let (token, fence) = (Some(lease.token_id().into()), lease.fencing_token());
        let (lease, mut tasks) = (Arc::new(lease), JoinSet::new());
        let (handler, held) = (self.clone(), lease.clone());
        tasks.spawn(async move {
            let lost = held.lost().await.to_string();
            handler.report(&held, |record, at_ns| record.lose(at_ns, Some(lost)));
        });
        let held = Held { lease, others: Vec::new(), owner, tasks, extension: None };
        state.leases.insert(key, held, deadline);
        Each { token, deadline_ns: Some(deadline.1), fence }
    }

    /// Adds another handle of a lease, and returns the reply.
    fn reenter(
        &self,
        state: &mut HandlerState,
        call: Call,
        at_ns: i64,
        (key, lease): (&LeaseKey, Lease),
    ) -> ClientReply {
        let record = match state.leases.find(key) {
            Ok(record) => record,
            Err(released_meanwhile) => return call.reply(at_ns, Err(released_meanwhile)),
        };
        let deadline_ns = Some(record.report(self.stamped(lease.deadline())));
        let token = Some(lease.token_id().into());
        let grant = Each { token, deadline_ns, fence: lease.fencing_token() };
        let handles = lease.handles();
        record.lease.others.push(lease);
        call.granted(at_ns, grant, Some(handles.into()))
    }

    /// Sends the notice about a lease, if it was not released or replaced.
    fn report(
        &self,
        lease: &Arc<Lease>,
        notice: impl FnOnce(&mut LeaseRecord<Held, Deadline>, i64) -> Option<Notice>,
    ) {
        let mut state = self.state();
        let record = state.leases.find_by(|held| Arc::ptr_eq(&held.lease, lease));
        if let Some(notice) = record.and_then(|record| notice(record, self.output.now())) {
            self.output.tell(notice);
        }
    }

    /// From now on, reports each move of the deadline.
    fn watch(self: &Arc<Self>, record: &mut LeaseRecord<Held, Deadline>) {
        if !record.watch() {
            return;
        }
        let (handler, lease) = (self.clone(), record.lease.lease.clone());
        record.lease.tasks.spawn(async move {
            let mut look = interval(LOOK);
            look.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                look.tick().await;
                // A lost lease has no deadline: the loss was reported, or is about to be.
                if lease.is_lost() {
                    return;
                }
                let deadline = handler.stamped(lease.deadline());
                handler.report(&lease, |record, at_ns| record.moved(at_ns, deadline));
            }
        });
    }

    fn extend(
        self: &Arc<Self>,
        id: u64,
        key: &LeaseKey,
        ttl: Duration,
    ) -> Result<(), RequestError> {
        let (neglect, unpolled) = ((self.neglect)(), self.unpolled(id, &key.0));
        let mut state = self.state();
        let record = state.leases.find(key)?;
        record.extend(self.output.call(id))?;
        let (handler, lease) = (self.clone(), record.lease.lease.clone());
        let task = record.lease.tasks.spawn(async move {
            match limited(neglect, lease.extend_to(ttl), unpolled).await {
                Some(result) => handler.extended(id, result),
                None => handler.cancel_extension(id),
            }
        });
        record.lease.extension = Some(task);
        Ok(())
    }

    /// Reports the result of an extension, unless it was cancelled meanwhile.
    fn extended(&self, id: u64, result: Result<Deadline, ExtendError>) {
        let at_ns = self.output.now();
        let result = result.map(|deadline| self.stamped(deadline)).map_err(|error| {
            let why = match error {
                ExtendError::NoQuorum { .. } => FailureReason::NoQuorum,
                ExtendError::QuorumGone { .. } | ExtendError::Lost(_) => FailureReason::Lost,
                _ => FailureReason::Error,
            };
            RequestError::new(why, error.to_string())
        });
        let mut state = self.state();
        let record = state.leases.extending(id);
        if let Some((reply, notice)) = record.and_then(|record| record.extended(at_ns, result)) {
            self.output.tell(reply);
            notice.into_iter().for_each(|notice| self.output.tell(notice));
        }
    }

    /// Cancels the extension of this request, if it is in flight. Its round goes on, or is over and
    /// nobody has reported the result.
    fn cancel_extension(self: &Arc<Self>, request: u64) {
        let mut state = self.state();
        let Some(record) = state.leases.extending(request) else { return };
        let cancelled = record.cancel_extension(self.output.now());
        cancelled.into_iter().for_each(|reply| self.output.tell(reply));
        if let Some(task) = record.lease.extension.take() {
            task.abort();
        }
        self.watch(record);
    }

    fn cancel(self: &Arc<Self>, id: u64, request: u64) {
        // Reply first: this only confirms that the cancel arrived. A request that has ended
        // meanwhile counts as cancelled.
        self.output.done(id, Ok(()));
        if let Some(cancel) = self.state().acquiring.remove(&request) {
            // The send fails if the acquire has ended meanwhile.
            let _ = cancel.send(());
        }
        self.cancel_extension(request);
    }

    fn keep_alive(
        self: &Arc<Self>,
        id: u64,
        key: &LeaseKey,
        max_hold: Duration,
    ) -> Result<(), RequestError> {
        let mut state = self.state();
        let record = state.leases.find(key)?;
        record.held()?;
        record.lease.lease.keep_alive(max_hold);
        self.output.done(id, Ok(()));
        self.watch(record);
        Ok(())
    }

    fn check(&self, id: u64, key: &LeaseKey) -> Result<(), RequestError> {
        let mut state = self.state();
        let record = state.leases.find(key)?;
        record.held()?;
        // Ask the library, too: the deadline decides, not whether its timer has fired.
        if let Some(lost) = record.lease.lease.loss() {
            return Err(RequestError::new(FailureReason::Lost, lost.to_string()));
        }
        self.output.done(id, Ok(()));
        Ok(())
    }

    /// Releases a handle, and reports the number of handles that are left, if any.
    fn release(self: &Arc<Self>, id: u64, key: &LeaseKey) -> Result<(), RequestError> {
        let mut state = self.state();
        let record = state.leases.find(key)?;
        let other = record.lease.others.pop().map(|other| (other, record.lease.others.len() + 1));
        let held = match other {
            Some(_) => None,
            None => Some(self.remove(&mut state, key)?),
        };
        drop(state);
        let handler = self.clone();
        tokio::spawn(async move {
            let (lease, handles) = match (other, held) {
                (Some((other, left)), _) => (other, Some(left as u64)),
                (None, Some(held)) => (held.into_lease().await, None),
                (None, None) => return,
            };
            let call = handler.output.call(id);
            let released = lease.release().await;
            let result = release_result(released.outcome, Some(released.to_string()));
            let reply = call.reply(handler.output.now(), result);
            handler.output.tell(ClientReply { handles, ..reply });
        });
        Ok(())
    }

    /// Removes a lease that is to be released.
    fn remove(&self, state: &mut HandlerState, key: &LeaseKey) -> Result<Held, RequestError> {
        let (held, cancelled) = state.leases.remove(key, self.output.now())?;
        cancelled.into_iter().for_each(|reply| self.output.tell(reply));
        Ok(held)
    }

    fn acquire_all(
        self: &Arc<Self>,
        id: u64,
        (client, resources): (Name, Vec<Name>),
        (ttl, wait, shared): (Duration, Duration, bool),
    ) {
        let request =
            self.shards.acquire_all(resources.iter().map(Name::as_str)).ttl(ttl).wait(wait);
        let request = if self.fencing && !shared { request.fenced() } else { request };
        let request = if shared { request.shared() } else { request };
        let attempt = self.attempt(id, request.into_future(), self.unpolled(id, &client));
        let handler = self.clone();
        let granted = move |state: &mut HandlerState, call: Call, at_ns, leases: Leases| {
            let mut keys = resources.iter().map(|resource| (client.clone(), resource.clone()));
            if let Err(held) = keys.try_for_each(|key| state.may_hold(&key)) {
                return call.reply(at_ns, Err(held));
            }
            let grants = leases.into_iter().zip(resources).map(|(lease, resource)| {
                handler.hold(state, (client.clone(), resource), Owner::new(), lease)
            });
            call.granted_all(at_ns, grants.collect())
        };
        self.answer(attempt, granted, |_| ());
    }

    fn acquire_any(
        self: &Arc<Self>,
        id: u64,
        (client, resources): (Name, Vec<Name>),
        (ttl, wait, shared): (Duration, Duration, bool),
    ) {
        let request =
            self.shards.acquire_any(resources.iter().map(Name::as_str)).ttl(ttl).wait(wait);
        let request = if self.fencing && !shared { request.fenced() } else { request };
        let request = if shared { request.shared() } else { request };
        let attempt = self.attempt(id, request.into_future(), self.unpolled(id, &client));
        let handler = self.clone();
        let granted = move |state: &mut HandlerState, call: Call, at_ns, lease: Lease| {
            let chosen = |name: &&Name| name.as_bytes() == lease.resource();
            let resource = resources.iter().find(chosen).cloned();
            let key = (client, resource.clone().expect("it is one of them"));
            if let Err(held) = state.may_hold(&key) {
                return call.reply(at_ns, Err(held));
            }
            let grant = handler.hold(state, key, Owner::new(), lease);
            ClientReply { resource, ..call.granted(at_ns, grant, None) }
        };
        self.answer(attempt, granted, |_| ());
    }

    fn release_all(self: &Arc<Self>, id: u64, client: &Name, resources: Vec<Name>) {
        let (mut all, mut worst) = (Vec::new(), Ok(()));
        let mut state = self.state();
        for resource in resources {
            match self.remove(&mut state, &(client.clone(), resource)) {
                Ok(held) => all.push(held),
                Err(error) => worst = worse(worst, Err(error)),
            }
        }
        drop(state);
        let handler = self.clone();
        tokio::spawn(async move {
            let call = handler.output.call(id);
            let released: Vec<_> = all
                .into_iter()
                .map(|held| tokio::spawn(async { held.into_lease().await.release().await }))
                .collect();
            for one in released {
                let Ok(released) = one.await else { continue };
                let result = release_result(released.outcome, Some(released.to_string()));
                worst = worse(worst, result);
            }
            handler.output.tell(call.reply(handler.output.now(), worst));
        });
    }
}

/// Why an acquire failed.
fn failure(error: &AcquireError) -> RequestError {
    let why = match error {
        AcquireError::Taken { .. } => FailureReason::Taken,
        AcquireError::NoQuorum { .. } => FailureReason::NoQuorum,
        AcquireError::TooLate { .. } => FailureReason::Late,
        AcquireError::NotExtended(
            ExtendError::NoQuorum { .. } | ExtendError::QuorumGone { .. },
        ) => FailureReason::NoQuorum,
        _ => FailureReason::Error,
    };
    RequestError::new(why, error.to_string())
}
