//! TLS to real `redis-server`s, with certificates made for each test: which servers and clients are
//! trusted, and which errors report the others. The installed server must be built with TLS.

use std::net::TcpListener;
use std::sync::{Arc, RwLock};

use redquorum::connect::rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types};
use redquorum::connect::{Certificates, Hello, Sentinel};
use redquorum::{AcquireError, BuildError, Builder, Outcome, Redlock};
use redquorum_rig::trials;
use redquorum_rig::trials::tls::{Authority, Identity, TlsMaster as Master};
use tokio::time::Instant;

use crate::support::{MS, S, eventually, up, why_down};

tests! {
    real:
        leases_are_granted_extended_and_released_over_tls,
        servers_and_clients_that_are_not_trusted_get_an_error_in_time,
        certificates_that_are_none_name_their_option_and_show_no_key,
        trusting_any_certificate_is_refused,
        renewed_certificates_reach_a_lock_that_runs,
        a_caller_may_bring_a_configuration_of_its_own,
        a_master_that_a_sentinel_names_by_address_has_a_name_in_its_certificate,
}

fn quick(builder: Builder) -> Builder {
    builder.connect_timeout(500 * MS).node_timeout(200 * MS)
}

/// The error of a lock that reaches no master. Checks that it comes in time and shows no
/// password.
async fn refused(builder: Builder) -> String {
    let start = Instant::now();
    let lock = quick(builder).build().await.unwrap();
    let error = lock.try_acquire("r").await.unwrap_err();
    assert!(start.elapsed() < 1_000 * MS, "{:?}", start.elapsed());
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    assert!(!format!("{error} {error:?} {lock:?}").contains("hunter2"), "{error}");
    error.to_string()
}

async fn leases_are_granted_extended_and_released_over_tls() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let me = clients.identity("a client");
    // One certificate has an address in place of a name. One server requests a certificate.
    let masters = [("localhost", None), ("127.0.0.1", None), ("localhost", Some(&clients))]
        .map(|(host, clients)| (Master::start(&authority.identity(host), clients), host));
    let urls = masters.iter().map(|(master, host)| master.url(host));
    let builder = Redlock::builder().masters(urls).tls_ca(authority.pem());
    let lock = quick(builder.tls_identity(&me.chain, &me.key)).build().await.unwrap();
    assert_eq!(lock.health().await.usable, 3);
    // More than one TLS record, and more than a socket's buffer.
    for resource in [vec![b'r'], vec![b'x'; 1 << 20]] {
        let lease = lock.acquire(&resource).await.unwrap();
        lease.extend().await.unwrap();
        assert!(lock.try_acquire(&resource).await.unwrap().is_none());
        let released = lease.release().await;
        assert_eq!(released.outcome, Outcome::Released, "{}", released.report);
    }
    lock.shutdown(1_000 * MS).await.unwrap();
    for (master, _) in &masters {
        let left = master.masters.ask(1, "DBSIZE").unwrap();
        assert_eq!(format!("{left:?}"), "Integer(0)");
    }
}

async fn servers_and_clients_that_are_not_trusted_get_an_error_in_time() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let start = |identity: &Identity| Master::start(identity, None);
    let master = start(&authority.identity("localhost"));
    let named = start(&authority.identity("other.example"));
    let old = start(&authority.expired("localhost"));
    let strict = Master::start(&authority.identity("localhost"), Some(&clients));
    let stranger = Authority::new().identity("a stranger");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = format!("rediss://:hunter2@{}", silent.local_addr().unwrap());
    let plain_url = format!("rediss://:hunter2@localhost:{}", master.masters.port(1));
    let secure_url = format!("redis://:hunter2@localhost:{}", master.port);
    let url = |master: &Master| master.url("localhost");
    let by = |url: String| Redlock::builder().master(url).tls_ca(authority.pem());
    let unknown = Redlock::builder().master(url(&master)).tls_ca(clients.pem());
    for (builder, words) in [
        (unknown, "invalid peer certificate"),
        (by(url(&named)), "not valid for name"),
        (by(url(&old)), "expired"),
        (by(url(&strict)), "received fatal alert: "),
        (by(url(&strict)).tls_identity(stranger.chain, stranger.key), "received fatal alert: "),
        (by(plain_url), "not connected"),
        (Redlock::builder().master(secure_url), "not connected"),
        (by(silent_url), "no connection within the connect timeout (500ms)"),
    ] {
        let error = refused(builder).await;
        assert!(error.contains(words), "{words}: {error}");
    }
    // Trust in the authorities of the operating system.
    match quick(Redlock::builder().master(url(&master))).build().await {
        Ok(_) => {
            let error = refused(Redlock::builder().master(url(&master))).await;
            assert!(error.contains("invalid peer certificate: UnknownIssuer"), "{error}");
        }
        Err(error) => assert!(error.to_string().contains("`tls_ca`"), "{error}"),
    }
}

