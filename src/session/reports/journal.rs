//! The journal of the process: the reports for the tracing subscriber and the metrics recorder. A
//! note is made where an event happens, and a separate thread carries the note out
//! (docs/protocol.md#told-apart).
//!
//! Subscribers and recorders are third-party code, which may block or panic. So only the journal's
//! thread calls them: no holder, no caller that hands a lock over, no lease thread and no session's
//! thread does. Notes wait for that thread in a queue. A call that begins, or a line that is
//! logged, while [`MAX_WAITING_NOTES`] wait is not reported, but is counted as missed. The later
//! notes of a call whose beginning was queued, usually two or three, are queued even then, so that
//! its report has an end. So the number of calls under way bounds how far the queue grows beyond
//! the limit.
//!
//! Without an interested subscriber, and without the feature `metrics`, no note is made.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use tracing::Level;
use tracing::level_filters::LevelFilter;

#[cfg(feature = "metrics")]
use crate::session::reports::metrics;
use crate::session::threads::background::{self, OfProcess};
use crate::session::threads::waker::contain_panic;

/// The number of waiting notes at which no further calls are observed, and no further lines logged.
const MAX_WAITING_NOTES: usize = 65_536;

/// The thread's name.
const NAME: &str = "zk-journal";

/// The target of spans and events of locks; other lines have those of their files.
pub(crate) const TARGET: &str = "zookeeper_recipes::lock";

type Note = Box<dyn FnOnce() + Send>;

static JOURNAL: OfProcess<Journal> = OfProcess::new();

struct Journal {
    notes: Sender<Note>,
    /// How many notes wait.
    waiting: AtomicUsize,
    /// The number of notes for which there was no room.
    missed: AtomicU64,
}

impl Journal {
    /// Starts the thread that carries out the notes.
    fn start() -> io::Result<Arc<Self>> {
        let (notes, queue) = channel::<Note>();
        let journal = Arc::new(Self {
            notes,
            waiting: AtomicUsize::new(0),
            missed: AtomicU64::new(0),
        });
        let noted = Arc::clone(&journal);
        background::run_blocking(NAME, move || {
            for note in queue {
                noted.waiting.fetch_sub(1, Ordering::Relaxed);
                // A panic ends one note only.
                contain_panic(note);
            }
        })?;
        Ok(journal)
    }

    fn send(&self, note: Note) -> bool {
        // The note is counted before it is sent, because the thread may carry it out, and subtract
        // it, before the next statement.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.notes.send(note).is_ok()
    }

    /// Reports the number of calls and lines that were not observed, because earlier ones were
    /// reported too slowly.
    fn report_missed(&self) {
        let missed = self.missed.swap(0, Ordering::Relaxed);
        contain_panic(|| {
            tracing::event!(
                name: "observer.missed", target: TARGET, Level::WARN, missed,
                "calls were not observed: the tracing subscriber or the metrics recorder is too slow"
            );
        });
        // The recorder is called separately, so that a panic of the subscriber does not cost the
        // count.
        #[cfg(feature = "metrics")]
        contain_panic(|| metrics::missed(missed));
    }
}

/// Queues a note that follows an earlier note for which there was room, even if the queue is full
/// now.
pub(crate) fn note(note: impl FnOnce() + Send + 'static) -> bool {
    journal_with_room(usize::MAX).is_some_and(|journal| journal.send(Box::new(note)))
}

/// Queues a note. Returns `false` if there is no room, or if the journal's thread cannot be
/// started.
pub(crate) fn note_if_room(note: impl FnOnce() + Send + 'static) -> bool {
    journal_with_room(MAX_WAITING_NOTES).is_some_and(|journal| journal.send(Box::new(note)))
}

/// Returns the journal if fewer than `most` notes wait in it; otherwise counts a missed note.
fn journal_with_room(most: usize) -> Option<Arc<Journal>> {
    // Usually the journal exists. A forked child starts another one here.
    JOURNAL.start(Journal::start).ok()?;
    let journal = JOURNAL.get()?;
    // No room is reserved, so each thread that is here at the same time may add one note above the
    // limit.
    if journal.waiting.load(Ordering::Relaxed) < most {
        return Some(journal);
    }
    if journal.missed.fetch_add(1, Ordering::Relaxed) == 0 {
        // The report is behind all notes that wait.
        let noted = Arc::clone(&journal);
        journal.send(Box::new(move || noted.report_missed()));
    }
    None
}

/// Returns whether a subscriber may want lines of this level, without asking any subscriber.
pub(crate) fn is_logged(level: Level) -> bool {
    level <= LevelFilter::current()
}
