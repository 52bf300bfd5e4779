//! The requests of a [`Conversion`](crate::protocol::convert::Conversion), and what their answers mean to it.

use std::sync::Arc;

use zookeeper_client as zk;

use crate::engine::hold::Hold;
use crate::engine::path_lock::PathLock;
use crate::engine::requests::{answer, list, to_library};
use crate::engine::revoke::MARKER;
use crate::protocol::convert::{ConvertEvent, ConvertRequest, Created};
use crate::protocol::failure::{Answer, Failure, FailureKind};
use crate::session::clock;
use crate::session::zk_session::{Handle, Session};

/// How often what was written to a node is read before it is deleted. More would let a client that writes to
/// it all the time keep the conversion from its end.
const READINGS: u32 = 3;

/// A node of ours that another client has written to.
struct WrittenNode {
    path: String,
    /// The version that was read.
    version: i32,
    /// How often it was read.
    readings: u32,
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

    /// Does one request.
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
                let sent = clock::now();
                ConvertEvent::Deleted(match handle.delete(&path, self.version(&path, hold)).await {
                    Ok(()) => {
                        self.session.lease().renewed(sent);
                        self.session.disown(&path);
                        Answer::Is(())
                    }
                    Err(error) => {
                        self.session.lease().renewed_by_refusal(sent, &error);
                        Answer::No(match error {
                            zk::Error::NoNode => {
                                self.session.disown(&path);
                                FailureKind::NoNode.into()
                            }
                            zk::Error::BadVersion => self.read_request(&handle, &path, hold).await,
                            error => self.session.failure(error),
                        })
                    }
                })
            }
        }
    }

    /// The version at which a node may go: what is written to it is most likely a request to release the
    /// lock, and must not go with it unread. Any, once such a request has been heard, and when it has been
    /// read often enough.
    fn version(&self, path: &str, hold: &Hold) -> Option<i32> {
        if hold.held().is_revocation_requested() {
            return None;
        }
        match self.written.as_ref().filter(|written| written.path == path) {
            Some(written) if written.readings >= READINGS => None,
            Some(written) => Some(written.version),
            None => Some(0),
        }
    }

    /// Another client has written to one of our nodes: reads it.
    async fn read_request(&mut self, handle: &zk::Client, path: &str, hold: &Hold) -> Failure {
        let before = self.written.take().filter(|written| written.path == path);
        let readings = before.as_ref().map_or(0, |written| written.readings);
        self.written = match handle.get_data(path).await {
            Ok((data, stat)) => {
                if data == MARKER {
                    hold.held().request_revocation();
                }
                Some(WrittenNode { path: path.to_owned(), version: stat.version, readings: readings + 1 })
            }
            // Our own ACL does not let us look, so that no request could be heard anyway.
            Err(zk::Error::NoAuth) => {
                Some(WrittenNode { path: path.to_owned(), version: -1, readings: READINGS })
            }
            Err(error) => {
                tracing::debug!(path, %error, "what was written to a lock node is looked at again");
                before
            }
        };
        FailureKind::NotNow.into()
    }

    async fn swap(&mut self, handle: &zk::Client, create: String, delete: String, hold: &Hold) -> Created {
        let acls = to_library(&self.path_lock.options().acl);
        let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::new(&acls));
        let mut writer = handle.new_multi_writer();
        let put = writer
            .add_create(&create, &self.path_lock.options().data, &options)
            .and_then(|()| writer.add_delete(&delete, self.version(&delete, hold)));
        if let Err(error) = put {
            // The paths were checked and the ACL is not empty, so the library has nothing to refuse here.
            return Created::Failed(self.session.failure(error));
        }
        let sent = clock::now();
        let error = match writer.commit().await {
            Ok(_) => {
                self.session.lease().renewed(sent);
                self.session.adopt(create, self.path_lock.as_owner());
                self.session.disown(&delete);
                return Created::Done { czxid: None };
            }
            Err(zk::MultiWriteError::RequestFailed { source }) => {
                return Created::Failed(self.session.failure(source));
            }
            Err(zk::MultiWriteError::OperationFailed { source, .. }) => source,
        };
        self.session.lease().renewed_by_check(sent, &error);
        match error {
            zk::Error::NodeExists => {
                self.session.adopt(create, self.path_lock.as_owner());
                self.session.disown(&delete);
                Created::Exists
            }
            zk::Error::NoNode => Created::Missing,
            zk::Error::BadVersion => Created::Failed(self.read_request(handle, &delete, hold).await),
            error => Created::Failed(self.session.failure(error)),
        }
    }

    async fn create(&mut self, handle: &zk::Client, path: String) -> Created {
        let acls = to_library(&self.path_lock.options().acl);
        let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::new(&acls));
        let sent = clock::now();
        match handle.create(&path, &self.path_lock.options().data, &options).await {
            Ok((stat, _)) => {
                self.session.lease().renewed(sent);
                self.session.adopt(path, self.path_lock.as_owner());
                Created::Done { czxid: (!stat.is_invalid()).then_some(stat.czxid) }
            }
            Err(error) => {
                self.session.lease().renewed_by_refusal(sent, &error);
                match error {
                    zk::Error::NodeExists => {
                        self.session.adopt(path, self.path_lock.as_owner());
                        Created::Exists
                    }
                    zk::Error::NoNode => Created::Missing,
                    error => Created::Failed(self.session.failure(error)),
                }
            }
        }
    }
}
