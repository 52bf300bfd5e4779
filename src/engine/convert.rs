//! Does the I/O of a [`Conversion`]: downgrades and upgrades of one hold.
//!
//! It runs as a task where the session runs, and owns the hold: a caller that goes away stops nothing, and what the
//! hold has become is given back by its drop.

use std::sync::Arc;

use tokio::sync::oneshot;
use zookeeper_client as zk;

use crate::engine::hold::Hold;
use crate::engine::look::unusable_directory;
use crate::engine::path_lock::PathLock;
use crate::engine::requests::{answer, list, new_id, to_library};
use crate::engine::revoke::MARKER;
use crate::error::{ConversionFailure, Lost, LostReason};
use crate::protocol::convert::{Conversion, ConvertEvent, ConvertRequest, ConvertStep, Converted, Made, Why};
use crate::protocol::failure::{Answer, Failure, FailureKind};
use crate::protocol::node_name::Kind;
use crate::protocol::queue::Unusable;
use crate::session::cleanup::{Done, Item, Orphan};
use crate::session::clock;
use crate::session::retry::clean_up_pause;
use crate::session::zk_session::{Handle, Session, SessionOver};

/// A hold after a conversion, or as it was with the reason.
pub(crate) type ConversionOutcome = Result<Hold, (Hold, ConversionFailure)>;

/// Turns a held write lock into a read lock, with nobody in between; nothing if the client has ended.
pub(crate) async fn downgrade(hold: Hold) -> Option<ConversionOutcome> {
    start(hold, Kind::Shared).await.ok()
}

/// Turns a held read lock into the write lock, if nobody else can be inside; nothing if the client has ended.
pub(crate) async fn upgrade(hold: Hold) -> Option<ConversionOutcome> {
    start(hold, Kind::Exclusive).await.ok()
}

/// Counted until it is done, so that a client that gives a borrowed session back, and one that flushes, waits for the node
/// that comes of it. What is done is the caller's, who may take it, or drop it, at any time, and is not waited for.
fn start(hold: Hold, kind: Kind) -> oneshot::Receiver<ConversionOutcome> {
    let (reply, outcome) = oneshot::channel();
    let counted = hold.session().attempt();
    let client = Arc::clone(hold.path_lock().client());
    let ticket = client.cleanup().ticket(hold.held().number());
    client.spawn(async move {
        let outcome = convert(hold, kind).await;
        drop(counted);
        // If the caller has gone it comes back, and is given back before the ticket: nobody finds the node uncounted.
        drop(reply.send(outcome));
        drop(ticket);
    });
    outcome
}

async fn convert(hold: Hold, kind: Kind) -> ConversionOutcome {
    let (path_lock, session) = (Arc::clone(hold.path_lock()), Arc::clone(hold.session()));
    let (naming, own) = (path_lock.naming(), hold.node());
    // Both a clock and a node: nothing is done for a lock that may be somebody else's.
    if let Some(reason) = hold.lost() {
        return lost(hold, reason);
    }
    let new = naming.beside(&own, &new_id(naming), kind);
    let Some(new) = new.filter(|_| hold.held().begin_conversion()) else {
        let reason = hold.lost().unwrap_or(LostReason::Closed);
        return lost(hold, reason);
    };
    let own = own.as_ref().to_owned();
    let (mut conversion, mut step) = match kind {
        Kind::Shared => Conversion::downgrade(own.clone(), new.clone()),
        Kind::Exclusive => Conversion::upgrade(own.clone(), new.clone()),
    };
    let mut unfinished = Unfinished { shadow: hold.shadow(), own, new, settled: false };
    let mut asking = Asking { path_lock: &path_lock, session: &session, written: None };
    let converted = loop {
        let event = match step {
            ConvertStep::Finish(converted) => break converted,
            ConvertStep::Do(request) => {
                let asking = &mut asking;
                match session.request(|handle| asking.ask(handle, request, &hold)).await {
                    Ok(event) => event,
                    Err(SessionOver) => break Converted::SessionOver,
                }
            }
            ConvertStep::Pause { failures } => {
                let pause = clean_up_pause(failures);
                tokio::select! {
                    () = tokio::time::sleep(pause) => ConvertEvent::Retry,
                    () = session.gone() => break Converted::SessionOver,
                }
            }
        };
        step = conversion.on(event);
    };
    let outcome = finish(hold, &unfinished.own, kind, converted).await;
    unfinished.settled = true;
    outcome
}

