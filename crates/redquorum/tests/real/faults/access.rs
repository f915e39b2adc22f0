//! Passwords and ACLs: which permissions are needed, which error names a missing one, and that no
//! message contains a secret.

use std::fmt::{Debug, Display};
use std::future::IntoFuture;
use std::time::Duration;

use redquorum::{AcquireError, Outcome, Redlock, stats::LinkState};
use redquorum_rig::{Masters, trials::Case};

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_password_that_is_given_opens_the_masters,
        a_missing_password_is_told_by_every_master,
        a_wrong_password_is_told_by_every_master,
        a_planted_password_is_told_nowhere,
        the_minimal_acl_is_enough_for_everything,
        a_command_that_is_forbidden_is_told_by_its_master,
        the_optional_permissions_are_optional,
        where_queues_are_forbidden_leases_are_granted_and_given_back_all_the_same,
    ]
}

/// The least permissions of a lock, with the keys of its prefix.
pub(super) const MINIMAL_ACL: &str =
    "resetkeys ~lock:* -@all +set +get +del +pttl +pexpire +evalsha +script|load";

/// Also needed: for all results of `health()`, to detect two addresses of one server, to kill its
/// old connections, and for a database other than 0.
const FULL_ACL: &str = "~redquorum:probe +info +client|id +client|kill +select";

const PASSWORD: &str = "hunter2 & more";

/// The password as in a URL.
const ENCODED: &str = "hunter2%20%26%20more";

fn guarded() -> Masters {
    Masters::builder().count(3).password(PASSWORD).start().unwrap()
}

/// The reason why master 1 is not connected.
fn why_down(lock: &Redlock) -> String {
    match &lock.stats().masters[0].state {
        LinkState::Down(why) => why.to_string(),
        other => panic!("{other:?}"),
    }
}

async fn a_password_that_is_given_opens_the_masters() {
    let masters = guarded();
    let with_user = masters.urls().into_iter().map(|url| url.replace("://:", "://default:"));
    let clients = masters.urls().into_iter().map(|url| redis::Client::open(url).unwrap());
    let builders = [
        calm(&masters),
        Redlock::builder().masters(with_user).node_timeout(CALM),
        clients
            .fold(Redlock::builder().node_timeout(CALM), |builder, client| builder.master(&client)),
    ];
    for builder in builders {
        let lock = built(builder.require_quorum(true)).await;
        let lease = lock.acquire("r").await.unwrap();
        lease.extend().await.unwrap();
        assert_eq!(lease.release().await.outcome, Outcome::Released);
    }
    cleaned(&masters, "r").await;
}

async fn a_missing_password_is_told_by_every_master() {
    let masters = guarded();
    let urls = all(&masters).map(|node| format!("redis://127.0.0.1:{}", masters.port(node)));
    let lock = built(Redlock::builder().masters(urls).node_timeout(CALM)).await;
    let (took, result) = timed(lock.try_acquire("r")).await;
    let error = result.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }) && took < AT_ONCE, "{error}");
    assert_eq!(error.to_string().matches("a password is needed: NOAUTH").count(), 3, "{error}");
    assert!(why_down(&lock).contains("NOAUTH"));
}

async fn a_wrong_password_is_told_by_every_master() {
    let masters = guarded();
    let urls = masters.urls().into_iter().map(|url| url.replace(ENCODED, "wrong"));
    let builder = Redlock::builder().masters(urls).node_timeout(CALM);
    let error = builder.require_quorum(true).build().await.unwrap_err().to_string();
    assert_eq!(error.matches("wrong user or password: WRONGPASS").count(), 3, "{error}");
    assert!(error.starts_with("no quorum of masters is reachable: "), "{error}");
}

/// All messages of the library.
#[derive(Default)]
struct Told(Vec<String>);

impl Told {
    fn debug(&mut self, what: &impl Debug) {
        self.0.extend([format!("{what:?}"), format!("{what:#?}")]);
    }

    fn say(&mut self, what: &(impl Debug + Display)) {
        self.debug(what);
        self.0.push(what.to_string());
    }
}

