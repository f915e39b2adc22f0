//! A web service that locks one order per request, answers readiness probes, and releases all
//! leases before it ends.
//!
//! ```text
//! just masters                   # in one terminal, or: cargo run -p redquorum-rig --bin masters
//! export REDQUORUM_URLS=…        # in the others, the line that it printed
//! cargo run -p redquorum --example web_service 127.0.0.1:3001
//! cargo run -p redquorum --example web_service 127.0.0.1:3002
//!
//! curl -i -X POST localhost:3001/orders/42/ship & curl -i -X POST localhost:3002/orders/42/ship
//! curl -i localhost:3001/health
//! ```
//!
//! One of the two ships the order; the other one answers 409 and names the holder. Kill three
//! masters: `ship` and `health` answer 503. After Ctrl-C or SIGTERM, requests in progress finish.

#[path = "support/stop.rs"]
mod stop;
mod support;

use std::time::Duration;

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, post},
};
use redquorum::{AcquireError, Lost, Outcome, Redlock, report::Holder};
use support::Failure;
use tokio::{net::TcpListener, time::sleep};

/// The TTL, which is also the longest wait for an order after the service that held it died.
const TTL: Duration = Duration::from_secs(5);
/// The time for which a request waits for a taken order before it answers 409.
const WAIT: Duration = Duration::from_millis(500);
/// The longest time for which a request holds an order, and so delays the shutdown.
const AT_MOST: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    // The service starts even if the masters are down: `/health` shows whether they are up.
    let lock = Redlock::builder()
        .masters(support::urls()?)
        .ttl(TTL)
        .wait(WAIT)
        .prefix("order:")
        .build()
        .await?;
    let app = Router::new()
        .route("/orders/{id}/ship", post(ship))
        .route("/health", get(health))
        .with_state(lock.clone());
    let listener = TcpListener::bind(&address).await?;
    println!("listening on {address}");
    axum::serve(listener, app).with_graceful_shutdown(stopped()).await?;

    // All requests have finished. Shut down the lock, which grants and extends nothing after that.
    match lock.shutdown(Duration::from_secs(2)).await {
        Ok(()) => println!("nothing is held any more"),
        // A master may be down. Its keys expire within the TTL, so do not fail.
        Err(unfinished) => eprintln!("{unfinished}"),
    }
    Ok(())
}

async fn stopped() {
    match stop::stop().await {
        Ok(signal) => println!("{signal}: finishing the requests under way"),
        Err(error) => eprintln!("no signals here, so stopping at once: {error}"),
    }
}

type MasterOutcome = Result<String, (StatusCode, String)>;

async fn ship(State(lock): State<Redlock>, Path(id): Path<u64>) -> MasterOutcome {
    // If the client disconnects, this function is dropped at an await, and the lease with it. The
    // library releases the order in the background.
    let lease = lock.acquire(id.to_string()).await.map_err(|error| refused(id, &error))?;
    lease.keep_alive(AT_MOST);
    lease.run(ship_order()).await.map_err(|lost| stopped_halfway(id, lost))?;
    let released = lease.release().await;
    if released.outcome == Outcome::AlreadyGone {
        // The shipment cannot be undone, so log it. A resource that checks fencing tokens would
        // refuse it.
        eprintln!("order {id}: was not ours to the end: {}", released.report);
    }
    Ok(format!("order {id} is shipped\n"))
}

/// The work. It must tolerate being dropped at each of its awaits.
async fn ship_order() {
    sleep(Duration::from_secs(3)).await;
}

/// Logs the replies of the masters, and returns a short answer to the client.
fn refused(id: u64, error: &AcquireError) -> (StatusCode, String) {
    eprintln!("order {id}: {error}");
    match error {
        AcquireError::Taken { report, .. } => {
            let holder = report.holder().unwrap_or(Holder::NotAsked);
            (StatusCode::CONFLICT, format!("order {id} is taken: {holder}\n"))
        }
        AcquireError::NoQuorum { .. } | AcquireError::TooLate { .. } | AcquireError::ShutDown => {
            (StatusCode::SERVICE_UNAVAILABLE, "no lock to be had now: try again\n".to_owned())
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "that is our fault\n".to_owned()),
    }
}

fn stopped_halfway(id: u64, lost: Lost) -> (StatusCode, String) {
    eprintln!("order {id}: {lost}");
    (StatusCode::SERVICE_UNAVAILABLE, format!("order {id} may be shipped halfway: try again\n"))
}

async fn health(State(lock): State<Redlock>) -> (StatusCode, String) {
    let health = lock.health().await;
    let status = if health.has_quorum() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{health}\n"))
}
