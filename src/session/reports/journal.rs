//! The journal of the process: what goes to the tracing subscriber and the metrics recorder. A note
//! is made where something happens, and a thread that does nothing else carries it out
//! (docs/protocol.md#told-apart).
//!
//! A subscriber and a recorder are foreign code, which may block or panic. So nothing but the
//! journal's thread calls them: no holder, no caller that hands a lock over, not the lease thread,
//! not the thread of a session. Notes wait in a queue for that thread. The queue is bounded: a call
//! that begins while it is full is not observed at all, and counted, as is a line.
//!
//! Without a subscriber that wants it, and without the feature `metrics`, nothing is noted.

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

/// How many notes may wait before no more calls are observed.
const MOST: usize = 65_536;

/// The thread's name. Linux shows at most fifteen characters.
const NAME: &str = "zk-watch";

/// The target of spans and events of locks; other lines have those of their files.
pub(crate) const TARGET: &str = "zookeeper_recipes::lock";

type Note = Box<dyn FnOnce() + Send>;

static JOURNAL: OfProcess<Journal> = OfProcess::new();

struct Journal {
    notes: Sender<Note>,
    /// How many notes wait.
    waiting: AtomicUsize,
    /// How many there was no room for.
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
        #[cfg(feature = "metrics")]
        contain_panic(|| metrics::missed(missed));
    }
}

/// Has the thread carry out a note that follows an earlier one, for which there was room.
pub(crate) fn note(note: impl FnOnce() + Send + 'static) -> bool {
    journal_with_room(usize::MAX).is_some_and(|journal| journal.send(Box::new(note)))
}

/// Has the thread carry out a note. Returns `false` if there is no room, or no thread can be
/// started.
pub(crate) fn note_if_room(note: impl FnOnce() + Send + 'static) -> bool {
    journal_with_room(MOST).is_some_and(|journal| journal.send(Box::new(note)))
}

/// Returns the journal if fewer than `most` notes wait in it. Otherwise it counts a note that is
/// missed.
fn journal_with_room(most: usize) -> Option<Arc<Journal>> {
    JOURNAL.start(Journal::start).ok()?;
    let journal = JOURNAL.get()?;
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

/// Returns whether a subscriber may want lines of this level. None is asked.
pub(crate) fn is_logged(level: Level) -> bool {
    level <= LevelFilter::current()
}
