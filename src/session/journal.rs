//! The journal of the process: the outcomes of calls that acquire locks, the ends of their holds, and the
//! lines of the log. An event is noted where it happens, and a thread that does nothing else reports it to
//! the tracing subscriber and the metrics recorder (docs/protocol.md#told-apart).
//!
//! A subscriber and a recorder are foreign code, which may block or panic. So nothing but the journal's thread calls
//! them: no holder, no caller that hands a lock over, not the lease thread, not the thread of a session.
//! Notes wait in a queue for that thread. The queue is bounded: a call that begins while it is full is not
//! observed at all, and counted, as is a line.
//!
//! Without a subscriber that wants it, and without the feature `metrics`, nothing is noted.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracing::level_filters::LevelFilter;
use tracing::{Level, Span};

use crate::error::LostReason;
use crate::path::LockPath;
use crate::session::background;
use crate::session::note::{CallNumber, Context, End, Granted, Note, Subject};
use crate::session::observer::{Observer, TARGET};
use crate::session::waker::contain_panic;

/// How many notes may wait before no more calls are observed.
const MOST: usize = 65_536;

/// The thread's name. Linux shows at most fifteen characters.
const NAME: &str = "zk-watch";

/// An observed call, from its beginning until the end of the hold that it was granted.
#[derive(Debug)]
pub(crate) struct Life {
    number: CallNumber,
    /// How many of the nodes that it was granted are held.
    holds: AtomicUsize,
    /// Whether its end is noted.
    over: AtomicBool,
}

impl Life {
    /// Notes a call; `None` if it is not observed: no subscriber wants it, or the queue is full. The caller's
    /// thread calls this: its subscriber is asked here whether it is interested, and which span is current.
    pub(crate) fn begin(subject: impl FnOnce() -> Subject) -> Option<Arc<Self>> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let is_traced = is_traced();
        if !is_traced && !cfg!(feature = "metrics") {
            return None;
        }
        let context = is_traced.then(|| Context {
            subscriber: tracing::dispatcher::get_default(Clone::clone),
            span: Span::current(),
        });
        let call = CallNumber::new(LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1))?;
        let noted = JOURNAL.note(Note::Asked { call, at: Instant::now(), subject: subject(), context });
        noted.then(|| {
            Arc::new(Self { number: call, holds: AtomicUsize::new(0), over: AtomicBool::new(false) })
        })
    }

    pub(crate) fn number(&self) -> CallNumber {
        self.number
    }

    /// Reports the grant.
    pub(crate) fn granted(&self, granted: Granted) {
        self.holds.store(granted.holds, Ordering::Release);
        self.note(Note::Granted { call: self.number, at: Instant::now(), granted });
    }

    /// Reports that the lock was not granted.
    pub(crate) fn not_granted(&self, reason: &'static str) {
        if !self.over.swap(true, Ordering::AcqRel) {
            self.note(Note::NotGranted { call: self.number, at: Instant::now(), reason });
        }
    }

    /// Reports that one of its holds was converted.
    pub(crate) fn converted(&self, recipe: &'static str) {
        self.note(Note::Converted { call: self.number, recipe });
    }

    /// Notes the end of one of its holds: the first loss and the last release count.
    pub(crate) fn hold_over(&self, end: End) {
        let is_last = self.holds.fetch_sub(1, Ordering::AcqRel) == 1;
        let counts = is_last || matches!(end, End::Lost(_));
        if counts && !self.over.swap(true, Ordering::AcqRel) {
            self.note(Note::Over { call: self.number, at: Instant::now(), end });
        }
    }

    fn note(&self, note: Note) {
        // It was begun, so there is room.
        JOURNAL.note(note);
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // If a hold was not released, which is not expected, this is the last report of it.
        self.not_granted("cancelled");
    }
}

/// The part of an observed call that one of its holds has, once the caller has it.
#[derive(Debug, Default)]
pub(crate) struct HoldLife(OnceLock<Part>);

#[derive(Debug)]
struct Part {
    life: Arc<Life>,
    /// Whether its end is noted.
    over: AtomicBool,
}

impl HoldLife {
    /// Begins with the grant to a caller; a hold is granted to one.
    pub(crate) fn begin(&self, life: &Arc<Life>) {
        let _ = self.0.set(Part { life: Arc::clone(life), over: AtomicBool::new(false) });
    }

    /// Notes its end, once.
    pub(crate) fn over(&self, end: End) {
        if let Some(part) = self.0.get().filter(|part| !part.over.swap(true, Ordering::AcqRel)) {
            part.life.hold_over(end);
        }
    }

    /// Reports its conversion.
    pub(crate) fn converted(&self, recipe: &'static str) {
        if let Some(part) = self.0.get() {
            part.life.converted(recipe);
        }
    }
}