/// Settles by what node the lock is held from now on, and has the rest deleted.
async fn finish(mut hold: Hold, own: &str, kind: Kind, converted: Converted) -> ConversionOutcome {
    let (session, held) = (Arc::clone(hold.session()), Arc::clone(hold.held()));
    let reason = match converted {
        Converted::Done { node, zxid } => {
            if held.end_conversion(&node, kind) {
                if let Some(zxid) = zxid {
                    hold.upgraded(zxid);
                }
                return match hold.lost() {
                    Some(reason) => lost(hold, reason),
                    None => Ok(hold),
                };
            }
            delete(&hold, vec![node]).await;
            LostReason::LeaseExpired
        }
        Converted::Kept(why) => {
            let before = match kind {
                Kind::Shared => Kind::Exclusive,
                Kind::Exclusive => Kind::Shared,
            };
            if held.end_conversion(own, before) {
                return match hold.lost() {
                    Some(reason) => lost(hold, reason),
                    None => {
                        let failure = failure_of(hold.path_lock(), why);
                        Err((hold, failure))
                    }
                };
            }
            delete(&hold, vec![own.to_owned()]).await;
            LostReason::LeaseExpired
        }
        Converted::Lost { gone, leave } => {
            let reason = if gone { LostReason::NodeDeleted } else { LostReason::NotConverted };
            // Told before the rest is cleaned up, which may take its time.
            held.conversion_lost(reason);
            if gone {
                session.disown(&hold.path_lock().path().child(own));
            }
            delete(&hold, leave).await;
            reason
        }
        Converted::SessionOver => session.end_reason().unwrap_or(LostReason::Closed),
    };
    held.conversion_over(reason);
    let reason = hold.lost().unwrap_or(reason);
    lost(hold, reason)
}

fn failure_of(path_lock: &PathLock, why: Why) -> ConversionFailure {
    match why {
        Why::Contended => ConversionFailure::Contended,
        Why::Unusable(Unusable::OtherOrder(name)) => {
            ConversionFailure::MixedRecipes { node: path_lock.path().user_child(&name) }
        }
        Why::Unusable(unusable) => {
            ConversionFailure::Rejected { source: Arc::new(unusable_directory(path_lock, unusable)) }
        }
        Why::Refused(failure) => ConversionFailure::Rejected { source: failure.cause },
    }
}

fn lost(hold: Hold, reason: LostReason) -> ConversionOutcome {
    let lost = Lost { path: hold.path_lock().path().user().into(), reason };
    Err((hold, lost.into()))
}

/// Has nodes deleted, each before the next, and waits until they are gone, refused for good, or the session is over.
async fn delete(hold: &Hold, names: Vec<String>) {
    let (done, gone) = oneshot::channel();
    reap(hold, names, Some(done));
    // Whichever it was has been reported, and nothing more can be done.
    let _ = gone.await;
}

fn reap(hold: &Hold, names: Vec<String>, done: Option<Done>) {
    hold.path_lock().client().cleanup().reap(Item {
        session: Arc::clone(hold.session()),
        directory: hold.path_lock().path().clone(),
        orphan: Orphan::Nodes(names),
        number: hold.held().number(),
        until_gone: None,
        done,
    });
}

/// A conversion that has not been settled. Should its task be dropped before that, by a panic (of a tracing subscriber)
/// or with its runtime, the lock is lost, and its nodes go: the new one first, as ever.
struct Unfinished {
    shadow: Hold,
    own: String,
    new: String,
    settled: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.settled {
            let hold = &self.shadow;
            hold.held().conversion_over(LostReason::Closed);
            reap(hold, vec![std::mem::take(&mut self.new), std::mem::take(&mut self.own)], None);
        }
    }
}

/// How often what was written to a node is read before it is deleted. More would let a client that writes to it all the time
/// keep the conversion from its end.
const READINGS: u32 = 3;

