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

use redquorum::{Redlock, RunError, blocking};
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
        Some((id, Err(error))) => {
            // The text names masters: it is for the log, and not for the caller.
            eprintln!("order {id}: {error}");
            refusal(&error)
        }
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

/// The status and the text for the caller.
fn refusal(error: &RunError) -> (u16, String) {
    let (status, text) = match error {
        RunError::NotAcquired(error) if error.is_taken() => (409, "it is being shipped"),
        RunError::NotAcquired(error) if error.is_unavailable() => (503, "no lock now: try again"),
        RunError::NotAcquired(_) => (500, "the request is wrong"),
        // The lease was lost before the work was done. Check whether the order was shipped.
        _ => (500, "it is not known whether it was shipped"),
    };
    (status, text.to_owned())
}

/// The work, which blocks.
#[expect(clippy::disallowed_methods, reason = "this thread is no worker of a runtime")]
fn do_blocking(_step: &str) {
    thread::sleep(Duration::from_millis(300));
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use redquorum::memory::Masters;

    use super::*;

    fn post(server: &Server, lock: &blocking::Redlock) -> String {
        let mut caller = TcpStream::connect(server.server_addr().to_ip().unwrap()).unwrap();
        caller.write_all(b"POST /orders/42/ship HTTP/1.0\r\n\r\n").unwrap();
        reply(lock, server.recv().unwrap());
        let mut text = String::new();
        caller.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn no_reply_names_a_master() {
        let masters = Masters::new(3);
        let wait = Duration::from_millis(100);
        let build = || masters.builder().wait(wait).build_blocking().unwrap();
        let (lock, other) = (build(), build());
        let server = Server::http("127.0.0.1:0").unwrap();
        assert!(post(&server, &lock).starts_with("HTTP/1.0 200"));
        let lease = other.acquire("42").send().unwrap();
        let taken = post(&server, &lock);
        drop(lease);
        (1..=3).for_each(|number| masters.kill(number));
        let down = post(&server, &lock);
        for (text, status) in [(taken, "HTTP/1.0 409"), (down, "HTTP/1.0 503")] {
            assert!(text.starts_with(status) && !text.contains("memory-"), "{text}");
        }
        // A check that could not fail would be worth nothing: the error itself names them.
        let error = lock.acquire("42").send().unwrap_err().to_string();
        assert!(error.contains("memory-1"), "{error}");
    }
}
