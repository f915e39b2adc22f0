//! A service that adds to balances in a database, as a service team would run it: options from the
//! environment, one lease for each account, writes that carry the fencing token, metrics for
//! Prometheus, a readiness probe, a shutdown that finishes what is under way, and tests without
//! servers.
//!
//! ```text
//! just masters                   # in one terminal, or: cargo run -p redquorum-rig --bin masters
//! export LOCK_MASTERS=…          # in another, the URLs that it printed
//! cargo run -p redquorum --example billing_service
//!
//! curl -X POST localhost:3000/accounts/42/add/5
//! curl localhost:3000/metrics
//! cargo test -p redquorum --example billing_service
//! ```

#[path = "support/stop.rs"]
mod stop;

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use redquorum::{Builder, Config, Redlock, RunError};
use rusqlite::{Connection, OptionalExtension};

/// A request waits no longer for an account: its caller is there and waits, too. `LOCK_WAIT` sets
/// another time.
const WAIT: Duration = Duration::from_secs(1);

/// No request holds an account for longer.
const AT_MOST: Duration = Duration::from_secs(20);

#[derive(Clone)]
struct Service {
    lock: Redlock,
    database: Arc<Mutex<Connection>>,
    metrics: PrometheusHandle,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The recorder comes first: a lock exports to the one that it finds when it is built.
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let upkeep = metrics.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });
    let config = Config::from_env("LOCK_")?;
    let lock = options(Redlock::builder()).config(config).build().await?;
    let path = std::env::temp_dir().join("redquorum-billing-service.sqlite");
    println!("the database is {}", path.display());
    let database = Connection::open(path)?;
    let service = Service::new(lock.clone(), database, metrics)?;

    let app = axum::Router::new()
        .route("/accounts/{id}/add/{amount}", post(add))
        .route("/health", get(health))
        .route("/metrics", get(async |State(it): State<Service>| it.metrics.render()))
        .with_state(service);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on {}", listener.local_addr()?);
    let stopped = async {
        match stop::stop().await {
            Ok(signal) => println!("{signal}: finishing the requests under way"),
            Err(error) => eprintln!("no signal can be received, stopping: {error}"),
        }
    };
    axum::serve(listener, app).with_graceful_shutdown(stopped).await?;
    // No request is left. What cannot be deleted in time expires within the TTL.
    if let Err(unfinished) = lock.shutdown(Duration::from_secs(2)).await {
        eprintln!("{unfinished}");
    }
    Ok(())
}

/// The options that the environment may change.
fn options(builder: Builder) -> Builder {
    builder.prefix("account:").wait(WAIT)
}

impl Service {
    fn new(
        lock: Redlock,
        database: Connection,
        metrics: PrometheusHandle,
    ) -> rusqlite::Result<Self> {
        database.execute_batch(
            "CREATE TABLE IF NOT EXISTS account (
                 id BIGINT PRIMARY KEY,
                 balance BIGINT NOT NULL DEFAULT 0,
                 fence BIGINT NOT NULL DEFAULT 0)",
        )?;
        Ok(Self { lock, database: Arc::new(Mutex::new(database)), metrics })
    }

    /// The balance of an account, after the token was presented.
    fn read(&self, id: u64, token: u64) -> rusqlite::Result<Option<i64>> {
        let database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        database.execute("INSERT INTO account (id) VALUES (?1) ON CONFLICT DO NOTHING", [id])?;
        let sql = "UPDATE account SET fence = ?2 WHERE id = ?1 AND fence <= ?2 RETURNING balance";
        database.query_row(sql, [id, token], |row| row.get(0)).optional()
    }

    /// Writes a balance, unless a later holder has presented its token. Returns whether it did.
    fn write(&self, id: u64, balance: i64, token: u64) -> rusqlite::Result<bool> {
        let database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        let sql = "UPDATE account SET balance = ?2 WHERE id = ?1 AND fence = ?3";
        Ok(database.execute(sql, (id, balance, token))? == 1)
    }
}

type Answer = (StatusCode, String);

