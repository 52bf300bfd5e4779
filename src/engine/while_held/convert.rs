//! Downgrades and upgrades of one hold: carries out the steps of a [`Conversion`], and settles
//! which node then holds the lock.
//!
//! A conversion runs as a task where the session runs, and owns the hold: a caller that goes away
//! stops nothing, and dropping the result releases the hold, whatever it has become.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;
use zookeeper_client as zk;

use crate::engine::attempts::run::GIVEN_UP_WITHIN;
use crate::engine::grant::hold::Hold;
use crate::engine::grant::observe;
use crate::engine::lock::path_lock::PathLock;
use crate::engine::request::look::unusable_directory;
use crate::engine::request::requests::{Seat, answer, list, new_id, watch};
use crate::engine::while_held::revoke::MARKER;
use crate::error::{ConversionError, Lost, LostReason, Purpose};
use crate::protocol::convert::{
    Conversion, ConvertEvent, ConvertRequest, ConvertStep, Converted, Created, NotConverted,
};
use crate::protocol::failure::{Answer, Failure, FailureKind};
use crate::protocol::hold::HoldEvent;
use crate::protocol::node_name::Kind;
use crate::session::leftovers::cleanup::{Done, Item, Orphan};
use crate::session::live::zk_session::{Session, SessionGone};
use crate::session::reports::log;
use crate::session::request::retry::clean_up_pause;
use crate::session::write::to_library;

/// A hold after a conversion, or as it was with the reason.
pub(crate) type ConversionOutcome = Result<Hold, ConversionError<Hold>>;

/// Turns a held write lock into a read lock, without a gap; `None` if the client has ended.
pub(crate) async fn downgrade(hold: Hold) -> Option<ConversionOutcome> {
    // No other writer of this client has the node next, which becomes a reader's.
    hold.take_out();
    start(hold, Kind::Shared).await.ok()
}

/// Turns a held read lock into the write lock, if no other reader can be inside; `None` if the
/// client has ended.
pub(crate) async fn upgrade(hold: Hold) -> Option<ConversionOutcome> {
    if !hold.take_out() {
        // Readers of this client are inside by the same node.
        return Some(match hold.check_lost() {
            Some(reason) => lost(hold, reason),
            None => Err(not_converted(hold, NotConverted::Contended)),
        });
    }
    // Another node that no reader may be inside: its own watch would hear of the upgrade later.
    hold.path_lock.close_shared_node();
    start(hold, Kind::Exclusive).await.ok()
}

/// Starts a conversion, as a task that is counted until it is done: a flush waits for its node. The
/// outcome is the caller's, which may take or drop it at any time, and is not waited for.
fn start(hold: Hold, kind: Kind) -> oneshot::Receiver<ConversionOutcome> {
    let (reply, outcome) = oneshot::channel();
    let counted = hold.session().running.subscribe();
    let client = Arc::clone(hold.path_lock.client());
    let ticket = client.cleanup.ticket(hold.held.number());
    client.spawn(async move {
        let outcome = convert(hold, kind).await;
        drop(counted);
        // If the caller has left, the outcome comes back, and its hold is released before the
        // ticket is dropped, so that its node is counted all the time.
        drop(reply.send(outcome));
        drop(ticket);
    });
    outcome
}

async fn convert(hold: Hold, kind: Kind) -> ConversionOutcome {
    let (path_lock, session) = (Arc::clone(&hold.path_lock), Arc::clone(hold.session()));
    let (naming, own) = (path_lock.naming(), hold.node());
    // Reads the clock: a lock that another session may hold is not converted.
    if let Some(reason) = hold.check_lost() {
        return lost(hold, reason);
    }
    let new = naming.converted_name(&own, &new_id(naming), kind);
    let Some(new) = new.filter(|_| hold.held.handle_event(HoldEvent::BeginConversion)) else {
        let reason = hold.check_lost().unwrap_or(LostReason::Closed);
        return lost(hold, reason);
    };
    let own = own.as_ref().to_owned();
    let (mut conversion, mut step) = match kind {
        Kind::Shared => Conversion::downgrade(own.clone(), new.clone()),
        Kind::Exclusive => Conversion::upgrade(own.clone(), new.clone()),
    };
    let mut unfinished = Unfinished {
        hold: hold.without_release(),
        own,
        new,
        finished: false,
    };
    let number = hold.held.number();
    let seat = Seat {
        path_lock: &path_lock,
        session: &session,
        number,
        kind,
    };
    let mut requests = ConversionRequests {
        path_lock: &path_lock,
        session: &session,
        written: None,
    };
    let mut awaits_until = None;
    let converted = loop {
        let event = match step {
            ConvertStep::Finish(converted) => break converted,
            ConvertStep::Do(request) => {
                let requests = &mut requests;
                match session
                    .request(|handle| requests.perform(handle, request, &hold))
                    .await
                {
                    Ok(event) => event,
                    Err(SessionGone) => break Converted::SessionGone,
                }
            }
            ConvertStep::Await { node } => {
                let until = *awaits_until.get_or_insert_with(|| Instant::now() + GIVEN_UP_WITHIN);
                let given_up = watch(seat, None, &node);
                let in_time = Instant::now() < until;
                let waited = tokio::time::timeout_at(until.into(), given_up).await;
                ConvertEvent::Awaited {
                    is_late: !(in_time && waited.is_ok_and(|event| event.is_change())),
                }
            }
            ConvertStep::Pause { failures } => {
                let pause = clean_up_pause(failures);
                tokio::select! {
                    () = tokio::time::sleep(pause) => ConvertEvent::Retry,
                    _ = session.ended() => break Converted::SessionGone,
                }
            }
        };
        step = conversion.on(event);
    };
    let outcome = finish(hold, &unfinished.own, kind, converted).await;
    unfinished.finished = true;
    outcome
}

