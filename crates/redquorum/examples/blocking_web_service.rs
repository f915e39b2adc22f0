//! A web service with one thread per request and without `async`: it locks one order per request.
//!
//! ```text
//! just masters                   # in one terminal, or: cargo run -p redquorum-rig --bin masters
//! export REDQUORUM_URLS=…        # in the others, the line that it printed
//! cargo run -p redquorum --example blocking_web_service 127.0.0.1:3001
//!
//! curl -i -X POST localhost:3001/orders/42/ship & curl -i -X POST localhost:3001/orders/42/ship
//! ```
//!
//! One request ships the order; the other one answers 409. Kill three masters: it answers 503.

mod support;

use std::{sync::Arc, thread, time::Duration};

use redquorum::{AcquireError, Redlock, RunError, blocking};
use support::Failure;
use tiny_http::{Method, Request, Response, Server};

const THREADS: usize = 8;
/// The longest time for which a request holds an order.
const AT_MOST: Duration = Duration::from_secs(20);

fn main() -> Result<(), Failure> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let lock = Redlock::builder()
        .masters(support::urls()?)
        .wait(Duration::from_millis(500))
        .prefix("order:")
        .build_blocking()?;
    let server = Arc::new(Server::http(&address).map_err(std::io::Error::other)?);
    println!("listening on {address}");
    let serve = |(server, lock): (Arc<Server>, blocking::Redlock)| {
        move || server.incoming_requests().for_each(|request| reply(&lock, request))
    };
    let threads: Vec<_> =
        (0..THREADS).map(|_| thread::spawn(serve((server.clone(), lock.clone())))).collect();
    threads.into_iter().for_each(|thread| drop(thread.join()));
    Ok(())
}

fn reply(lock: &blocking::Redlock, request: Request) {
    let order = request.url().strip_prefix("/orders/").and_then(|path| path.strip_suffix("/ship"));
    let order = order.filter(|_| *request.method() == Method::Post);
    let order: Option<u64> = order.and_then(|id| id.parse().ok());
    let (status, text) = match order.map(|id| (id, ship(lock, id))) {
        None => (404, "POST /orders/ID/ship".to_owned()),
        Some((id, Ok(()))) => (200, format!("order {id} is shipped")),
        Some((_, Err(RunError::NotAcquired(error)))) => (status(&error), error.to_string()),
        // The lease was lost before the work was done. Check whether the order was shipped.
        Some((_, Err(error))) => (500, error.to_string()),
    };
    // The client may be gone.
    let _ = request.respond(Response::from_string(format!("{text}\n")).with_status_code(status));
}

fn ship(lock: &blocking::Redlock, id: u64) -> Result<(), RunError> {
    lock.acquire(id.to_string()).run(AT_MOST, |lease| {
        for step in ["pick", "pack", "label"] {
            if lease.is_lost() {
                return; // `run` returns the loss
            }
            do_blocking(step);
        }
    })
}

fn status(error: &AcquireError) -> u16 {
    if error.is_taken() {
        409
    } else if error.is_unavailable() {
        503
    } else {
        500
    }
}

/// The work, which blocks.
#[expect(clippy::disallowed_methods, reason = "this thread is no worker of a runtime")]
fn do_blocking(_step: &str) {
    thread::sleep(Duration::from_millis(300));
}
