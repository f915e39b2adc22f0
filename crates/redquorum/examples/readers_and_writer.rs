//! Many readers, or one writer: a catalogue of two files that belong together. Readers share it;
//! the writer replaces both files while nobody reads.
//!
//! ```text
//! just masters                   # in one terminal, or: cargo run -p redquorum-rig --bin masters
//! export REDQUORUM_URLS=…        # in another, the line that it printed
//! cargo run -p redquorum --example readers_and_writer
//! ```
//!
//! Start it several times at once: readers of all processes read at the same time, and no reader
//! ever sees the two files differ.

mod support;

use std::path::Path;
use std::time::Duration;
use std::{env, fs, io};

use redquorum::Redlock;
use support::Failure;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How long one of them works. Neither may take longer than the lease: `run` stops it there.
const WORK: Duration = Duration::from_millis(100);
const AT_MOST: Duration = Duration::from_secs(5);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let lock = Redlock::builder().masters(support::urls()?).require_quorum(true).build().await?;
    let folder = env::temp_dir().join("redquorum-catalogue");
    fs::create_dir_all(&folder)?;
    lock.acquire("catalogue").run(AT_MOST, async |_| write(&folder, 0).await).await??;
    let mut readers = JoinSet::new();
    for number in 1..=8 {
        let (lock, folder) = (lock.clone(), folder.clone());
        readers.spawn(async move {
            // Each begins when the others are reading. They do not wait for each other.
            sleep(WORK / 4 * number).await;
            lock.acquire("catalogue").shared().run(AT_MOST, async |_| read(&folder).await).await
        });
    }
    sleep(WORK).await;
    // It waits for the readers that hold now. Those that come later wait for it.
    lock.acquire("catalogue").run(AT_MOST, async |_| write(&folder, 1).await).await??;
    println!("written");
    for versions in readers.join_all().await {
        let [prices, texts] = versions??;
        assert_eq!(prices, texts, "the two files belong together");
        println!("read version {prices}");
    }
    lock.shutdown(Duration::from_secs(1)).await?;
    Ok(())
}

async fn write(folder: &Path, version: u32) -> io::Result<()> {
    fs::write(folder.join("prices"), version.to_string())?;
    sleep(WORK).await;
    fs::write(folder.join("texts"), version.to_string())
}

async fn read(folder: &Path) -> io::Result<[String; 2]> {
    let prices = fs::read_to_string(folder.join("prices"))?;
    sleep(WORK).await;
    Ok([prices, fs::read_to_string(folder.join("texts"))?])
}
