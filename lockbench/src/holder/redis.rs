//! The lock that Redis documents for one server: `SET NX PX` with a value of its own, and a script
//! that deletes the key only if it still has this value. A careful user also extends the key's time
//! while it holds the lock, by a script of the same kind, and counts the validity from when the
//! last extension that succeeded was sent.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::Holder;
use crate::Error;
use crate::step::Open;

const RELEASE: &str = "
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0
";
const EXTEND: &str = "
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end
return 0
";
/// A write that is for data on the same server only.
const WRITE: &str = "
if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('set', KEYS[2], ARGV[2]) return 1 end
return 0
";
/// How long a waiter waits before it asks again.
const AGAIN: Duration = Duration::from_millis(20);
/// The clock drift in hundredths that the documentation of Redlock assumes.
const DRIFT: u32 = 100;

pub(super) struct Redis {
    open: Open,
    client: Client,
    shared: Arc<Shared>,
    random: RandomState,
    drawn: AtomicU64,
    extending: Mutex<Option<AbortHandle>>,
}

struct Shared {
    connection: tokio::sync::Mutex<Option<MultiplexedConnection>>,
    hold: Mutex<Option<Hold>>,
}

#[derive(Clone)]
struct Hold {
    value: String,
    valid_until: Instant,
}

impl Redis {
    fn time_to_live(&self) -> Duration {
        Duration::from_millis(self.open.millis)
    }

    fn hold<T>(&self, look: impl FnOnce(&mut Option<Hold>) -> T) -> T {
        self.shared.hold(look)
    }

    /// Calls with a connection, which is made again after an error.
    async fn call<T: redis::FromRedisValue + Send + Sync>(
        &self,
        call: &(impl Call + Sync),
    ) -> Result<T, Error> {
        self.shared
            .call(&self.client, self.time_to_live() / 3, call)
            .await
    }

    fn random(&self) -> u64 {
        self.random
            .hash_one(self.drawn.fetch_add(1, Ordering::Relaxed))
    }

    /// Extends the key's time every third of it.
    fn extend(&self, value: &str) {
        let (shared, client, value) = (
            Arc::clone(&self.shared),
            self.client.clone(),
            value.to_owned(),
        );
        let (path, time) = (self.open.path.clone(), self.time_to_live());
        let task = tokio::spawn(async move {
            loop {
                sleep(time / 3).await;
                let sent = Instant::now();
                let script = Script::new(EXTEND);
                let mut call = script.key(&path);
                call.arg(&value).arg(time.as_millis() as u64);
                let extended: Result<i64, Error> =
                    shared.call(&client, time / 3, &Scripted(&call)).await;
                shared.hold(|hold| {
                    match (hold.as_mut().filter(|hold| hold.value == value), extended) {
                        (Some(hold), Ok(1)) => hold.valid_until = sent + time - time / DRIFT,
                        // Another holder has the lock, or it is free.
                        (Some(hold), Ok(_)) => hold.valid_until = sent,
                        _ => {}
                    }
                });
            }
        });
        let former = self
            .extending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(task.abort_handle());
        former.inspect(AbortHandle::abort);
    }
}

/// A command that is sent.
trait Call {
    fn send<T: redis::FromRedisValue + Send + Sync>(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> impl Future<Output = redis::RedisResult<T>> + Send;
}

impl Call for redis::Cmd {
    async fn send<T: redis::FromRedisValue + Send + Sync>(
        &self,
        to: &mut MultiplexedConnection,
    ) -> redis::RedisResult<T> {
        self.query_async(to).await
    }
}

struct Scripted<'a>(&'a redis::ScriptInvocation<'a>);

impl Call for Scripted<'_> {
    async fn send<T: redis::FromRedisValue + Send + Sync>(
        &self,
        to: &mut MultiplexedConnection,
    ) -> redis::RedisResult<T> {
        self.0.invoke_async(to).await
    }
}

