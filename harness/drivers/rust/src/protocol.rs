//! The client protocol of `docs/scenarios.md`, for a lock that is called from Rust with Tokio.
//!
//! A driver implements [`Library`] with the calls of its lock and passes it to [`serve`]: see
//! `main.rs`. Standard output is for the protocol alone; logs go to standard error.

use std::collections::{HashMap, HashSet};
use std::env;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::task::AbortHandle;

/// The calls of a lock. A driver without one of those that have a body leaves it out.
pub trait Library: Send + Sync + 'static {
    /// The library's own object of a lease.
    type Lock: Send + Sync + 'static;

    /// The name of the library, for reports.
    const NAME: &'static str;
    /// What the library can do, such as `extend`: see `docs/scenarios.md`.
    const CAN: &'static [&'static str];

    /// The version of the library, for reports.
    fn version() -> String;

    /// Tries to acquire. With `wait` in `CAN`, waits for at most this time. If the future is
    /// dropped, the request is cancelled.
    fn acquire(
        &self,
        resource: &str,
        ttl: Duration,
        wait: Duration,
    ) -> impl Future<Output = Result<Lease<Self::Lock>, Refused>> + Send;

    /// Acquires all of these or none, with `several` in `CAN`. Waits as `acquire` does.
    fn acquire_all(
        &self,
        _resources: &[String],
        _ttl: Duration,
        _wait: Duration,
    ) -> impl Future<Output = Result<Vec<Lease<Self::Lock>>, Refused>> + Send {
        async { Err(UNSUPPORTED) }
    }

    /// Extends a lease, with `extend` in `CAN`, and returns it with its new end.
    fn extend(
        &self,
        _lease: &Lease<Self::Lock>,
        _ttl: Duration,
    ) -> impl Future<Output = Result<Lease<Self::Lock>, Refused>> + Send {
        async { Err(UNSUPPORTED) }
    }

    /// Goes on extending a lease in the background, for at most this time, with `keep_alive` in
    /// `CAN`. Reports each extension to the [`Holder`] of the lease.
    fn keep_alive(
        &self,
        _lease: &Lease<Self::Lock>,
        _most: Duration,
        _holder: Holder,
    ) -> impl Future<Output = Result<(), Refused>> + Send {
        async { Err(UNSUPPORTED) }
    }

    /// What the documentation tells a holder to check before it acts. A library that does not say
    /// how long a lease is valid checks it here.
    fn is_held(&self, lease: &Lease<Self::Lock>) -> bool {
        lease.is_valid()
    }

    /// Called for each lease that was granted. With `lost` in `CAN`, reports its loss to its
    /// [`Holder`], from a task of its own.
    fn watch(&self, _lease: &Lease<Self::Lock>, _holder: Holder) {}

    /// Releases a lease.
    fn release(
        &self,
        lease: &Lease<Self::Lock>,
    ) -> impl Future<Output = Result<(), Refused>> + Send;
}

/// The client that holds a lease, for reports about the lease.
#[derive(Clone, Debug)]
pub struct Holder {
    client: String,
    resource: String,
}

impl Holder {
    /// Reports that the lease was extended in the background, and is valid for this long from now.
    pub fn extended(&self, valid: Duration) {
        let (now, valid) = (now_ns(), i64::try_from(valid.as_nanos()).unwrap_or(i64::MAX));
        write(&json!({
            "event": "extended", "client": self.client, "resource": self.resource, "at_ns": now,
            "deadline_ns": now.saturating_add(valid),
        }));
    }

    /// Reports that the lease ended and was not released.
    pub fn lost(&self) {
        write(&json!({
            "event": "lost", "client": self.client, "resource": self.resource, "at_ns": now_ns(),
        }));
    }
}

/// A granted lock.
pub struct Lease<L> {
    pub lock: L,
    /// The value on the masters, if the library reveals it.
    pub token: Option<String>,
    /// How long the lease lives from the moment at which the library returned it. `None`: the
    /// library does not say.
    pub valid_ms: Option<u64>,
    returned_ns: i64,
}

impl<L> Lease<L> {
    /// A lease that the library returned just now.
    pub fn new(lock: L, token: Option<String>, valid_ms: Option<u64>) -> Self {
        Self { lock, token, valid_ms, returned_ns: now_ns() }
    }

