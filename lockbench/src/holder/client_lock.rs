//! `zookeeper_client::Client::lock`. Its guard has no signal of a loss: a careful user looks at the
//! state of the session.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use zookeeper_client::{
    Acls, Client, CreateMode, LockOptions, LockPrefix, OwnedLockClient, SessionState,
};

use super::Holder;
use crate::Error;
use crate::step::Open;

pub(super) struct ClientLock {
    open: Open,
    client: Mutex<Client>,
    lock: Mutex<Option<Held>>,
}

struct Held {
    lock: OwnedLockClient,
    client: Client,
}

impl ClientLock {
    fn held<T>(&self, look: impl FnOnce(&mut Option<Held>) -> T) -> T {
        look(&mut self.lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the session, or another one if it has ended.
    async fn session(&self) -> Result<Client, Error> {
        let client = self
            .client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if !client.state().is_terminated() {
            return Ok(client);
        }
        let client = connect(&self.open).await?;
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client.clone();
        Ok(client)
    }
}

async fn connect(open: &Open) -> Result<Client, Error> {
    let connector = Client::connector().with_session_timeout(Duration::from_millis(open.millis));
    Ok(connector.connect(&open.servers).await?)
}

impl Holder for ClientLock {
    async fn open(open: &Open) -> Result<Self, Error> {
        let client = connect(open).await?;
        client
            .mkdir(
                &open.path,
                &CreateMode::Container.with_acls(Acls::anyone_all()),
            )
            .await?;
        Ok(Self {
            open: open.clone(),
            client: Mutex::new(client),
            lock: Mutex::default(),
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is what is compared; no call is cancelled"
    )]
    async fn acquire(&self) -> Result<Option<(i64, i64)>, Error> {
        let client = self.session().await?;
        let options = LockOptions::new(Acls::anyone_all())
            .with_ancestor_options(CreateMode::Container.with_acls(Acls::anyone_all()))?;
        let lock = client
            .lock(
                LockPrefix::new_curator(&self.open.path, "lock-")?,
                b"",
                options,
            )
            .await?;
        let lock = lock.into_owned();
        self.held(|held| *held = Some(Held { lock, client }));
        Ok(None)
    }

    fn is_held(&self) -> Option<bool> {
        let connected = |held: &Held| held.client.state() == SessionState::SyncConnected;
        self.held(|held| {
            held.as_ref()
                .map(|held| !self.open.careful || connected(held))
        })
    }

    async fn release(&self) -> Result<(), Error> {
        // Deletes in the background; there is no other way.
        drop(self.held(Option::take));
        Ok(())
    }

    async fn read(&self, node: &str) -> Result<(String, i64), Error> {
        let (data, stat) = self.session().await?.get_data(node).await?;
        Ok((String::from_utf8(data)?, stat.version.into()))
    }

    /// Writes with the lock's guarded write, which is refused when the lock's node is gone.
    async fn write(&self, node: &str, value: &str, _: i64) -> Result<(), Error> {
        let lock = self.held(|held| {
            held.as_ref()
                .map(|held| (held.client.clone(), held.lock.lock_path().to_owned()))
        });
        let (client, path) = lock.ok_or("not granted")?;
        let mut writer = client.new_check_writer(&path, None)?;
        writer.add_set_data(node, value.as_bytes(), None)?;
        writer.commit().await?;
        Ok(())
    }

    async fn close(&self) {
        drop(self.held(Option::take));
    }
}
