//! Readers and writers in one process: 16 tasks look at the stock under a read lock, beside each
//! other, and then buy under the write lock, one at a time.
//!
//! ```text
//! cargo run --example article_read_write
//! ZK_CONNECT=127.0.0.1:2181 cargo run --example article_read_write
//! ```
//!
//! This is the other program of the article about Curator. Eight tasks run at a time. The first
//! eight readers see 3 together; then come the eight writers, three of which find an item. The
//! other eight readers have queued behind them and see 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use zookeeper_recipes::{Client, InterProcessReadWriteLock, RetryPolicy};
use zookeeper_test_server::Server;

/// Any failure; it ends the program with exit code 1.
type Error = Box<dyn std::error::Error + Send + Sync>;

const PATH: &str = "/lock/lockId_111/1111";
const TASKS: u32 = 16;
const AT_ONCE: usize = 8;
const STOCK: u32 = 3;
/// How long a task waits for a lock.
const WAIT: Duration = Duration::from_secs(10);
/// How long a purchase takes.
const PAYING: Duration = Duration::from_millis(5);

#[tokio::main]
async fn main() -> Result<(), Error> {
    // A server inside this process, unless ZK_CONNECT names others.
    let local = Server::start()?;
    let servers = std::env::var("ZK_CONNECT").unwrap_or_else(|_| local.connect_string());

    let client = Client::builder()
        .session_timeout(Duration::from_secs(5))
        .connect_timeout(Duration::from_secs(5))
        .retry_policy(RetryPolicy::exponential(
            Duration::from_secs(1),
            3,
            Duration::from_secs(5),
        ))
        .connect(&servers)
        .await?;
    let lock = Arc::new(InterProcessReadWriteLock::new(&client, PATH)?);
    let stock = Arc::new(AtomicU32::new(STOCK));

    let pool = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let permit = Arc::clone(&pool).acquire_owned().await?;
        let (lock, stock) = (Arc::clone(&lock), Arc::clone(&stock));
        tasks.spawn(async move {
            look(&lock, &stock).await?;
            let bought = buy(&lock, &stock).await;
            drop(permit);
            bought
        });
    }

    let mut sold = 0;
    while let Some(bought) = tasks.join_next().await {
        sold += u32::from(bought??);
    }
    let left = stock.load(Ordering::Relaxed);
    if (sold, left) != (STOCK, 0) {
        return Err(format!("{sold} sold of {STOCK}, and {left} are left").into());
    }
    client.close().await?;
    Ok(())
}

/// Reads the stock under the read lock: other readers may be inside too.
async fn look(lock: &InterProcessReadWriteLock, stock: &AtomicU32) -> Result<(), Error> {
    let guard = lock.read_lock().acquire(WAIT).await?;
    println!("read {}", stock.load(Ordering::Relaxed));
    guard.release().await?;
    Ok(())
}

/// Buys an item under the write lock, alone; returns whether there was one. Others may have bought
/// since `look`, so the stock is read again.
async fn buy(lock: &InterProcessReadWriteLock, stock: &AtomicU32) -> Result<bool, Error> {
    let guard = lock.write_lock().acquire(WAIT).await?;
    let left = stock.load(Ordering::Relaxed);
    if left > 0 {
        // Reading and writing the stock are two steps with time in between. The lock makes them
        // one.
        tokio::time::sleep(PAYING).await;
        stock.store(left - 1, Ordering::Relaxed);
        println!("sold one, left {}", left - 1);
    } else {
        println!("out of stock");
    }
    guard.release().await?;
    Ok(left > 0)
}
