//! Endpoint: the node behind a Redis URL or a `redis::Client`.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use tokio::net::TcpStream;

use crate::lookup::Lookups;
use crate::node::{Connecting, Connection, Hello, Node};
use crate::tcp::{self, LastTried};

#[derive(Clone)]
pub(crate) struct Endpoint {
    address: Address,
    hello: Hello,
    settings: Settings,
    last_tried: Arc<LastTried<SocketAddr>>,
    /// The name that the certificate must have, if that is not the host.
    #[cfg(feature = "tls")]
    server_name: Option<Arc<str>>,
}

#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) limit: Duration,
    pub(crate) lookups: Lookups,
    /// The certificates, where there are some.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::tls::Tls>,
    /// Replaces the user and password of URLs.
    pub(crate) credentials: Option<CredentialsOf>,
}

pub(crate) type CredentialsOf = Arc<dyn Fn(&str) -> Credentials + Send + Sync>;

impl Settings {
    pub(crate) fn log_in(&self, given: &Hello, name: impl FnOnce() -> String) -> Hello {
        let Some(credentials) = &self.credentials else { return given.clone() };
        let Credentials { username, password } = credentials(&name());
        Hello { username, password: Some(password), database: given.database }
    }
}

/// A user and a password, for [`Builder::credentials`](crate::Builder::credentials). `Debug` shows
/// no password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    username: Option<String>,
    password: String,
}

impl Credentials {
    /// The password of the default user.
    pub fn password(password: impl Into<String>) -> Self {
        Self { username: None, password: password.into() }
    }