/// Reports that a call waits: with its node, if it has one, and the known number of contenders ahead.
pub(crate) fn queued(call: CallNumber, node: Option<&str>, ahead: Option<usize>) {
    JOURNAL.note(Note::Queued { call, node: node.map(str::to_owned), ahead });
}

/// Reports that a released lock went to another caller of this process.
pub(crate) fn handed_over(directory: &LockPath, node: &str, to: &str) {
    if is_logged(Level::DEBUG) {
        let (node, to) = (node.to_owned(), to.to_owned());
        JOURNAL.note(Note::HandedOver { directory: directory.clone(), node, to });
    }
}

/// Reports that cleanup has deleted a node that no caller needed.
pub(super) fn orphan_deleted(directory: &LockPath, node: &str) {
    if is_on() {
        JOURNAL.note(Note::OrphanDeleted { directory: directory.clone(), node: node.to_owned() });
    }
}

/// Reports that a heartbeat was answered late, or not at all.
pub(super) fn heartbeat_late(session: u64, took: Duration) {
    if is_on() {
        JOURNAL.note(Note::HeartbeatLate { session, took });
    }
}

/// Returns whether a subscriber may want lines of this level. None is asked.
pub(crate) fn is_logged(level: Level) -> bool {
    level <= LevelFilter::current()
}

/// Notes a line of the log.
pub(crate) fn line(tell: impl FnOnce() + Send + 'static) {
    JOURNAL.note(Note::Line(Box::new(tell)));
}

/// Notes the beginning of a session, which its log tells.
pub(super) fn session_began() {
    if cfg!(feature = "metrics") {
        JOURNAL.note(Note::SessionBegan);
    }
}

/// Notes the end of a session, which its log tells.
pub(super) fn session_ended(reason: LostReason) {
    if cfg!(feature = "metrics") {
        JOURNAL.note(Note::SessionEnded(reason));
    }
}

/// Returns whether the subscriber of the caller is interested in locks. Without one this is a load and a
/// comparison.
fn is_traced() -> bool {
    let mut wanted = false;
    contain_panic(|| wanted = tracing::enabled!(target: TARGET, Level::DEBUG));
    wanted
}

/// Returns whether there may be anybody to tell. None is asked.
fn is_on() -> bool {
    cfg!(feature = "metrics") || is_logged(Level::DEBUG)
}

static JOURNAL: Journal = Journal {
    state: Mutex::new(State { runs_in: None, notes: Vec::new(), missed: 0, sleeps: false }),
    noted: Condvar::new(),
};

struct Journal {
    state: Mutex<State>,
    noted: Condvar,
}

struct State {
    /// The process in which the thread runs: a forked child has none of its parent's threads.
    runs_in: Option<u32>,
    notes: Vec<Note>,
    /// How many notes there was no room for.
    missed: u64,
    sleeps: bool,
}

impl Journal {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a note for the thread that reports it, which is started for the first note. Returns `false` if
    /// there is no room, or no thread can be started.
    fn note(&'static self, note: Note) -> bool {
        let (refused, wakes) = {
            let mut state = self.lock();
            if state.is_full(&note) || !state.has_thread() {
                state.missed = state.missed.saturating_add(1);
                (Some(note), false)
            } else {
                state.notes.push(note);
                (None, std::mem::take(&mut state.sleeps))
            }
        };
        if wakes {
            self.noted.notify_one();
        }
        // Its spans are dropped outside of the mutex.
        refused.is_none()
    }

    fn run(&self) {
        let mut observer = Observer::default();
        let mut notes = Vec::new();
        loop {
            let missed = self.wait(&mut notes);
            // One after the other: a panic is that of one note.
            for note in notes.drain(..) {
                observer.tell(note);
            }
            if missed > 0 {
                Observer::missed(missed);
            }
        }
    }

    /// Waits for notes, and puts them into an empty list. Returns how many were missed.
    fn wait(&self, notes: &mut Vec<Note>) -> u64 {
        let mut state = self.lock();
        while state.notes.is_empty() && state.missed == 0 {
            state.sleeps = true;
            state = self.noted.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.sleeps = false;
        std::mem::swap(&mut state.notes, notes);
        std::mem::take(&mut state.missed)
    }
}

impl State {
    fn is_full(&self, note: &Note) -> bool {
        self.notes.len() >= MOST && !note.goes_on()
    }

    /// Returns whether there is a thread that tells the notes, and starts it if there is none.
    fn has_thread(&mut self) -> bool {
        let process = std::process::id();
        if self.runs_in != Some(process) {
            let started = background::run_blocking(NAME, || JOURNAL.run());
            self.runs_in = started.is_ok().then_some(process);
        }
        self.runs_in.is_some()
    }
}
