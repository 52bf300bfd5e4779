//! Writes, which renew the lease of the session by their answers (docs/protocol.md#renewal).
//!
//! [`Session::write`] sends a write, [`Session::create`] the create of a node, and
//! [`Session::commit`] a transaction, in the work of a request. The first two send when they are
//! called, so that the caller determines the order of its requests. A transaction is sent when its
//! future is polled first.
//!
//! The renewal counts from a moment before the request was sent, because the servers may count the
//! session timeout from the moment when they receive the request. An error renews the lease too if
//! only the leader can have decided it, because such an error was committed like any other
//! transaction. An error that the connected server or the client library may have produced renews
//! nothing, because a server that is cut off from the leader may return it for many seconds.
//! Directories, and requests for revocation, are written by other functions, and renew no lease.
//!
//! A created node must belong to the session. If it belongs to another session, the servers have
//! replaced ours, which then ends without a renewal (docs/protocol.md#owner-check).
//!
//! Directories of locks are created as containers, which the servers delete when they are empty,
//! unless the servers do not support containers (docs/protocol.md#directories).

use zookeeper_client as zk;

use crate::session::core::Core;
use crate::session::live::zk_session::{Session, answers};
use crate::session::threads::clock;
use crate::values::options::{Acl, ParentNodes, Permissions};
use crate::values::path::above;

/// The error of a write.
pub(crate) trait WriteError {
    /// Returns whether the error renews the lease nevertheless, because the leader, and not only
    /// the connected server or the client library, decided the refusal and committed it like any
    /// other transaction.
    fn is_renewal(&self) -> bool;
}

impl WriteError for zk::Error {
    fn is_renewal(&self) -> bool {
        // NoAuth does not count, since the connected server may decide it by itself
        // (`enableEagerACLCheck`).
        matches!(
            self,
            Self::NoNode
                | Self::NodeExists
                | Self::NotEmpty
                | Self::BadVersion
                | Self::NoChildrenForEphemerals
        )
    }
}

impl WriteError for zk::MultiWriteError {
    fn is_renewal(&self) -> bool {
        // Only the leader decides a check. In an expired session checks fail too, with an error
        // that does not renew the lease.
        let Self::OperationFailed { source, .. } = self else {
            return false;
        };
        matches!(
            source,
            zk::Error::NoNode | zk::Error::NoAuth | zk::Error::BadVersion
        )
    }
}

impl Session {
    /// Sends a write when this is called, and renews the lease by the answer.
    pub(crate) fn write<T, E: WriteError, F: Future<Output = Result<T, E>>>(
        &self,
        send: impl FnOnce() -> F,
    ) -> impl Future<Output = F::Output> {
        // The clock is read before the request is sent. A task that is paused between the two
        // renews the lease for less time than it could, but never for more.
        let sent = clock::now();
        let answer = send();
        async move {
            let answer = answer.await;
            // If the session ends before the answer, this future is dropped and renews nothing.
            if answer.as_ref().err().is_none_or(E::is_renewal) {
                self.lease.renewed(sent);
            }
            answer
        }
    }

    /// Returns an error, and ends this session, if a node was created in another session. Such a
    /// create renews no lease (docs/protocol.md#owner-check).
    fn check_created(&self, stat: &zk::Stat, may_be_persistent: bool) -> Result<(), zk::Error> {
        // The owner of a persistent node is 0, and never shows in which session the node was
        // created.
        let has_no_owner = may_be_persistent && stat.ephemeral_owner == 0;
        if has_no_owner || self.check_owner(stat) {
            Ok(())
        } else {
            // The session has ended as replaced by now. The error makes the caller treat the
            // request like any other of an ended session.
            Err(zk::Error::ClientClosed)
        }
    }

