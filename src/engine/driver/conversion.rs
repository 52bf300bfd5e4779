//! Does the I/O of a [`Conversion`]: downgrades and upgrades of one hold.
//!
//! It runs as a task where the session runs, and owns the hold: a caller that goes away stops nothing, and what the
//! hold has become is given back by its drop.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use zookeeper_client as zk;

use super::requests::{failure, list, new_id, to_library, unusable_directory};
use crate::client::clock::Moment;
use crate::client::epoch::{Epoch, cause};
use crate::client::reaper::{Debt, Item};
use crate::engine::contender::{Answer, Failure};
use crate::engine::conversion::{Conversion, Converted, Event, Made, Request, Step, Why};
use crate::engine::name::Kind;
use crate::engine::queue::Unusable;
use crate::engine::room::{Hold, Room};
use crate::error::{ConversionFailure, Lost, LostReason};

/// The pauses between repetitions, as the reaper's: they end with the session at the latest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A hold after a conversion, or as it was with the reason.
pub(crate) type Outcome = Result<Hold, (Hold, ConversionFailure)>;

/// Turns a held write lock into a read lock, with nobody in between.
pub(crate) async fn downgrade(hold: Hold) -> Outcome {
    convert(hold, Kind::Shared).await
}

/// Turns a held read lock into the write lock, if nobody else can be inside.
pub(crate) async fn upgrade(hold: Hold) -> Outcome {
    convert(hold, Kind::Exclusive).await
}

async fn convert(hold: Hold, kind: Kind) -> Outcome {
    let (room, epoch) = (Arc::clone(hold.room()), Arc::clone(hold.epoch()));
    let naming = room.naming();
    let own = hold.node();
    // Until the end, so that whoever gives a borrowed session back waits for the node that comes of it.
    let _counted = epoch.attempt();
    // Both a clock and a node: nothing is done for a lock that may be somebody else's.
    let new = match hold.lost() {
        Some(reason) => return lost(hold, reason),
        None => naming.beside(&own, &new_id(naming), kind),
    };
    let Some(new) = new.filter(|_| epoch.begin_conversion(hold.held())) else {
        let reason = hold.lost().unwrap_or(LostReason::Closed);
        return lost(hold, reason);
    };
    let (mut conversion, mut step) = match kind {
        Kind::Shared => Conversion::downgrade(own.as_ref().to_owned(), new),
        Kind::Exclusive => Conversion::upgrade(own.as_ref().to_owned(), new),
    };
    let mut last_error = None;
    let converted = loop {
        let event = match step {
            Step::Finish(converted) => break converted,
            Step::Do(request) => tokio::select! {
                biased;
                event = perform(&room, &epoch, request, &mut last_error) => event,
                () = epoch.gone() => break Converted::EpochOver,
            },
            Step::Pause { failures } => {
                let pause = FIRST_PAUSE.saturating_mul(1 << failures.min(7)).min(LONGEST_PAUSE);
                tokio::select! {
                    () = tokio::time::sleep(pause) => Event::Retry,
                    () = epoch.gone() => break Converted::EpochOver,
                }
            }
        };
        step = conversion.on(event);
    };
    finish(hold, &own, kind, converted, last_error).await
}

/// Settles by what node the lock is held from now on, and has the rest deleted.
async fn finish(
    hold: Hold,
    own: &str,
    kind: Kind,
    converted: Converted,
    last_error: Option<zk::Error>,
) -> Outcome {
    let epoch = Arc::clone(hold.epoch());
    let held = hold.held();
    match converted {
        Converted::Done { node, surplus } => {
            if epoch.end_conversion(held, &node, kind) {
                surplus.into_iter().for_each(|name| drop(reap(&hold, name)));
                return match hold.lost() {
                    Some(reason) => lost(hold, reason),
                    None => Ok(hold),
                };
            }
            // Lost on the way. The write node goes before the read node of an upgrade.
            reap_in_order(&hold, std::iter::once(node).chain(surplus)).await;
        }
        Converted::Kept(why) => {
            let before = match kind {
                Kind::Shared => Kind::Exclusive,
                Kind::Exclusive => Kind::Shared,
            };
            if epoch.end_conversion(held, own, before) {
                let reason = match (hold.lost(), why) {
                    (Some(reason), _) => return lost(hold, reason),
                    (None, Why::Contended) => ConversionFailure::Contended,
                    (None, Why::Unusable(Unusable::OtherOrder(name))) => {
                        let path = hold.room().path();
                        ConversionFailure::MixedRecipes { node: path.to_user(&path.child(&name)).to_owned() }
                    }
                    (None, Why::Unusable(unusable)) => {
                        let source = Arc::new(unusable_directory(hold.room(), unusable));
                        ConversionFailure::Rejected { source }
                    }
                    (None, Why::Refused) => {
                        let error = last_error.unwrap_or(zk::Error::NoAuth);
                        ConversionFailure::Rejected { source: cause(error) }
                    }
                };
                return Err((hold, reason));
            }
            reap_in_order(&hold, [own.to_owned()]).await;
        }
        Converted::Lost { gone, leave } => {
            let reason = if gone { LostReason::NodeDeleted } else { LostReason::Suspect };
            epoch.abandon_conversion(held, reason);
            epoch.disown(&hold.room().path().child(own));
            reap_in_order(&hold, leave).await;
        }
        Converted::EpochOver => {
            epoch.abandon_conversion(held, epoch.end_reason().unwrap_or(LostReason::Closed));
        }
    }
    let reason = hold.lost().unwrap_or(LostReason::Suspect);
    lost(hold, reason)
}

