//! Connections as services have them: passwords that change, Sentinels that move a master, and
//! servers that are no independent master.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, RwLock};

use redquorum::connect::{Connecting, Connection, Credentials, Node, Sentinel};
use redquorum::stats::LinkState;
use redquorum::{Builder, Outcome, Redlock};
use redquorum_rig::{Masters, trials};
use tokio::time::Instant;

use crate::support::*;

tests! {
    real:
        connections_have_a_name_in_the_list_of_clients,
        a_password_that_changes_is_asked_for_at_each_connect,
        a_planned_failover_behind_a_name_is_followed,
        a_failover_by_sentinels_is_followed,
        a_faulty_sentinel_is_named,
        a_sentinel_that_names_a_dead_host_hides_none_behind_it,
}

/// The connections of this name, as `CLIENT LIST` shows them.
fn named(masters: &Real, node: usize, name: &str) -> Vec<String> {
    let list = masters.ask(node, "CLIENT LIST").unwrap();
    let list = list.text().unwrap();
    let field = format!("name={name}");
    let has = |line: &&str| line.split(' ').any(|it| it == field);
    list.lines().filter(has).map(Into::into).collect()
}

async fn connections_have_a_name_in_the_list_of_clients() {
    let masters = Real::start(1);
    let plain = built(masters.builder()).await;
    let billing = built(masters.builder().client_name("billing")).await;
    for name in ["redquorum", "billing"] {
        let lines = named(&masters, 1, name);
        assert_eq!(lines.len(), 1, "{lines:?}");
        // From Redis 7.2 on the line has these fields.
        if lines[0].contains("lib-name=") {
            assert!(lines[0].contains("lib-name=redquorum lib-ver=0."), "{lines:?}");
        }
    }
    // The next connection has the name, too.
    let id = |lines: &[String]| lines.first().map(|line| line.split(' ').next().map(str::to_owned));
    let first = id(&named(&masters, 1, "billing"));
    masters.done(1, "CLIENT KILL TYPE normal");
    let again = || {
        let lines = named(&masters, 1, "billing");
        lines.len() == 1 && id(&lines) != first
    };
    eventually("it is connected again", again).await;
    assert!(billing.acquire("r").wait(10 * S).await.is_ok());
    drop((plain, billing));
    // A master that refuses the name is used without it.
    let refusing = "~* &* +@all -client +client|id +client|kill";
    let lock = built(masters.user(refusing, 0).client_name("refused")).await;
    assert!(lock.try_acquire("s").await.unwrap().is_some());
    assert_eq!(named(&masters, 1, "refused"), [""; 0]);
}

async fn a_password_that_changes_is_asked_for_at_each_connect() {
    let masters = Real::start(3);
    // Creates the user.
    drop(masters.user("~* &* +@all", 0));
    let latest = Arc::new(RwLock::new("pw"));
    let reader = latest.clone();
    let url = |node| format!("redis://overruled:in-the-url@127.0.0.1:{}", masters.port(node));
    let builder = over(masters.all().map(url)).credentials(move |master| {
        assert!(master.starts_with("127.0.0.1:"), "{master}");
        Credentials::user("locker", *reader.read().unwrap())
    });
    let lock = built(builder.require_quorum(true)).await;
    let lease = lock.acquire("r").await.unwrap();
    masters.done_on(1..=3, "ACL SETUSER locker resetpass >second");
    lease.extend().await.expect("open connections stay logged in");
    masters.done_on(1..=3, "CLIENT KILL USER locker");
    eventually("the old password is refused", || {
        let refused = |node| why_down(&lock, node).is_some_and(|why| why.contains("WRONGPASS"));
        (1..=3).all(refused)
    })
    .await;
    *latest.write().unwrap() = "second";
    up(&lock, 3).await;
    lease.extend().await.expect("the lease outlives the change");
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    let shown = format!("{:?}", Credentials::user("locker", "second"));
    assert!(shown.contains("locker") && !shown.contains("second"), "{shown}");
}

/// A name that leads to one of several ports, as DNS does.
struct Name(Arc<AtomicU16>);

impl Node for Name {
    fn name(&self) -> String {
        "db1".into()
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let address = ("127.0.0.1", self.0.load(Ordering::Relaxed));
            let stream = tokio::net::TcpStream::connect(address).await?;
            Ok(Box::new(stream) as Box<dyn Connection>)
        })
    }
}