    /// A user of an access control list, and the user's password.
    pub fn user(name: impl Into<String>, password: impl Into<String>) -> Self {
        Self { username: Some(name.into()), password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

#[derive(Clone)]
enum Address {
    /// The host, the port, and whether to use TLS.
    Tcp(String, u16, bool),
    #[cfg(unix)]
    Unix(std::path::PathBuf),
}

/// Why a URL or client cannot be used. It never repeats the URL, which may contain a password.
#[derive(Clone, PartialEq, Eq)]
pub struct BadUrl(pub(crate) String);

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::error::Error for BadUrl {}

impl Endpoint {
    pub(crate) fn from_url(url: &str) -> Result<Self, BadUrl> {
        let scheme = url.split_once("://").map(|(scheme, rest)| (scheme.to_lowercase(), rest));
        match scheme {
            Some((scheme, rest)) if scheme == "rediss" || scheme == "valkeys" => secure(rest),
            _ => Self::parse(url),
        }
    }

    fn parse(url: &str) -> Result<Self, BadUrl> {
        if is_list(url) {
            // Some lists would parse as a host with a strange name.
            return Err(BadUrl("several URLs in one: give each master a URL of its own".into()));
        }
        match url.into_connection_info() {
            Ok(info) => Self::from_info(&info),
            Err(_) => Err(BadUrl(format!(
                "not a Redis URL: {}; write \
                 redis://[[user]:password@]host[:port][/database], rediss://… or unix:///path",
                fault(url)
            ))),
        }
    }

    pub(crate) fn from_info(info: &ConnectionInfo) -> Result<Self, BadUrl> {
        let redis = info.redis_settings();
        let database = u32::try_from(redis.db())
            .map_err(|_| BadUrl(format!("database {} is not a number Redis knows", redis.db())))?;
        let hello = Hello {
            username: redis.username().map(Into::into),
            password: redis.password().map(Into::into),
            database,
        };
        if hello.username.is_some() && hello.password.is_none() {
            return Err(BadUrl("a user without a password: write user:password@host".into()));
        }
        let address = match info.addr() {
            ConnectionAddr::Tcp(_, 0) => return Err(BadUrl(BAD_PORT.into())),
            ConnectionAddr::Tcp(host, port) => Address::Tcp(host.clone(), *port, false),
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { insecure: true, .. } => return Err(insecure()),
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { tls_params: Some(_), .. } => {
                return Err(BadUrl(
                    "certificates inside a redis::Client cannot be read from it: give the URL, \
                     and the certificates to `tls_ca` and `tls_identity`"
                        .into(),
                ));
            }
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { host, port, .. } => Address::Tcp(host.clone(), *port, true),
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => Address::Unix(path.clone()),
            _ => return Err(BadUrl("this kind of address is not supported here".into())),
        };
        Ok(Self::new(address, hello, Settings::default()))
    }

    fn new(address: Address, hello: Hello, settings: Settings) -> Self {
        Self {
            address,
            hello,
            settings,
            last_tried: Arc::default(),
            #[cfg(feature = "tls")]
            server_name: None,
        }
    }

    /// Expects this name in the certificate, and not the host.
    #[cfg(feature = "tls")]
    pub(crate) fn with_server_name(mut self, name: Option<Arc<str>>) -> Self {
        self.server_name = name;
        self
    }

    pub(crate) fn with_settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Another address, to connect to in the same way.
    pub(crate) fn at(&self, host: String, port: u16) -> Self {
        let address = Address::Tcp(host, port, self.is_tls());
        Self::new(address, Hello::default(), self.settings.clone())
    }

    pub(crate) const fn is_tls(&self) -> bool {
        matches!(self.address, Address::Tcp(.., true))
    }

    async fn open(&self) -> io::Result<Box<dyn Connection>> {
        match &self.address {
            Address::Tcp(host, port, _) => self.open_tcp(host, *port).await,
            #[cfg(unix)]
            Address::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
        }
    }

    /// Connects to the first address of the host that works, TLS included. It keeps no address from
    /// an earlier connect, since a name may have moved, but begins with the one that worked.
    async fn open_tcp(&self, host: &str, port: u16) -> io::Result<Box<dyn Connection>> {
        let Settings { limit, lookups, .. } = &self.settings;
        let mut addresses = lookups.addresses(host, port).await?;
        self.last_tried.rotate(&mut addresses);
        let tries = addresses.into_iter().map(|address| {
            let (endpoint, host) = (self.clone(), host.to_owned());
            async move {
                let stream = tcp::open(address).await?;
                endpoint.last_tried.tried(address);
                let secured = endpoint.secured(&host, stream).await;
                if secured.is_ok() {
                    endpoint.last_tried.tried(address);
                }
                secured
            }
        });
        tcp::first(tries, *limit).await.map_err(|errors: Vec<io::Error>| {
            let none = || io::Error::new(io::ErrorKind::NotFound, "the host has no address");
            errors.into_iter().next_back().unwrap_or_else(none)
        })
    }

    #[cfg_attr(
        not(feature = "tls"),
        expect(clippy::unused_async, reason = "only the handshake of TLS waits")
    )]
    async fn secured(&self, host: &str, stream: TcpStream) -> io::Result<Box<dyn Connection>> {
        #[cfg(feature = "tls")]
        if self.is_tls() {
            let Some(tls) = &self.settings.tls else {
                unreachable!("the builder gives every TLS endpoint its certificates")
            };
            let server_name = self.server_name.as_deref().unwrap_or(host);
            return Ok(Box::new(tls.connect(&self.name(), server_name, stream).await?));
        }
        #[cfg(not(feature = "tls"))]
        let _ = host;
        Ok(Box::new(stream))
    }
}

/// The parts of a URL: its scheme, the text from there to the first `/`, `?` or `#`, and the rest.
fn parts(url: &str) -> Option<(String, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    Some((scheme.to_lowercase(), authority, rest))
}

fn address(authority: &str) -> &str {
    authority.rsplit_once('@').map_or(authority, |(_, address)| address)
}

fn is_list(url: &str) -> bool {
    parts(url).is_some_and(|(scheme, authority, rest)| {
        let separator = |c: char| c == ',' || c == ';' || c.is_whitespace();
        !scheme.contains("unix")
            && (rest.contains("://") || address(authority).trim().contains(separator))
    })
}

const BAD_PORT: &str = "its port is not a number from 1 to 65535";

/// Says what is wrong with a refused URL. It repeats no part of the URL, which may be a password in
/// the wrong place.
fn fault(url: &str) -> &'static str {
    let Some((scheme, authority, rest)) = parts(url.trim()) else {
        return if url.trim().is_empty() { "it is empty" } else { "it has no scheme" };
    };
    if scheme.contains("sentinel") {
        return "this is a URL of Sentinels, which lead to one master and its replicas: give the \
                addresses of masters that are independent, or for each of them \
                redis-sentinel://host:port,host:port/service";
    }
    if scheme.contains("cluster") {
        return "this is a URL of a cluster: give the addresses of masters that are independent";
    }
    if scheme.ends_with("unix") {
        return "it has no path, or a bad parameter";
    }
    if !["redis", "rediss", "valkey", "valkeys"].contains(&&*scheme) {
        return "its scheme is unknown";
    }
    if !authority.contains('@') && rest.contains('@') {
        return "a `/`, `?` or `#` in the user or password must be percent-encoded: %2F, %3F, %23";
    }
    let address = address(authority);
    let behind_host = address.rfind(']').map_or(0, |end| end + 1);
    let (host, port) = match address[behind_host..].rsplit_once(':') {
        Some((_, port)) => (&address[..address.len() - port.len() - 1], Some(port)),
        None => (address, None),
    };
    if host.is_empty() {
        return "it has no host";
    }
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return BAD_PORT;
    }
    if ["0.0.0.0", "[::]"].contains(&host) {
        return "its host is an address to listen on, not one to connect to";
    }
    let path = rest.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
    if !path.is_empty() && path.parse::<u32>().is_err() {
        return "its database is not a number";
    }
    if rest.contains('?') {
        return "a parameter behind the `?` is wrong";
    }
    "its host, or its user and password, cannot be read"
}