    fn is_valid(&self) -> bool {
        let passed = u64::try_from(now_ns() - self.returned_ns).unwrap_or(0);
        self.valid_ms.is_none_or(|valid| passed < valid.saturating_mul(1_000_000))
    }

    /// The deadline, if the library says how long the lease is valid.
    fn deadline_ns(&self) -> Option<i64> {
        let valid = i64::try_from(self.valid_ms?.saturating_mul(1_000_000)).unwrap_or(i64::MAX);
        Some(self.returned_ns.saturating_add(valid))
    }
}

/// The version of a package in the text of a `Cargo.lock`.
pub fn locked_version(lock: &str, package: &str) -> String {
    let (_, rest) =
        lock.split_once(&format!("name = \"{package}\"\nversion = \"")).unwrap_or_default();
    rest.split('"').next().unwrap_or_default().to_owned()
}

/// Why a request failed: `why` is a word of the protocol, such as `taken`.
pub struct Refused {
    pub why: &'static str,
    pub text: Option<String>,
}

/// The library cannot do what is asked.
pub const UNSUPPORTED: Refused = Refused { why: "unsupported", text: None };

/// The URLs of the masters.
pub fn nodes() -> Vec<String> {
    let nodes = env::var("REDQUORUM_NODES").unwrap_or_default();
    nodes.split(',').map(str::to_owned).collect()
}

fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + i64::from(now.tv_nsec as u32)
}

#[derive(Clone, Deserialize)]
struct Request {
    id: u64,
    #[serde(default)]
    client: String,
    op: String,
    #[serde(default)]
    resource: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    ttl_ms: u64,
    #[serde(default)]
    wait_ms: u64,
    #[serde(default)]
    max_ms: u64,
    #[serde(default)]
    again: bool,
    check: Option<String>,
    request: Option<u64>,
}

impl Request {
    /// The TTL, and how long the request may wait.
    fn times(&self) -> (Duration, Duration) {
        (Duration::from_millis(self.ttl_ms), Duration::from_millis(self.wait_ms))
    }

    fn holder(&self, resource: &str) -> Holder {
        Holder { client: self.client.clone(), resource: resource.to_owned() }
    }
}

type Leases<L> = HashMap<(String, String), Arc<Lease<L>>>;

struct Driver<B: Library> {
    library: B,
    leases: Mutex<Leases<B::Lock>>,
    running: Mutex<HashMap<u64, AbortHandle>>,
    /// Requests that were answered, also those that were cancelled.
    answered: Mutex<HashSet<u64>>,
}

/// Answers the requests of standard input, each in a task of its own, until it ends.
pub async fn serve<B: Library>(library: B) {
    let driver = Arc::new(Driver {
        library,
        leases: Mutex::default(),
        running: Mutex::default(),
        answered: Mutex::default(),
    });
    let (can, name, version) = (B::CAN, B::NAME, B::version());
    write(&json!({
        "event": "ready", "protocol": 1, "can": can, "name": name, "version": version,
    }));
    let mut lines = BufReader::new(stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(request) = serde_json::from_str::<Request>(&line) else { continue };
        let (id, driver) = (request.id, Arc::clone(&driver));
        // The task starts only after its handle is in the map.
        let mut running = locked(&driver.running);
        let handled = Arc::clone(&driver);
        let task = tokio::spawn(async move {
            handled.handle(&request).await;
            locked(&handled.running).remove(&request.id);
        });
        running.insert(id, task.abort_handle());
    }
    // At once: calls of the library may hang.
    std::process::exit(0);
}

impl<B: Library> Driver<B> {
    async fn handle(&self, request: &Request) {
        let from_ns = now_ns();
        let result = match request.op.as_str() {
            "acquire" if !request.again => self.acquire(request).await,
            "acquire_all" => self.acquire_all(request).await,
            "extend" => self.extend(request).await,
            "keep_alive" => self.keep_alive(request).await,
            "release" | "release_all" => self.release(request).await,
            "step" => self.step(request),
            "cancel" if B::CAN.contains(&"cancel") => self.cancel(request),
            _ => Err(UNSUPPORTED),
        };
        let mut answer = match result {
            Ok(fields) => fields,
            Err(Refused { why, text }) => {
                json!({"ok": false, "why": why, "text": text, "at_ns": now_ns()})
            }
        };
        answer["from_ns"] = json!(from_ns);
        let is_granted = request.op.starts_with("acquire") && answer["ok"] == true;
        if !self.answer(request.id, answer) && is_granted {
            // The request was cancelled meanwhile.
            drop(self.release(request).await);
        }
    }

