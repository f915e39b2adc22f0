//! Sentinel: the node behind a name that Redis Sentinels resolve to an address.

use std::fmt;
use std::io;
use std::sync::Arc;

use redquorum_protocol::wire::{ErrorKind, Frame, Hello, readable, write_command};
use tokio::time::timeout_at;

use crate::endpoint::{BadUrl, Endpoint, Settings};
use crate::io::exchange;
use crate::node::{Connecting, Connection, Node};
use crate::tcp::{LastTried, first};

/// One master that Redis Sentinels monitor, for [`Builder::master`](crate::Builder::master). At
/// each connect it asks them for the address, and verifies that the server there is a master.
///
/// Give each member of the quorum its own service name, and prefer `host:port` addresses where you
/// can: **a failover is a master that forgets**. The replica that takes over may lack keys that its
/// master granted, and while a cut-off master lives, some clients may still count its votes.
/// Against a lease that only a bare quorum granted, one failover can let a second client in.
/// Against a lease that all of five masters granted, it takes three failovers. Use a
/// [restart guard](crate::Builder::restart_guard): it notices the new process and distrusts it for
/// a while.
/// [`docs/reference.md`](https://github.com/redquorum/redquorum/blob/main/docs/reference.md#masters-that-forget-keys)
/// lists what it does not notice.
///
/// ```
/// use redquorum::{Redlock, connect::{Hello, Sentinel}};
///
/// let sentinels = ["redis://s1:26379", "redis://s2:26379", "redis://s3:26379"];
/// let login = Hello { password: Some("hunter2".into()), ..Hello::default() };
/// let builder = Redlock::builder().masters(
///     ["lock-a", "lock-b", "lock-c"]
///         .map(|service| Sentinel::new(service, sentinels).login(login.clone())),
/// );
/// ```
#[derive(Clone)]
pub struct Sentinel {
    service: String,
    sentinels: Vec<Result<Endpoint, BadUrl>>,
    login: Hello,
    #[cfg(feature = "tls")]
    server_name: Option<Arc<str>>,
}

impl Sentinel {
    /// The master that these Sentinels monitor under this name. Each Sentinel is a URL with its
    /// port, usually 26379, and with the Sentinel's own user and password where it has some.
    /// `rediss://` (feature `tls`) means that Sentinels and masters use TLS.
    /// [`build`](crate::Builder::build) reports a faulty URL.
    pub fn new<U: AsRef<str>>(
        service: impl Into<String>,
        sentinels: impl IntoIterator<Item = U>,
    ) -> Self {
        let endpoint = |url: U| Endpoint::from_url(url.as_ref());
        Self {
            service: service.into(),
            sentinels: sentinels.into_iter().map(endpoint).collect(),
            login: Hello::default(),
            #[cfg(feature = "tls")]
            server_name: None,
        }
    }

    /// Parses a URL of Sentinels; `None` if it is another one. See
    /// [`IntoMaster`](crate::connect::IntoMaster).
    pub(crate) fn from_url(url: &str) -> Option<Result<Self, BadUrl>> {
        let (scheme, rest) = url.trim().split_once("://")?;
        let scheme = scheme.to_lowercase();
        let scheme = scheme.strip_suffix("-sentinel").filter(|scheme| !scheme.is_empty())?;
        Some(Self::parse(scheme, rest).and_then(Self::checked))
    }

