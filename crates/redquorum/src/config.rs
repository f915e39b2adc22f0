//! Config: the options of a lock from a file or from environment variables.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::builder::Builder;
use crate::endpoint::Endpoint;
use crate::node::Node;
use crate::sentinel::Sentinel;

/// The masters and options of a lock, from TOML, JSON or any other format of
/// [serde](https://serde.rs), or from [environment variables](Config::from_env). Feature `serde`.
/// Give it to [`Builder::config`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let text = r#"
///     masters = ["redis://db1", "redis://db2", "redis://db3"]
///     ttl = "30s"
///     node-timeout = "50ms"
///     fair = true
/// "#;
/// let config: redquorum::Config = toml::from_str(text)?;
/// let builder = redquorum::Redlock::builder().config(config);
/// # Ok(()) }
/// ```
///
/// | key | value | sets |
/// |---|---|---|
/// | `masters` | list of URLs, or one string with commas between | [`masters`](Builder::masters) |
/// | `moving-to` | as `masters` | [`moving_to`](Builder::moving_to) |
/// | `shards` | table of names, each with its `masters`; or one string, `east=URL,URL west=URL,URL` | [`shards`](Builder::shards) |
/// | `moving-to-shards` | as `shards` | [`moving_to_shards`](Builder::moving_to_shards) |
/// | `tls-ca-file`, `tls-cert-file`, `tls-key-file` | path; feature `tls` | the option of that name |
/// | `ttl`, `wait`, `lock-delay`, `node-timeout`, `connect-timeout`, `restart-guard`, `clock-guard`, `fencing-counter-ttl` | time such as `"10s"`, `"250ms"` or `"1h 30m"` | the option of that name |
/// | `drift-ppm`, `drift` | number; time | [`drift`](Builder::drift) |
/// | `masters-id`, `moving-to-id`, `client-name`, `name`, `prefix` | text | the option of that name |
/// | `wake-ups`, `fair`, `require-quorum` | `true` or `false` | the option of that name |
///
/// Every key may be left out. An unknown key is an error. [`build`](Builder::build) checks bounds.
/// All other options have no key: set them on the [`Builder`]. `Debug` shows the masters without
/// users and passwords, and no error repeats a URL.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Config {
    masters: Vec<String>,
    moving_to: Vec<String>,
    shards: Shards,
    moving_to_shards: Shards,
    options: Options,
}

/// The names of shards, and the URLs of the masters of each.
type Shards = Vec<(String, Vec<String>)>;

/// A value as a file or a variable has it.
enum Raw {
    Text(String),
    /// A number, `true` or `false`, as it is written.
    Literal(String),
    List(Vec<String>),
    Table(Vec<(String, Raw)>),
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // It may be a URL, with a password.
            Self::Text(text) if text.contains("://") => f.write_str("this text"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Literal(text) => f.write_str(text),
            // It may contain URLs.
            Self::List(_) => f.write_str("a list"),
            Self::Table(_) => f.write_str("a table"),
        }
    }
}

/// The readers of values. Each returns what it expects if the value is not that.
type Read<T> = Result<T, &'static str>;

fn time(raw: &Raw) -> Read<Duration> {
    let time = if let Raw::Text(text) = raw { humantime::parse_duration(text).ok() } else { None };
    time.ok_or("a time such as \"10s\", \"250ms\" or \"1h 30m\"")
}

fn parsed<T: FromStr>(raw: &Raw) -> Option<T> {
    match raw {
        Raw::Text(text) | Raw::Literal(text) => text.parse().ok(),
        Raw::List(_) | Raw::Table(_) => None,
    }
}

fn number(raw: &Raw) -> Read<u32> {
    parsed(raw).ok_or("a number from 0 to 4294967295")
}

fn flag(raw: &Raw) -> Read<bool> {
    parsed(raw).ok_or("true or false")
}

fn text(raw: &Raw) -> Read<String> {
    if let Raw::Text(text) = raw { Ok(text.clone()) } else { Err("text") }
}

/// The masters: a list, or one text with commas between.
fn urls(raw: &Raw) -> Read<Vec<String>> {
    match raw {
        Raw::Text(text) => Ok(split(text)),
        Raw::List(urls) => Ok(urls.clone()),
        Raw::Literal(_) | Raw::Table(_) => Err("a list of URLs"),
    }
}

