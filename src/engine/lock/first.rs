//! The first contender in a lock's queue, for the errors of calls that end without a grant. The
//! attempts of a path lock share their knowledge of that node, so that it costs one request for all
//! of them, or none (docs/protocol.md#held-by).
//!
//! A list shows the name of the first node, and a read of that node shows its owner. The attempt
//! that waits right behind the first node reads it with its watch, and the node exists for as long
//! as the watch has not fired. Other attempts read the node shortly before their deadlines: one of
//! them for all, with at least [`PAUSE`] between two reads. The result of a read counts for
//! [`COUNTS_FOR`] after the node was last known to exist, so that an error does not name a
//! contender that may be gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use zookeeper_client as zk;

use crate::protocol::node_name::{Child, Family, Kind, Naming, classify};
use crate::session::threads::mutex::Mutex;
use crate::values::contender::{Contender, ContenderKind, NodeStat};
use crate::values::path::LockPath;

/// How long a read result is valid for an error: longer than a call asks before its deadline.
const COUNTS_FOR: Duration = Duration::from_millis(500);

/// The shortest time between two reads before deadlines: thousands of calls may end one after the
/// other.
const PAUSE: Duration = Duration::from_millis(50);

/// A node as it was read.
pub(crate) type NodeRead<'a> = (&'a [u8], &'a zk::Stat);

/// Returns the kind of lock that a contender requests.
pub(crate) const fn kind_of(naming: Naming, kind: Kind) -> ContenderKind {
    match (naming.family, kind) {
        (Family::Exclusive | Family::Latch, _) => ContenderKind::Exclusive,
        (Family::ReadWrite, Kind::Shared) => ContenderKind::Read,
        (Family::ReadWrite, Kind::Exclusive) => ContenderKind::Write,
    }
}

/// Returns a contender, from the result of a read of its node in the session with this id.
pub(crate) fn contender(
    directory: &LockPath,
    (name, kind): (&str, ContenderKind),
    (data, stat): NodeRead<'_>,
    session: i64,
) -> Contender {
    let is_mine = stat.ephemeral_owner == session;
    // The token of an exclusive grant is the zxid of its node's creation. The tokens of readers
    // have no order (docs/protocol.md#reader-tokens), and that of a permit is the zxid of a lock
    // node (docs/protocol.md#permit-tokens), which is deleted by the grant.
    let has_token = match kind {
        ContenderKind::Exclusive | ContenderKind::Write => true,
        ContenderKind::Read | ContenderKind::Permit => false,
    };
    let stat = NodeStat {
        session: stat.ephemeral_owner,
        czxid: stat.czxid,
        ctime: stat.ctime,
    };
    Contender::new(
        directory.user_child(name),
        kind,
        stat,
        data,
        (is_mine, has_token),
    )
}

/// Returns a contender of the queue in this directory; `None` if the name is none of a contender.
pub(crate) fn in_queue(
    naming: Naming,
    directory: &LockPath,
    name: &str,
    read: NodeRead<'_>,
    session: i64,
) -> Option<Contender> {
    let Child::Contender { kind, .. } = classify(name, naming) else {
        return None;
    };
    let named = (name, kind_of(naming, kind));
    Some(contender(directory, named, read, session))
}

/// The knowledge that the attempts of a path lock share of the node that is first in the queue.
#[derive(Default)]
pub(crate) struct FirstSeen(Mutex<FirstState>);

#[derive(Default)]
struct FirstState {
    /// The name of the node that was first by the last list.
    name: Option<Arc<str>>,
    /// The node that was read last.
    known: Option<FirstNode>,
    /// When a node was read last before a deadline.
    asked: Option<Instant>,
}

struct FirstNode {
    contender: Contender,
    /// When it was known to exist.
    at: Instant,
    /// How many watches are set on it: while there is one, it exists.
    watches: usize,
}

