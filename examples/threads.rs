//! The article's two programs as threads: no executor, and the methods that block.
//!
//! ```text
//! cargo run --example threads -- mutex
//! cargo run --example threads -- read-write
//! ```
//!
//! The programs print what `article_mutex` and `article_read_write` print, which run as tasks.
//! Eight threads, as in the article, share one client. `ZK_CONNECT=127.0.0.1:2181` names other
//! servers than the one inside this process.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use zookeeper_recipes::{Client, InterProcessMutex, InterProcessReadWriteLock};
use zookeeper_test_server::Server;

/// Any failure; it ends the program with exit code 1.
type Error = Box<dyn std::error::Error + Send + Sync>;

const THREADS: u32 = 8;
const STOCK: u32 = 3;
/// How long a purchase takes.
const PAYING: Duration = Duration::from_millis(5);

fn main() -> Result<(), Error> {
    let local = Server::start()?;
    let servers = std::env::var("ZK_CONNECT").unwrap_or_else(|_| local.connect_string());
    let client = Client::blocking_connect(&servers)?;
    match std::env::args().nth(1).as_deref() {
        Some("mutex") => mutex(&client)?,
        Some("read-write") => read_write(&client)?,
        _ => return Err("which program: mutex, or read-write?".into()),
    }
    client.blocking_close()?;
    Ok(())
}

/// Runs `task` this many times on the threads, each of which takes the next when it is free.
/// Returns the first failure.
fn run(tasks: u32, task: impl Fn() -> Result<(), Error> + Sync) -> Result<(), Error> {
    let (begun, failed) = (AtomicU32::new(0), Mutex::new(None));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while begun.fetch_add(1, Ordering::Relaxed) < tasks {
                    if let (Err(error), Ok(mut failed)) = (task(), failed.lock()) {
                        failed.get_or_insert(error);
                    }
                }
            });
        }
    });
    failed.into_inner()?.map_or(Ok(()), Err)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a purchase takes its time; nothing is waited for"
)]
fn pay() {
    thread::sleep(PAYING);
}

/// 99 users want 3 items.
fn mutex(client: &Client) -> Result<(), Error> {
    let mutex = InterProcessMutex::new(client, "/lock/lockId_111/111")?;
    let stock = AtomicU32::new(STOCK);
    run(99, || {
        let guard = match mutex.blocking_acquire(Duration::from_millis(200)) {
            Ok(guard) => guard,
            // Other threads hold the lock, or the servers did not answer in this time.
            Err(error) if error.is_retryable() => {
                println!("too busy");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        match stock.load(Ordering::Relaxed) {
            0 => println!("out of stock"),
            left => {
                pay();
                stock.store(left - 1, Ordering::Relaxed);
                println!("bought one");
            }
        }
        Ok(guard.blocking_release()?)
    })?;
    println!("remaining stock: {}", stock.into_inner());
    Ok(())
}

/// 16 users look at the stock under the read lock, and then buy under the write lock.
fn read_write(client: &Client) -> Result<(), Error> {
    let lock = InterProcessReadWriteLock::new(client, "/lock/lockId_111/1111")?;
    let stock = AtomicU32::new(STOCK);
    run(16, || {
        let guard = lock.read_lock().blocking_acquire(Duration::from_secs(10))?;
        println!("read {}", stock.load(Ordering::Relaxed));
        guard.blocking_release()?;

        let guard = lock
            .write_lock()
            .blocking_acquire(Duration::from_secs(10))?;
        match stock.load(Ordering::Relaxed) {
            0 => println!("out of stock"),
            left => {
                pay();
                stock.store(left - 1, Ordering::Relaxed);
                println!("sold one, left {}", left - 1);
            }
        }
        Ok(guard.blocking_release()?)
    })
}