    /// Answers a request once. Returns whether this was the answer.
    fn answer(&self, id: u64, mut fields: Value) -> bool {
        if !locked(&self.answered).insert(id) {
            return false;
        }
        fields["id"] = json!(id);
        if let Some(fields) = fields.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        write(&fields);
        true
    }

    async fn acquire(&self, request: &Request) -> Result<Value, Refused> {
        let (ttl, wait) = request.times();
        let lease = self.library.acquire(&request.resource, ttl, wait).await?;
        self.library.watch(&lease, request.holder(&request.resource));
        Ok(self.keep(request, &request.resource, lease))
    }

    async fn acquire_all(&self, request: &Request) -> Result<Value, Refused> {
        let (ttl, wait) = request.times();
        let leases = self.library.acquire_all(&request.resources, ttl, wait).await?;
        let each = request.resources.iter().zip(leases).map(|(resource, lease)| {
            self.library.watch(&lease, request.holder(resource));
            // A grant of several has deadlines.
            let deadline_ns = lease.deadline_ns();
            let mut grant = self.keep(request, resource, lease);
            json!({"token": grant["token"].take(), "deadline_ns": deadline_ns})
        });
        let each: Vec<Value> = each.collect();
        Ok(json!({"ok": true, "at_ns": now_ns(), "each": each}))
    }

    async fn keep_alive(&self, request: &Request) -> Result<Value, Refused> {
        let lease = self.lease(request, &request.resource)?;
        let (most, holder) =
            (Duration::from_millis(request.max_ms), request.holder(&request.resource));
        self.library.keep_alive(&lease, most, holder).await?;
        Ok(json!({"ok": true, "at_ns": now_ns()}))
    }

    async fn extend(&self, request: &Request) -> Result<Value, Refused> {
        let lease = self.lease(request, &request.resource)?;
        let ttl = Duration::from_millis(request.ttl_ms);
        let lease = self.library.extend(&lease, ttl).await?;
        Ok(self.keep(request, &request.resource, lease))
    }

    fn keep(&self, request: &Request, resource: &str, lease: Lease<B::Lock>) -> Value {
        let grant = json!({
            "ok": true,
            "token": lease.token,
            "at_ns": lease.returned_ns,
            "valid_ms": lease.valid_ms,
        });
        let key = (request.client.clone(), resource.to_owned());
        locked(&self.leases).insert(key, Arc::new(lease));
        grant
    }

    /// Releases the lease or the leases. The first that is not held any more is the result.
    async fn release(&self, request: &Request) -> Result<Value, Refused> {
        let mut result = Ok(());
        let resources = match &request.resources[..] {
            [] => std::slice::from_ref(&request.resource),
            several => several,
        };
        for resource in resources {
            let released = match self.lease(request, resource) {
                Ok(lease) => {
                    locked(&self.leases).remove(&(request.client.clone(), resource.clone()));
                    self.library.release(&lease).await
                }
                Err(lost) => Err(lost),
            };
            result = result.and(released);
        }
        result.map(|()| json!({"ok": true, "at_ns": now_ns()}))
    }

    fn step(&self, request: &Request) -> Result<Value, Refused> {
        if let Some(check) = &request.check
            && !self.library.is_held(&*self.lease(request, check)?)
        {
            return Err(Refused { why: "lost", text: None });
        }
        Ok(json!({"ok": true, "at_ns": now_ns()}))
    }

    fn cancel(&self, request: &Request) -> Result<Value, Refused> {
        let id = request.request.unwrap_or_default();
        self.answer(id, json!({"ok": false, "why": "cancelled"}));
        if let Some(task) = locked(&self.running).remove(&id) {
            task.abort();
        }
        Ok(json!({"ok": true}))
    }

    fn lease(&self, request: &Request, resource: &str) -> Result<Arc<Lease<B::Lock>>, Refused> {
        let key = (request.client.clone(), resource.to_owned());
        let lease = locked(&self.leases).get(&key).cloned();
        lease.ok_or_else(|| Refused { why: "lost", text: Some("there is no lease".to_owned()) })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(message: &Value) {
    let mut out = std::io::stdout().lock();
    // The harness is gone if this fails, and then the input ends, too.
    drop(writeln!(out, "{message}").and_then(|()| out.flush()));
}