impl Shared {
    fn hold<T>(&self, look: impl FnOnce(&mut Option<Hold>) -> T) -> T {
        look(&mut self.hold.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn call<T: redis::FromRedisValue + Send + Sync>(
        &self,
        client: &Client,
        patience: Duration,
        call: &(impl Call + Sync),
    ) -> Result<T, Error> {
        let known = self.connection.lock().await.clone();
        let mut connection = match known {
            Some(connection) => connection,
            None => {
                let config = AsyncConnectionConfig::new()
                    .set_response_timeout(Some(patience))
                    .set_connection_timeout(Some(patience));
                let made = client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await?;
                self.connection.lock().await.insert(made).clone()
            }
        };
        let answer = call.send(&mut connection).await;
        if answer.is_err() {
            self.connection.lock().await.take();
        }
        Ok(answer?)
    }
}

impl Holder for Redis {
    async fn open(open: &Open) -> Result<Self, Error> {
        let client = Client::open(format!("redis://{}", open.servers))?;
        let shared = Shared {
            connection: tokio::sync::Mutex::default(),
            hold: Mutex::default(),
        };
        let holder = Self {
            open: open.clone(),
            client,
            shared: Arc::new(shared),
            random: RandomState::new(),
            drawn: AtomicU64::new(0),
            extending: Mutex::default(),
        };
        holder.call::<String>(&redis::cmd("PING")).await?;
        Ok(holder)
    }

    async fn acquire(&self) -> Result<Option<(i64, i64)>, Error> {
        let value = format!("{:016x}{:016x}", self.random(), self.random());
        let mut set = redis::cmd("SET");
        set.arg(&self.open.path)
            .arg(&value)
            .arg("NX")
            .arg("PX")
            .arg(self.open.millis);
        loop {
            let sent = Instant::now();
            // After a lost answer the key may already have this value, and then has to expire.
            if let Ok(Some(_)) = self.call::<Option<String>>(&set).await {
                let valid_until = sent + self.time_to_live() - self.time_to_live() / DRIFT;
                self.hold(|hold| {
                    *hold = Some(Hold {
                        value: value.clone(),
                        valid_until,
                    });
                });
                if self.open.careful {
                    self.extend(&value);
                }
                return Ok(None);
            }
            sleep(AGAIN).await;
        }
    }

    fn is_held(&self) -> Option<bool> {
        self.hold(|hold| {
            hold.as_ref()
                .map(|hold| !self.open.careful || Instant::now() < hold.valid_until)
        })
    }

    async fn release(&self) -> Result<(), Error> {
        if let Some(task) = self
            .extending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            task.abort();
        }
        let Some(hold) = self.hold(Option::take) else {
            return Ok(());
        };
        let script = Script::new(RELEASE);
        let mut call = script.key(&self.open.path);
        call.arg(&hold.value);
        let first = self.call::<i64>(&Scripted(&call)).await;
        if first.is_err() {
            // The key may still exist.
            self.call::<i64>(&Scripted(&call)).await?;
        }
        Ok(())
    }

    async fn read(&self, node: &str) -> Result<(String, i64), Error> {
        let mut get = redis::cmd("GET");
        get.arg(node);
        Ok((
            self.call::<Option<String>>(&get).await?.unwrap_or_default(),
            0,
        ))
    }

    async fn write(&self, node: &str, value: &str, _: i64) -> Result<(), Error> {
        let hold = self.hold(|hold| hold.clone()).ok_or("not granted")?;
        let script = Script::new(WRITE);
        let mut call = script.key(&self.open.path);
        call.key(node).arg(&hold.value).arg(value);
        match self.call::<i64>(&Scripted(&call)).await? {
            1 => Ok(()),
            _ => Err("the key is not ours".into()),
        }
    }

    async fn close(&self) {
        if let Some(task) = self
            .extending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            task.abort();
        }
        drop(self.hold(Option::take));
    }
}