    /// Sends the create of a node when this is called.
    pub(crate) fn create<'a>(
        &'a self,
        handle: &'a zk::Client,
        path: &'a str,
        data: &'a [u8],
        (mode, acl): (zk::CreateMode, &[Acl]),
    ) -> impl Future<Output = Result<(zk::Stat, zk::CreateSequence), zk::Error>> + Send + 'a {
        let acls = to_library(acl);
        self.write(move || {
            let created = handle.create(path, data, &mode.with_acls(zk::Acls::new(&acls)));
            async move {
                // The owner is checked before `write` sees the answer, so that a create in another
                // session does not renew the lease of this one.
                let (stat, sequence) = created.await?;
                let is_ephemeral = matches!(
                    mode,
                    zk::CreateMode::Ephemeral | zk::CreateMode::EphemeralSequential
                );
                self.check_created(&stat, !is_ephemeral)?;
                Ok((stat, sequence))
            }
        })
    }

    /// Commits a transaction of this many operations.
    pub(crate) async fn commit(
        &self,
        handle: &zk::Client,
        operations: usize,
        put: impl FnOnce(&mut zk::MultiWriter<'_>) -> Result<(), zk::Error>,
    ) -> Result<Vec<zk::MultiWriteResult>, zk::MultiWriteError> {
        let failed = |source| zk::MultiWriteError::RequestFailed { source };
        let mut writer = handle.new_multi_writer();
        // An error is not expected: the paths have been checked, and the ACL is not empty.
        put(&mut writer).map_err(failed)?;
        let committed = async {
            let results = writer.commit().await?;
            // Callers assign the results to their operations by position. With another length, the
            // outcome of the transaction counts as unknown.
            if results.len() != operations {
                return Err(failed(zk::Error::UnexpectedError(
                    "an answer of another length".to_owned(),
                )));
            }
            for result in &results {
                // The result does not show the mode of the create, so each node may be persistent.
                // An invalid Stat, as ZooKeeper 3.8.0 sends it in a transaction (ZOOKEEPER-4026),
                // proves nothing and is accepted.
                if let zk::MultiWriteResult::Create { stat, .. } = result {
                    self.check_created(stat, true).map_err(failed)?;
                }
            }
            Ok(results)
        };
        self.write(|| committed).await
    }
}

impl Core {
    /// Creates a directory and those above it that are missing, as containers if the servers
    /// support them (docs/protocol.md#directories).
    pub(crate) async fn make_directories(
        &self,
        handle: &zk::Client,
        path: &str,
        acl: &[Acl],
        parents: ParentNodes,
    ) -> Result<(), zk::Error> {
        let acls = to_library(acl);
        let make = async |mode: zk::CreateMode| {
            mkdir(handle, path, &mode.with_acls(zk::Acls::new(&acls))).await
        };
        if parents == ParentNodes::Persistent || !self.makes_containers() {
            return make(zk::CreateMode::Persistent).await;
        }
        // Servers that do not support the request report that, or close the connection (ZooKeeper
        // 3.4, ClickHouse Keeper). A closed connection counts as such a report once it has happened
        // twice in a row while another request was answered.
        for _ in 0..2 {
            match make(zk::CreateMode::Container).await {
                Err(zk::Error::Unimplemented) => break,
                // If this read fails too, the connection was lost for another reason, and the
                // caller repeats the whole step.
                Err(zk::Error::ConnectionLoss) => answers(handle).await?,
                made => return made,
            }
        }
        // The servers have refused containers by now. The client does not ask for them again.
        self.make_no_containers();
        make(zk::CreateMode::Persistent).await
    }
}

