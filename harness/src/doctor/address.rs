//! Address: how to reach a master, and as which user. Never shows a secret.

use std::fmt;

use redis::{Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};

/// See the [module](self).
#[derive(Clone)]
pub(crate) struct Address {
    /// The name in findings.
    pub(crate) name: String,
    /// The name that a lock uses in the fingerprint of its set of masters.
    pub(crate) spelled: String,
    /// Connects without a handshake, so that the doctor can tell what the master refuses.
    pub(super) client: Client,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("name", &self.name).finish_non_exhaustive()
    }
}

const FORM: &str = "write redis://[[user]:password@]host[:port][/database] or unix:///path";

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// The error in the URL. Never repeats the URL, which may contain a password.
    pub(crate) fn read(url: &str) -> Result<Self, String> {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        if matches!(scheme.as_deref(), Some("rediss" | "valkeys")) {
            return Err(
                "TLS is not built into this program: give an address of the master without \
                        TLS, such as a tunnel's end"
                    .to_owned(),
            );
        }
        let info = url.into_connection_info().map_err(|error| {
            // The detail is a part of the URL.
            let detail = error.detail().filter(|detail| !detail.is_empty());
            let why = error.to_string();
            let why = detail.map_or_else(|| why.clone(), |detail| why.replace(detail, "…"));
            format!("not a Redis URL ({why}): {FORM}")
        })?;
        let redis = info.redis_settings();
        let (user, password) = (redis.username(), redis.password());
        let (user, password) = (user.map(str::to_owned), password.map(str::to_owned));
        let database = redis.db();
        if user.is_some() && password.is_none() {
            return Err(format!("a user without a password: {FORM}"));
        }
        let mut name = match info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let host = host.to_ascii_lowercase();
                if host.contains(':') {
                    format!("[{host}]:{port}")
                } else {
                    format!("{host}:{port}")
                }
            }
            ConnectionAddr::Unix(path) => path.display().to_string(),
            _ => return Err(format!("this kind of address is not supported: {FORM}")),
        };
        let spelled = format!("{name}/{database}");
        if database != 0 {
            name = format!("{name}/{database}");
        }
        let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
        let client = Client::open(info.set_redis_settings(bare))
            .map_err(|_| format!("not a Redis URL: {FORM}"))?;
        Ok(Self { name, spelled, client, user, password, database })
    }

    /// Reads several URLs, and numbers those with equal names.
    ///
    /// # Errors
    ///
    /// The error in the first bad URL.
    pub(crate) fn read_all(urls: &[String]) -> Result<Vec<Self>, String> {
        let mut all: Vec<Self> = Vec::new();
        for (index, url) in urls.iter().enumerate() {
            let mut one = Self::read(url).map_err(|why| format!("URL {}: {why}", index + 1))?;
            if all.iter().any(|other| other.name == one.name) {
                one.name = format!("{} (URL {})", one.name, index + 1);
            }
            all.push(one);
        }
        Ok(all)
    }

    /// Removes the password from a master's reply, which may repeat it.
    pub(super) fn conceal(&self, text: &str) -> String {
        let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match self.password.as_deref().filter(|secret| !secret.is_empty()) {
            Some(secret) => clean.replace(secret, "…"),
            None => clean,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_distinguishes_masters_and_has_no_credentials() {
        let name = |url| Address::read(url).unwrap().name;
        assert_eq!(name("redis://DB1"), "db1:6379");
        assert_eq!(name("redis://us:hunter2@db1:7001/3"), "db1:7001/3");
        assert_eq!(name("redis://[::1]:7001"), "[::1]:7001");
        assert_eq!(name("unix:///run/redis.sock?pass=hunter2"), "/run/redis.sock");
        let twice = ["redis://a".to_owned(), "redis://:hunter2@a".to_owned()];
        let twice = Address::read_all(&twice).unwrap();
        assert_eq!(twice[1].name, "a:6379 (URL 2)");
        assert!(!format!("{twice:?}").contains("hunter2"));
    }

    #[test]
    fn a_bad_url_is_refused_with_a_fix_and_is_not_repeated() {
        for url in [
            "db1:6379:hunter2",
            "http://:hunter2@db1",
            "redis://:hunter2@db1:port",
            "redis://:hunter2@db1/minus",
            "redis://hunter2@db1",
            "rediss://:hunter2@db1",
        ] {
            let why = Address::read(url).unwrap_err();
            assert!(!why.contains("hunter2"), "{url}: {why}");
            assert!(why.contains("write redis://") || why.contains("without TLS"), "{why}");
        }
    }

    #[test]
    fn a_password_in_a_reply_is_concealed() {
        let address = Address::read("redis://:hunter2@db1").unwrap();
        assert_eq!(address.conceal("ERR unknown\r\n'hunter2'"), "ERR unknown  '…'");
    }
}