async fn a_planned_failover_behind_a_name_is_followed() {
    let servers = Masters::builder().count(2).config("repl-diskless-sync-delay", "0");
    let masters = Real::of(servers);
    let port = Arc::new(AtomicU16::new(masters.port(1)));
    let lock = built(Redlock::builder().node_timeout(CALM).master(Name(port.clone()))).await;
    assert_eq!(lock.acquire("r").await.unwrap().release().await.outcome, Outcome::Released);
    // The old master lives on as a replica, and with it the connection.
    masters.done(1, &format!("REPLICAOF 127.0.0.1 {}", masters.port(2)));
    let refuses = |lock: &Redlock| match &lock.stats().masters[0].state {
        LinkState::Refusing(why) => why.starts_with("READONLY"),
        _ => false,
    };
    let start = Instant::now();
    while !refuses(&lock) {
        let refused = lock.acquire("r").wait(100 * MS).await;
        assert!(refused.is_err() && start.elapsed() < 60 * S, "{refused:?}");
    }
    assert_eq!(lock.health().await.usable, 0);
    port.store(masters.port(2), Ordering::Relaxed);
    up(&lock, 1).await;
    let lease = lock.acquire("r").await.unwrap();
    assert!(masters.value(2, "r").is_some());
    assert_eq!(lease.release().await.outcome, Outcome::Released);
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

async fn a_failover_by_sentinels_is_followed() {
    let servers = Masters::builder().count(4).config("repl-diskless-sync-delay", "0");
    let masters = Real::of(servers);
    masters.done(2, &format!("REPLICAOF 127.0.0.1 {}", masters.port(1)));
    // A promotion kills all connections, and with them the one that asks: it asks again.
    let says = |node, what: &str| {
        let reply = masters.ask(node, "INFO replication");
        reply.is_ok_and(|reply| reply.text().is_some_and(|text| text.contains(what)))
    };
    eventually("the replica has a copy", || says(2, "master_link_status:up")).await;
    let watcher = trials::Sentinel::start("jobs", masters.port(1), None);
    // The first Sentinel is down.
    let sentinels = [format!("redis://127.0.0.1:{}", free_port()), watcher.url()];
    let builder = over([masters.url(3), masters.url(4)]).master(Sentinel::new("jobs", sentinels));
    let lock = built(builder.connect_timeout(2 * S)).await;
    up(&lock, 3).await;
    let lease = lock.acquire("before").await.unwrap();
    eventually("the replica has the key", || masters.holders("before") == [1, 2, 3, 4]).await;
    masters.each(Kill, [1]);
    eventually("the replica is a master", || says(2, "role:master")).await;
    eventually("it connects once more", || lock.stats().masters[2].connected == 2).await;
    up(&lock, 3).await;
    let after = lock.acquire("after").await.unwrap();
    eventually("the new master grants", || masters.value(2, "after").is_some()).await;
    for lease in [lease, after] {
        assert_eq!(lease.release().await.outcome, Outcome::Released);
    }
}

/// Why the master is down that this builder has alone.
async fn why_alone_down(builder: Builder) -> String {
    why_down(&built(builder.node_timeout(CALM)).await, 1).unwrap()
}

async fn a_faulty_sentinel_is_named() {
    let masters = Real::start(2);
    let watcher = trials::Sentinel::start("jobs", masters.port(1), None);
    let by = |service: &str, sentinels: &[String]| {
        Redlock::builder().master(Sentinel::new(service, sentinels))
    };
    let why = why_alone_down(by("jobs", &[masters.url(2)])).await;
    assert!(why.contains(&masters.name(2)) && why.contains("unknown command"), "{why}");
    let why = why_alone_down(by("others", &[watcher.url()])).await;
    assert!(why.contains("it monitors no master named `others`"), "{why}");
    let why = why_alone_down(Redlock::builder().master(watcher.url())).await;
    assert!(why.contains("it is a Sentinel, not a master"), "{why}");
    masters.done(1, &format!("REPLICAOF 127.0.0.1 {}", masters.port(2)));
    let why = why_alone_down(by("jobs", &[watcher.url()])).await;
    assert!(why.contains("it is no master: a failover is under way"), "{why}");
    for (sentinel, fault) in [
        (Sentinel::new("", [watcher.url()]), "has no name"),
        (Sentinel::new("jobs", [""; 0]), "give the URL of at least one"),
        (Sentinel::new("jobs", ["redis://:hunter2@h:port"]), "its port is not a number"),
    ] {
        let error = Redlock::builder().master(sentinel).build().await.unwrap_err().to_string();
        assert!(error.contains(fault) && !error.contains("hunter2"), "{error}");
    }
}

/// A Sentinel that names this address for every master. Returns its URL.
fn naming(port: u16) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let (mut connection, port) = (connection.unwrap(), port.to_string());
            let _ = connection.read(&mut [0; 1024]);
            let reply = format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len());
            let _ = connection.write_all(reply.as_bytes());
        }
    });
    url
}

async fn a_sentinel_that_names_a_dead_host_hides_none_behind_it() {
    let masters = Real::start(1);
    // It accepts connections, as a host does whose process hangs, and the first dials fail there.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = silent.local_addr().unwrap().port();
    let sentinels = [naming(dead), naming(dead), naming(masters.port(1))];
    let builder = Redlock::builder().master(Sentinel::new("jobs", sentinels));
    let lock = built(builder.node_timeout(CALM).connect_timeout(5 * S)).await;
    assert_eq!(lock.health().await.usable, 1, "the first dial found the third Sentinel");
    let asked = || {
        silent.set_nonblocking(true).unwrap();
        silent.incoming().take_while(Result::is_ok).count()
    };
    assert_eq!(asked(), 2);
    masters.done(1, "CLIENT KILL TYPE normal SKIPME yes");
    eventually("it connects once more", || lock.stats().masters[0].connected == 2).await;
    assert_eq!(asked(), 0, "the next dial begins with the one that led to a master");
}
