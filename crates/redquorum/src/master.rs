//! Masters as the builder takes them: URLs, clients of the `redis` crate, and own connectors.

use std::sync::Arc;

use crate::endpoint::{BadUrl, Endpoint};
use crate::node::Node;
use crate::sentinel::Sentinel;

/// A value that names a master, for [`Builder::master`](crate::Builder::master).
///
/// * A URL, as `&str` or `String`: `redis://[[user]:password@]host[:port][/database]`, `rediss://…`
///   for TLS (feature `tls`), `unix:///path[?db=0&user=…&pass=…]`. And a master that Sentinels
///   monitor: `redis-sentinel://[[user]:password@]host[:port],…/service[/database]`, or
///   `rediss-sentinel://…`, with the user and password of the master. Those of the Sentinels, where
///   they have some, follow as `?sentinel-user=…&sentinel-password=…`.
/// * A `&redis::Client` (feature `redis-client`): the lock takes the address, user and database of
///   the client, but neither its connections nor its timeouts.
/// * A [`Sentinel`], which looks the master up at each connect.
/// * Your own [`Node`], which opens the connections.
pub trait IntoMaster {
    #[doc(hidden)]
    fn into_master(self, _: Sealed) -> Master;
}

/// Prevents calls and implementations in other crates.
#[derive(Debug)]
pub struct Sealed;

/// A master, or the defect of its URL.
#[derive(Clone)]
pub struct Master(pub(crate) Result<Target, BadUrl>);

/// A shard as the builder takes it.
#[derive(Clone)]
pub(crate) struct Shard {
    pub(crate) name: String,
    pub(crate) masters: Vec<Master>,
}

#[derive(Clone)]
pub(crate) enum Target {
    Endpoint(Endpoint),
    Sentinel(Sentinel),
    Own(Arc<dyn Node>),
}

impl<N: Node> IntoMaster for N {
    fn into_master(self, _: Sealed) -> Master {
        Master(Ok(Target::Own(Arc::new(self))))
    }
}

impl IntoMaster for Sentinel {
    fn into_master(self, _: Sealed) -> Master {
        Master(self.checked().map(Target::Sentinel))
    }
}

impl IntoMaster for &str {
    fn into_master(self, _: Sealed) -> Master {
        Master(match Sentinel::from_url(self) {
            Some(sentinel) => sentinel.map(Target::Sentinel),
            None => Endpoint::from_url(self).map(Target::Endpoint),
        })
    }
}

impl IntoMaster for &&str {
    fn into_master(self, sealed: Sealed) -> Master {
        (*self).into_master(sealed)
    }
}

impl IntoMaster for String {
    fn into_master(self, sealed: Sealed) -> Master {
        self.as_str().into_master(sealed)
    }
}

impl IntoMaster for &String {
    fn into_master(self, sealed: Sealed) -> Master {
        self.as_str().into_master(sealed)
    }
}

#[cfg(feature = "redis-client")]
impl IntoMaster for &redis::Client {
    fn into_master(self, _: Sealed) -> Master {
        let endpoint = Endpoint::from_info(self.get_connection_info());
        Master(endpoint.map(Target::Endpoint))
    }
}
