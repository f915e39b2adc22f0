//! TLS to real `redis-server`s, with certificates made for each test: which servers and clients are
//! trusted, and which errors report the others. The installed server must be built with TLS.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, RwLock};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use redquorum::connect::rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types};
use redquorum::connect::{Certificates, Hello, Sentinel};
use redquorum::{AcquireError, BuildError, Builder, Outcome, Redlock};
use redquorum_rig::{Masters, find_server};
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

struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM text.
struct Identity {
    chain: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // A name of its own: a certificate that it signs for the same name would look
        // self-signed.
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.0).unwrap().pem();
        Identity { chain, key: key.serialize_pem() }
    }

    fn server(&self, name: &str) -> Identity {
        self.sign(CertificateParams::new([name.to_owned()]).unwrap())
    }
}

/// A master that listens for TLS on a port of its own.
struct Master {
    // Dropped before its directory is removed.
    masters: Masters,
    port: u16,
    _files: Files,
}

struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        // Best effort: a directory that stays is in the target directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Master {
    fn start(server: &Identity, clients: Option<&Authority>) -> Self {
        // Another process may take the port between its choice and its use.
        let mut tries = (0..5).map(|_| Self::try_start(server, clients));
        tries.find_map(Result::ok).expect("a server with TLS")
    }

    fn try_start(
        server: &Identity,
        clients: Option<&Authority>,
    ) -> Result<Self, redquorum_rig::RigError> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = format!("{}/tls-{}-{port}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
        std::fs::create_dir_all(&dir).unwrap();
        let files = Files(dir.clone().into());
        let write = |name: &str, text: &str| {
            let path = format!("{dir}/{name}");
            std::fs::write(&path, text).unwrap();
            path
        };
        let authority = clients.map_or_else(|| Authority::new().pem(), Authority::pem);
        let masters = Masters::builder()
            .count(1)
            .config("tls-port", &port.to_string())
            .config("tls-cert-file", &write("chain.pem", &server.chain))
            .config("tls-key-file", &write("key.pem", &server.key))
            .config("tls-ca-cert-file", &write("ca.pem", &authority))
            .config("tls-auth-clients", if clients.is_some() { "yes" } else { "no" })
            .password("hunter2")
            .start()?;
        Ok(Self { masters, port, _files: files })
    }

    fn url(&self, host: &str) -> String {
        format!("rediss://:hunter2@{host}:{}", self.port)
    }
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
    let me = clients.server("a client");
    // One certificate has an address in place of a name. One server requests a certificate.
    let masters = [("localhost", None), ("127.0.0.1", None), ("localhost", Some(&clients))]
        .map(|(host, clients)| (Master::start(&authority.server(host), clients), host));
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
    let master = start(&authority.server("localhost"));
    let named = start(&authority.server("other.example"));
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    let old = start(&authority.sign(params));
    let strict = Master::start(&authority.server("localhost"), Some(&clients));
    let stranger = Authority::new().server("a stranger");
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
    let me = authority.server("me");
    let other = authority.server("other");
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
    let master = Master::start(&authority.server("localhost"), Some(&clients));
    let trusting =
        |ca: &str, id: &Identity| Certificates::new().ca(ca).identity(&id.chain, &id.key);
    let good = trusting(&authority.pem(), &clients.server("me"));
    let stranger = trusting(&authority.pem(), &Authority::new().server("me"));
    let other_authority = trusting(&clients.pem(), &clients.server("me"));
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
    let master = Master::start(&authority.server("localhost"), None);
    let configured = |trusted: &Authority| {
        let mut roots = RootCertStore::empty();
        roots.add(pki_types::CertificateDer::from(trusted.0.der().to_vec())).unwrap();
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

/// A Sentinel that listens for TLS only, and monitors a master under the name `jobs`.
struct Watcher {
    process: Child,
    port: u16,
    _files: Files,
}

impl Watcher {
    async fn start(server: &Identity, master: &Master) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = format!("{}/tls-sentinel-{port}", env!("CARGO_TARGET_TMPDIR"));
        std::fs::create_dir_all(&dir).unwrap();
        let config = format!(
            "port 0\nbind 127.0.0.1\ntls-port {port}\ntls-auth-clients no\n\
             tls-cert-file {dir}/chain.pem\ntls-key-file {dir}/key.pem\n\
             tls-ca-cert-file {dir}/chain.pem\nsentinel monitor jobs 127.0.0.1 {} 1\n",
            master.port
        );
        for (file, text) in
            [("chain.pem", &server.chain), ("key.pem", &server.key), ("sentinel.conf", &config)]
        {
            std::fs::write(format!("{dir}/{file}"), text).unwrap();
        }
        let mut command = Command::new(find_server().unwrap().path());
        command.args(["sentinel.conf", "--sentinel"]).current_dir(&dir).stdout(Stdio::null());
        let process = command.spawn().expect("a Sentinel");
        let watcher = Self { process, port, _files: Files(dir.into()) };
        eventually("the Sentinel listens", || TcpStream::connect(("127.0.0.1", port)).is_ok())
            .await;
        watcher
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Best effort: it may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn a_master_that_a_sentinel_names_by_address_has_a_name_in_its_certificate() {
    let authority = Authority::new();
    let master = Master::start(&authority.server("jobs.example"), None);
    let watcher = Watcher::start(&authority.server("localhost"), &master).await;
    let login = Hello { password: Some("hunter2".into()), ..Hello::default() };
    let by = |name: Option<&str>| {
        let sentinel = Sentinel::new("jobs", [format!("rediss://localhost:{}", watcher.port)]);
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
