//! The calls that acquire locks, and the holds that they are granted, as the
//! [journal](crate::session::reports::journal) reports them to the tracing subscriber and the
//! metrics recorder. The journal's thread follows each call from its beginning to its single end.
//!
//! The names of spans, events and fields are part of the public interface. docs/observability.md
//! lists them in tables, and a test compares the tables with the reported names.

use std::cell::RefCell;
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tracing::field::Empty;
use tracing::{Dispatch, Level, Span, debug_span};

use crate::error::LostReason;
use crate::session::reports::journal::{self, TARGET};
use crate::session::reports::log;
#[cfg(feature = "metrics")]
use crate::session::reports::metrics::{self, Series};
use crate::session::threads::mutex::Mutex;
use crate::session::threads::waker::contain_panic;
use crate::values::path::LockPath;

/// Identifies an observed call.
pub(crate) type CallNumber = NonZeroU64;

/// The kind of lock that is acquired.
pub(crate) struct CallSubject {
    pub(crate) path: LockPath,
    /// A conversion changes this label.
    pub(crate) recipe: &'static str,
    #[cfg(feature = "metrics")]
    pub(crate) prefix: Arc<str>,
}

/// The way in which a lock was granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum How {
    /// A list of the queue showed that no node was before this one.
    #[default]
    List,
    /// The number of the node showed, without a list, that no node was before it.
    Succession,
    /// An event ended the wait for other contenders.
    Event,
    /// A transaction of the previous holder, in this process, handed the lock over.
    HandedOver,
    /// The previous holder, in this process, handed the lock over without a request.
    Memory,
    /// The call shares the node of other readers of this process, without a request.
    Shared,
}

impl How {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Succession => "succession",
            Self::Event => "event",
            Self::HandedOver => "handed_over",
            Self::Memory => "memory",
            Self::Shared => "shared",
        }
    }
}

/// A grant, as its caller receives it.
pub(crate) struct GrantReport {
    pub(crate) how: How,
    pub(crate) node: Arc<str>,
    pub(crate) session: u64,
    /// The number of granted nodes: permits, or members of a multi-lock.
    pub(crate) holds: usize,
}

/// How a call, or the hold that it was granted, has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallEnd {
    NotGranted(&'static str),
    Lost(LostReason),
    /// The guard was released; `by_call` is whether by a call to `release` or by a drop.
    Released {
        by_call: bool,
    },
}

/// An observed call, from its beginning until the end of the hold that it was granted: the first
/// loss of one of its nodes, or the last release.
pub(crate) struct CallReport {
    number: CallNumber,
    /// How the call ends when this is dropped; `None` once the end is noted.
    end: Mutex<Option<CallEnd>>,
}

impl CallReport {
    /// Notes a call. Returns `None` if the call is not observed, because no subscriber wants it or
    /// the queue is full. The caller's thread runs this, so that its subscriber can be asked
    /// whether it is interested, and which span is current.
    pub(crate) fn begin(subject: impl FnOnce() -> CallSubject) -> Option<Arc<Self>> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let is_traced = is_traced();
        if !is_traced && !cfg!(feature = "metrics") {
            return None;
        }
        // The subscriber may be set for the caller's thread alone, so the note takes it to the
        // journal's thread.
        let subscriber = || tracing::dispatcher::get_default(Clone::clone);
        let traced = is_traced.then(|| (subscriber(), Span::current()));
        // A counter of 64 bits does not return to zero, so each call has a number.
        let number = CallNumber::new(LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1))?;
        let (subject, asked) = (subject(), Instant::now());
        // A call that is not noted here has no report, so its end is not noted without its
        // beginning.
        journal::note_if_room(move || Observed::begin(number, subject, asked, traced)).then(|| {
            Arc::new(Self {
                number,
                // A caller that drops its future reports no end, so the drop of this report does.
                end: Mutex::new(Some(CallEnd::NotGranted("cancelled"))),
            })
        })
    }

    pub(crate) fn number(&self) -> CallNumber {
        self.number
    }

    pub(crate) fn granted(&self, granted: GrantReport) {
        // From the grant on, the drop of this report is that of the last guard.
        self.ends_by(CallEnd::Released { by_call: false });
        let at = Instant::now();
        note(self.number, move |observed| observed.granted(at, &granted));
    }

    /// Reports the end of the call, once.
    pub(crate) fn end(&self, end: CallEnd) {
        // The first end counts: a guard that is released after a loss has not released the lock.
        let is_first = self.end.lock().take().is_some();
        if is_first {
            // The moments are those of the events: the journal's thread may carry the note out much
            // later.
            let (call, at) = (self.number, Instant::now());
            journal::note(move || {
                let observed = CALLS.with_borrow_mut(|calls| calls.remove(&call));
                observed
                    .into_iter()
                    .for_each(|observed| observed.end(at, end));
            });
        }
    }

    fn ends_by(&self, end: CallEnd) {
        let mut known = self.end.lock();
        // An end that was reported already stays.
        *known = known.map(|_| end);
    }
}

