//! The list of masters: none, one, many, an even number, duplicates, and invalid addresses.

use redquorum::memory::Masters;
use redquorum::{BadOption, BuildError, Redlock};

#[tokio::test(start_paused = true)]
async fn a_lock_has_one_to_64_masters() {
    let none = Redlock::builder().build().await.unwrap_err();
    assert_eq!(none, BuildError::Options(BadOption::NoMasters));
    let many = Masters::new(65).builder().build().await.unwrap_err();
    assert_eq!(many, BuildError::Options(BadOption::TooManyMasters { masters: 65 }));
    for (count, quorum) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (63, 32), (64, 33)] {
        let lock = Masters::new(count).builder().require_quorum(true).build().await.unwrap();
        assert_eq!((lock.masters(), lock.quorum()), (count, quorum));
        let lease = lock.acquire("r").await.unwrap();
        assert!(lease.report().in_favour() >= quorum);
        assert!(lock.try_acquire("r").await.unwrap().is_none());
    }
}

#[tokio::test]
async fn one_address_under_two_spellings_is_one_master() {
    let pairs = [
        ("redis://db1", "redis://db1"),
        ("redis://db1", "redis://db1:6379"),
        ("redis://db1", "redis://DB1/"),
        ("redis://db1/0", "redis://db1/1"),
        ("redis://db1", "redis://user:password@db1"),
        ("redis://db1", "valkey://db1"),
        ("redis://[::1]", "redis://[::1]:6379"),
        ("redis://[::1]", "redis://[0:0:0:0:0:0:0:1]"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock?db=1"),
    ];
    for (first, second) in pairs {
        let built = Redlock::builder().masters(["redis://other", first, second]).build().await;
        let Err(BuildError::Duplicate { first: 2, second: 3, name }) = &built else {
            panic!("{first} and {second}: {built:?}");
        };
        let text = built.as_ref().unwrap_err().to_string();
        assert!(text.contains(&format!("masters 2 and 3 are both {name}")), "{text}");
        assert!(!name.contains("password"));
    }
}

#[tokio::test]
async fn a_master_by_client_is_the_same_as_by_its_url() {
    let client = redis::Client::open("redis://db1/3").unwrap();
    let error = Redlock::builder().master(&client).master("redis://DB1:6379").build().await;
    assert!(matches!(error, Err(BuildError::Duplicate { .. })), "{error:?}");
}

/// Addresses that are refused, and the part of each that the error calls wrong.
const BAD: [(&str, &str); 37] = [
    ("", "it is empty"),
    (" ", "it is empty"),
    ("localhost", "it has no scheme"),
    ("db1:6379", "it has no scheme"),
    ("hunter2", "it has no scheme"),
    ("hunter2@db1", "it has no scheme"),
    ("http://:hunter2@db1", "its scheme is unknown"),
    ("redis+unknown://:hunter2@db1", "its scheme is unknown"),
    ("redis-sentinel://:hunter2@db1:26379", "it names no service; write redis-sentinel://"),
    ("rediss+sentinel://db1:26379/mymaster", "a URL of Sentinels"),
    ("redis+cluster://db1", "a URL of a cluster"),
    ("redis://db1,redis://db2,redis://db3", "several URLs in one: give each master"),
    ("redis://:hunter2@db1,redis://:hunter2@db2", "several URLs in one"),
    ("redis://db1,db2", "several URLs in one"),
    ("redis://db1:6379,db2:6379", "several URLs in one"),
    ("redis://db1 redis://db2", "several URLs in one"),
    ("redis://:hunter2@db 1", "several URLs in one"),
    ("redis://", "it has no host"),
    ("redis://:hunter2@", "it has no host"),
    ("redis://:6379", "it has no host"),
    ("unix://", "it has no path"),
    ("redis://:hunter2@db1:port", "its port is not a number from 1 to 65535"),
    ("redis://db1:0", "its port is not a number from 1 to 65535"),
    ("redis://:hunter2@db1:99999", "its port is not a number from 1 to 65535"),
    ("redis://[::1]:x", "its port is not a number from 1 to 65535"),
    ("redis://:hunter/2@db1", "must be percent-encoded"),
    ("redis://:hunter#2@db1", "must be percent-encoded"),
    ("redis://:hunter2@0.0.0.0", "an address to listen on"),
    ("redis://:hunter2@db1/minus", "its database is not a number"),
    ("redis://:hunter2@db1/-1", "database"),
    ("redis://:hunter2@db1/99999999999", "database"),
    ("redis://db1?protocol=9", "a parameter behind the `?`"),
    ("redis://:hunter2@db1?protocol=hunter2", "a parameter behind the `?`"),
    ("redis://hunter2@db1", "a user without a password: write user:password@host"),
    ("redis://me@db1", "a user without a password: write user:password@host"),
    ("redis://:hunter2%ZZ@[db1", "cannot be read"),
    ("redis://:hunter2%FF@db1", "cannot be read"),
];

#[tokio::test]
async fn a_bad_address_is_named_by_its_number_and_its_wrong_part_and_not_repeated() {
    for (url, part) in BAD {
        let builder = Redlock::builder().masters(["redis://db0", url]);
        let shown = format!("{builder:?}");
        let error = builder.build().await.err().unwrap_or_else(|| panic!("{url:?} was taken"));
        let BuildError::Address { number: 2, .. } = &error else { panic!("{url:?}: {error:?}") };
        let text = error.to_string();
        assert!(text.starts_with("master 2: ") && text.contains(part), "{url:?}: {text}");
        for text in [text, shown, format!("{error:?}"), source(&error)] {
            assert!(!text.contains("hunter"), "{url:?}: {text}");
        }
    }
    // Similar URLs that are valid.
    for url in ["redis://:a,b@db1", "unix:///run/a,b.sock", "redis://[::1]:7001/3"] {
        let built = Redlock::builder().master(url).master("http://").build().await.unwrap_err();
        assert!(matches!(built, BuildError::Address { number: 2, .. }), "{url:?}: {built}");
    }
}

fn source(error: &dyn std::error::Error) -> String {
    error.source().map(|source| format!("{source} {source:?}")).unwrap_or_default()
}