async fn a_planted_password_is_told_nowhere() {
    let masters = guarded();
    let mut told = Told::default();
    // The right password for another user, a wrong password, and a secret in the wrong place.
    let twisted = [
        masters.url(1),
        masters.url(2).replace("://:", "://nobody:"),
        masters.url(3).replace(ENCODED, "hunter2-wrong"),
    ];
    let builder = Redlock::builder().masters(&twisted).node_timeout(CALM);
    told.debug(&builder);
    let lock = builder.build().await.unwrap();
    told.debug(&(&lock, lock.stats()));
    told.say(&lock.health().await);
    told.say(&lock.try_acquire("r").await.unwrap_err());
    told.say(&lock.acquire("r").wait(Duration::ZERO).await.unwrap_err());
    told.say(&Redlock::builder().masters(&twisted).require_quorum(true).build().await.unwrap_err());
    let twice = [masters.url(1), masters.url(2), masters.url(1)];
    told.say(&Redlock::builder().masters(twice).build().await.unwrap_err());
    for bad in ["redis://:hunter2@127.0.0.1:port", "http://:hunter2@db", "redis://hunter2@db/x"] {
        told.say(&Redlock::builder().master(bad).build().await.unwrap_err());
    }
    let lock = built(calm(&masters)).await;
    let lease = lock.acquire("r").await.unwrap();
    told.debug(&(&lock, &lease, lock.stats(), lease.deadline()));
    told.say(lease.report());
    told.say(&lock.health().await);
    told.say(&lock.acquire("r").wait(Duration::ZERO).await.unwrap_err());
    delete(&masters, 1..=3, "r");
    told.say(&lease.extend().await.unwrap_err());
    let lost = lock.acquire("lost").await.unwrap();
    all(&masters).for_each(|node| masters.kill(node).unwrap());
    let down = |state: &LinkState| matches!(state, LinkState::Down(_));
    eventually("it is noticed", || lock.stats().masters.iter().all(|m| down(&m.state))).await;
    told.say(&lock.try_acquire("s").await.unwrap_err());
    told.say(&lost.extend().await.unwrap_err());
    let released = lease.release().await;
    told.debug(&released);
    told.say(&released.report);
    told.say(&lock.shutdown(MS).await.unwrap_err());
    assert!(told.0.len() > 40 && told.0.iter().all(|text| !text.is_empty()));
    assert!(told.0.iter().any(|text| text.contains("WRONGPASS")), "the report tells something");
    for text in &told.0 {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

/// Masters with a user that has these permissions, and a lock that logs in as that user.
pub(super) async fn with_user(acl: &str, database: u32) -> (Masters, Redlock) {
    let masters = own(3);
    all(&masters)
        .for_each(|node| done(&masters, node, &format!("ACL SETUSER locker on >pw {acl}")));
    let url = |node| format!("redis://locker:pw@127.0.0.1:{}/{database}", masters.port(node));
    let urls: Vec<_> = all(&masters).map(url).collect();
    let builder = Redlock::builder().masters(urls).prefix("lock:").node_timeout(CALM);
    let lock = built(builder.ttl(5 * CALM)).await;
    (masters, lock)
}

/// Uses every kind of command on keys, and returns whether all of them worked.
pub(super) async fn works(lock: &Redlock) -> Result<(), String> {
    let lease = lock.acquire("r").wait(Duration::ZERO).await.map_err(|error| error.to_string())?;
    let rival = lock.try_acquire("r").await.map_err(|error| error.to_string())?;
    assert!(rival.is_none());
    lease.extend_to(10 * CALM).await.map_err(|error| error.to_string())?;
    let released = lease.release().await;
    if released.outcome == Outcome::Released { Ok(()) } else { Err(released.report.to_string()) }
}

async fn the_minimal_acl_is_enough_for_everything() {
    let (masters, lock) = with_user(MINIMAL_ACL, 0).await;
    works(&lock).await.unwrap();
    cleaned(&masters, "lock:*").await;
    let outside = Redlock::builder().masters(
        all(&masters).map(|node| format!("redis://locker:pw@127.0.0.1:{}", masters.port(node))),
    );
    let error = built(outside).await.try_acquire("r").await.unwrap_err().to_string();
    assert!(error.contains("NOPERM"), "keys outside of the prefix are out of reach: {error}");
    let (masters, lock) = with_user(&format!("{MINIMAL_ACL} {FULL_ACL}"), 3).await;
    works(&lock).await.unwrap();
    assert_eq!(lock.health().await.alive, 3);
    drop(masters);
}

async fn a_command_that_is_forbidden_is_told_by_its_master() {
    // Each permission is needed, so the minimal list is minimal.
    let needed = MINIMAL_ACL.split(' ').filter(|word| word.starts_with('+'));
    for word in needed {
        let acl = MINIMAL_ACL.replace(&format!(" {word}"), "");
        let (masters, lock) = with_user(&acl, 0).await;
        let error = works(&lock).await.expect_err(word);
        // The texts of the servers: `KNOWN_ERRORS` of the protocol.
        let wordings = ["no permissions to run", "can't run this command"];
        assert!(wordings.iter().any(|wording| error.contains(wording)), "{word}: {error}");
        drop(masters);
    }
}

async fn the_optional_permissions_are_optional() {
    let (_masters, lock) = with_user(MINIMAL_ACL, 0).await;
    let health = lock.health().await;
    assert_eq!((health.alive, health.usable), (3, 3), "without the key of the probe: {health}");
    let (_masters, lock) = with_user(MINIMAL_ACL, 2).await;
    let why = why_down(&lock);
    assert!(why.starts_with("the database was not selected: NOPERM"), "{why}");
}

async fn where_queues_are_forbidden_leases_are_granted_and_given_back_all_the_same() {
    // Without the keys of the queue; then with its keys, but without the commands of its script.
    let keys = "~redquorum:queue:* ~redquorum:lapse:*";
    for acl in [MINIMAL_ACL, &format!("{MINIMAL_ACL} {keys}")] {
        leases_are_granted_without_a_line(acl).await;
    }
}

async fn leases_are_granted_without_a_line(acl: &str) {
    let (masters, _) = with_user(acl, 0).await;
    let urls: Vec<String> = all(&masters)
        .map(|node| format!("redis://locker:pw@127.0.0.1:{}", masters.port(node)))
        .collect();
    let fair = || Redlock::builder().masters(&urls).prefix("lock:").node_timeout(CALM).fair(true);
    let [one, two] = [built(fair()).await, built(fair()).await];
    let lease = one.acquire("r").await.unwrap();
    let waiter = tokio::spawn(two.acquire("r").wait(CALM).into_future());
    tokio::time::sleep(50 * MS).await;
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    assert_eq!(waiter.await.unwrap().unwrap().release().await.outcome, Outcome::Released);
    cleaned(&masters, "*").await;
}