/// Determines the node by which the lock is held from now on, and has the other deleted.
async fn finish(mut hold: Hold, own: &str, kind: Kind, converted: Converted) -> ConversionOutcome {
    let (session, held) = (Arc::clone(hold.session()), Arc::clone(&hold.held));
    let reason = match converted {
        Converted::Done { node, zxid } => {
            if held.handle_event(HoldEvent::EndConversion {
                node: node.as_str().into(),
                kind,
            }) {
                observe::converted(&held, kind);
                if let Some(zxid) = zxid {
                    hold.upgraded(zxid);
                }
                return match hold.check_lost() {
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
            if held.handle_event(HoldEvent::EndConversion {
                node: own.into(),
                kind: before,
            }) {
                return match hold.check_lost() {
                    Some(reason) => lost(hold, reason),
                    None => Err(not_converted(hold, why)),
                };
            }
            delete(&hold, vec![own.to_owned()]).await;
            LostReason::LeaseExpired
        }
        Converted::Lost {
            gone,
            delete: nodes,
        } => {
            let reason = if gone {
                LostReason::NodeDeleted
            } else {
                LostReason::NotConverted
            };
            // The holder is notified before the rest is deleted, which may take long.
            held.handle_event(HoldEvent::ConversionLost(reason));
            if gone {
                session.nodes.disown(&hold.path_lock.path().child(own));
            }
            delete(&hold, nodes).await;
            reason
        }
        Converted::SessionGone => session.end_reason().unwrap_or(LostReason::Closed),
    };
    held.handle_event(HoldEvent::ConversionOver(reason));
    let reason = hold.check_lost().unwrap_or(reason);
    lost(hold, reason)
}

fn not_converted(guard: Hold, why: NotConverted) -> ConversionError<Hold> {
    let path_lock = &guard.path_lock;
    let source = match why {
        NotConverted::Contended => {
            let path = path_lock.path().user().to_owned();
            return ConversionError::Contended { guard, path };
        }
        NotConverted::Unusable(unusable) => unusable_directory(path_lock, unusable),
        NotConverted::Refused(failure) => path_lock.error(Purpose::Conversion, failure.refused()),
    };
    ConversionError::Request { guard, source }
}

fn lost(guard: Hold, reason: LostReason) -> ConversionOutcome {
    let source = Lost {
        path: guard.path_lock.path().user().into(),
        reason,
    };
    Err(ConversionError::Lost { guard, source })
}

/// Has nodes deleted, one after the other, and waits until each is gone or refused, or the session
/// is gone.
async fn delete(hold: &Hold, names: Vec<String>) {
    let (done, gone) = oneshot::channel();
    submit(hold, names, Some(done));
    // Cleanup has logged a refusal, and there is nothing more to do.
    let _ = gone.await;
}

fn submit(hold: &Hold, names: Vec<String>, done: Option<Done>) {
    hold.path_lock.client().cleanup.submit(Item {
        session: Arc::clone(hold.session()),
        directory: hold.path_lock.path().clone(),
        orphan: Orphan::Nodes(names),
        number: hold.held.number(),
        until_gone: None,
        done,
    });
}

/// A conversion that is not finished. If its task is dropped before that, by a panic (in a waker of
/// the caller's) or with its runtime, the lock is lost, and its nodes are deleted, the new one
/// first (docs/protocol.md#conversion-ends).
struct Unfinished {
    hold: Hold,
    own: String,
    new: String,
    finished: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            let hold = &self.hold;
            hold.held
                .handle_event(HoldEvent::ConversionOver(LostReason::Closed));
            submit(
                hold,
                vec![std::mem::take(&mut self.new), std::mem::take(&mut self.own)],
                None,
            );
        }
    }
}

