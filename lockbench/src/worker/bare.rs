//! The floor: the two writes of a lock node, and nothing that would make it a lock.

use zookeeper_client::{Acls, Client, CreateMode};

use super::drive::Contender;
use crate::Error;
use crate::job::{Job, Release};

pub(crate) struct Session(Client);

impl Contender for Session {
    /// What the node's name begins with.
    type Lock = String;
    /// The node.
    type Guard = String;

    async fn connect(job: &Job) -> Result<Self, Error> {
        Ok(Self(Client::connect(&job.servers).await?))
    }

    async fn lock(&self, _: &Job, path: &str) -> Result<String, Error> {
        self.0.mkdir(path, &CreateMode::Container.with_acls(Acls::anyone_all())).await?;
        // As long as a real one.
        Ok(format!("{path}/_c_01234567-89ab-cdef-0123-456789abcdef-lock-"))
    }

    async fn acquire(&self, prefix: &String, _: bool) -> Result<String, Error> {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (_, number) = self.0.create(prefix, b"", &options).await?;
        Ok(format!("{prefix}{number}"))
    }

    /// Waits always: the floor is two writes, one after the other.
    async fn release(&self, node: String, _: Release) -> Result<(), Error> {
        Ok(self.0.delete(&node, None).await?)
    }
}