async fn certificates_that_are_none_name_their_option_and_show_no_key() {
    let authority = Authority::new();
    let me = authority.identity("me");
    let other = authority.identity("other");
    let empty = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n";
    let builder = || Redlock::builder().master("rediss://:hunter2@db1");
    let cases = [
        (builder().tls_ca(""), "`tls_ca` holds no PEM certificate"),
        (builder().tls_ca("nonsense"), "`tls_ca` holds no PEM certificate"),
        (builder().tls_ca(&me.key), "`tls_ca` holds no PEM certificate"),
        (builder().tls_ca(empty), "`tls_ca`"),
        (builder().tls_ca(authority.pem()).tls_identity("", &me.key), "`tls_identity`"),
        (builder().tls_ca(authority.pem()).tls_identity(&me.chain, ""), "`tls_identity`"),
        (builder().tls_ca(authority.pem()).tls_identity(&me.key, &me.chain), "`tls_identity`"),
        (builder().tls_ca(authority.pem()).tls_identity(me.chain, other.key), "`tls_identity`"),
    ];
    for (builder, words) in cases {
        let error = builder.build().await.unwrap_err();
        assert!(matches!(error, BuildError::Tls(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with("certificates: ") && text.contains(words), "{text}");
        assert!(!format!("{text} {error:?}").contains("PRIVATE"), "{text}");
    }
}

async fn trusting_any_certificate_is_refused() {
    for url in ["rediss://:hunter2@db1/#insecure", "rediss://:hunter2@db1#insecure"] {
        let error = Redlock::builder().master(url).build().await.unwrap_err().to_string();
        assert!(error.contains("#insecure is not supported"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

async fn renewed_certificates_reach_a_lock_that_runs() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let master = Master::start(&authority.identity("localhost"), Some(&clients));
    let trusting =
        |ca: &str, id: &Identity| Certificates::new().ca(ca).identity(&id.chain, &id.key);
    let good = trusting(&authority.pem(), &clients.identity("me"));
    let stranger = trusting(&authority.pem(), &Authority::new().identity("me"));
    let other_authority = trusting(&clients.pem(), &clients.identity("me"));
    let latest = Arc::new(RwLock::new(stranger.clone()));
    let (reader, url) = (latest.clone(), master.url("localhost"));
    let name = format!("localhost:{}", master.port);
    let builder = Redlock::builder().master(&url).certificates(move |master| {
        assert_eq!(master, name);
        reader.read().unwrap().clone()
    });
    let lock = quick(builder.connect_timeout(2 * S)).build().await.unwrap();
    let refused = async |certificates: &Certificates, why: &str| {
        *latest.write().unwrap() = certificates.clone();
        master.masters.ask(1, "CLIENT KILL TYPE normal SKIPME yes").unwrap();
        let is_refused = || why_down(&lock, 1).is_some_and(|reason| reason.contains(why));
        eventually(why, is_refused).await;
    };
    let trusted = async || {
        *latest.write().unwrap() = good.clone();
        up(&lock, 1).await;
        let lease = lock.acquire("r").await.unwrap();
        assert_eq!(lease.release().await.outcome, Outcome::Released);
    };
    refused(&stranger, "received fatal alert: ").await;
    trusted().await;
    refused(&other_authority, "invalid peer certificate").await;
    trusted().await;
    // The files are being written.
    refused(&Certificates::new().ca(""), "`Certificates::ca` holds no PEM certificate").await;
    trusted().await;
    let shown = format!("{good:?}");
    assert!(!shown.contains("PRIVATE") && !shown.contains("45, 45"), "{shown}");
    let unusable = Redlock::builder().master(&url).certificates(|_| Certificates::new().ca(""));
    let error = unusable.build().await.unwrap_err();
    assert!(
        matches!(&error, BuildError::Tls(why) if why.contains("`Certificates::ca`")),
        "{error}"
    );
}

async fn a_caller_may_bring_a_configuration_of_its_own() {
    let authority = Authority::new();
    let master = Master::start(&authority.identity("localhost"), None);
    let configured = |trusted: &Authority| {
        let mut roots = RootCertStore::empty();
        roots.add(pki_types::CertificateDer::from(trusted.der())).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Redlock::builder().master(master.url("localhost")).tls_config(config)
    };
    let lock = quick(configured(&authority)).build().await.unwrap();
    let lease = lock.acquire("r").await.unwrap();
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    let error = refused(configured(&Authority::new())).await;
    assert!(error.contains("invalid peer certificate"), "{error}");
}

async fn a_master_that_a_sentinel_names_by_address_has_a_name_in_its_certificate() {
    let authority = Authority::new();
    let master = Master::start(&authority.identity("jobs.example"), None);
    let identity = authority.identity("localhost");
    let watcher = trials::Sentinel::start("jobs", master.port, Some(&identity));
    let login = Hello { password: Some("hunter2".into()), ..Hello::default() };
    let by = |name: Option<&str>| {
        let sentinel = Sentinel::new("jobs", [format!("rediss://localhost:{}", watcher.port())]);
        let sentinel = sentinel.login(login.clone());
        let sentinel = match name {
            Some(name) => sentinel.tls_server_name(name),
            None => sentinel,
        };
        Redlock::builder().master(sentinel).tls_ca(authority.pem())
    };
    let lock = by(Some("jobs.example")).connect_timeout(5 * S).build().await.unwrap();
    assert_eq!(lock.health().await.usable, 1, "{:?}", why_down(&lock, 1));
    for name in [None, Some("other.example")] {
        let error = refused(by(name)).await;
        assert!(error.contains("not valid for name"), "{error}");
    }
    let error = by(Some("no name")).build().await.unwrap_err().to_string();
    assert!(error.contains("`tls_server_name`"), "{error}");
}
