//! Names of resources: any bytes, from one byte to a mebibyte including the prefix.

use redquorum::memory::Masters;
use redquorum::{AcquireError, BadOption, Outcome};

const MAX: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn a_name_has_one_byte_to_a_mebibyte_with_its_prefix() {
    let masters = Masters::new(3);
    for prefix in ["", "locks:"] {
        let lock = masters.builder().prefix(prefix).build().await.unwrap();
        let longest = MAX - prefix.len();
        for length in [1, longest] {
            let lease = lock.acquire(vec![b'x'; length]).await.unwrap();
            let key = [prefix.as_bytes(), &vec![b'x'; length]].concat();
            assert!(masters.value(1, key).is_some());
            assert_eq!(lease.resource(), vec![b'x'; length], "without the prefix");
            assert_eq!(lease.release().await.outcome, Outcome::Released);
        }
        let empty = AcquireError::Options(BadOption::ResourceEmpty);
        assert_eq!(lock.acquire("").await.unwrap_err(), empty);
        assert_eq!(lock.try_acquire("").await.unwrap_err(), empty);
        let too_long = BadOption::ResourceTooLong { length: MAX + 1, longest: MAX };
        let too_long = AcquireError::Options(too_long);
        let resource = vec![0; longest + 1];
        assert_eq!(lock.acquire(&resource).await.unwrap_err(), too_long);
        assert_eq!(lock.try_acquire(&resource).await.unwrap_err(), too_long);
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_may_be_any_bytes_and_names_are_kept_apart() {
    let masters = Masters::new(3);
    let lock = masters.builder().build().await.unwrap();
    let names: [&[u8]; 10] = [
        b"\0",
        b"\0\0",
        b"\r\n",
        b"a\r\n$5\r\nb",
        b"*1\r\n$8\r\nFLUSHALL\r\n",
        b"a b",
        b"\xff\xfe",
        b"{a}b",
        b"'\"\\",
        "ключ 🔒".as_bytes(),
    ];
    let mut held = Vec::new();
    for name in names {
        held.push(lock.try_acquire(name).await.unwrap().expect("each is free"));
        assert!(masters.value(3, name).is_some(), "{}", name.escape_ascii());
    }
    for (name, lease) in names.into_iter().zip(held) {
        assert!(lock.try_acquire(name).await.unwrap().is_none());
        lease.extend().await.unwrap();
        let shown = format!("{lease:?}");
        assert!(!shown.chars().any(char::is_control), "{shown}");
        assert_eq!(lease.release().await.outcome, Outcome::Released);
        assert!(lock.try_acquire(name).await.unwrap().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_prefix_keeps_two_locks_on_the_same_masters_apart() {
    let masters = Masters::new(3);
    let one = masters.builder().prefix("one:").build().await.unwrap();
    let other = masters.builder().prefix(b"other:\0").build().await.unwrap();
    let _held = one.acquire("r").await.unwrap();
    let _too = other.try_acquire("r").await.unwrap().expect("another key");
    // The prefix is part of the key and has no other effect.
    let plain = masters.builder().build().await.unwrap();
    assert!(plain.try_acquire("one:r").await.unwrap().is_none());
    assert!(plain.try_acquire("r").await.unwrap().is_some());
}