impl Drop for CallReport {
    fn drop(&mut self) {
        let end = *self.end.get_mut();
        end.into_iter().for_each(|end| self.end(end));
    }
}

/// The share that one hold has in the report of an observed call, from the grant of the hold to its
/// end.
#[derive(Default)]
pub(crate) struct EndReport(Mutex<Option<Arc<CallReport>>>);

impl EndReport {
    /// Begins the report with the grant to a caller. Each hold is granted to only one caller.
    pub(crate) fn begin(&self, report: &Arc<CallReport>) {
        *self.0.lock() = Some(Arc::clone(report));
    }

    /// Notes the end of the hold, once.
    pub(crate) fn end(&self, end: CallEnd) {
        let report = self.0.lock().take();
        match (report, end) {
            // The last release is noted by the drop.
            (Some(report), CallEnd::Released { .. }) => report.ends_by(end),
            // The loss of one of several holds is the end of the whole call.
            (Some(report), _) => report.end(end),
            (None, _) => {}
        }
    }

    /// Reports the conversion of the hold.
    pub(crate) fn converted(&self, recipe: &'static str) {
        let report = self.0.lock().clone();
        if let Some(report) = report {
            let call = report.number;
            journal::note(move || observed(call, |observed| observed.converted(recipe)));
        }
    }
}

/// Reports that an observed call waits, with its node if there is one. `ahead` returns the number
/// of contenders that are known to be ahead.
pub(crate) fn queued(
    call: Option<CallNumber>,
    node: Option<&str>,
    ahead: impl FnOnce() -> Option<usize>,
) {
    let Some(call) = call else { return };
    let (node, ahead) = (node.map(str::to_owned), ahead());
    note(call, move |observed| {
        observed.queued(node.as_deref(), ahead);
    });
}

/// Reports that a released lock went to another caller of this process.
pub(crate) fn handed_over(directory: &LockPath, node: &str, to: &str) {
    let path = directory.user();
    log::debug!(
        [name: "lock.handed_over", target: TARGET] path, node, to,
        "lock handed over to another caller of this process"
    );
}

fn note(call: CallNumber, report: impl FnOnce(&mut Observed) + Send + 'static) {
    journal::note(move || observed(call, report));
}

/// Returns whether the subscriber of the caller is interested in locks. Without a subscriber this
/// costs a load and a comparison.
fn is_traced() -> bool {
    let mut wanted = false;
    // The subscriber is asked on the caller's thread, because it may be set for this thread alone.
    // A subscriber that blocks here delays only this caller.
    contain_panic(|| wanted = tracing::enabled!(target: TARGET, Level::DEBUG));
    wanted
}

thread_local! {
    /// The calls that are observed now. Only the journal's thread uses this, and runs the code
    /// below.
    static CALLS: RefCell<HashMap<CallNumber, Observed>> = RefCell::default();
}

fn observed(call: CallNumber, report: impl FnOnce(&mut Observed)) {
    CALLS.with_borrow_mut(|calls| calls.get_mut(&call).map(report));
}

/// One observed call.
struct Observed {
    subject: CallSubject,
    asked: Instant,
    granted: Option<Instant>,
    /// `None` if no subscriber is interested.
    traced: Option<Traced>,
}

/// The spans of a call, and the subscriber that knows them.
struct Traced {
    subscriber: Dispatch,
    /// The span that the call was made in.
    around: Span,
    /// The wait, then the hold.
    span: Span,
}

impl Traced {
    /// Calls the subscriber, which may panic.
    fn with_subscriber(&self, report: impl FnOnce(&Span)) {
        contain_panic(|| {
            tracing::dispatcher::with_default(&self.subscriber, || report(&self.span));
        });
    }

    /// Ends the span, and begins the next one within the span around the call.
    fn enter(&mut self, begin: impl FnOnce(&Span) -> Span) {
        let mut next = Span::none();
        contain_panic(|| {
            next = tracing::dispatcher::with_default(&self.subscriber, || begin(&self.around));
        });
        close(&self.subscriber, std::mem::replace(&mut self.span, next));
    }

    fn end(self) {
        let Self {
            subscriber,
            around,
            span,
        } = self;
        // The spans are closed one after the other, because a second panic while the first unwinds
        // would abort the process.
        close(&subscriber, span);
        close(&subscriber, around);
        contain_panic(move || drop(subscriber));
    }
}

/// Drops a span where its subscriber is the current one, which the registry of `tracing-subscriber`
/// relies on to find the span's parent.
fn close(subscriber: &Dispatch, span: Span) {
    contain_panic(|| tracing::dispatcher::with_default(subscriber, move || drop(span)));
}

/// An event in the span of a call.
macro_rules! event {
    ($span:ident, $name:literal, $text:literal, $($fields:tt)*) => {
        tracing::event!(name: $name, target: TARGET, parent: $span, Level::DEBUG, $($fields)*, $text)
    };
}

