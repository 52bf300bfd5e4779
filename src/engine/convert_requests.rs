//! The requests of a [`Conversion`](crate::protocol::convert::Conversion), and the meaning of their answers.

use std::sync::Arc;

use zookeeper_client as zk;

use crate::engine::hold::Hold;
use crate::engine::path_lock::PathLock;
use crate::engine::requests::{answer, list};
use crate::engine::revoke::MARKER;
use crate::protocol::convert::{ConvertEvent, ConvertRequest, Created};
use crate::protocol::failure::{Answer, Failure, FailureKind};
use crate::session::log;
use crate::session::write::to_library;
use crate::session::zk_session::{Handle, Session};

/// How often a node that another client writes to is read before it is deleted. Without a limit, a client
/// that keeps writing to it would keep the conversion from ending.
const MAX_READS: u32 = 3;

/// An own node that another client has written to.
struct WrittenNode {
    path: String,
    /// The version that was read.
    version: i32,
    /// How often it was read.
    reads: u32,
}

/// The requests of one conversion.
pub(super) struct ConversionRequests<'a> {
    path_lock: &'a Arc<PathLock>,
    session: &'a Arc<Session>,
    written: Option<WrittenNode>,
}

impl<'a> ConversionRequests<'a> {
    pub(super) fn new(path_lock: &'a Arc<PathLock>, session: &'a Arc<Session>) -> Self {
        Self { path_lock, session, written: None }
    }

    /// Carries out one request.
    pub(super) async fn perform(
        &mut self,
        handle: Handle,
        request: ConvertRequest,
        hold: &Hold,
    ) -> ConvertEvent {
        let path = |name: &str| self.path_lock.path().child(name);
        match request {
            ConvertRequest::Swap { create, delete } => {
                let (create, delete) = (path(&create), path(&delete));
                ConvertEvent::Created(self.swap(&handle, create, delete, hold).await)
            }
            ConvertRequest::Create { name } => ConvertEvent::Created(self.create(&handle, path(&name)).await),
            ConvertRequest::List => {
                let listed = list(self.path_lock, self.session, &handle).await;
                ConvertEvent::Listed(answer(self.session, Ok(listed)))
            }
            ConvertRequest::Inspect { name } => {
                let stat = handle.check_stat(&path(&name)).await;
                let czxid = stat.and_then(|stat| stat.map(|stat| stat.czxid).ok_or(zk::Error::NoNode));
                ConvertEvent::Inspected(answer(self.session, Ok(czxid)))
            }
            ConvertRequest::Delete { name } => {
                let path = path(&name);
                let version = self.version(&path, hold);
                let deleted = self.session.write(|| handle.delete(&path, version)).await;
                if matches!(deleted, Ok(()) | Err(zk::Error::NoNode)) {
                    self.session.nodes.disown(&path);
                }
                ConvertEvent::Deleted(match deleted {
                    Ok(()) => Answer::Is(()),
                    Err(zk::Error::NoNode) => Answer::no(FailureKind::NoNode),
                    Err(zk::Error::BadVersion) => {
                        Answer::No(self.read_revocation(&handle, &path, hold).await)
                    }
                    Err(error) => Answer::No(self.session.failure(error)),
                })
            }
        }
    }

    /// Returns the version at which a node may be deleted: data that another client has written to it is most
    /// likely a requested revocation, which must be read before. `None`, which is any version, once a
    /// revocation has been requested, or the node has been read often enough.
    fn version(&self, path: &str, hold: &Hold) -> Option<i32> {
        if hold.held().is_revocation_requested() {
            return None;
        }
        match self.written.as_ref().filter(|written| written.path == path) {
            Some(written) if written.reads >= MAX_READS => None,
            Some(written) => Some(written.version),
            None => Some(0),
        }
    }

    /// Reads an own node that another client has written to.
    async fn read_revocation(&mut self, handle: &zk::Client, path: &str, hold: &Hold) -> Failure {
        let before = self.written.take().filter(|written| written.path == path);
        let reads = before.as_ref().map_or(0, |written| written.reads);
        self.written = match handle.get_data(path).await {
            Ok((data, stat)) => {
                if data == MARKER {
                    hold.held().request_revocation();
                }
                Some(WrittenNode { path: path.to_owned(), version: stat.version, reads: reads + 1 })
            }
            // The ACL of the lock does not allow it, so that requests cannot be noticed anyway.
            Err(zk::Error::NoAuth) => {
                Some(WrittenNode { path: path.to_owned(), version: -1, reads: MAX_READS })
            }
            Err(error) => {
                log::debug!(path, %error, "what another client wrote to a lock node is read again");
                before
            }
        };
        // This makes the conversion repeat the deletion.
        FailureKind::NotNow.into()
    }

    async fn swap(&mut self, handle: &zk::Client, create: String, delete: String, hold: &Hold) -> Created {
        let acls = to_library(&self.path_lock.options().acl);
        let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::new(&acls));
        let version = self.version(&delete, hold);
        let exchange = |writer: &mut zk::MultiWriter<'_>| {
            writer.add_create(&create, &self.path_lock.node_data(), &options)?;
            writer.add_delete(&delete, version)
        };
        let error = match self.session.commit(handle, 2, exchange).await {
            Ok(_) => {
                self.session.nodes.adopt(create, self.path_lock.as_owner());
                self.session.nodes.disown(&delete);
                return Created::Done { czxid: None };
            }
            Err(zk::MultiWriteError::RequestFailed { source }) => {
                return Created::Failed(self.session.failure(source));
            }
            Err(zk::MultiWriteError::OperationFailed { source, .. }) => source,
        };
        match error {
            zk::Error::NodeExists => {
                self.session.nodes.adopt(create, self.path_lock.as_owner());
                self.session.nodes.disown(&delete);
                Created::Exists
            }
            zk::Error::NoNode => Created::Missing,
            zk::Error::BadVersion => Created::Failed(self.read_revocation(handle, &delete, hold).await),
            error => Created::Failed(self.session.failure(error)),
        }
    }

    async fn create(&mut self, handle: &zk::Client, path: String) -> Created {
        let what = (zk::CreateMode::Ephemeral, &*self.path_lock.options().acl);
        let created = self.session.create(handle, &path, &self.path_lock.node_data(), what).await;
        if matches!(created, Ok(_) | Err(zk::Error::NodeExists)) {
            self.session.nodes.adopt(path, self.path_lock.as_owner());
        }
        match created {
            Ok((stat, _)) => Created::Done { czxid: (!stat.is_invalid()).then_some(stat.czxid) },
            Err(zk::Error::NodeExists) => Created::Exists,
            Err(zk::Error::NoNode) => Created::Missing,
            Err(error) => Created::Failed(self.session.failure(error)),
        }
    }
}