async fn add(State(service): State<Service>, Path((id, amount)): Path<(u64, i64)>) -> Answer {
    // A task of its own: if the caller disconnects, axum drops this handler, and not the work.
    match tokio::spawn(add_once(service, id, amount)).await {
        Ok(reply) => reply,
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

async fn add_once(service: Service, id: u64, amount: i64) -> Answer {
    let work = async |lease: &redquorum::Lease| {
        // The database refuses this service's write if the service pauses here for too long.
        let token = lease.fencing_token().expect("the request is fenced");
        let Some(balance) = service.read(id, token)? else { return Ok(None) };
        let written = service.write(id, balance + amount, token)?;
        Ok::<_, rusqlite::Error>(written.then_some(balance + amount))
    };
    match service.lock.acquire(id.to_string()).fenced().run(AT_MOST, work).await {
        Ok(Ok(Some(balance))) => (StatusCode::OK, format!("account {id}: {balance}\n")),
        Ok(Ok(None)) => {
            (StatusCode::CONFLICT, "another request was quicker: try again\n".to_owned())
        }
        Err(RunError::NotAcquired(error)) if error.is_taken() => {
            (StatusCode::CONFLICT, "the account is in use: try again\n".to_owned())
        }
        Err(error) => {
            // The text names masters: it is for the log, and not for the caller.
            eprintln!("account {id}: {error}");
            (StatusCode::SERVICE_UNAVAILABLE, "no lock now: try again\n".to_owned())
        }
        Ok(Err(error)) => {
            eprintln!("account {id}: {error}");
            (StatusCode::INTERNAL_SERVER_ERROR, "the database failed\n".to_owned())
        }
    }
}

async fn health(State(service): State<Service>) -> Answer {
    let health = service.lock.health().await;
    let status = if health.has_quorum() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    // The whole text of `health` names masters, as that of an error does.
    (status, format!("{} masters can be used, {} are needed\n", health.usable, health.quorum))
}

#[cfg(test)]
mod tests {
    use redquorum::memory::Masters;

    use super::*;

    async fn service(masters: &Masters) -> Service {
        let lock = options(masters.builder()).build().await.unwrap();
        let metrics = PrometheusBuilder::new().build_recorder().handle();
        Service::new(lock, Connection::open_in_memory().unwrap(), metrics).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_meet_lose_no_update() {
        let service = service(&Masters::new(3)).await;
        let add = || tokio::spawn(add(State(service.clone()), Path((42, 5))));
        for request in [add(), add(), add()] {
            assert_eq!(request.await.unwrap().0, StatusCode::OK);
        }
        assert_eq!(service.read(42, u64::from(u32::MAX) << 20).unwrap(), Some(15));
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_that_was_paused_overwrites_nothing() {
        let service = service(&Masters::new(3)).await;
        let paused = service.lock.acquire("42").fenced().await.unwrap();
        let (token, id) = (paused.fencing_token().unwrap(), 42);
        let read = service.read(id, token).unwrap().unwrap();
        tokio::time::sleep(Duration::from_secs(11)).await;
        let (status, _) = add(State(service.clone()), Path((id, 5))).await;
        assert_eq!(status, StatusCode::OK);
        assert!(!service.write(id, read + 1, token).unwrap(), "a later token was presented");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_quorum_the_service_reports_it() {
        let masters = Masters::new(3);
        let service = service(&masters).await;
        masters.kill(1);
        masters.kill(2);
        let start = tokio::time::Instant::now();
        let (status, text) = add(State(service.clone()), Path((42, 5))).await;
        assert_eq!((status, &*text), (StatusCode::SERVICE_UNAVAILABLE, "no lock now: try again\n"));
        assert!(start.elapsed() < 2 * WAIT, "{:?}", start.elapsed());
        let (status, text) = health(State(service)).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text, "1 masters can be used, 2 are needed\n");
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_in_use_is_a_conflict() {
        let service = service(&Masters::new(3)).await;
        let lease = service.lock.acquire("42").ttl(Duration::from_secs(5)).await.unwrap();
        let (status, _) = add(State(service.clone()), Path((42, 5))).await;
        assert_eq!(status, StatusCode::CONFLICT);
        let _ = lease.release().await;
        assert_eq!(add(State(service), Path((42, 5))).await.0, StatusCode::OK);
    }
}
