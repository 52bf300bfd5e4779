//! The lock that is customary on Redis: `SET NX PX` with a value of its own, and a script that
//! deletes the key only if it still has this value.
//!
//! A waiter asks again after a while, which is short at first, doubles, and is random, so that
//! waiters do not walk in step; a release in the same client wakes one of its waiters at once.
//! Redisson wakes a waiter of each client by a message for each release, and all of them ask: with
//! 32 clients that served a fraction of what this does.
//!
//! It is not fair, and it is one server's: no replica need have the key when the server that
//! granted it is lost.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _, Script};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::drive::Contender;
use crate::Error;
use crate::job::{Job, Recipe, Release};

/// How long the server keeps a lock that is not released. Who holds it for longer renews it;
/// nothing here does.
const LEASE: Duration = Duration::from_secs(30);
/// How long a waiter waits for its second attempt, at most; tokio has no shorter timers.
const FIRST_WAIT: Duration = Duration::from_millis(1);
/// How long it waits for the next one at most.
const LONGEST_WAIT: Duration = Duration::from_millis(32);

/// Deletes the key, if the lock is still the caller's.
const RELEASE: &str = "
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0
";

/// A connection.
pub(crate) struct Session {
    connection: MultiplexedConnection,
    release: Script,
    paths: Mutex<HashMap<String, Arc<Path>>>,
    /// Makes values that no one else makes, and spreads the waits.
    random: RandomState,
    drawn: AtomicU64,
}

/// The state of a lock that the tasks of a connection share.
#[derive(Debug)]
pub(crate) struct Path {
    key: String,
    released: Notify,
}

/// A lock that is held.
pub(crate) struct Guard {
    path: Arc<Path>,
    value: String,
}

impl Contender for Session {
    type Lock = Arc<Path>;
    type Guard = Guard;

    async fn connect(job: &Job) -> Result<Self, Error> {
        if job.recipe != Recipe::Mutex {
            return Err(format!(
                "unsupported: a lock on Redis is a mutex, not {:?}",
                job.recipe
            )
            .into());
        }
        // Off by default, and then Nagle's algorithm holds back what is sent while a request is on
        // its way.
        let tcp = TcpSettings::default().set_nodelay(true);
        let info = format!("redis://{}", job.servers)
            .into_connection_info()?
            .set_tcp_settings(tcp);
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        Ok(Self {
            connection: Client::open(info)?
                .get_multiplexed_async_connection_with_config(&config)
                .await?,
            release: Script::new(RELEASE),
            paths: Mutex::default(),
            random: RandomState::new(),
            drawn: AtomicU64::new(0),
        })
    }

    async fn lock(&self, _: &Job, key: &str) -> Result<Arc<Path>, Error> {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        let path = || {
            Arc::new(Path {
                key: key.to_owned(),
                released: Notify::new(),
            })
        };
        Ok(Arc::clone(paths.entry(key.to_owned()).or_insert_with(path)))
    }

    async fn acquire(&self, path: &Arc<Path>, _: bool) -> Result<Guard, Error> {
        let value = format!("{:016x}{:016x}", self.random(), self.random());
        let lease = u64::try_from(LEASE.as_millis())?;
        let mut set = redis::cmd("SET");
        set.arg(&path.key)
            .arg(&value)
            .arg("NX")
            .arg("PX")
            .arg(lease);
        let mut wait = FIRST_WAIT;
        loop {
            let set: Option<String> = set.query_async(&mut self.connection.clone()).await?;
            if set.is_some() {
                return Ok(Guard {
                    path: Arc::clone(path),
                    value,
                });
            }
            // The pause is between half of `wait` and all of it.
            let part = wait / 2 + wait.mul_f64((self.random() % 1024) as f64 / 2048.0);
            if timeout(part, path.released.notified()).await.is_err() {
                wait = LONGEST_WAIT.min(2 * wait);
            }
        }
    }

    /// Waits always, as its clients do.
    async fn release(&self, guard: Guard, _: Release) -> Result<(), Error> {
        let mut call = self.release.key(&guard.path.key);
        let deleted = call
            .arg(&guard.value)
            .invoke_async(&mut self.connection.clone())
            .await?;
        guard.path.released.notify_one();
        match deleted {
            1 => Ok(()),
            _ => Err(format!("the lease of {} ran out", guard.path.key).into()),
        }
    }
}

impl Session {
    fn random(&self) -> u64 {
        self.random
            .hash_one(self.drawn.fetch_add(1, Ordering::Relaxed))
    }
}
