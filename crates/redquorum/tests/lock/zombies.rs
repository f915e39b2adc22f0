//! Connections that die with commands in them: a master that executes these commands late must not
//! create a key without an owner. The scenario `zombie-set` has more cases.

use std::sync::Arc;

use redquorum::Outcome;
use redquorum_rig::network::{End, MessageFault, Network, Rule, Side};
use tokio::time::{Instant, sleep};

use crate::support::*;

tests! {
    real:
        a_late_set_makes_no_zombie_and_where_killing_is_forbidden_one_for_a_ttl,
}

async fn a_late_set_makes_no_zombie_and_where_killing_is_forbidden_one_for_a_ttl() {
    for forbidden in [false, true] {
        let masters = Real::start(3);
        if forbidden {
            masters.done(1, "ACL SETUSER default -client +client|id");
        }
        let network = Network::start(|_| ()).unwrap();
        network.upstream(1, Some(([127, 0, 0, 1], masters.port(1)).into()));
        let port = network.listen("client", 1).unwrap().port();
        let urls = [format!("redis://127.0.0.1:{port}"), masters.url(2), masters.url(3)];
        let lock = built(over(urls).node_timeout(100 * MS).ttl(S)).await;
        // Holds back the requests of the first connection. Later connections are healthy.
        let hold = network.strike(Rule {
            side: Side::Request,
            matches: Some(Arc::new(|message| message.connection <= 1)),
            ..Rule::all(MessageFault::Hold)
        });
        let lease = lock.acquire("r").await.unwrap();
        sleep(10 * MS).await;
        // The client's side breaks between the SET and its clean-up, which would otherwise arrive
        // late with the SET. The master does not notice it: only the client can make it close the
        // connection.
        network.strike(Rule::all(MessageFault::HalfOpen(End::Client)));
        assert_eq!(lease.release().await.outcome, Outcome::Released);
        recovered(&lock).await;
        assert!(masters.holders("r").is_empty());
        let late = Instant::now();
        network.heal(hold);
        if !forbidden {
            sleep(100 * MS).await;
            assert_eq!(masters.holders("r"), Vec::<usize>::new(), "a zombie");
            continue;
        }
        // This is the documented price, and the control of this test: it sees a zombie.
        eventually("a zombie", || masters.holders("r") == [1]).await;
        assert!((1..=1000).contains(&masters.pttl(1, "r")));
        // The zombie blocks no client on the other two masters, and does not count as a vote.
        let lease = lock.try_acquire("r").await.unwrap().expect("two masters are free");
        assert_eq!(lease.release().await.outcome, Outcome::Released);
        eventually("it expires", || masters.holders("r").is_empty()).await;
        assert!(late.elapsed() < S + AT_ONCE);
        tidied(&lock).await;
    }
}