    fn parse(scheme: &str, rest: &str) -> Result<Self, BadUrl> {
        let form = |why: &str| {
            BadUrl(format!(
                "not a URL of Sentinels: {why}; write redis-sentinel://\
                 [[user]:password@]host[:port],host[:port]/service[/database]"
            ))
        };
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').ok_or_else(|| form("it names no service"))?;
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), authority),
        };
        let (service, database) = path.split_once('/').unwrap_or((path, ""));
        let (mut user, mut password) = ("", None);
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            if parameter.contains(['/', '#', '@', '?']) {
                return Err(form("a `/`, `?`, `#` or `@` in a parameter must be percent-encoded"));
            }
            match parameter.split_once('=') {
                Some(("sentinel-user", value)) => user = value,
                Some(("sentinel-password", value)) => password = Some(value),
                _ => return Err(form("a parameter behind the `?` is wrong")),
            }
        }
        let own = match password {
            Some(password) => format!("{user}:{password}@"),
            None if user.is_empty() => String::new(),
            None => return Err(form("`sentinel-user` without `sentinel-password`")),
        };
        let sentinel = |host: &str| {
            let has_port = host.rfind(':') > host.rfind(']');
            format!("{scheme}://{own}{host}{}", if has_port { "" } else { ":26379" })
        };
        let hosts = hosts.split(',').map(str::trim).filter(|host| !host.is_empty());
        let sentinels: Vec<String> = hosts.map(sentinel).collect();
        let first = sentinels.first().ok_or_else(|| form("it has no host"))?;
        Endpoint::from_url(first)?;
        // The user, the password and the number are written as in the URL of a master.
        let master = Endpoint::from_url(&format!("redis://{login}master/{database}"))?;
        Ok(Self::new(service, sentinels).login(master.hello()))
    }

    /// User, password and database of the master. Default: none, and database 0.
    #[must_use]
    pub fn login(mut self, login: Hello) -> Self {
        self.login = login;
        self
    }

    /// The name that the certificate of the master must have. Default: the host or address that the
    /// Sentinels give, which certificates often do not contain. Those of the Sentinels must have
    /// the hosts in their URLs.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into().into());
        self
    }

    pub(crate) fn checked(self) -> Result<Self, BadUrl> {
        if self.service.is_empty() {
            return Err(BadUrl("the service that the Sentinels monitor has no name".into()));
        }
        if self.sentinels.is_empty() {
            return Err(BadUrl(
                "a Sentinel without addresses: give the URL of at least one".into(),
            ));
        }
        for sentinel in &self.sentinels {
            sentinel.as_ref().map_err(Clone::clone)?;
        }
        #[cfg(feature = "tls")]
        if self.server_name.as_ref().is_some_and(|name| !crate::tls::is_server_name(name)) {
            return Err(BadUrl("no certificate can have the name of `tls_server_name`".into()));
        }
        Ok(self)
    }

    fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.sentinels.iter().flatten()
    }

    /// The name of the first of its Sentinels with TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn tls_name(&self) -> Option<String> {
        self.endpoints().find(|sentinel| sentinel.is_tls()).map(Node::name)
    }

    pub(crate) fn resolver(&self, settings: &Settings) -> Resolver {
        // The credentials of the builder are those of masters.
        let own = Settings { credentials: None, ..settings.clone() };
        let with_own = |endpoint: &Endpoint| endpoint.clone().with_settings(own.clone());
        Resolver(Arc::new(Watched {
            service: self.service.clone(),
            sentinels: self.endpoints().map(with_own).collect(),
            login: self.login.clone(),
            #[cfg(feature = "tls")]
            server_name: self.server_name.clone(),
            settings: settings.clone(),
            last_tried: LastTried::default(),
        }))
    }
}

impl fmt::Debug for Sentinel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.endpoints().map(Node::name).collect();
        f.debug_struct("Sentinel")
            .field("service", &self.service)
            .field("sentinels", &names)
            .field("login", &self.login)
            .finish()
    }
}

pub(crate) struct Resolver(Arc<Watched>);

/// A master that Sentinels watch.
struct Watched {
    service: String,
    sentinels: Vec<Endpoint>,
    login: Hello,
    #[cfg(feature = "tls")]
    server_name: Option<Arc<str>>,
    settings: Settings,
    /// The number of the Sentinel whose address was used last.
    last_tried: LastTried<usize>,
}

impl Resolver {
    /// Asks the Sentinels, the next one beside one that is silent. One that names a dead host is
    /// like one that is dead: the address of the first to lead to a master is used.
    async fn open(&self) -> Result<Box<dyn Connection>, String> {
        let limit = self.0.settings.limit;
        // Ends in time to say what each of them replied.
        let each = limit - limit / 8;
        let mut order: Vec<usize> = (0..self.0.sentinels.len()).collect();
        self.0.last_tried.rotate(&mut order);
        if let Some(first) = order.first() {
            // Where this dial is given up, the next one begins behind it.
            self.0.last_tried.tried(*first);
        }
        let ends = tokio::time::Instant::now() + each;
        let tries = order.into_iter().map(|index| {
            let watched = self.0.clone();
            async move {
                let named = |why| format!("Sentinel {}: {why}", watched.sentinels[index].name());
                match timeout_at(ends, watched.open_by(index)).await {
                    Ok(Ok(connection)) => {
                        watched.last_tried.tried(index);
                        Ok(connection)
                    }
                    Ok(Err(why)) => Err(named(why)),
                    Err(_) => {
                        watched.sentinels[index].failed();
                        Err(named(format!("no connection within {each:?}")))
                    }
                }
            }
        });
        first(tries, limit).await.map_err(|failures| failures.join("; "))
    }
}

impl Watched {
    async fn open_by(&self, index: usize) -> Result<Box<dyn Connection>, String> {
        let sentinel = &self.sentinels[index];
        let (host, port) = self.address(sentinel).await.inspect_err(|_| sentinel.failed())?;
        self.master(sentinel, host, port).await
    }

    fn name(&self) -> String {
        let first = self.sentinels.iter().map(Node::name).min().unwrap_or_default();
        format!("{}@{first}", self.service)
    }

    fn hello(&self) -> Hello {
        self.settings.log_in(&self.login, || self.name())
    }