/// A table of lists of URLs. In one text, spaces are between shards.
fn shards(raw: &Raw) -> Read<Shards> {
    const SHARDS: &str = "a table of shards, each with its URLs, or a text such as \
                          \"east=URL,URL west=URL,URL\"";
    match raw {
        Raw::Table(table) => {
            let shards = table.iter().map(|(name, raw)| Ok((name.clone(), urls(raw)?)));
            shards.collect::<Read<_>>().map_err(|_| SHARDS)
        }
        Raw::Text(text) => {
            let shards = text.split_whitespace().map(|shard| {
                shard.split_once('=').map(|(name, urls)| (name.to_owned(), split(urls)))
            });
            // It may contain passwords, so the text itself is in no error.
            shards.collect::<Option<_>>().ok_or(SHARDS)
        }
        Raw::Literal(_) | Raw::List(_) => Err(SHARDS),
    }
}

/// The URLs in a text. Those of Sentinels have commas inside.
fn split(text: &str) -> Vec<String> {
    let mut urls: Vec<String> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match urls.last_mut() {
            // Behind the service there are no more hosts.
            Some(url) if is_list_of_sentinels(url) && !part.contains("://") => {
                url.push(',');
                url.push_str(part);
            }
            _ => urls.push(part.into()),
        }
    }
    urls
}

fn is_list_of_sentinels(url: &str) -> bool {
    let hosts =
        url.split_once("://").filter(|(scheme, _)| scheme.to_lowercase().ends_with("-sentinel"));
    hosts.is_some_and(|(_, hosts)| !hosts.contains('/'))
}

/// A key of a [`Config`]. Made by [`Config::keys`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigKey {
    /// The key, such as `node-timeout`.
    pub key: &'static str,
    /// What it sets, in a few words.
    pub about: &'static str,
    /// What its value is: `URLS`, `SHARDS`, `TIME`, `NUMBER`, `BOOL` or `TEXT`.
    pub value: &'static str,
}

/// The name of what a reader reads.
macro_rules! value {
    (time) => {
        "TIME"
    };
    (number) => {
        "NUMBER"
    };
    (flag) => {
        "BOOL"
    };
    (text) => {
        "TEXT"
    };
}

