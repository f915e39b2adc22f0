//! TLS to real `redis-server`s, with certificates made for each test: which servers and clients are
//! trusted, and which errors report the others. The installed server must be built with TLS.

use std::net::TcpListener;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use redquorum::{AcquireError, BuildError, Builder, Outcome, Redlock};
use redquorum_rig::Masters;
use redquorum_rig::trials::Case;
use tokio::time::Instant;

use crate::support::MS;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        real:
            leases_are_granted_extended_and_released_over_tls,
            a_server_without_a_known_authority_is_not_trusted,
            a_server_with_another_name_or_an_old_certificate_is_not_trusted,
            an_address_is_a_name_where_the_certificate_has_it,
            a_server_that_requests_a_certificate_gets_the_configured_certificate,
            the_wrong_kind_of_port_is_an_error_and_no_hang,
            a_server_that_never_sends_a_hello_is_given_up_in_time,
            certificates_that_are_none_name_their_option_and_show_no_key,
            trusting_any_certificate_is_refused,
    ]
}

/// A certificate authority of a test.
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
    let authority = Authority::new();
    let server = authority.server("localhost");
    let masters: Vec<_> = (0..3).map(|_| Master::start(&server, None)).collect();
    let urls = masters.iter().map(|master| master.url("localhost"));
    let builder = Redlock::builder().masters(urls).tls_ca(authority.pem()).require_quorum(true);
    let lock = quick(builder).build().await.unwrap();
    // More than one TLS record, and more than a socket's buffer.
    for resource in [vec![b'r'], vec![b'x'; 1 << 20]] {
        let lease = lock.acquire(&resource).await.unwrap();
        lease.extend().await.unwrap();
        assert!(lock.try_acquire(&resource).await.unwrap().is_none());
        let released = lease.release().await;
        assert_eq!(released.outcome, Outcome::Released, "{}", released.report);
    }
    lock.shutdown(1_000 * MS).await.unwrap();
    for master in &masters {
        let left = master.masters.ask(1, "DBSIZE").unwrap();
        assert_eq!(format!("{left:?}"), "Integer(0)");
    }
}

async fn a_server_without_a_known_authority_is_not_trusted() {
    let (authority, other) = (Authority::new(), Authority::new());
    let master = Master::start(&authority.server("localhost"), None);
    let url = master.url("localhost");
    // Trust in another authority, and in those of the operating system.
    let error = refused(Redlock::builder().master(&url).tls_ca(other.pem())).await;
    assert!(error.contains("invalid peer certificate"), "{error}");
    match quick(Redlock::builder().master(&url)).build().await {
        Ok(_) => {
            let error = refused(Redlock::builder().master(&url)).await;
            assert!(error.contains("invalid peer certificate: UnknownIssuer"), "{error}");
        }
        Err(error) => assert!(error.to_string().contains("`tls_ca`"), "{error}"),
    }
}

async fn a_server_with_another_name_or_an_old_certificate_is_not_trusted() {
    let authority = Authority::new();
    let named = Master::start(&authority.server("other.example"), None);
    let url = named.url("localhost");
    let error = refused(Redlock::builder().master(url).tls_ca(authority.pem())).await;
    assert!(error.contains("not valid for name"), "{error}");
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    let old = Master::start(&authority.sign(params), None);
    let url = old.url("localhost");
    let error = refused(Redlock::builder().master(url).tls_ca(authority.pem())).await;
    assert!(error.contains("expired"), "{error}");
}

async fn an_address_is_a_name_where_the_certificate_has_it() {
    let authority = Authority::new();
    let master = Master::start(&authority.server("127.0.0.1"), None);
    let builder = Redlock::builder().master(master.url("127.0.0.1")).tls_ca(authority.pem());
    let lock = quick(builder).require_quorum(true).build().await.unwrap();
    assert!(lock.try_acquire("r").await.unwrap().is_some());
}

async fn a_server_that_requests_a_certificate_gets_the_configured_certificate() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let master = Master::start(&authority.server("localhost"), Some(&clients));
    let builder = || Redlock::builder().master(master.url("localhost")).tls_ca(authority.pem());
    let me = clients.server("a client");
    let known = quick(builder().tls_identity(&me.chain, &me.key)).require_quorum(true);
    let lock = known.build().await.unwrap();
    assert!(lock.try_acquire("r").await.unwrap().is_some());
    let error = refused(builder()).await;
    assert!(error.contains("received fatal alert: "), "{error}");
    let stranger = Authority::new().server("a stranger");
    let error = refused(builder().tls_identity(stranger.chain, stranger.key)).await;
    assert!(error.contains("received fatal alert: "), "{error}");
}

async fn the_wrong_kind_of_port_is_an_error_and_no_hang() {
    let authority = Authority::new();
    let master = Master::start(&authority.server("localhost"), None);
    let plain = format!("rediss://:hunter2@localhost:{}", master.masters.port(1));
    let error = refused(Redlock::builder().master(plain).tls_ca(authority.pem())).await;
    assert!(error.contains("not connected"), "{error}");
    let secure = format!("redis://:hunter2@localhost:{}", master.port);
    let error = refused(Redlock::builder().master(secure)).await;
    assert!(error.contains("not connected"), "{error}");
}

async fn a_server_that_never_sends_a_hello_is_given_up_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rediss://:hunter2@{}", listener.local_addr().unwrap());
    let error = refused(Redlock::builder().master(url).tls_ca(Authority::new().pem())).await;
    assert!(error.contains("no connection within the connect timeout (500ms)"), "{error}");
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