    async fn address(&self, sentinel: &Endpoint) -> Result<(String, u16), String> {
        let mut connection = sentinel.connect().await.map_err(|error| error.to_string())?;
        let question = [&b"SENTINEL"[..], b"GET-MASTER-ADDR-BY-NAME", self.service.as_bytes()];
        ask(&mut connection, &sentinel.hello(), &question, |frame| match frame {
            Frame::Array(parts) => match parts.as_slice() {
                [Frame::Bulk(host), Frame::Bulk(port)] => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let port = text(port).parse().map_err(|_| "its port is no number")?;
                    Ok((text(host), port))
                }
                _ => Err("an answer that is not a Sentinel's".into()),
            },
            Frame::Null => Err(format!("it monitors no master named `{}`", self.service)),
            other => Err(refusal(other)),
        })
        .await
    }

    /// A connection to the server at an address that a Sentinel gave, if it is a master.
    async fn master(
        &self,
        sentinel: &Endpoint,
        host: String,
        port: u16,
    ) -> Result<Box<dyn Connection>, String> {
        let (hello, master) = (self.hello(), sentinel.at(host, port));
        #[cfg(feature = "tls")]
        let master = master.with_server_name(self.server_name.clone());
        let named = |why: String| format!("master {}: {why}", master.name());
        let mut connection = master.connect().await.map_err(|error| named(error.to_string()))?;
        let role = |frame: &Frame<'_>| match frame {
            Frame::Array(parts) if parts.first() != Some(&Frame::Bulk(b"master")) => {
                Err("it is no master: a failover is under way".into())
            }
            Frame::Error(text) if ErrorKind::of(text) == ErrorKind::Busy => Err(refusal(frame)),
            // A user that may not ask for the role may use the lock all the same.
            _ => Ok(()),
        };
        ask(&mut connection, &hello, &[b"ROLE"], role).await.map_err(named)?;
        Ok(connection)
    }
}

async fn ask<R>(
    connection: &mut Box<dyn Connection>,
    hello: &Hello,
    question: &[&[u8]],
    read: impl FnOnce(&Frame<'_>) -> Result<R, String>,
) -> Result<R, String> {
    let mut bytes = Vec::new();
    let replies = usize::from(hello.password.is_some()) + 1;
    if let Some(password) = &hello.password {
        let login = [Some("AUTH"), hello.username.as_deref(), Some(password)];
        let login: Vec<&[u8]> = login.into_iter().flatten().map(str::as_bytes).collect();
        write_command(&mut bytes, &login);
    }
    write_command(&mut bytes, question);
    let (mut read, mut result) = (Some(read), Err("it has not answered".into()));
    exchange(connection, &bytes, replies, |index, frame| {
        let frame = hello.conceal(frame.clone());
        if index + 1 == replies {
            result = read.take().map_or(Err("it answered twice".into()), |read| read(&frame));
            return Ok(());
        }
        if let Frame::Error(_) = frame { Err(refusal(&frame)) } else { Ok(()) }
    })
    .await?;
    result
}

fn refusal(frame: &Frame<'_>) -> String {
    match frame {
        Frame::Error(text) => readable(text).to_string(),
        _ => "an answer that is not a Sentinel's".into(),
    }
}

impl Node for Resolver {
    /// The service, and the first of its Sentinels by name: two quorum members may have the same
    /// service name.
    fn name(&self) -> String {
        self.0.name()
    }

    fn hello(&self) -> Hello {
        self.0.hello()
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(async { self.open().await.map_err(io::Error::other) })
    }

    fn failed(&self) {
        self.0.last_tried.failed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_sentinels_the_service_and_the_login() {
        let url = "redis-sentinel://us:p%40ss@s1,[::1]:5,s3/lock-a/3?sentinel-password=hunter2";
        let Sentinel { service, sentinels, login, .. } = Sentinel::from_url(url).unwrap().unwrap();
        let names: Vec<String> = sentinels.iter().flatten().map(Node::name).collect();
        assert_eq!((&*service, login.database), ("lock-a", 3));
        assert_eq!(names, ["s1:26379", "[::1]:5", "s3:26379"]);
        assert_eq!(
            (login.username.as_deref(), login.password.as_deref()),
            (Some("us"), Some("p@ss"))
        );
        let own = sentinels[0].as_ref().unwrap().hello();
        assert_eq!((own.username, own.password.as_deref()), (None, Some("hunter2")));
        assert!(Sentinel::from_url("redis://db1").is_none());
    }

    #[test]
    fn a_faulty_url_is_refused_and_not_repeated() {
        for (url, words) in [
            ("redis-sentinel://:hunter2@s1", "names no service"),
            ("redis-sentinel://:hunter2@s1/", "has no name"),
            ("redis-sentinel://:hunter2@/a", "has no host"),
            ("redis-sentinel://:hunter2@s1/a/b", "database is not a number"),
            ("redis-sentinel://s1/a?password=hunter2", "a parameter"),
            ("redis-sentinel://s1/a?sentinel-user=hunter2", "without `sentinel-password`"),
            ("redis-sentinel://:hunter2@s1:port/a", "port"),
        ] {
            let error = Sentinel::from_url(url).unwrap().unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