fn lost(hold: Hold, reason: LostReason) -> Outcome {
    let lost = Lost { path: hold.room().path().user().into(), reason };
    Err((hold, lost.into()))
}

/// Hands a node to the reaper; the answer says when it is done with it.
fn reap(hold: &Hold, name: String) -> oneshot::Receiver<Result<(), crate::ReleaseError>> {
    let (done, result) = oneshot::channel();
    hold.room().client().reaper().reap(Item {
        epoch: Arc::clone(hold.epoch()),
        directory: hold.room().path().clone(),
        debt: Debt::Node(name),
        number: hold.held().number(),
        permit: None,
        done: Some(done),
    });
    result
}

async fn reap_in_order(hold: &Hold, names: impl IntoIterator<Item = String>) {
    for name in names {
        // Gone, refused for good, or the session is over: whichever, the next may go.
        let _ = reap(hold, name).await;
    }
}

async fn perform(
    room: &Arc<Room>,
    epoch: &Arc<Epoch>,
    request: Request,
    last_error: &mut Option<zk::Error>,
) -> Event {
    let Ok(session) = epoch.session() else { return Event::Made(Made::Failed(Failure::EpochOver)) };
    let acls = to_library(&room.options().acl);
    let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::new(&acls));
    let data = &room.options().data;
    let sent = Moment::now();
    match request {
        Request::Swap { create, delete } => {
            let (create, delete) = (room.path().child(&create), room.path().child(&delete));
            let mut writer = session.new_multi_writer();
            let put = writer.add_create(&create, data, &options);
            if let Err(error) = put.and_then(|()| writer.add_delete(&delete, None)) {
                // The paths were checked and the ACL is not empty, so the library has nothing to refuse here.
                return Event::Made(Made::Failed(failure(epoch, error, last_error)));
            }
            Event::Made(match writer.commit().await {
                Ok(_) => {
                    epoch.proved(sent);
                    epoch.adopt(create);
                    epoch.disown(&delete);
                    Made::Done
                }
                Err(zk::MultiWriteError::OperationFailed { source, .. }) => {
                    epoch.proved_by_check(sent, &source);
                    match source {
                        zk::Error::NodeExists => {
                            epoch.adopt(create);
                            epoch.disown(&delete);
                            Made::Exists
                        }
                        zk::Error::NoNode => Made::Missing,
                        error => Made::Failed(failure(epoch, error, last_error)),
                    }
                }
                Err(zk::MultiWriteError::RequestFailed { source }) => {
                    Made::Failed(failure(epoch, source, last_error))
                }
            })
        }
        Request::Create { name } => {
            let path = room.path().child(&name);
            let created = session.create(&path, data, &options).await;
            Event::Made(match created {
                Ok(_) => {
                    epoch.proved(sent);
                    epoch.adopt(path);
                    Made::Done
                }
                Err(error) => {
                    epoch.proved_by_refusal(sent, &error);
                    match error {
                        zk::Error::NodeExists => {
                            epoch.adopt(path);
                            Made::Exists
                        }
                        zk::Error::NoNode => Made::Missing,
                        error => Made::Failed(failure(epoch, error, last_error)),
                    }
                }
            })
        }
        Request::List => Event::Listed(match list(room, epoch, &session).await {
            Ok(listing) => Answer::Is(listing),
            Err(error) => Answer::No(failure(epoch, error, last_error)),
        }),
        Request::Delete { name } => {
            let path = room.path().child(&name);
            let deleted = session.delete(&path, None).await;
            Event::Deleted(match deleted {
                Ok(()) => {
                    epoch.proved(sent);
                    epoch.disown(&path);
                    Answer::Is(())
                }
                Err(error) => {
                    epoch.proved_by_refusal(sent, &error);
                    if error == zk::Error::NoNode {
                        epoch.disown(&path);
                    }
                    Answer::No(failure(epoch, error, last_error))
                }
            })
        }
    }
}
