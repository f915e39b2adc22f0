//! Two workers add to a balance in an SQL database, under fencing tokens. One worker is stopped
//! between its read and its write until the other has finished: the database refuses its write.
//!
//! ```text
//! just masters                   # in one terminal, or: cargo run -p redquorum-rig --bin masters
//! export REDQUORUM_URLS=…        # in another, the line that it printed
//! cargo run -p redquorum --example fenced_sqlite
//! ```
//!
//! The SQL also runs on PostgreSQL and MySQL: see `docs/fencing.md` for the details there.

mod support;

use std::io::Error;
use std::time::Duration;

use redquorum::{Lease, Redlock};
use rusqlite::Connection;
use support::Failure;
use tokio::time::sleep;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let lock = Redlock::builder().masters(support::urls()?).require_quorum(true).build().await?;
    let database = Connection::open_in_memory()?;
    database.execute_batch(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL,
                               fence BIGINT NOT NULL DEFAULT 0);
         INSERT INTO account (id, balance) VALUES (42, 100);",
    )?;

    let ttl = Duration::from_millis(800);
    let slow = lock.acquire("account:42").ttl(ttl).fenced().await?;
    let read = begin(&database, &slow)?;
    println!("slow worker: token {}, reads {read}", slow.fencing_token().unwrap());
    // This worker stops here, past its deadline: a long garbage collection, a suspended machine.
    sleep(ttl + Duration::from_millis(100)).await;

    let quick = lock.acquire("account:42").ttl(ttl).fenced().await?;
    let other = begin(&database, &quick)?;
    println!("quick worker: token {}, reads {other}", quick.fencing_token().unwrap());
    println!("quick worker writes {}: {}", other + 5, end(&database, &quick, other + 5)?);
    let _ = quick.release().await;

    // Without the token this write would overwrite the update of the quick worker.
    println!("slow worker writes {}: {}", read + 1, end(&database, &slow, read + 1)?);
    let sql = "SELECT balance FROM account WHERE id = 42";
    let balance: i64 = database.query_row(sql, (), |row| row.get(0))?;
    println!("balance: {balance}");
    if balance != 105 {
        return Err(Error::other("an update is lost").into());
    }
    lock.shutdown(Duration::from_secs(1)).await?;
    Ok(())
}

/// Presents the token, and reads the balance.
fn begin(database: &Connection, lease: &Lease) -> Result<i64, Failure> {
    let token = i64::try_from(lease.fencing_token().unwrap())?;
    let sql = "UPDATE account SET fence = ?1 WHERE id = 42 AND fence <= ?1";
    if database.execute(sql, [token])? == 0 {
        return Err(Error::other("a larger token was presented").into());
    }
    let sql = "SELECT balance FROM account WHERE id = 42 AND fence = ?1";
    Ok(database.query_row(sql, [token], |row| row.get(0))?)
}

/// Writes the balance. Returns false if a larger token was presented since: the other holder has
/// read the balance and will write it.
fn end(database: &Connection, lease: &Lease, balance: i64) -> Result<bool, Failure> {
    let token = i64::try_from(lease.fencing_token().unwrap())?;
    let sql = "UPDATE account SET balance = ?2 WHERE id = 42 AND fence = ?1";
    Ok(database.execute(sql, [token, balance])? == 1)
}
