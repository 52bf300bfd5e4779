//! `zookeeper_client::Client::lock`, which deletes in the background.

use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix, OwnedLockClient};

use super::drive::Contender;
use crate::Error;
use crate::job::{Job, Recipe, Release};

pub(crate) struct Session(Client);

impl Contender for Session {
    /// The directory.
    type Lock = String;
    type Guard = OwnedLockClient;

    async fn connect(job: &Job) -> Result<Self, Error> {
        match job.recipe {
            Recipe::Mutex => Ok(Self(Client::connect(&job.servers).await?)),
            recipe => Err(format!("Client::lock is a mutex, not {recipe:?}").into()),
        }
    }

    async fn lock(&self, _: &Job, path: &str) -> Result<String, Error> {
        self.0
            .mkdir(path, &CreateMode::Container.with_acls(Acls::anyone_all()))
            .await?;
        Ok(path.to_owned())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is what is measured; no call is cancelled"
    )]
    async fn acquire(&self, path: &String, _: bool) -> Result<OwnedLockClient, Error> {
        let options = LockOptions::new(Acls::anyone_all())
            .with_ancestor_options(CreateMode::Container.with_acls(Acls::anyone_all()))?;
        let lock = self
            .0
            .lock(LockPrefix::new_curator(path, "lock-")?, b"", options)
            .await?;
        Ok(lock.into_owned())
    }

    /// A lock of this kind can only be released by dropping it.
    async fn release(&self, lock: OwnedLockClient, _: Release) -> Result<(), Error> {
        drop(lock);
        Ok(())
    }
}
