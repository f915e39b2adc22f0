//! Three kinds of resources that check fencing tokens behave alike: a register in the process, a
//! hash in a real Redis, and a row in a real SQL database. A fourth one checks them carelessly.

use redquorum::resource::{REDIS_PRESENT, REDIS_READ, REDIS_WRITE, Register};
use redquorum_rig::trials::{Case, plain, with_masters};
use redquorum_rig::{Masters, RespValue};
use rusqlite::Connection;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        plain("a_register_in_the_process", || {
            obeys(&mut Register::new(0));
            assert_eq!(lost_update(&mut Register::new(0)), 2);
        }),
        plain("a_row_in_sqlite", || {
            obeys(&mut Row::new());
            assert_eq!(lost_update(&mut Row::new()), 2);
        }),
        with_masters("a_hash_in_redis", || {
            obeys(&mut Hash(Masters::start(1).unwrap()));
            assert_eq!(lost_update(&mut Hash(Masters::start(1).unwrap())), 2);
        }),
        plain("a_resource_that_takes_any_rising_token_loses_an_update", || {
            assert_eq!(lost_update(&mut Careless::default()), 1);
        }),
    ]
}

/// The operations of a resource with a token; it returns `None` to refuse.
trait Resource {
    fn present(&mut self, token: u64) -> Option<()>;
    fn read(&mut self, token: u64) -> Option<i64>;
    fn write(&mut self, token: u64, value: i64) -> Option<()>;
}

fn obeys(resource: &mut impl Resource) {
    assert_eq!(resource.read(3), None, "it was not presented");
    assert_eq!(resource.present(3), Some(()));
    assert_eq!(resource.read(3), Some(0));
    assert_eq!(resource.write(3, 1), Some(()));
    assert_eq!(resource.present(3), Some(()), "again");
    assert_eq!(resource.read(4), None, "larger, and not presented");
    assert_eq!(resource.write(4, 9), None, "larger, and not presented");
    // Exact at the largest tokens, where a double would not be.
    let last = redquorum::MAX_FENCING_TOKEN;
    for token in [1_795_000_000_123_456, last - 1, last] {
        assert_eq!(resource.present(token), Some(()));
        assert_eq!(resource.present(token - 1), None);
        assert_eq!(resource.read(token - 1), None);
        assert_eq!(resource.write(token - 1, 9), None);
        assert_eq!(resource.read(token), Some(1));
    }
    assert_eq!(resource.present(3), None);
}

/// Two holders increment a value, and the first is paused between its read and its write. Returns
/// the final value, which should be 2.
fn lost_update(resource: &mut impl Resource) -> i64 {
    resource.present(1).unwrap();
    let first = resource.read(1).unwrap();
    resource.present(2).unwrap();
    let second = resource.read(2).unwrap();
    // The pause is over.
    let late = resource.write(1, first + 1);
    if resource.write(2, second + 1).is_none() || late.is_none() {
        return 2;
    }
    resource.read(2).unwrap()
}

impl Resource for Register<i64> {
    fn present(&mut self, token: u64) -> Option<()> {
        Self::present(self, token).ok()
    }

    fn read(&mut self, token: u64) -> Option<i64> {
        Self::read(self, token).ok()
    }

    fn write(&mut self, token: u64, value: i64) -> Option<()> {
        Self::write(self, token, value).ok()
    }
}

/// The SQL of `docs/fencing.md`.
struct Row(Connection);

impl Row {
    fn new() -> Self {
        let connection = Connection::open_in_memory().unwrap();
        let table = "CREATE TABLE account (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL, \
                     fence BIGINT NOT NULL DEFAULT 0)";
        connection.execute(table, ()).unwrap();
        connection.execute("INSERT INTO account (id, balance) VALUES (1, 0)", ()).unwrap();
        Self(connection)
    }
}

fn number(token: u64) -> i64 {
    i64::try_from(token).unwrap()
}

impl Resource for Row {
    fn present(&mut self, token: u64) -> Option<()> {
        let sql = "UPDATE account SET fence = ?1 WHERE id = 1 AND fence <= ?1";
        (self.0.execute(sql, [number(token)]).unwrap() == 1).then_some(())
    }

    fn read(&mut self, token: u64) -> Option<i64> {
        let sql = "SELECT balance FROM account WHERE id = 1 AND fence = ?1";
        self.0.query_row(sql, [number(token)], |row| row.get(0)).ok()
    }

    fn write(&mut self, token: u64, value: i64) -> Option<()> {
        let sql = "UPDATE account SET balance = ?2 WHERE id = 1 AND fence = ?1";
        (self.0.execute(sql, [number(token), value]).unwrap() == 1).then_some(())
    }
}

struct Hash(Masters);

impl Hash {
    fn run(&self, script: &str, args: &[String]) -> RespValue {
        let mut words: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), b"1", b"account"];
        words.extend(args.iter().map(|arg| arg.as_bytes()));
        self.0.command(1, &words).unwrap()
    }
}

impl Resource for Hash {
    fn present(&mut self, token: u64) -> Option<()> {
        (self.run(REDIS_PRESENT, &[token.to_string()]) == RespValue::Integer(1)).then_some(())
    }

    fn read(&mut self, token: u64) -> Option<i64> {
        match self.run(REDIS_READ, &[token.to_string()]) {
            RespValue::Array(parts) => match parts.as_slice() {
                [RespValue::Integer(1), RespValue::Bulk(value)] => {
                    Some(std::str::from_utf8(value).unwrap().parse().unwrap())
                }
                // No value was written yet.
                [RespValue::Integer(1)] | [RespValue::Integer(1), RespValue::Nil] => Some(0),
                [RespValue::Integer(0)] => None,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, token: u64, value: i64) -> Option<()> {
        let args = [token.to_string(), value.to_string()];
        (self.run(REDIS_WRITE, &args) == RespValue::Integer(1)).then_some(())
    }
}

/// Checks tokens only in writes and accepts rising ones, as in the literature.
#[derive(Default)]
struct Careless {
    largest: u64,
    value: i64,
}

impl Resource for Careless {
    fn present(&mut self, _token: u64) -> Option<()> {
        Some(())
    }

    fn read(&mut self, _token: u64) -> Option<i64> {
        Some(self.value)
    }

    fn write(&mut self, token: u64, value: i64) -> Option<()> {
        (token >= self.largest).then(|| {
            self.largest = token;
            self.value = value;
        })
    }
}
