//! A flash sale in one process: 99 tasks want 3 items, eight run at a time, and a mutex keeps them
//! apart.
//!
//! ```text
//! cargo run --example article_mutex
//! ZK_CONNECT=127.0.0.1:2181 cargo run --example article_mutex
//! ```
//!
//! This is the program of an article about Curator, without one of its errors. There each task took
//! an item off the stock if the stock was not below zero, so it sold one item too many. Here a task
//! sells only if there is an item left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use zookeeper_recipes::{Client, InterProcessMutex, RetryPolicy};
use zookeeper_test_server::Server;

/// Any failure; it ends the program with exit code 1.
type Error = Box<dyn std::error::Error + Send + Sync>;

const PATH: &str = "/lock/lockId_111/111";
const TASKS: u32 = 99;
const AT_ONCE: usize = 8;
const STOCK: u32 = 3;
/// How long a task waits for the lock.
const WAIT: Duration = Duration::from_millis(200);
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
    let mutex = InterProcessMutex::new(&client, PATH)?;
    let stock = Arc::new(AtomicU32::new(STOCK));

    let pool = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let permit = Arc::clone(&pool).acquire_owned().await?;
        let (mutex, stock) = (mutex.clone(), Arc::clone(&stock));
        tasks.spawn(async move {
            let outcome = purchase(&mutex, &stock).await;
            drop(permit);
            outcome
        });
    }

    let (mut sold, mut sold_out) = (0, 0);
    while let Some(outcome) = tasks.join_next().await {
        match outcome?? {
            Outcome::Sold => sold += 1,
            Outcome::SoldOut => sold_out += 1,
            Outcome::TooBusy => {}
        }
    }
    let left = stock.load(Ordering::Relaxed);
    println!("remaining stock: {left}");

    if sold + left != STOCK || (sold_out > 0 && left > 0) || mutex.is_acquired_in_this_process() {
        return Err(format!(
            "{sold} sold of {STOCK}, {sold_out} found nothing left, and {left} are left"
        )
        .into());
    }
    client.close().await?;
    Ok(())
}

enum Outcome {
    Sold,
    SoldOut,
    TooBusy,
}

async fn purchase(mutex: &InterProcessMutex, stock: &AtomicU32) -> Result<Outcome, Error> {
    // The article asks `isAcquiredInThisProcess()` before it releases. Here only the holder has a
    // guard to release.
    let guard = match mutex.acquire(WAIT).await {
        Ok(guard) => guard,
        // Other processes hold the lock, or the servers did not answer in this time.
        Err(error) if error.is_retryable() => {
            println!("too busy");
            return Ok(Outcome::TooBusy);
        }
        Err(error) => return Err(error.into()),
    };
    // Reading and writing the stock are two steps with time in between. The lock makes them one.
    let outcome = match stock.load(Ordering::Relaxed) {
        0 => {
            println!("out of stock");
            Outcome::SoldOut
        }
        left => {
            tokio::time::sleep(PAYING).await;
            stock.store(left - 1, Ordering::Relaxed);
            println!("bought one");
            Outcome::Sold
        }
    };
    guard.release().await?;
    Ok(outcome)
}
