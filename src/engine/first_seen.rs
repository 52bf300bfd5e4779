//! Who is first in a lock's queue, as its errors say it. The attempts of a path lock share their knowledge of
//! that node, so that it costs them a request once, or none (docs/protocol.md#held-by).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::contender::Contender;
use crate::protocol::queue::Queue;

/// How long a read result is valid for an error: longer than a call asks before its deadline.
const COUNTS_FOR: Duration = Duration::from_millis(500);

/// How long it is between two reads before deadlines: thousands of calls may end one after the other.
const PAUSE: Duration = Duration::from_millis(50);

/// The knowledge that the attempts of a path lock share of the node that is first in the queue.
#[derive(Debug, Default)]
pub(super) struct FirstSeen(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// The name of the node that was first by the last list.
    name: Option<Arc<str>>,
    /// The result of a read of a node, and the time at which the node was known to exist.
    known: Option<(Contender, Instant)>,
    /// How many watches are set on that node: while there is one, it exists.
    watches: usize,
    /// When it was read last before a deadline.
    asked: Option<Instant>,
}

impl Seen {
    fn knows(&self, name: &str) -> bool {
        self.known.as_ref().is_some_and(|(known, _)| known.node().name() == name)
    }

    /// Returns whether it is certain enough who is first.
    fn is_certain(&self) -> bool {
        let exists = |(_, at): &(Contender, Instant)| self.watches > 0 || at.elapsed() < COUNTS_FOR;
        self.name.as_deref().is_some_and(|name| self.knows(name)) && self.known.as_ref().is_some_and(exists)
    }

    /// Notes what a read of a node has returned. The caller drops the returned earlier knowledge outside of
    /// the mutex.
    #[must_use]
    fn know(&mut self, contender: Contender) -> Option<(Contender, Instant)> {
        if !self.knows(contender.node().name()) {
            self.watches = 0;
        }
        self.known.replace((contender, Instant::now()))
    }
}

impl FirstSeen {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a list. Returns the name of the first node if nothing is known of it.
    pub(super) fn saw(&self, queue: &Queue) -> Option<Arc<str>> {
        let (name, _) = queue.holders().next()?;
        let mut seen = self.lock();
        if seen.name.as_deref() != Some(name) {
            seen.name = Some(name.into());
        }
        let is_known = seen.knows(name);
        match &mut seen.known {
            // Listed: it exists.
            Some((_, at)) if is_known => *at = Instant::now(),
            _ => {}
        }
        seen.name.clone().filter(|_| !is_known)
    }

    /// Notes what a read of a node has returned.
    pub(super) fn know(&self, contender: Contender) {
        let old = self.lock().know(contender);
        // Outside of the mutex.
        drop(old);
    }

    /// Records the result of a read that has set a watch, if its node is the first. It exists until the
    /// result is dropped.
    pub(super) fn watched(&self, contender: Contender) -> Option<Watched<'_>> {
        let name: Arc<str> = contender.node().name().into();
        let mut seen = self.lock();
        if seen.name.as_ref() != Some(&name) {
            return None;
        }
        let old = seen.know(contender);
        seen.watches += 1;
        drop(seen);
        // Outside of the mutex.
        drop(old);
        Some(Watched { first: self, name })
    }

    /// Returns who is first in the queue; `None` if that is not known, or was too long ago.
    pub(super) fn contender(&self) -> Option<Contender> {
        let seen = self.lock();
        let known = seen.known.as_ref().filter(|_| seen.is_certain());
        known.map(|(contender, _)| contender.now())
    }

    /// Returns whether the first contender must be looked up.
    pub(super) fn begin(&self) -> bool {
        let mut seen = self.lock();
        let asks = !seen.is_certain() && seen.asked.is_none_or(|asked| asked.elapsed() >= PAUSE);
        if asks {
            seen.asked = Some(Instant::now());
        }
        asks
    }

    /// Returns the name of the first node by the last list.
    pub(super) fn name(&self) -> Option<Arc<str>> {
        self.lock().name.clone()
    }

    /// Forgets this node, which is gone.
    pub(super) fn gone(&self, name: &str) {
        let old = self.lock().name.take_if(|known| &**known == name);
        // Outside of the mutex.
        drop(old);
    }
}

/// A watch on the first node, until it is dropped.
pub(super) struct Watched<'a> {
    first: &'a FirstSeen,
    name: Arc<str>,
}

impl Watched<'_> {
    /// Records that the watch has fired: the node may be gone.
    pub(super) fn fired(self) {
        let mut seen = self.first.lock();
        let old = if seen.knows(&self.name) { seen.known.take() } else { None };
        drop(seen);
        // Outside of the mutex, which the drop of this locks again.
        drop(old);
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let mut seen = self.first.lock();
        if !seen.knows(&self.name) {
            return;
        }
        seen.watches = seen.watches.saturating_sub(1);
        if let Some((_, at)) = &mut seen.known {
            // It has not fired: the node exists, as far as is known.
            *at = Instant::now();
        }
    }
}
