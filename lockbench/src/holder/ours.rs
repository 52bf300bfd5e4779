//! `InterProcessMutex` of this workspace.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use zookeeper_recipes::{Client, InterProcessMutex, LockGuard};

use super::Holder;
use crate::Error;
use crate::step::Open;

pub(super) struct Ours {
    client: Client,
    mutex: InterProcessMutex,
    guard: Mutex<Option<LockGuard>>,
}

impl Ours {
    fn with_guard<T>(&self, look: impl FnOnce(&mut Option<LockGuard>) -> T) -> T {
        look(&mut self.guard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the guard out of its place for a request.
    async fn lend<T>(&self, ask: impl AsyncFnOnce(&LockGuard) -> T) -> Result<T, Error> {
        // The second guard of the same hold leaves the first one free for questions.
        let guard = self.with_guard(|guard| guard.as_ref().map(LockGuard::reenter));
        let guard = guard.ok_or("not granted")??;
        Ok(ask(&guard).await)
    }
}

impl Holder for Ours {
    async fn open(open: &Open) -> Result<Self, Error> {
        let builder = Client::builder().session_timeout(Duration::from_millis(open.millis));
        let client = builder.connect(&open.servers).await?;
        let mutex = InterProcessMutex::new(&client, &open.path)?;
        Ok(Self {
            client,
            mutex,
            guard: Mutex::default(),
        })
    }

    async fn acquire(&self) -> Result<Option<(i64, i64)>, Error> {
        let guard = self.mutex.lock().await?;
        let token = guard.fencing_token().into();
        self.with_guard(|place| *place = Some(guard));
        Ok(Some(token))
    }

    fn is_held(&self) -> Option<bool> {
        self.with_guard(|guard| guard.as_ref().map(LockGuard::is_held))
    }

    async fn release(&self) -> Result<(), Error> {
        match self.with_guard(Option::take) {
            Some(guard) => Ok(guard.release().await?),
            None => Ok(()),
        }
    }

    async fn read(&self, node: &str) -> Result<(String, i64), Error> {
        let stored = self
            .lend(async |guard| guard.get_data(node).await)
            .await??;
        let data = stored.map(|(data, _)| data).unwrap_or_default();
        Ok((String::from_utf8(data)?, 0))
    }

    /// Writes by a transaction, which is refused when the lock is not held.
    async fn write(&self, node: &str, value: &str, _: i64) -> Result<(), Error> {
        let write = async |guard: &LockGuard| {
            guard
                .transaction()
                .set_data(node, value, None)
                .commit()
                .await
        };
        Ok(self.lend(write).await??)
    }

    async fn close(&self) {
        self.with_guard(Option::take);
        // The session ends all that is left on the servers.
        let _ = self.client.close().await;
    }
}