/// Tries to create nodes from the leaf upwards until a parent exists, then creates the missing
/// nodes downwards. Returns `NoNode` if one was deleted meanwhile; the client library's own `mkdir`
/// would start again each time (docs/upstream/README.md).
async fn mkdir(
    handle: &zk::Client,
    path: &str,
    options: &zk::CreateOptions<'_>,
) -> Result<(), zk::Error> {
    // The root always exists.
    let (mut next, mut below, mut up) = (Some(path).filter(|path| *path != "/"), Vec::new(), true);
    while let Some(path) = next {
        match handle.create(path, &[], options).await {
            // The parent is missing, so the parent is the next node to create. On the way down the
            // parent existed a moment ago. If it is missing then, another process has deleted it,
            // and the caller decides whether to begin again.
            Err(zk::Error::NoNode) if up && above(path) != "/" => {
                below.push(path);
                next = Some(above(path));
            }
            // The node may exist already, because another process has created it at the same time.
            Ok(_) | Err(zk::Error::NodeExists) => (next, up) = (below.pop(), false),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Converts an ACL to the type of the client library.
pub(crate) fn to_library(acl: &[Acl]) -> Vec<zk::Acl> {
    let permission = |set: Permissions| {
        [
            (Permissions::READ, zk::Permission::READ),
            (Permissions::WRITE, zk::Permission::WRITE),
            (Permissions::CREATE, zk::Permission::CREATE),
            (Permissions::DELETE, zk::Permission::DELETE),
            (Permissions::ADMIN, zk::Permission::ADMIN),
        ]
        .into_iter()
        .filter(|(ours, _)| set.contains(*ours))
        .fold(zk::Permission::NONE, |all, (_, theirs)| all | theirs)
    };
    acl.iter()
        .map(|acl| {
            zk::Acl::new(
                permission(acl.permissions),
                zk::AuthId::new(&acl.scheme, &acl.id),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use zookeeper_test_server::{Match, Op, Server, Version};

    use super::*;
    use crate::error::LostReason;
    use crate::protocol::numbers::SessionNumber;
    use crate::session::live::zk_session::SessionOptions;

    /// The directory above is deleted before each create.
    #[tokio::test]
    async fn uncreatable_directory_is_given_up() {
        let server = Server::start().unwrap();
        let handle = zk::Client::connect(&server.connect_string()).await.unwrap();
        let open = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
        let gone = server.fail(Match::op(Op::Create).path("/a/b").always(), -101);
        let made = tokio::time::timeout(
            std::time::Duration::from_secs(20),
            mkdir(&handle, "/a/b/c", &open),
        );
        assert_eq!(
            made.await.expect("it is tried again and again"),
            Err(zk::Error::NoNode)
        );
        assert_eq!(server.counters().requests(Op::Create), 4);
        gone.remove();
        for _ in 0..2 {
            assert_eq!(mkdir(&handle, "/a/b/c", &open).await, Ok(()));
        }
        assert_eq!(server.counters().requests(Op::Create), 4 + 3 + 1);
        assert!(server.exists("/a/b/c"));
        assert_eq!(mkdir(&handle, "/", &open).await, Ok(()));
    }

    // Shows: renewal, replaced-session
    #[tokio::test]
    async fn create_renews_no_other_session() {
        // Older ones answer a transaction without the owners of its nodes.
        let server = Server::builder()
            .zookeeper_version(Version::V3_9)
            .start()
            .unwrap();
        let connect = async || zk::Client::connect(&server.connect_string()).await.unwrap();
        let (own, other) = (connect().await, connect().await);
        let acl = [Acl::open()];
        let (mode, acls) = (zk::CreateMode::EphemeralSequential, to_library(&acl));
        let options = mode.with_acls(zk::Acls::new(&acls));
        for (handle, is_own) in [(&own, true), (&other, false)] {
            for in_transaction in [true, false] {
                let session =
                    Session::new(SessionNumber::FIRST, own.clone(), SessionOptions::default());
                let is_done = if in_transaction {
                    let put =
                        |writer: &mut zk::MultiWriter<'_>| writer.add_create("/n-", b"", &options);
                    session.commit(handle, 1, put).await.is_ok()
                } else {
                    session
                        .create(handle, "/n-", b"", (mode, &acl))
                        .await
                        .is_ok()
                };
                assert_eq!(
                    (is_done, session.lease.last_renewal().is_some()),
                    (is_own, is_own)
                );
                let end = (!is_own).then_some(LostReason::SessionReplaced);
                assert_eq!(
                    session.end_reason(),
                    end,
                    "in a transaction: {in_transaction}"
                );
            }
        }
    }
}
