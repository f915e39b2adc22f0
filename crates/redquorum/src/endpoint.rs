//! Endpoint: the node behind a Redis URL or a `redis::Client`.

use std::fmt;
use std::io;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use tokio::net::TcpStream;

use crate::node::{Connecting, Connection, Hello, Node};

/// Idle connections are probed by the kernel after this long, so that firewalls keep them and
/// dead ones are found before they are needed.
const KEEPALIVE: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct Endpoint {
    address: Address,
    hello: Hello,
    /// Set by the builder, which knows the certificates.
    #[cfg(feature = "tls")]
    tls: Option<crate::tls::Tls>,
}

#[derive(Clone)]
enum Address {
    Tcp(String, u16),
    #[cfg(feature = "tls")]
    Tls(String, u16),
    #[cfg(unix)]
    Unix(std::path::PathBuf),
}

/// Why a URL or client cannot be used. It never repeats the URL, which may hold a password.
#[derive(Clone, PartialEq, Eq)]
pub struct BadUrl(String);

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
        match url.into_connection_info() {
            Ok(info) => Self::from_info(&info),
            Err(error) => {
                // Its detail is a part of the URL.
                let mut why = error.to_string();
                if let Some(detail) = error.detail().filter(|detail| !detail.is_empty()) {
                    why = why.replace(detail, "…");
                }
                Err(BadUrl(format!(
                    "not a Redis URL ({why}): write \
                     redis://[[user]:password@]host[:port][/database], rediss://… or unix:///path"
                )))
            }
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
            ConnectionAddr::Tcp(host, port) => Address::Tcp(host.clone(), *port),
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
            ConnectionAddr::TcpTls { host, port, .. } => Address::Tls(host.clone(), *port),
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => Address::Unix(path.clone()),
            _ => return Err(BadUrl("this kind of address is not supported here".into())),
        };
        Ok(Self {
            address,
            hello,
            #[cfg(feature = "tls")]
            tls: None,
        })
    }

    #[cfg(feature = "tls")]
    pub(crate) fn set_tls(&mut self, tls: crate::tls::Tls) {
        self.tls = Some(tls);
    }

    #[cfg(feature = "tls")]
    pub(crate) const fn is_tls(&self) -> bool {
        matches!(self.address, Address::Tls(..))
    }

    async fn open(&self) -> io::Result<Box<dyn Connection>> {
        match &self.address {
            Address::Tcp(host, port) => Ok(Box::new(tcp(host, *port).await?)),
            #[cfg(feature = "tls")]
            Address::Tls(host, port) => {
                let Some(tls) = &self.tls else {
                    unreachable!("the builder gives every TLS endpoint its certificates")
                };
                Ok(Box::new(tls.connect(host, tcp(host, *port).await?).await?))
            }
            #[cfg(unix)]
            Address::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
        }
    }
}

/// What follows the scheme of a URL for TLS. The `redis` crate reads such URLs only with a TLS
/// stack of its own, which is not used here and which does not build with every other of its
/// features.
#[cfg(feature = "tls")]
fn secure(rest: &str) -> Result<Endpoint, BadUrl> {
    if rest.contains('#') {
        return Err(insecure());
    }
    let mut endpoint = Endpoint::parse(&format!("redis://{rest}"))?;
    if let Address::Tcp(host, port) = endpoint.address {
        endpoint.address = Address::Tls(host, port);
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

async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    // A vote that waits to be coalesced is a vote that comes late.
    stream.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}

impl Node for Endpoint {
    fn name(&self) -> String {
        match &self.address {
            Address::Tcp(host, port) => name(host, *port),
            #[cfg(feature = "tls")]
            Address::Tls(host, port) => name(host, *port),
            #[cfg(unix)]
            Address::Unix(path) => path.display().to_string(),
        }
    }

    fn hello(&self) -> Hello {
        self.hello.clone()
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(self.open())
    }
}

fn name(host: &str, port: u16) -> String {
    let host = host.to_ascii_lowercase();
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
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
    }

    #[cfg(unix)]
    #[test]
    fn unix_sockets_are_understood() {
        let endpoint = endpoint("unix:///run/redis.sock?db=2&pass=pw");
        assert_eq!(endpoint.name(), "/run/redis.sock");
        assert_eq!((endpoint.hello.database, endpoint.hello.password.as_deref()), (2, Some("pw")));
    }

    #[test]
    fn a_bad_url_is_refused_without_being_repeated() {
        for url in [
            "",
            "db1:6379:hunter2",
            "http://:hunter2@db1",
            "redis://:hunter2@",
            "redis://:hunter2@db1:port",
            "redis://:hunter2@db1/minus",
            "redis://:hunter2@db1/-1",
            "redis://hunter2@db1",
            "redis://:hunter2@0.0.0.0",
            "rediss://:hunter2@db1#insecure",
        ] {
            let error = Endpoint::from_url(url).err().unwrap_or_else(|| panic!("{url} was taken"));
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{url}: {error}");
        }
    }
}