/// A measurement of a call, for the recorder, which may panic.
macro_rules! measure {
    ($observed:expr, $what:ident($($value:expr),*)) => {
        #[cfg(feature = "metrics")]
        contain_panic(|| metrics::$what(&$observed.series() $(, $value)*));
    };
}

impl Observed {
    fn begin(
        call: CallNumber,
        subject: CallSubject,
        asked: Instant,
        traced: Option<(Dispatch, Span)>,
    ) {
        let traced = traced.map(|(subscriber, around)| {
            let mut traced = Traced {
                subscriber,
                around,
                span: Span::none(),
            };
            let (path, recipe) = (subject.path.user(), subject.recipe);
            traced.enter(|around| {
                debug_span!(
                    target: TARGET, parent: around, "lock.acquire", path, recipe,
                    outcome = Empty, ahead = Empty, wait_ms = Empty
                )
            });
            traced
                .with_subscriber(|span| event!(span, "lock.asked", "lock asked for", path, recipe));
            traced
        });
        let observed = Self {
            subject,
            asked,
            granted: None,
            traced,
        };
        measure!(observed, asked());
        CALLS.with_borrow_mut(|calls| calls.insert(call, observed));
    }

    fn with_span(&self, report: impl FnOnce(&Span, &str, &'static str)) {
        if let Some(traced) = &self.traced {
            traced.with_subscriber(|span| {
                report(span, self.subject.path.user(), self.subject.recipe);
            });
        }
    }

    #[cfg(feature = "metrics")]
    fn series(&self) -> Series {
        (self.subject.recipe, Arc::clone(&self.subject.prefix))
    }

    fn queued(&self, node: Option<&str>, ahead: Option<usize>) {
        self.with_span(|span, path, _| {
            if let Some(ahead) = ahead {
                span.record("ahead", ahead);
            }
            event!(span, "lock.queued", "lock waited for", path, node, ahead);
        });
        measure!(self, queued(ahead));
    }

    fn granted(&mut self, at: Instant, granted: &GrantReport) {
        self.granted = Some(at);
        // The grant is the last event in the span of the wait, and the span of the hold begins
        // after it.
        let (how, waited) = (
            granted.how.label(),
            at.saturating_duration_since(self.asked),
        );
        let (node, session, wait_ms) = (&*granted.node, granted.session, millis(waited));
        self.with_span(|span, path, recipe| {
            span.record("outcome", how).record("wait_ms", wait_ms);
            let holds = granted.holds;
            event!(
                span,
                "lock.granted",
                "lock granted",
                path,
                recipe,
                node,
                session,
                how,
                holds,
                wait_ms
            );
        });
        if let Some(traced) = &mut self.traced {
            let (path, recipe) = (self.subject.path.user(), self.subject.recipe);
            traced.enter(|around| {
                debug_span!(
                    target: TARGET, parent: around, "lock.hold", path, recipe, node, session, how,
                    outcome = Empty, hold_ms = Empty
                )
            });
        }
        measure!(self, granted(how, waited));
    }

    fn converted(&mut self, recipe: &'static str) {
        // The metrics are changed first, while the series is still that of the recipe before the
        // conversion.
        measure!(self, converted(recipe));
        self.subject.recipe = recipe;
        self.with_span(|span, path, recipe| {
            span.record("recipe", recipe);
            event!(span, "lock.converted", "lock converted", path, recipe);
        });
    }

    fn end(self, at: Instant, end: CallEnd) {
        // With a grant, the duration is that of the hold, and otherwise that of the wait.
        let took = at.saturating_duration_since(self.granted.unwrap_or(self.asked));
        self.with_span(|span, path, recipe| match end {
            CallEnd::NotGranted(reason) => {
                let wait_ms = millis(took);
                span.record("outcome", reason).record("wait_ms", wait_ms);
                event!(
                    span,
                    "lock.not_granted",
                    "lock not granted",
                    path,
                    recipe,
                    reason,
                    wait_ms
                );
            }
            // The session logs this event, as a warning.
            CallEnd::Lost(reason) => {
                span.record("outcome", reason.label())
                    .record("hold_ms", millis(took));
            }
            CallEnd::Released { by_call } => {
                let (by, hold_ms) = (if by_call { "call" } else { "drop" }, millis(took));
                span.record("outcome", "released")
                    .record("hold_ms", hold_ms);
                event!(
                    span,
                    "lock.released",
                    "lock released",
                    path,
                    recipe,
                    by,
                    hold_ms
                );
            }
        });
        match end {
            CallEnd::NotGranted(_reason) => {
                measure!(self, not_granted(_reason));
            }
            CallEnd::Lost(_reason) => {
                measure!(self, over(Some(_reason.label()), took));
            }
            CallEnd::Released { .. } => {
                measure!(self, over(None, took));
            }
        }
        self.traced.into_iter().for_each(Traced::end);
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
