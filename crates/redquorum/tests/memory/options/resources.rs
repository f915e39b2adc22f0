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
        let empty = AcquireError::Options { resource: Vec::new(), error: BadOption::ResourceEmpty };
        assert_eq!(lock.acquire("").await.unwrap_err(), empty);
        assert_eq!(lock.try_acquire("").await.unwrap_err(), empty);
        let too_long = BadOption::ResourceTooLong { length: MAX + 1, longest: MAX };
        let resource = vec![0; longest + 1];
        let too_long = AcquireError::Options { resource: resource.clone(), error: too_long };
        assert_eq!(lock.acquire(&resource).await.unwrap_err(), too_long);
        assert_eq!(lock.try_acquire(&resource).await.unwrap_err(), too_long);
    }
}

#[tokio::test(start_paused = true)]
async fn the_names_of_the_locks_own_keys_are_refused() {
    let masters = Masters::new(3);
    let lock = masters.builder().build().await.unwrap();
    let refused = lock.try_acquire("redquorum:fence:r").await;
    assert!(
        matches!(refused, Err(AcquireError::Options { error: BadOption::ResourceReserved, .. })),
        "{refused:?}"
    );
    // The prefix can also make a resource's key a reserved one.
    let lock = masters.builder().prefix("red").build().await.unwrap();
    assert!(lock.try_acquire("quorum:r").await.is_err());
    assert!(lock.try_acquire("quorum").await.is_ok());
}