impl FirstState {
    fn known(&mut self, name: &str) -> Option<&mut FirstNode> {
        self.known
            .as_mut()
            .filter(|known| known.contender.node().name() == name)
    }

    /// Notes what a read of a node has returned.
    fn know(&mut self, contender: Contender) -> &mut FirstNode {
        // Other attempts may watch this node, so the count of its watches stays.
        let watches = self
            .known(contender.node().name())
            .map_or(0, |known| known.watches);
        self.known.insert(FirstNode {
            contender,
            at: Instant::now(),
            watches,
        })
    }

    /// Returns who is first; `None` if that is not known, or was too long ago.
    fn first(&self) -> Option<&Contender> {
        let known = self.known.as_ref()?;
        let exists = known.watches > 0 || known.at.elapsed() < COUNTS_FOR;
        let is_first = self.name.as_deref() == Some(known.contender.node().name());
        (exists && is_first).then_some(&known.contender)
    }
}

impl FirstSeen {
    /// Records the name of the first node by a list. Returns it if nothing is known of that node.
    pub(crate) fn saw(&self, name: &str) -> Option<Arc<str>> {
        let mut seen = self.0.lock();
        if seen.name.as_deref() != Some(name) {
            seen.name = Some(name.into());
        }
        match seen.known(name) {
            // The list shows that the node exists.
            Some(known) => {
                known.at = Instant::now();
                None
            }
            None => seen.name.clone(),
        }
    }

    /// Notes what a read of a node has returned.
    pub(crate) fn know(&self, contender: Contender) {
        self.0.lock().know(contender);
    }

    /// Records the result of a read of this node that has set a watch, if the node is the first.
    /// The node counts as existing until the returned value is dropped.
    pub(crate) fn watched(
        &self,
        name: &str,
        contender: impl FnOnce() -> Option<Contender>,
    ) -> Option<FirstWatched<'_>> {
        let mut seen = self.0.lock();
        // Most contenders wait behind another one, whose data no error shows.
        let name = seen.name.clone().filter(|first| **first == *name)?;
        seen.know(contender()?).watches += 1;
        drop(seen);
        Some(FirstWatched { first: self, name })
    }

    /// Returns who is first in the queue; `None` if that is not known, or was too long ago.
    pub(crate) fn contender(&self) -> Option<Contender> {
        self.0.lock().first().map(Contender::now)
    }

    /// Returns whether the first contender must be looked up.
    pub(crate) fn begin_lookup(&self) -> bool {
        let mut seen = self.0.lock();
        let asks =
            seen.first().is_none() && seen.asked.is_none_or(|asked| asked.elapsed() >= PAUSE);
        // The time is recorded before the read, so that calls that end during the read do not send
        // another.
        if asks {
            seen.asked = Some(Instant::now());
        }
        asks
    }

    /// Returns the name of the first node by the last list.
    pub(crate) fn name(&self) -> Option<Arc<str>> {
        self.0.lock().name.clone()
    }

    /// Forgets this node, which is gone.
    pub(crate) fn gone(&self, name: &str) {
        // A later list may have named another node since the read was sent.
        self.0.lock().name.take_if(|known| &**known == name);
    }
}

/// A watch on the first node, until it is dropped.
pub(crate) struct FirstWatched<'a> {
    first: &'a FirstSeen,
    name: Arc<str>,
}

impl FirstWatched<'_> {
    /// Records that the watch has fired: the node may be gone.
    pub(crate) fn fired(self) {
        // All watches of the node fire at once, so their count goes with it. The drop of `self`,
        // after this, finds nothing to count.
        self.first
            .0
            .lock()
            .known
            .take_if(|known| known.contender.node().name() == &*self.name);
    }
}

impl Drop for FirstWatched<'_> {
    fn drop(&mut self) {
        if let Some(known) = self.first.0.lock().known(&self.name) {
            known.watches = known.watches.saturating_sub(1);
            // The watch has not fired, so the node existed until now.
            known.at = Instant::now();
        }
    }
}