/// A node of ours that another client has written to.
struct Written {
    path: String,
    /// The version that was read.
    version: i32,
    /// How often it was read.
    readings: u32,
}

/// The requests of one conversion.
struct Asking<'a> {
    path_lock: &'a Arc<PathLock>,
    session: &'a Arc<Session>,
    written: Option<Written>,
}

impl Asking<'_> {
    async fn ask(&mut self, handle: Handle, request: ConvertRequest, hold: &Hold) -> ConvertEvent {
        let path = |name: &str| self.path_lock.path().child(name);
        match request {
            ConvertRequest::Swap { create, delete } => {
                let (create, delete) = (path(&create), path(&delete));
                ConvertEvent::Made(self.swap(&handle, create, delete, hold).await)
            }
            ConvertRequest::Create { name } => ConvertEvent::Made(self.create(&handle, path(&name)).await),
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
                        self.session.renewed(sent);
                        self.session.disown(&path);
                        Answer::Is(())
                    }
                    Err(error) => {
                        self.session.renewed_by_refusal(sent, &error);
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

    /// The version at which a node may go: what is written to it is most likely a request to give the lock back, and must
    /// not go with it unread. Any, once such a request has been heard, and when it has been read often enough.
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
                Some(Written { path: path.to_owned(), version: stat.version, readings: readings + 1 })
            }
            // Our own ACL does not let us look, so that no request could be heard anyway.
            Err(zk::Error::NoAuth) => {
                Some(Written { path: path.to_owned(), version: -1, readings: READINGS })
            }
            Err(error) => {
                tracing::debug!(path, %error, "what was written to a lock node is looked at again");
                before
            }
        };
        FailureKind::NotNow.into()
    }

    async fn swap(&mut self, handle: &zk::Client, create: String, delete: String, hold: &Hold) -> Made {
        let acls = to_library(&self.path_lock.options().acl);
        let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::new(&acls));
        let mut writer = handle.new_multi_writer();
        let put = writer
            .add_create(&create, &self.path_lock.options().data, &options)
            .and_then(|()| writer.add_delete(&delete, self.version(&delete, hold)));
        if let Err(error) = put {
            // The paths were checked and the ACL is not empty, so the library has nothing to refuse here.
            return Made::Failed(self.session.failure(error));
        }
        let sent = clock::now();
        let error = match writer.commit().await {
            Ok(_) => {
                self.session.renewed(sent);
                self.session.adopt(create, self.path_lock.as_owner());
                self.session.disown(&delete);
                return Made::Done { czxid: None };
            }
            Err(zk::MultiWriteError::RequestFailed { source }) => {
                return Made::Failed(self.session.failure(source));
            }
            Err(zk::MultiWriteError::OperationFailed { source, .. }) => source,
        };
        self.session.renewed_by_check(sent, &error);
        match error {
            zk::Error::NodeExists => {
                self.session.adopt(create, self.path_lock.as_owner());
                self.session.disown(&delete);
                Made::Exists
            }
            zk::Error::NoNode => Made::Missing,
            zk::Error::BadVersion => Made::Failed(self.read_request(handle, &delete, hold).await),
            error => Made::Failed(self.session.failure(error)),
        }
    }

    async fn create(&mut self, handle: &zk::Client, path: String) -> Made {
        let acls = to_library(&self.path_lock.options().acl);
        let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::new(&acls));
        let sent = clock::now();
        match handle.create(&path, &self.path_lock.options().data, &options).await {
            Ok((stat, _)) => {
                self.session.renewed(sent);
                self.session.adopt(path, self.path_lock.as_owner());
                Made::Done { czxid: (!stat.is_invalid()).then_some(stat.czxid) }
            }
            Err(error) => {
                self.session.renewed_by_refusal(sent, &error);
                match error {
                    zk::Error::NodeExists => {
                        self.session.adopt(path, self.path_lock.as_owner());
                        Made::Exists
                    }
                    zk::Error::NoNode => Made::Missing,
                    error => Made::Failed(self.session.failure(error)),
                }
            }
        }
    }
}
