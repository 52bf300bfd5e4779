//! The log of one session.
//!
//! A tracing subscriber may block. It must not block a holder that asks its guard, nor a thread that has yet
//! to tell a loss. So events are only noted where they happen, and logged later on the session's thread.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::error::LostReason;
use crate::session::holds::HeldLock;
use crate::session::journal;
use crate::session::log;

/// The name of the event of a loss.
const LOST: &str = "lock.lost";

/// The events of one session that are to be logged.
#[derive(Debug)]
pub(crate) struct SessionLog {
    number: u64,
    session_id: i64,
    unlogged: Mutex<Unlogged>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Unlogged {
    lost: VecDeque<(Arc<dyn HeldLock>, LostReason)>,
    /// Whether the end of the session was requested, by closing the client.
    expected: bool,
    task_died: bool,
    ended: Option<LostReason>,
}

/// One entry of the log.
enum Entry {
    Lost(Arc<dyn HeldLock>, LostReason),
    /// Released by the close of the client.
    Closed(Arc<dyn HeldLock>),
    TaskDied,
    Ended(LostReason),
}

impl SessionLog {
    pub(super) fn new(number: u64, session_id: i64) -> Self {
        Self { number, session_id, unlogged: Mutex::default(), news: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Unlogged> {
        self.unlogged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the loss of a lock.
    pub(crate) fn lost(&self, lock: Arc<dyn HeldLock>, reason: LostReason) {
        self.lock().lost.push_back((lock, reason));
    }

    /// Notes that the task that serves the session has died.
    pub(super) fn task_died(&self) {
        self.lock().task_died = true;
    }

    /// Notes the end of the session.
    pub(super) fn ended(&self, reason: LostReason) {
        self.lock().ended = Some(reason);
    }

    /// Notes that the end of the session is requested, so that the loss of its locks is not logged as a
    /// warning.
    pub(crate) fn expect_end(&self) {
        self.lock().expected = true;
    }

    /// Wakes the task that waits for [`news`](Self::news).
    pub(crate) fn tell(&self) {
        self.news.notify_one();
    }

    /// Waits until there is something to log, or a lost lock keeps its node, also if that came before this
    /// call.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// Logs each noted event once. Called on the session's thread only.
    pub(crate) fn write(&self) {
        loop {
            // A statement of its own, so that the mutex is not held while the entry is logged.
            let next = self.lock().next();
            let Some(entry) = next else { return };
            self.write_entry(&entry);
        }
    }

    fn write_entry(&self, entry: &Entry) {
        let (session, session_id) = (self.number, format_args!("{:#x}", self.session_id));
        match entry {
            Entry::Lost(lock, reason) => {
                let path = lock.directory().user();
                log::warn!(name: LOST, path, node = &*lock.node(), session, %reason, "lock lost");
            }
            Entry::Closed(lock) => {
                let path = lock.directory().user();
                log::debug!(
                    name: LOST,
                    path,
                    node = &*lock.node(),
                    session,
                    "lock lost: the client was closed while it was held"
                );
            }
            Entry::TaskDied => {
                log::error!(session, session_id, "the task that serves the session has died");
            }
            Entry::Ended(reason) => {
                journal::session_ended(*reason);
                log::info!(name: "session.ended", session, session_id, %reason, "session over");
            }
        }
    }
}

impl Unlogged {
    /// Returns the next entry. The end of the session is the last one.
    fn next(&mut self) -> Option<Entry> {
        if let Some((lock, reason)) = self.lost.pop_front() {
            let closed = self.expected && reason == LostReason::Closed;
            return Some(if closed { Entry::Closed(lock) } else { Entry::Lost(lock, reason) });
        }
        if std::mem::take(&mut self.task_died) {
            return Some(Entry::TaskDied);
        }
        self.ended.take().map(Entry::Ended)
    }
}