/// Parses the part of a TLS URL after its scheme. The `redis` crate parses such URLs only with a
/// TLS stack of its own. That stack is not used here, and does not build with every other feature
/// of the crate.
#[cfg(feature = "tls")]
fn secure(rest: &str) -> Result<Endpoint, BadUrl> {
    if rest.contains('#') {
        return Err(insecure());
    }
    let mut endpoint = Endpoint::parse(&format!("redis://{rest}"))?;
    if let Address::Tcp(.., tls) = &mut endpoint.address {
        *tls = true;
    }
    Ok(endpoint)
}

#[cfg(not(feature = "tls"))]
fn secure(_: &str) -> Result<Endpoint, BadUrl> {
    Err(BadUrl("TLS is not built in: enable the feature `tls`".into()))
}

#[cfg(feature = "tls")]
fn insecure() -> BadUrl {
    BadUrl(
        "#insecure is not supported, since anybody could then answer for the master: name its \
         certificate authority by `tls_ca`"
            .into(),
    )
}

impl Node for Endpoint {
    fn name(&self) -> String {
        match &self.address {
            Address::Tcp(host, port, _) => {
                let host = host.to_ascii_lowercase();
                if host.contains(':') {
                    format!("[{host}]:{port}")
                } else {
                    format!("{host}:{port}")
                }
            }
            #[cfg(unix)]
            Address::Unix(path) => path.display().to_string(),
        }
    }

    fn hello(&self) -> Hello {
        self.settings.log_in(&self.hello, || self.name())
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(self.open())
    }

    fn failed(&self) {
        self.last_tried.failed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> Endpoint {
        Endpoint::from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn urls_of_every_form_are_understood() {
        assert_eq!(endpoint("redis://DB1").name(), "db1:6379");
        assert_eq!(endpoint("redis://[::1]:7001/3").name(), "[::1]:7001");
        assert_eq!(endpoint("valkey://db1:1").name(), "db1:1");
        let hello = endpoint("redis://us%40er:p%2Fw@db1/3").hello;
        assert_eq!(hello.username.as_deref(), Some("us@er"));
        assert_eq!(hello.password.as_deref(), Some("p/w"));
        assert_eq!(hello.database, 3);
        assert_eq!(endpoint("redis://:pw@db1").hello.username, None);
        #[cfg(unix)]
        {
            let endpoint = endpoint("unix:///run/redis.sock?db=2&pass=pw");
            assert_eq!(endpoint.name(), "/run/redis.sock");
            assert_eq!(endpoint.hello.database, 2);
            assert_eq!(endpoint.hello.password.as_deref(), Some("pw"));
        }
    }
    /// A name with two addresses, and a listener at each that accepts and stays silent.
    #[cfg(target_os = "linux")]
    async fn two_silent_peers(scheme: &str) -> (Endpoint, [tokio::net::TcpListener; 2]) {
        let first = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = first.local_addr().unwrap().port();
        let second = tokio::net::TcpListener::bind(("127.0.0.2", port)).await.unwrap();
        let addresses = [([127, 0, 0, 1], 0), ([127, 0, 0, 2], 0)].map(SocketAddr::from);
        let settings = Settings {
            limit: Duration::from_secs(1),
            lookups: Lookups::by(move |_| Ok(addresses.to_vec())),
            #[cfg(feature = "tls")]
            tls: Some(crate::tls::tests::any()),
            ..Settings::default()
        };
        let endpoint = endpoint(&format!("{scheme}://two:{port}")).with_settings(settings);
        (endpoint, [first, second])
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_next_dial_begins_behind_an_address_that_accepts_and_stays_silent() {
        let (endpoint, [first, second]) = two_silent_peers("redis").await;
        let accepts = async |listener: &tokio::net::TcpListener| {
            let opened = endpoint.connect();
            let (opened, accepted) = tokio::join!(opened, listener.accept());
            assert!(opened.is_ok() && accepted.is_ok());
        };
        accepts(&first).await;
        accepts(&first).await;
        endpoint.failed();
        accepts(&second).await;
        accepts(&second).await;
        endpoint.failed();
        accepts(&first).await;
    }

    #[cfg(all(target_os = "linux", feature = "tls"))]
    #[tokio::test]
    async fn an_address_that_is_silent_in_the_handshake_of_tls_hides_none_behind_it() {
        let (endpoint, [first, second]) = two_silent_peers("rediss").await;
        let dial = tokio::spawn(async move { endpoint.connect().await.map(|_| ()) });
        let _first = first.accept().await.unwrap();
        let _second = second.accept().await.unwrap();
        dial.abort();
    }
}
