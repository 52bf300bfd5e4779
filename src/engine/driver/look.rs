//! Looking at the queue without being in it.

use std::collections::HashSet;
use std::sync::Arc;

use zookeeper_client as zk;

use super::ask::{Unanswered, ask};
use super::requests::{list, list_alone};
use crate::client::epoch::{Epoch, cause};
use crate::client::reaper::first_refused;
use crate::engine::name::Kind;
use crate::engine::pending::Ahead;
use crate::engine::queue::{Listing, Queue, Unusable};
use crate::engine::room::Room;
use crate::error::AcquireError;

/// The nodes that queue for a lock, all or those of one kind, in order, as the user would write their paths.
pub(crate) async fn participants(room: &Arc<Room>, kind: Option<Kind>) -> Result<Vec<String>, AcquireError> {
    let queue = look(room).await?;
    if let Some(queue) = &queue {
        queue.usable().map_err(|unusable| unusable_directory(room, unusable))?;
    }
    let nodes = queue.iter().flat_map(|queue| queue.in_order(kind));
    Ok(nodes.map(|name| room.path().user_child(name)).collect())
}

/// How many contenders are before the node `name`; nothing if it is not in the queue.
pub(crate) async fn position(room: &Arc<Room>, name: &str) -> Result<Option<usize>, AcquireError> {
    let Some(queue) = look(room).await? else { return Ok(None) };
    queue.usable_by(name).map_err(|unusable| unusable_directory(room, unusable))?;
    Ok(queue.rank(name))
}

/// The queue as it is now; nothing if there is no directory.
async fn look(room: &Arc<Room>) -> Result<Option<Arc<Queue>>, AcquireError> {
    let path = room.path();
    let listing = ask(room.client(), |epoch, session| async move {
        match list(room, &epoch, &session).await {
            Ok(listing) => Ok(Some(listing)),
            Err(zk::Error::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    });
    let user = || path.user().to_owned();
    match listing.await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(queue))) => Ok(Some(queue)),
        Ok(Some(Err(unusable))) => Err(unusable_directory(room, unusable)),
        Err(Unanswered::NoEpoch(no_epoch)) => Err(no_epoch.into_error(path)),
        Err(Unanswered::Refused(zk::Error::NoAuth)) => Err(no_auth(room, About::Directory)),
        Err(Unanswered::Refused(error)) => Err(AcquireError::Rejected { path: user(), source: cause(error) }),
        Err(Unanswered::GaveUp(error)) => {
            Err(AcquireError::Connection { path: user(), source: cause(error) })
        }
    }
}

/// What a request was about.
#[derive(Debug)]
pub(super) enum About {
    Directory,
    /// The directory above the lock's, or one above that.
    Parent,
    /// Another contender's node.
    Node(Box<str>),
}

/// The error of a request that an ACL does not allow.
pub(super) fn no_auth(room: &Room, about: About) -> AcquireError {
    let path = room.path().user();
    let node = match about {
        About::Directory => path.to_owned(),
        About::Parent => match path.rsplit_once('/') {
            Some(("", _)) | None => "/".to_owned(),
            Some((parent, _)) => parent.to_owned(),
        },
        About::Node(name) => room.path().user_child(&name),
    };
    AcquireError::NoAuth { path: path.to_owned(), node, has_credentials: room.client().has_credentials() }
}

/// What a directory that cannot be queued in means to a caller.
pub(super) fn unusable_directory(room: &Room, unusable: Unusable) -> AcquireError {
    let path = room.path();
    match unusable {
        Unusable::OtherOrder(name) => {
            AcquireError::MixedRecipes { path: path.user().to_owned(), node: path.user_child(&name) }
        }
        Unusable::Exhausted => AcquireError::SequenceExhausted { path: path.user().to_owned() },
    }
}

/// The error of a directory in which this client has left nodes that it may not delete, after asking for that once more;
/// `ahead`, if given, is a list and the contender for which only those in its way count.
pub(super) async fn orphaned(
    room: &Room,
    epoch: &Epoch,
    kind: Kind,
    ahead: Option<(&Queue, Option<&str>)>,
) -> Option<AcquireError> {
    let mut orphans = epoch.orphans(Some(room.path()));
    if orphans.is_empty() {
        return None;
    }
    // Without a list any of them counts: another contender would leave another.
    if let Some((queue, name)) = ahead {
        let in_the_way: HashSet<&str> = queue.in_the_way(name, kind).1.collect();
        orphans.retain(|orphan| in_the_way.contains(orphan.name.as_str()));
    }
    // On the heap: those that wait, perhaps by the thousand, keep room for what hardly ever happens otherwise.
    let (orphan, source) = Box::pin(first_refused(epoch, orphans)).await?;
    let node = room.path().user_child(&orphan.name);
    Some(AcquireError::Orphaned { path: room.path().user().to_owned(), node, source })
}

/// Whom a contender has to wait for.
#[derive(Debug)]
pub(crate) enum Sight {
    Clear,
    /// Live contenders.
    Live(Ahead),
    /// Only nodes of our own session that are to be deleted, the last of them this one, by its server path.
    Leaving(String),
}

/// Whom the contender `name`, or a newcomer of this kind, has to wait for, by a list.
pub(super) fn sight(room: &Room, epoch: &Epoch, queue: &Queue, name: Option<&str>, kind: Kind) -> Sight {
    let (count, names) = queue.in_the_way(name, kind);
    let mut leaving = None;
    for name in names {
        let path = room.path().child(name);
        if !epoch.is_leaving(&path) {
            return Sight::Live(Ahead { count, first: Some(name.into()) });
        }
        leaving = Some(path);
    }
    leaving.map_or(Sight::Clear, Sight::Leaving)
}

/// Whom a contender of this kind would have to wait for: asked before a try creates anything. A member may lag behind, so
/// live contenders are believed only in a list that was sent right behind a `sync` (rule 19). Errors are left to the create.
pub(crate) async fn busy(room: &Arc<Room>, epoch: &Arc<Epoch>, kind: Kind) -> Sight {
    let sight = |listing: Listing| match listing {
        Ok(queue) if queue.usable().is_ok() => sight(room, epoch, &queue, None, kind),
        _ => Sight::Clear,
    };
    // A late create of our own would be in the way of every try; looking has it deleted.
    let list = epoch.request(|session| async move { list_alone(room, epoch, &session).await });
    match list.await {
        Ok(Ok(listing)) => match sight(listing) {
            Sight::Live(_) => {}
            seen => return seen,
        },
        _ => return Sight::Clear,
    }
    let certain = epoch.request(|session| async move {
        tokio::join!(session.sync(room.path().server()), list_alone(room, epoch, &session))
    });
    match certain.await {
        Ok((Ok(()), Ok(listing))) => sight(listing),
        _ => Sight::Clear,
    }
}
