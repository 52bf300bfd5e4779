//! Data in ZooKeeper, read and written with a plain client.

use std::time::Duration;

use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError};

use super::Error;

/// A session for data, beside that of the locks.
#[derive(Debug)]
pub(crate) struct Tree(Client);

impl Tree {
    pub(crate) async fn connect(servers: &str, session_timeout: Duration) -> Result<Self, Error> {
        Ok(Self(
            Client::connector()
                .with_session_timeout(session_timeout)
                .connect(servers)
                .await?,
        ))
    }

    /// Creates a node and its parents.
    pub(crate) async fn make(&self, path: &str, data: &str) -> Result<(), Error> {
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        if let Some((parent, _)) = path
            .rsplit_once('/')
            .filter(|(parent, _)| !parent.is_empty())
        {
            self.0.mkdir(parent, &persistent).await?;
        }
        self.create(path, data).await
    }

    /// Creates a node; its parent must exist.
    pub(crate) async fn create(&self, path: &str, data: &str) -> Result<(), Error> {
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        self.0.create(path, data.as_bytes(), &persistent).await?;
        Ok(())
    }

    /// Sets a node's data, whatever its version.
    pub(crate) async fn set(&self, path: &str, data: &str) -> Result<(), Error> {
        self.0.set_data(path, data.as_bytes(), None).await?;
        Ok(())
    }

    /// Returns a node's data and its version; `None` if there is no such node.
    ///
    /// The result shows everything that was committed before the call. Without the `sync`, the
    /// server of this session may not yet know what others have written, even if the session of the
    /// locks has seen that they are done.
    pub(crate) async fn read(&self, path: &str) -> Result<Option<(String, i32)>, Error> {
        self.0.sync(path).await?;
        match self.0.get_data(path).await {
            Ok((data, stat)) => Ok(Some((String::from_utf8(data)?, stat.version))),
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns a node's number and its version.
    pub(crate) async fn number(&self, path: &str) -> Result<(u32, i32), Error> {
        let (data, version) = self
            .read(path)
            .await?
            .ok_or_else(|| format!("there is no node {path}"))?;
        Ok((data.parse()?, version))
    }

    /// Returns the names of a node's children, as of the call.
    pub(crate) async fn children(&self, path: &str) -> Result<Vec<String>, Error> {
        self.0.sync(path).await?;
        Ok(self.0.list_children(path).await?)
    }

    /// Deletes a node with all that is below it.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), Error> {
        let (mut nodes, mut rest) = (Vec::new(), vec![path.to_owned()]);
        while let Some(node) = rest.pop() {
            let children = self.children(&node).await?;
            rest.extend(children.iter().map(|child| format!("{node}/{child}")));
            nodes.push(node);
        }
        let mut deletion = self.0.new_multi_writer();
        // Children before their parents.
        for node in nodes.iter().rev() {
            deletion.add_delete(node, None)?;
        }
        deletion.commit().await?;
        Ok(())
    }
}