/// Declares the options once: what each is, the method of the builder that sets it, its key, its
/// reader and its type.
macro_rules! options {
    ($($(#[$only:meta])? $text:literal $method:ident $key:literal $read:ident: $kind:ty;)*) => {
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        struct Options {
            $($(#[$only])? $method: Option<$kind>,)*
        }

        const KEYS: &[&str] = &["masters", "moving-to", "shards", "moving-to-shards", $($(#[$only])? $key),*];

        const ABOUT: &[ConfigKey] = &[
            ConfigKey { key: "masters", about: "The URLs of the masters, with commas between", value: "URLS" },
            ConfigKey { key: "moving-to", about: "The URLs of the masters that the lock moves to", value: "URLS" },
            ConfigKey { key: "shards", about: "Locks that resources are spread over: a=URL,URL b=URL,URL", value: "SHARDS" },
            ConfigKey { key: "moving-to-shards", about: "The shards that the resources move to", value: "SHARDS" },
            $($(#[$only])? ConfigKey { key: $key, about: $text, value: value!($read) }),*
        ];

        impl Config {
            fn read(&mut self, key: &str, raw: &Raw) -> Read<()> {
                match key {
                    "masters" => self.masters = urls(raw)?,
                    "moving-to" => self.moving_to = urls(raw)?,
                    "shards" => self.shards = shards(raw)?,
                    "moving-to-shards" => self.moving_to_shards = shards(raw)?,
                    $($(#[$only])? $key => self.options.$method = Some($read(raw)?),)*
                    _ => return Err("an option"),
                }
                Ok(())
            }
        }

        impl Builder {
            /// Sets the masters and the options of a [`Config`]. If the config has masters or
            /// shards, they replace those that were named before. What the config does not set
            /// stays as it is. So a file can be the first config, and the environment a second one.
            /// Feature `serde`.
            pub fn config(mut self, config: Config) -> Self {
                if !config.masters.is_empty() || !config.shards.is_empty() {
                    self.masters.clear();
                    self.shards.clear();
                }
                let mut builder = self.masters(config.masters);
                if !config.moving_to.is_empty() {
                    builder = builder.moving_to(config.moving_to);
                }
                if !config.shards.is_empty() {
                    builder = builder.shards(config.shards);
                }
                if !config.moving_to_shards.is_empty() {
                    builder = builder.moving_to_shards(config.moving_to_shards);
                }
                $($(#[$only])? let builder = match config.options.$method {
                    Some(value) => builder.$method(value),
                    None => builder,
                };)*
                builder
            }
        }
    };
}

options! {
    "How long a lease lasts unless it is extended" ttl "ttl" time: Duration;
    "How long a request waits while the resource is taken" wait "wait" time: Duration;
    "How long others wait behind a lease that was not released" lock_delay "lock-delay" time: Duration;
    "How long a round waits for a master" node_timeout "node-timeout" time: Duration;
    "How long to try to connect to a master" connect_timeout "connect-timeout" time: Duration;
    "Distrust masters that restarted, for leases of at most this TTL" restart_guard "restart-guard" time: Duration;
    "Distrust masters whose clocks step by more than this" clock_guard "clock-guard" time: Duration;
    "How long masters keep the counters of fencing tokens" fencing_counter_ttl "fencing-counter-ttl" time: Duration;
    "The allowance for clocks that run at different rates, in ppm" drift_ppm "drift-ppm" number: u32;
    "The fixed part of that allowance" drift_fixed "drift" time: Duration;
    "The name of the set of masters, for the restart guard" masters_id "masters-id" text: String;
    "The name of the set that the lock moves to" moving_to_id "moving-to-id" text: String;
    "The name of the connections, for CLIENT LIST" client_name "client-name" text: String;
    "The name of the holder, for others to see" name "name" text: String;
    "The bytes in front of every resource in its key" prefix "prefix" text: String;
    "Whether masters wake those that wait" wake_ups "wake-ups" flag: bool;
    "Whether those that wait take turns" fair "fair" flag: bool;
    "Whether it is an error if no quorum can be reached" require_quorum "require-quorum" flag: bool;
    #[cfg(feature = "tls")]
    "The authorities to trust instead of the system's, in PEM" tls_ca_file "tls-ca-file" text: String;
    #[cfg(feature = "tls")]
    "The certificate chain of the client, in PEM" tls_cert_file "tls-cert-file" text: String;
    #[cfg(feature = "tls")]
    "The private key of the client, in PEM" tls_key_file "tls-key-file" text: String;
}

/// An environment variable that does not fit. It never repeats a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Reads the variables whose names begin with `prefix`: with `"BILLING_LOCK_"`,
    /// `BILLING_LOCK_MASTERS` (URLs with commas between), `BILLING_LOCK_TTL`,
    /// `BILLING_LOCK_NODE_TIMEOUT` and so on. Choose a prefix that no other variable has.
    ///
    /// Variables that Kubernetes sets for a Service are passed over: beside
    /// `BILLING_LOCK_SERVICE_HOST`, those are `BILLING_LOCK_SERVICE_PORT`, `BILLING_LOCK_PORT`,
    /// `BILLING_LOCK_PORT_6379_TCP_ADDR` and the like. The same holds for a Service whose name is
    /// longer, such as `BILLING_LOCK_DB_SERVICE_HOST`.
    ///
    /// # Errors
    /// A variable with this prefix that is no option, is not UTF-8, or has a value that does not
    /// fit. The error names it.
    pub fn from_env(prefix: &str) -> Result<Self, ConfigError> {
        Self::from_variables(prefix, env::vars_os())
    }

    /// Reads these variables instead of those of the process: see [`from_env`](Config::from_env).
    ///
    /// # Errors
    /// Those of [`from_env`](Config::from_env).
    pub fn from_variables(
        prefix: &str,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let ours = |(name, text): (OsString, OsString)| {
            Some((name.to_str()?.strip_prefix(prefix)?.to_owned(), text))
        };
        let variables: Vec<_> = variables.into_iter().filter_map(ours).collect();
        let host = |(key, _): &(String, _)| Some(key.strip_suffix("SERVICE_HOST")?.to_owned());
        let services: Vec<String> = variables.iter().filter_map(host).collect();
        for (key, text) in variables {
            if services.iter().any(|of| key.strip_prefix(&**of).is_some_and(is_of_a_service)) {
                continue;
            }
            let name = format!("{prefix}{key}");
            let Ok(text) = text.into_string() else {
                return Err(ConfigError(format!("{name}: the value is not UTF-8")));
            };
            let key = key.to_lowercase().replace('_', "-");
            if !KEYS.contains(&&*key) {
                let known =
                    |key: &&str| format!("{prefix}{}", key.to_uppercase().replace('-', "_"));
                let known = KEYS.iter().map(known).collect::<Vec<_>>().join(", ");
                return Err(ConfigError(format!("{name} is no option: there are {known}")));
            }
            config.set_as(&name, &key, text)?;
        }
        Ok(config)
    }

    /// All keys: for the help of a command line, say.
    pub fn keys() -> impl Iterator<Item = ConfigKey> {
        ABOUT.iter().copied()
    }

    /// Sets what this key sets, from text: `set("ttl", "30s")`.
    ///
    /// # Errors
    /// There is no such key, or the value does not fit. The error names it.
    pub fn set(&mut self, key: &str, value: impl Into<String>) -> Result<(), ConfigError> {
        self.set_as(key, key, value.into())
    }

    fn set_as(&mut self, name: &str, key: &str, value: String) -> Result<(), ConfigError> {
        let raw = Raw::Text(value);
        self.read(key, &raw)
            .map_err(|expected| ConfigError(format!("{name}: {raw} is not {expected}")))
    }
}

/// Whether Kubernetes sets such a variable for a Service, behind the name of the Service.
fn is_of_a_service(key: &str) -> bool {
    if let "SERVICE_HOST" | "SERVICE_PORT" | "PORT" = key {
        return true;
    }
    if let Some(name) = key.strip_prefix("SERVICE_PORT_") {
        return !name.is_empty();
    }
    // A port: `PORT_6379_TCP`, alone or with one word more.
    let mut words = key.split('_');
    let is_port = words.next() == Some("PORT")
        && words.next().is_some_and(|number| number.parse::<u16>().is_ok())
        && matches!(words.next(), Some("TCP" | "UDP" | "SCTP"));
    is_port
        && matches!((words.next(), words.next()), (None | Some("PROTO" | "PORT" | "ADDR"), None))
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |url: &String| match Sentinel::from_url(url) {
            Some(Ok(sentinel)) => format!("{sentinel:?}"),
            Some(Err(error)) => format!("({error})"),
            None => match Endpoint::from_url(url) {
                Ok(endpoint) => endpoint.name(),
                Err(error) => format!("({error})"),
            },
        };
        let names = |urls: &[String]| -> Vec<String> { urls.iter().map(name).collect() };
        let shards = |shards: &Shards| -> Vec<_> {
            shards.iter().map(|(name, urls)| (name.clone(), names(urls))).collect()
        };
        f.debug_struct("Config")
            .field("masters", &names(&self.masters))
            .field("moving_to", &names(&self.moving_to))
            .field("shards", &shards(&self.shards))
            .field("moving_to_shards", &shards(&self.moving_to_shards))
            .field("options", &self.options)
            .finish()
    }
}

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Table)
    }
}

struct Table;

impl<'de> Visitor<'de> for Table {
    type Value = Config;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the options of a lock")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Config, M::Error> {
        let (mut config, mut seen) = (Config::default(), Vec::new());
        while let Some(key) = map.next_key::<String>()? {
            let known = KEYS.iter().find(|known| **known == key);
            let known = known.ok_or_else(|| M::Error::unknown_field(&key, KEYS))?;
            if seen.contains(known) {
                return Err(M::Error::duplicate_field(known));
            }
            seen.push(known);
            let raw = map.next_value::<Raw>()?;
            let wrong = |expected| M::Error::custom(format!("{key}: {raw} is not {expected}"));
            config.read(&key, &raw).map_err(wrong)?;
        }
        Ok(config)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value of an option")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.into()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Literal(value.to_string()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Raw, E> {
        Ok(Raw::Literal(number.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Raw, E> {
        Ok(Raw::Literal(number.to_string()))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Raw, S::Error> {
        let mut list = Vec::new();
        while let Some(text) = seq.next_element()? {
            list.push(text);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Raw, M::Error> {
        let mut table = Vec::new();
        while let Some(entry) = map.next_entry()? {
            table.push(entry);
        }
        Ok(Raw::Table(table))
    }
}

#[cfg(test)]
mod tests {
    use redquorum_protocol::BadOption;

    use super::*;
    use crate::error::BuildError;
    use crate::redlock::Redlock;

    const ALL: &str = r#"
        masters = ["redis://db1", "redis://user:secret@db2:7000"]
        ttl = "30s"
        wait = "1m 5s"
        lock-delay = "250ms"
        node-timeout = "50ms"
        connect-timeout = "2s"
        restart-guard = "1h"
        clock-guard = "500ms"
        fencing-counter-ttl = "3days"
        drift-ppm = 5000
        drift = "3ms"
        masters-id = "prod"
        moving-to = ["redis://db3", "redis://user:secret@db4"]
        moving-to-id = "prod-2"
        shards = { a = ["redis://db1"], b = ["redis://user:secret@db5", "redis://db6"] }
        moving-to-shards = { c = ["redis://user:secret@db7"] }
        client-name = "billing"
        name = "billing-7"
        prefix = "app:"
        wake-ups = false
        fair = true
        require-quorum = true
        tls-ca-file = "/ca.pem"
        tls-cert-file = "/cert.pem"
        tls-key-file = "/key.pem"
    "#;

    fn variables(pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let pairs = pairs.iter().map(|(name, text)| (name.into(), text.into()));
        Config::from_variables("LOCK_", pairs)
    }

    #[test]
    fn every_option_is_read_alike_from_toml_json_and_the_environment() {
        let toml: Config = toml::from_str(ALL).unwrap();
        let values: toml::Table = toml::from_str(ALL).unwrap();
        assert_eq!(values.len(), KEYS.len(), "the test sets every option");
        let json: Config = serde_json::from_str(&serde_json::to_string(&values).unwrap()).unwrap();
        let text = |value: &toml::Value| match value {
            toml::Value::String(text) => text.clone(),
            toml::Value::Array(list) => {
                list.iter().map(|it| it.as_str().unwrap()).collect::<Vec<_>>().join(", ")
            }
            toml::Value::Table(table) => {
                let urls = |list: &toml::Value| {
                    let urls = list.as_array().unwrap().iter().map(|it| it.as_str().unwrap());
                    urls.collect::<Vec<_>>().join(",")
                };
                let shards = table.iter().map(|(name, list)| format!("{name}={}", urls(list)));
                shards.collect::<Vec<_>>().join("  ")
            }
            other => other.to_string(),
        };
        let pairs = values.iter().map(|(key, value)| {
            (format!("LOCK_{}", key.to_uppercase().replace('-', "_")).into(), text(value).into())
        });
        let env = Config::from_variables("LOCK_", pairs).unwrap();
        assert_eq!((&toml, &toml), (&json, &env));
        let set = format!("{:?}", toml.options);
        assert!(!set.contains("None"), "{set}");
        assert_eq!(toml.options.wait, Some(Duration::from_secs(65)));
    }

    #[tokio::test]
    async fn the_options_reach_the_lock_and_are_checked_there() {
        for (text, words) in [
            ("masters = ['redis://[::1]:1']\nttl = '1ms'", "ttl of 1ms is too short"),
            ("masters = ['http://db1']", "master 1: "),
        ] {
            let config: Config = toml::from_str(text).unwrap();
            let error = Redlock::builder().config(config).build().await.unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
    }

    #[tokio::test]
    async fn a_later_config_replaces_what_it_sets() {
        let config = |text: &str| toml::from_str::<Config>(text).unwrap();
        let file = config("masters = 'redis://[::1]:1, redis://[::1]:2'\nttl = '1m'");
        for (later, masters) in [("", 2), ("wait = '1s'", 2), ("masters = 'redis://[::1]:2'", 1)] {
            let builder = Redlock::builder().config(file.clone()).config(config(later));
            let lock = builder.build().await.unwrap();
            let ttl = lock.lock_state.config.ttl();
            assert_eq!((lock.masters(), ttl), (masters, Duration::from_secs(60)));
        }
        let later = config("shards = 'a=redis://[::1]:1 b=redis://[::1]:2'");
        let builder = Redlock::builder().config(file.clone()).config(later.clone());
        assert_eq!(builder.clone().build_shards().await.unwrap().iter().count(), 2);
        let error = builder.build().await.unwrap_err();
        assert_eq!(error, BuildError::Options(BadOption::Sharded));
        let lock = Redlock::builder().config(later).config(file).build().await.unwrap();
        assert_eq!(lock.masters(), 2);
    }

    #[test]
    fn a_value_that_does_not_fit_is_named() {
        for (text, words) in [
            ("ttl = '5 parsecs'", "ttl: \"5 parsecs\" is not a time such as"),
            ("ttl = 10", "ttl: 10 is not a time such as"),
            ("drift-ppm = -1", "drift-ppm: -1 is not a number"),
            ("drift-ppm = 4294967296", "drift-ppm: 4294967296 is not a number"),
            ("fair = 'perhaps'", "fair: \"perhaps\" is not true or false"),
            ("prefix = ['a']", "prefix: a list is not text"),
            ("masters = 3", "masters: 3 is not a list of URLs"),
            (
                "ttl-ms = 5",
                "unknown field `ttl-ms`, expected one of `masters`, `moving-to`, `shards`, ",
            ),
            ("shards = ['a']", "shards: a list is not a table of shards, each with its URLs"),
            ("shards = {a = 3}", "shards: a table is not a table of shards"),
        ] {
            let error = toml::from_str::<Config>(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        let text = format!("{{\"drift-ppm\": {}}}", u64::MAX);
        let error = serde_json::from_str::<Config>(&text).unwrap_err().to_string();
        let words = format!("drift-ppm: {} is not a number from 0 to {}", u64::MAX, u32::MAX);
        assert!(error.starts_with(&words), "{error}");
        for (name, value, words) in [
            ("LOCK_TTL", "5 parsecs", "LOCK_TTL: \"5 parsecs\" is not a time such as"),
            (
                "LOCK_TTLS",
                "5s",
                "LOCK_TTLS is no option: there are LOCK_MASTERS, LOCK_MOVING_TO, LOCK_SHARDS,",
            ),
        ] {
            let error = variables(&[(name, value)]).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
        let others = variables(&[("OTHER_TTL", "?"), ("LOCK_FAIR", "true")]).unwrap();
        assert_eq!(others.options, Options { fair: Some(true), ..Options::default() });
    }

    #[test]
    fn urls_of_sentinels_have_commas_inside() {
        let split = split("redis://a, Redis-Sentinel://s1,s2:5/lock-a,redis-sentinel://s3/b, c");
        assert_eq!(
            split,
            ["redis://a", "Redis-Sentinel://s1,s2:5/lock-a", "redis-sentinel://s3/b", "c"]
        );
    }

    #[test]
    fn variables_that_kubernetes_sets_for_a_service_are_passed_over() {
        let of = |service: &str| {
            [
                "SERVICE_HOST",
                "SERVICE_PORT",
                "SERVICE_PORT_REDIS_MAIN",
                "PORT",
                "PORT_6379_TCP",
                "PORT_6379_TCP_PROTO",
                "PORT_6379_TCP_PORT",
                "PORT_6379_TCP_ADDR",
                "PORT_53_UDP_ADDR",
            ]
            .map(|key| (format!("LOCK_{service}{key}"), "tcp://10.0.0.1:6379"))
        };
        let of_two = [of(""), of("DB_")].concat();
        let with = |more: &'static [(&'static str, &'static str)]| {
            let all = of_two.iter().map(|(name, text)| (name.as_str(), *text));
            variables(&all.chain(more.iter().copied()).collect::<Vec<_>>())
        };
        let read = with(&[("LOCK_TTL", "5s")]).unwrap();
        let ttl = Some(Duration::from_secs(5));
        assert_eq!(read.options, Options { ttl, ..Options::default() });
        for refused in [
            &[("LOCK_PORTS", "1")][..],
            &[("LOCK_PORT_6379", "1")],
            &[("LOCK_PORT_X_TCP", "1")],
            &[("LOCK_PORT_6379_TCP_NAME", "1")],
            &[("LOCK_PORT_6379_TCP_ADDR_6", "1")],
            &[("LOCK_SERVICE", "1")],
            &[("LOCK_TTL_SERVICE_PORT", "1")],
        ] {
            assert!(with(refused).is_err(), "{refused:?}");
        }
        // Without a Service of that name it is a mistake.
        assert!(variables(&[("LOCK_PORT", "6379")]).is_err());
    }

    #[test]
    fn secrets_are_in_no_text() {
        let config: Config = toml::from_str(ALL).unwrap();
        let text = format!("{config:?} {:?}", Redlock::builder().config(config.clone()));
        assert!(text.contains("db2:7000") && !text.contains("secret"), "{text}");
        for text in ["masters = {a = 'redis://:secret@db1'}", "masters = [['redis://:secret@db1']]"]
        {
            let error = toml::from_str::<Config>(text).unwrap_err();
            let message = error.message();
            assert!(!message.contains("secret"), "{message}");
        }
        let faulty = vec!["redis://:secret@db1:port".into()];
        let shards = vec![("a".to_owned(), faulty.clone())];
        let moving_to_shards = shards.clone();
        let (masters, moving_to) = (faulty.clone(), faulty);
        let faulty = Config { masters, moving_to, shards, moving_to_shards, ..config };
        assert!(!format!("{faulty:?}").contains("secret"), "{faulty:?}");
        let error = variables(&[("LOCK_SHARDS", "redis://:secret@db1")]).unwrap_err().to_string();
        assert!(error.starts_with("LOCK_SHARDS: this text is not a table of shards"), "{error}");
    }
}
