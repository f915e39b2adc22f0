//! TLS to real `redis-server`s, with certificates made for each test: which servers and clients are
//! trusted, and which errors report the others. The installed server must be built with TLS.

use std::net::TcpListener;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use redquorum::{AcquireError, BuildError, Builder, Outcome, Redlock};
use redquorum_rig::Masters;
use tokio::time::Instant;

use crate::support::MS;

tests! {
    real:
        leases_are_granted_extended_and_released_over_tls,
        servers_and_clients_that_are_not_trusted_get_an_error_in_time,
        certificates_that_are_none_name_their_option_and_show_no_key,
        trusting_any_certificate_is_refused,
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
