//! Downgrades and upgrades of one hold: carries out the steps of a [`Conversion`], and settles which node
//! then holds the lock.
//!
//! A conversion runs as a task where the session runs, and owns the hold: a caller that goes away stops
//! nothing, and dropping the result releases the hold, whatever it has become.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use crate::engine::attempts::attempt::GIVEN_UP_WITHIN;
use crate::engine::grant::hold::Hold;
use crate::engine::grant::observe;
use crate::engine::request::look::unusable_directory;
use crate::engine::request::requests::{Seat, new_id, watch};
use crate::engine::while_held::convert_requests::ConversionRequests;
use crate::error::{ConversionError, Lost, LostReason, Purpose};
use crate::protocol::convert::{Conversion, ConvertEvent, ConvertStep, Converted, NotConverted};
use crate::protocol::node_name::Kind;
use crate::session::leftovers::cleanup::{Done, Item, Orphan};
use crate::session::live::zk_session::SessionGone;
use crate::session::request::retry::clean_up_pause;

/// A hold after a conversion, or as it was with the reason.
pub(crate) type ConversionOutcome = Result<Hold, ConversionError<Hold>>;

/// Turns a held write lock into a read lock, without a gap; `None` if the client has ended.
pub(crate) async fn downgrade(hold: Hold) -> Option<ConversionOutcome> {
    // No other writer of this client has the node next, which becomes a reader's.
    hold.take_out();
    start(hold, Kind::Shared).await.ok()
}

/// Turns a held read lock into the write lock, if no other reader can be inside; `None` if the client has
/// ended.
pub(crate) async fn upgrade(hold: Hold) -> Option<ConversionOutcome> {
    if !hold.take_out() {
        // Readers of this client are inside by the same node.
        return Some(match hold.lost() {
            Some(reason) => lost(hold, reason),
            None => Err(not_converted(hold, NotConverted::Contended)),
        });
    }
    // Another node that no reader may be inside: its own watch would hear of the upgrade later.
    hold.path_lock().close_shared_node();
    start(hold, Kind::Exclusive).await.ok()
}

/// Starts a conversion, as a task that is counted until it is done: a flush waits for its node. The outcome
/// is the caller's, which may take or drop it at any time, and is not waited for.
fn start(hold: Hold, kind: Kind) -> oneshot::Receiver<ConversionOutcome> {
    let (reply, outcome) = oneshot::channel();
    let counted = hold.session().running.begin();
    let client = Arc::clone(hold.path_lock().client());
    let ticket = client.cleanup().ticket(hold.held().number());
    client.spawn(async move {
        let outcome = convert(hold, kind).await;
        drop(counted);
        // If the caller has left, the outcome comes back, and its hold is released before the ticket is
        // dropped, so that its node is counted all the time.
        drop(reply.send(outcome));
        drop(ticket);
    });
    outcome
}

async fn convert(hold: Hold, kind: Kind) -> ConversionOutcome {
    let (path_lock, session) = (Arc::clone(hold.path_lock()), Arc::clone(hold.session()));
    let (naming, own) = (path_lock.naming(), hold.node());
    // Reads the clock: a lock that another session may hold is not converted.
    if let Some(reason) = hold.lost() {
        return lost(hold, reason);
    }
    let new = naming.converted_name(&own, &new_id(naming), kind);
    let Some(new) = new.filter(|_| hold.held().begin_conversion()) else {
        let reason = hold.lost().unwrap_or(LostReason::Closed);
        return lost(hold, reason);
    };
    let own = own.as_ref().to_owned();
    let (mut conversion, mut step) = match kind {
        Kind::Shared => Conversion::downgrade(own.clone(), new.clone()),
        Kind::Exclusive => Conversion::upgrade(own.clone(), new.clone()),
    };
    let mut unfinished = Unfinished { hold: hold.without_release(), own, new, finished: false };
    let number = hold.held().number();
    let seat = Seat { path_lock: &path_lock, session: &session, number, kind };
    let mut requests = ConversionRequests::new(&path_lock, &session);
    let mut awaits_until = None;
    let converted = loop {
        let event = match step {
            ConvertStep::Finish(converted) => break converted,
            ConvertStep::Do(request) => {
                let requests = &mut requests;
                match session.request(|handle| requests.perform(handle, request, &hold)).await {
                    Ok(event) => event,
                    Err(SessionGone) => break Converted::SessionGone,
                }
            }
            ConvertStep::Await { node } => {
                let until = *awaits_until.get_or_insert_with(|| Instant::now() + GIVEN_UP_WITHIN);
                let given_up = watch(seat, None, &node);
                let in_time = Instant::now() < until;
                let waited = tokio::time::timeout_at(until.into(), given_up).await;
                ConvertEvent::Awaited { is_late: !(in_time && waited.is_ok_and(|event| event.is_change())) }
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
    let (session, held) = (Arc::clone(hold.session()), Arc::clone(hold.held()));
    let reason = match converted {
        Converted::Done { node, zxid } => {
            if held.end_conversion(&node, kind) {
                observe::converted(&held, kind);
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
                    None => Err(not_converted(hold, why)),
                };
            }
            delete(&hold, vec![own.to_owned()]).await;
            LostReason::LeaseExpired
        }
        Converted::Lost { gone, delete: nodes } => {
            let reason = if gone { LostReason::NodeDeleted } else { LostReason::NotConverted };
            // The holder is notified before the rest is deleted, which may take long.
            held.conversion_lost(reason);
            if gone {
                session.nodes.disown(&hold.path_lock().path().child(own));
            }
            delete(&hold, nodes).await;
            reason
        }
        Converted::SessionGone => session.end_reason().unwrap_or(LostReason::Closed),
    };
    held.conversion_over(reason);
    let reason = hold.lost().unwrap_or(reason);
    lost(hold, reason)
}

fn not_converted(guard: Hold, why: NotConverted) -> ConversionError<Hold> {
    let path_lock = guard.path_lock();
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
    let source = Lost { path: guard.path_lock().path().user().into(), reason };
    Err(ConversionError::Lost { guard, source })
}

/// Has nodes deleted, one after the other, and waits until each is gone or refused, or the session is gone.
async fn delete(hold: &Hold, names: Vec<String>) {
    let (done, gone) = oneshot::channel();
    submit(hold, names, Some(done));
    // Cleanup has logged a refusal, and there is nothing more to do.
    let _ = gone.await;
}

fn submit(hold: &Hold, names: Vec<String>, done: Option<Done>) {
    hold.path_lock().client().cleanup().submit(Item {
        session: Arc::clone(hold.session()),
        directory: hold.path_lock().path().clone(),
        orphan: Orphan::Nodes(names),
        number: hold.held().number(),
        until_gone: None,
        done,
    });
}

/// A conversion that is not finished. If its task is dropped before that, by a panic (in a waker
/// of the caller's) or with its runtime, the lock is lost, and its nodes are deleted, the new one first
/// (docs/protocol.md#conversion-ends).
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
            hold.held().conversion_over(LostReason::Closed);
            submit(hold, vec![std::mem::take(&mut self.new), std::mem::take(&mut self.own)], None);
        }
    }
}
