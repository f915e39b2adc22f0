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

/// The calls of a lock.
pub trait Library: Send + Sync + 'static {
    /// The library's own object of a lease.
    type Lock: Send + Sync + 'static;

    /// The name of the library, for reports.
    const NAME: &'static str;
    /// What the library can do, such as `extend`: see `docs/scenarios.md`.
    const CAN: &'static [&'static str];

    /// Tries to acquire. If the future is dropped, the request is cancelled.
    fn acquire(
        &self,
        resource: &str,
        ttl: Duration,
    ) -> impl Future<Output = Result<Lease<Self::Lock>, Refused>> + Send;

    /// Extends a lease, and returns it with its new end.
    fn extend(
        &self,
        lease: &Lease<Self::Lock>,
        ttl: Duration,
    ) -> impl Future<Output = Result<Lease<Self::Lock>, Refused>> + Send;

    /// Releases a lease.
    fn release(
        &self,
        lease: &Lease<Self::Lock>,
    ) -> impl Future<Output = Result<(), Refused>> + Send;
}

/// A granted lock.
pub struct Lease<L> {
    pub lock: L,
    /// The value on the masters, if the library reveals it.
    pub token: Option<String>,
    /// How long the lease lives from the moment at which the library returned it.
    pub valid_ms: u64,
    returned_ns: i64,
}

impl<L> Lease<L> {
    /// A lease that the library returned just now.
    pub fn new(lock: L, token: Option<String>, valid_ms: u64) -> Self {
        Self { lock, token, valid_ms, returned_ns: now_ns() }
    }

    /// What the documentation tells a holder to check before it acts.
    fn is_held(&self) -> bool {
        let passed = u64::try_from(now_ns() - self.returned_ns).unwrap_or(0);
        passed < self.valid_ms.saturating_mul(1_000_000)
    }
}

/// Why a request failed: `why` is a word of the protocol, such as `taken`.
pub struct Refused {
    pub why: &'static str,
    pub text: Option<String>,
}

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
    ttl_ms: u64,
    #[serde(default)]
    again: bool,
    check: Option<String>,
    request: Option<u64>,
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
    write(&json!({"event": "ready", "protocol": 1, "can": B::CAN, "name": B::NAME}));
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
            "extend" if B::CAN.contains(&"extend") => self.extend(request).await,
            "release" => self.release(request).await,
            "step" => self.step(request),
            "cancel" if B::CAN.contains(&"cancel") => self.cancel(request),
            _ => Err(Refused { why: "unsupported", text: None }),
        };
        let mut answer = match result {
            Ok(fields) => fields,
            Err(Refused { why, text }) => {
                json!({"ok": false, "why": why, "text": text, "at_ns": now_ns()})
            }
        };
        answer["from_ns"] = json!(from_ns);
        let is_acquire = request.op == "acquire";
        if !self.answer(request.id, answer) && is_acquire {
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
        let ttl = Duration::from_millis(request.ttl_ms);
        let lease = self.library.acquire(&request.resource, ttl).await?;
        Ok(self.keep(request, lease))
    }

    async fn extend(&self, request: &Request) -> Result<Value, Refused> {
        let lease = self.lease(request, &request.resource)?;
        let ttl = Duration::from_millis(request.ttl_ms);
        let lease = self.library.extend(&lease, ttl).await?;
        Ok(self.keep(request, lease))
    }

    fn keep(&self, request: &Request, lease: Lease<B::Lock>) -> Value {
        let grant = json!({
            "ok": true,
            "token": lease.token,
            "at_ns": lease.returned_ns,
            "valid_ms": lease.valid_ms,
        });
        let key = (request.client.clone(), request.resource.clone());
        locked(&self.leases).insert(key, Arc::new(lease));
        grant
    }

    async fn release(&self, request: &Request) -> Result<Value, Refused> {
        let lease = self.lease(request, &request.resource)?;
        locked(&self.leases).remove(&(request.client.clone(), request.resource.clone()));
        self.library.release(&lease).await?;
        Ok(json!({"ok": true, "at_ns": now_ns()}))
    }

    fn step(&self, request: &Request) -> Result<Value, Refused> {
        if let Some(check) = &request.check
            && !self.lease(request, check)?.is_held()
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
