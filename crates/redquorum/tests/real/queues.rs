//! The scripts of the wait queues on a real master, called without the library.

use std::time::Duration;

use redquorum_protocol::wire::{DELETE, LAPSE_MS, QUEUE, TURN_MS};
use redquorum_rig::{Masters, RespValue, trials::Case};
use tokio::time::{Instant, sleep};

use crate::raw::Raw;
use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_release_drops_a_dead_waiter_and_wakes_the_live_one_behind_it,
        a_release_passes_over_a_new_waiter_that_is_not_subscribed_yet,
        a_look_wakes_the_first_waiter_where_the_resource_is_free,
        a_lease_that_is_handed_on_wakes_no_waiter,
    ]
}

struct Master(Masters);

impl Master {
    /// A master where the token `held` holds the resource `r`.
    fn with_a_lease() -> Self {
        let masters = own(1);
        for script in [DELETE, QUEUE] {
            let load = [b"SCRIPT", b"LOAD".as_slice(), script.source.as_bytes()];
            let loaded = masters.command(1, &load).unwrap();
            assert_eq!(loaded, RespValue::Bulk(script.sha1.as_bytes().to_vec()));
        }
        done(&masters, 1, "SET r held PX 60000");
        Self(masters)
    }

    fn run(&self, script: redquorum_protocol::wire::Script, args: &[&str]) -> RespValue {
        let head = [b"EVALSHA".as_slice(), script.sha1.as_bytes(), b"1", b"r"];
        let args = args.iter().map(|arg| arg.as_bytes());
        self.0.command(1, &head.into_iter().chain(args).collect::<Vec<_>>()).unwrap()
    }

    /// A look: the waiter's position, and the number of waiters before it.
    fn look(&self, inbox: u64) -> (i64, i64) {
        match self.run(QUEUE, &[&waiter(inbox), "0"]) {
            RespValue::Array(said) => match said[..] {
                [RespValue::Integer(position), RespValue::Integer(before), ..] => {
                    (position, before)
                }
                _ => panic!("{said:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// A release and its reply; `1` makes it wake a waiter.
    fn release(&self, wakes: &str) -> i64 {
        match self.run(DELETE, &["held", wakes, ""]) {
            RespValue::Integer(count) => count,
            other => panic!("{other:?}"),
        }
    }

    /// A connection that is subscribed to an inbox, and its client id.
    fn subscribed(&self, inbox: u64) -> (Raw, String) {
        let mut raw = Raw::connect(self.0.port(1));
        let id = raw.ask("CLIENT ID");
        raw.ask(&format!("SUBSCRIBE redquorum:wake:{inbox:016x}"));
        // The rest of the confirmation.
        assert_eq!([(); 5].map(|()| raw.line()).last().unwrap(), ":1");
        (raw, id.trim_start_matches(':').to_owned())
    }

    /// How long the position of a waiter lasts without another look; `None` if it has none.
    fn left(&self, inbox: u64) -> Option<u64> {
        let lapse = match self.0.ask(1, &format!("ZSCORE redquorum:lapse:r {}", waiter(inbox))) {
            Ok(RespValue::Bulk(lapse)) => String::from_utf8(lapse).unwrap().parse::<u64>().unwrap(),
            Ok(RespValue::Nil) => return None,
            other => panic!("{other:?}"),
        };
        Some(lapse - now_ms(&self.0, 1))
    }
}

fn waiter(inbox: u64) -> String {
    format!("{inbox:016x}{:016x}", 100 + inbox)
}

/// The waiter id in the next wake-up on a connection.
fn woken(raw: &mut Raw) -> u64 {
    let waiter_id = [(); 7].map(|()| raw.line()).last().unwrap().clone();
    u64::from_str_radix(&waiter_id, 16).unwrap()
}

/// Longer than a waiter without a subscription keeps its position.
const GROWN: Duration = Duration::from_millis(1_200);

async fn a_release_drops_a_dead_waiter_and_wakes_the_live_one_behind_it() {
    let master = Master::with_a_lease();
    let (mut dead, id) = master.subscribed(1);
    let (mut live, _) = master.subscribed(2);
    assert_eq!([1, 2, 3].map(|inbox| master.look(inbox)), [(1, 0), (2, 1), (3, 2)]);
    sleep(GROWN).await;
    done(&master.0, 1, &format!("CLIENT KILL ID {id}"));
    assert!(dead.is_at_end());
    let before = Instant::now();
    // The key is deleted and two waiters are left: the one that is woken, and the next.
    assert_eq!(master.release("1"), 1 + 2);
    assert_eq!((woken(&mut live), master.left(1)), (102, None));
    assert!(before.elapsed() < AT_ONCE);
    // The woken waiter has the time of a turn, and the next its full time.
    assert!(master.left(2).unwrap() <= TURN_MS && master.left(3).unwrap() > TURN_MS);
    assert_eq!(master.look(2), (2, 0));
    assert!(master.left(2).unwrap() > LAPSE_MS - 1_000, "it has asked again");
}

async fn a_release_passes_over_a_new_waiter_that_is_not_subscribed_yet() {
    let master = Master::with_a_lease();
    let (mut second, _) = master.subscribed(2);
    assert_eq!([1, 2].map(|inbox| master.look(inbox)), [(1, 0), (2, 1)]);
    assert_eq!(master.release("1"), 1 + 2, "the first one may be about to subscribe");
    assert_eq!(woken(&mut second), 102);
    assert!([1, 2].iter().all(|inbox| master.left(*inbox).unwrap() <= TURN_MS));
    sleep(GROWN).await;
    // Waiter 1 is still not subscribed, so the next look of another waiter drops it.
    assert_eq!(master.look(3), (3, 1));
    assert_eq!((woken(&mut second), master.left(1)), (102, None));
    sleep(Duration::from_millis(TURN_MS)).await;
    assert_eq!(master.look(3), (3, 0), "the second one let its turn pass");
}

async fn a_look_wakes_the_first_waiter_where_the_resource_is_free() {
    let master = Master::with_a_lease();
    let (mut first, _) = master.subscribed(1);
    let (mut second, _) = master.subscribed(2);
    assert_eq!([1, 2].map(|inbox| master.look(inbox)), [(1, 0), (2, 1)]);
    // As if the TTL were over.
    done(&master.0, 1, "DEL r");
    assert_eq!(master.look(1), (1, 0), "its own look tells it");
    assert_eq!(master.look(2), (2, 1));
    assert_eq!(woken(&mut first), 101);
    let left = master.run(QUEUE, &[&waiter(1), "-", "1"]);
    assert_eq!((left, woken(&mut second)), (RespValue::Integer(0), 102));
}

async fn a_lease_that_is_handed_on_wakes_no_waiter() {
    let master = Master::with_a_lease();
    let (mut first, _) = master.subscribed(1);
    assert_eq!(master.look(1), (1, 0));
    assert_eq!(master.release("0"), 1 + 1, "it is counted");
    done(&master.0, 1, &format!("PUBLISH redquorum:wake:{:016x} {:016x}", 1, 7));
    assert_eq!(woken(&mut first), 7, "nothing was sent before");
}