/// How often a node that another client writes to is read before it is deleted. Without a limit, a
/// client that keeps writing to it would keep the conversion from ending.
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
struct ConversionRequests<'a> {
    path_lock: &'a Arc<PathLock>,
    session: &'a Arc<Session>,
    written: Option<WrittenNode>,
}

impl ConversionRequests<'_> {
    /// Carries out one request.
    async fn perform(
        &mut self,
        handle: zk::Client,
        request: ConvertRequest,
        hold: &Hold,
    ) -> ConvertEvent {
        let path = |name: &str| self.path_lock.path().child(name);
        match request {
            ConvertRequest::Swap { create, delete } => {
                let (create, delete) = (path(&create), path(&delete));
                ConvertEvent::Created(self.swap(&handle, create, delete, hold).await)
            }
            ConvertRequest::Create { name } => {
                ConvertEvent::Created(self.create(&handle, path(&name)).await)
            }
            ConvertRequest::List => {
                let listed = list(self.path_lock, self.session, &handle).await;
                ConvertEvent::Listed(answer(self.session, Ok(listed)))
            }
            ConvertRequest::Inspect { name } => {
                let stat = handle.check_stat(&path(&name)).await;
                let czxid =
                    stat.and_then(|stat| stat.map(|stat| stat.czxid).ok_or(zk::Error::NoNode));
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

    /// Returns the version at which a node may be deleted: data that another client has written to
    /// it is most likely a requested revocation, which must be read before. `None`, which is any
    /// version, once a revocation has been requested, or the node has been read often enough.
    fn version(&self, path: &str, hold: &Hold) -> Option<i32> {
        if hold.held.is_revocation_requested() {
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
                    hold.held.request_revocation();
                }
                Some(WrittenNode {
                    path: path.to_owned(),
                    version: stat.version,
                    reads: reads + 1,
                })
            }
            // The ACL of the lock does not allow it, so that requests cannot be noticed anyway.
            Err(zk::Error::NoAuth) => Some(WrittenNode {
                path: path.to_owned(),
                version: -1,
                reads: MAX_READS,
            }),
            Err(error) => {
                log::debug!(path, %error, "what another client wrote to a lock node is read again");
                before
            }
        };
        // This makes the conversion repeat the deletion.
        FailureKind::NotNow.into()
    }

    async fn swap(
        &mut self,
        handle: &zk::Client,
        create: String,
        delete: String,
        hold: &Hold,
    ) -> Created {
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
                self.session
                    .nodes
                    .adopt(create.clone(), self.path_lock.as_owner());
                self.session.nodes.disown(&delete);
                self.exists(handle, &create).await
            }
            zk::Error::NoNode => Created::Missing,
            zk::Error::BadVersion => {
                Created::Failed(self.read_revocation(handle, &delete, hold).await)
            }
            error => Created::Failed(self.session.failure(error)),
        }
    }

    async fn create(&mut self, handle: &zk::Client, path: String) -> Created {
        let what = (zk::CreateMode::Ephemeral, &*self.path_lock.options().acl);
        let created = self
            .session
            .create(handle, &path, &self.path_lock.node_data(), what)
            .await;
        if matches!(created, Ok(_) | Err(zk::Error::NodeExists)) {
            self.session
                .nodes
                .adopt(path.clone(), self.path_lock.as_owner());
        }
        match created {
            Ok((stat, _)) => Created::Done {
                czxid: (!stat.is_invalid()).then_some(stat.czxid),
            },
            Err(zk::Error::NodeExists) => self.exists(handle, &path).await,
            Err(zk::Error::NoNode) => Created::Missing,
            Err(error) => Created::Failed(self.session.failure(error)),
        }
    }

    /// Returns the outcome of a create that an earlier request has made: the session may have been
    /// replaced before that (docs/protocol.md#owner-check).
    async fn exists(&self, handle: &zk::Client, path: &str) -> Created {
        Created::Failed(match handle.check_stat(path).await {
            Ok(Some(stat)) if self.session.owns(&stat) => return Created::Exists,
            Ok(Some(_)) => FailureKind::SessionGone.into(),
            // Deleted by another process since.
            Ok(None) => FailureKind::NotNow.into(),
            Err(error) => self.session.failure(error),
        })
    }
}
