//! Turns a note into reports, on the journal's thread: spans and events of `tracing`, and the values of
//! metrics.
//!
//! The names are part of the public interface: docs/observability.md has them in tables, and a test compares
//! those with the reported names.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tracing::field::Empty;
use tracing::{Dispatch, Level, Span, debug_span, event};

use crate::error::LostReason;
#[cfg(feature = "metrics")]
use crate::session::metrics;
use crate::session::note::{CallNumber, Context, End, Granted, Note, Subject};
use crate::session::waker::contain_panic;

/// The target of all spans and events of this file.
pub(super) const TARGET: &str = "zookeeper_recipes::lock";

/// A lock is waited for: from the call to its result.
const ACQUIRE: &str = "lock.acquire";
/// A lock is held: from the grant to the release or the loss.
const HOLD: &str = "lock.hold";

const ASKED: &str = "lock.asked";
const QUEUED: &str = "lock.queued";
const GRANTED: &str = "lock.granted";
const NOT_GRANTED: &str = "lock.not_granted";
const CONVERTED: &str = "lock.converted";
const HANDED_OVER: &str = "lock.handed_over";
const RELEASED: &str = "lock.released";
const ORPHAN_DELETED: &str = "orphan.deleted";
const HEARTBEAT_LATE: &str = "heartbeat.late";
const MISSED: &str = "observer.missed";

/// The calls that are observed now.
#[derive(Debug, Default)]
pub(super) struct Observer {
    calls: HashMap<CallNumber, Observed>,
    #[cfg(feature = "metrics")]
    gauges: metrics::Gauges,
}

/// One observed call.
#[derive(Debug)]
struct Observed {
    subject: Subject,
    /// Its present recipe: a conversion changes it.
    recipe: &'static str,
    asked: Instant,
    granted: Option<Instant>,
    /// `None` if no subscriber is interested.
    traced: Option<Traced>,
}

/// The spans of a call, and the subscriber that knows them.
#[derive(Debug)]
struct Traced {
    subscriber: Dispatch,
    /// The span that the call was made in.
    around: Span,
    /// The wait, then the hold.
    span: Span,
}

impl Traced {
    fn new(context: Context, subject: &Subject) -> Self {
        let Context { subscriber, span: around } = context;
        let mut traced = Self { subscriber, around, span: Span::none() };
        let (path, recipe) = (subject.path.user(), subject.recipe);
        traced.enter(|around| {
            debug_span!(
                target: TARGET, parent: around, ACQUIRE, path, recipe,
                outcome = Empty, ahead = Empty, wait_ms = Empty
            )
        });
        traced.tell(|span| {
            event!(name: ASKED, target: TARGET, parent: span, Level::DEBUG, path, recipe, "lock asked for");
        });
        traced
    }

    /// Calls the subscriber, which may panic.
    fn tell(&self, tell: impl FnOnce(&Span)) {
        contain_panic(|| tracing::dispatcher::with_default(&self.subscriber, || tell(&self.span)));
    }

    /// Ends the span, and begins the next in the one around the call.
    fn enter(&mut self, begin: impl FnOnce(&Span) -> Span) {
        let mut next = Span::none();
        contain_panic(|| {
            next = tracing::dispatcher::with_default(&self.subscriber, || begin(&self.around));
        });
        let last = std::mem::replace(&mut self.span, next);
        close(&self.subscriber, last);
    }

    fn end(self) {
        let Self { subscriber, around, span } = self;
        // One after the other: a second panic while the first unwinds would abort the process.
        close(&subscriber, span);
        close(&subscriber, around);
        contain_panic(move || drop(subscriber));
    }
}

/// Drops a span where its subscriber is the current one, which the registry of `tracing-subscriber` relies on to
/// find the span's parent.
fn close(subscriber: &Dispatch, span: Span) {
    contain_panic(|| tracing::dispatcher::with_default(subscriber, move || drop(span)));
}

impl Observed {
    fn tell(&self, tell: impl FnOnce(&Span)) {
        if let Some(traced) = &self.traced {
            traced.tell(tell);
        }
    }

    fn path(&self) -> &str {
        self.subject.path.user()
    }
}

impl Observer {
    /// Tells one note.
    pub(super) fn tell(&mut self, note: Note) {
        match note {
            Note::Asked { call, at, subject, context } => {
                let traced = context.map(|context| Traced::new(context, &subject));
                let recipe = subject.recipe;
                self.count(&subject, recipe, (1, 0));
                self.calls.insert(call, Observed { subject, recipe, asked: at, granted: None, traced });
            }
            Note::Queued { call, node, ahead } => {
                let Some(observed) = self.calls.get(&call) else { return };
                observed.tell(|span| {
                    let (path, node) = (observed.path(), node.as_deref());
                    if let Some(ahead) = ahead {
                        span.record("ahead", ahead);
                    }
                    event!(
                        name: QUEUED, target: TARGET, parent: span, Level::DEBUG, path, node, ahead,
                        "lock waited for"
                    );
                });
                #[cfg(feature = "metrics")]
                if let Some(ahead) = ahead {
                    contain_panic(|| metrics::queued(&observed.subject, ahead));
                }
            }
            Note::Granted { call, at, granted } => self.granted(call, at, &granted),
            Note::NotGranted { call, at, reason } => self.not_granted(call, at, reason),
            Note::Converted { call, recipe } => {
                let Some(observed) = self.calls.get_mut(&call) else { return };
                #[cfg(feature = "metrics")]
                let before = observed.recipe;
                observed.recipe = recipe;
                observed.tell(|span| {
                    let path = observed.path();
                    span.record("recipe", recipe);
                    event!(
                        name: CONVERTED, target: TARGET, parent: span, Level::DEBUG, path, recipe,
                        "lock converted"
                    );
                });
                #[cfg(feature = "metrics")]
                for (recipe, change) in [(before, -1), (recipe, 1)] {
                    contain_panic(|| self.gauges.change(&observed.subject, recipe, (0, change)));
                }
            }
            Note::Over { call, at, end } => self.over(call, at, end),
            Note::Line(tell) => contain_panic(tell),
            Note::HandedOver { directory, node, to } => contain_panic(|| {
                let path = directory.user();
                event!(
                    name: HANDED_OVER, target: TARGET, Level::DEBUG, path, node, to,
                    "lock handed over to another caller of this process"
                );
            }),
            Note::OrphanDeleted { directory, node } => {
                contain_panic(|| {
                    let path = directory.user();
                    event!(
                        name: ORPHAN_DELETED, target: TARGET, Level::DEBUG, path, node,
                        "a node that no caller needed was deleted"
                    );
                });
                #[cfg(feature = "metrics")]
                contain_panic(metrics::orphan_deleted);
            }
            Note::HeartbeatLate { session, took } => {
                contain_panic(|| {
                    event!(
                        name: HEARTBEAT_LATE, target: TARGET, Level::DEBUG, session, took_ms = millis(took),
                        "a heartbeat was answered late, or not at all"
                    );
                });
                #[cfg(feature = "metrics")]
                contain_panic(metrics::heartbeat_late);
            }
            Note::SessionBegan => {
                #[cfg(feature = "metrics")]
                contain_panic(|| metrics::session_began(&self.gauges));
            }
            #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "its log tells it"))]
            Note::SessionEnded(reason) => {
                #[cfg(feature = "metrics")]
                contain_panic(|| metrics::session_ended(lost(reason)));
            }
        }
    }

    fn granted(&mut self, call: CallNumber, at: Instant, granted: &Granted) {
        let Some(observed) = self.calls.get_mut(&call) else { return };
        observed.granted = Some(at);
        let (waited, how) = (at.saturating_duration_since(observed.asked), granted.how.label());
        let (path, recipe) = (observed.subject.path.user(), observed.recipe);
        if let Some(traced) = &mut observed.traced {
            let (node, session, wait_ms) = (&*granted.node, granted.session, millis(waited));
            traced.tell(|span| {
                span.record("outcome", how).record("wait_ms", wait_ms);
                event!(
                    name: GRANTED, target: TARGET, parent: span, Level::DEBUG,
                    path, recipe, node, session, how, holds = granted.holds, wait_ms, "lock granted"
                );
            });
            traced.enter(|around| {
                debug_span!(
                    target: TARGET, parent: around, HOLD, path, recipe, node, session, how,
                    outcome = Empty, hold_ms = Empty
                )
            });
        }
        #[cfg(feature = "metrics")]
        {
            let subject = &observed.subject;
            contain_panic(|| metrics::granted(subject, how, waited));
            contain_panic(|| self.gauges.change(subject, recipe, (-1, 1)));
        }
    }

    fn not_granted(&mut self, call: CallNumber, at: Instant, reason: &'static str) {
        let Some(observed) = self.calls.remove(&call) else { return };
        let waited = at.saturating_duration_since(observed.asked);
        observed.tell(|span| {
            let (path, wait_ms) = (observed.path(), millis(waited));
            span.record("outcome", reason).record("wait_ms", wait_ms);
            event!(
                name: NOT_GRANTED, target: TARGET, parent: span, Level::DEBUG,
                path, recipe = observed.recipe, reason, wait_ms, "lock not granted"
            );
        });
        #[cfg(feature = "metrics")]
        contain_panic(|| metrics::not_granted(&observed.subject, reason));
        self.count(&observed.subject, observed.recipe, (-1, 0));
        if let Some(traced) = observed.traced {
            traced.end();
        }
    }

    fn over(&mut self, call: CallNumber, at: Instant, end: End) {
        let Some(observed) = self.calls.remove(&call) else { return };
        let held = at.saturating_duration_since(observed.granted.unwrap_or(at));
        observed.tell(|span| {
            let (path, recipe, hold_ms) = (observed.path(), observed.recipe, millis(held));
            span.record("hold_ms", hold_ms);
            match end {
                // Its session's log has the event, which is a warning.
                End::Lost(reason) => {
                    span.record("outcome", lost(reason));
                }
                End::Released { by_call } => {
                    span.record("outcome", "released");
                    let by = if by_call { "call" } else { "drop" };
                    event!(
                        name: RELEASED, target: TARGET, parent: span, Level::DEBUG,
                        path, recipe, by, hold_ms, "lock released"
                    );
                }
            }
        });
        #[cfg(feature = "metrics")]
        {
            let lost = match end {
                End::Lost(reason) => Some(lost(reason)),
                End::Released { .. } => None,
            };
            contain_panic(|| metrics::over(&observed.subject, observed.recipe, lost, held));
        }
        self.count(&observed.subject, observed.recipe, (0, -1));
        if let Some(traced) = observed.traced {
            traced.end();
        }
    }

    /// Tells how many calls wait, and how many hold a lock, after this change.
    #[cfg_attr(
        not(feature = "metrics"),
        expect(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "there are no gauges")
    )]
    fn count(&mut self, subject: &Subject, recipe: &'static str, change: (i64, i64)) {
        #[cfg(feature = "metrics")]
        contain_panic(|| self.gauges.change(subject, recipe, change));
        #[cfg(not(feature = "metrics"))]
        let _ = (subject, recipe, change);
    }

    /// Reports the number of calls and events that were not observed, because earlier ones were reported too
    /// slowly.
    pub(super) fn missed(missed: u64) {
        contain_panic(|| {
            event!(
                name: MISSED, target: TARGET, Level::WARN, missed,
                "calls were not observed: the tracing subscriber or the metrics recorder is too slow"
            );
        });
        #[cfg(feature = "metrics")]
        contain_panic(|| metrics::missed(missed));
    }
}

/// Returns a reason as a label.
const fn lost(reason: LostReason) -> &'static str {
    match reason {
        LostReason::SessionExpired => "session_expired",
        LostReason::SessionReplaced => "session_replaced",
        LostReason::NodeDeleted => "node_deleted",
        LostReason::LeaseExpired => "lease_expired",
        LostReason::LeaseOver => "lease_over",
        LostReason::Closed => "closed",
        LostReason::NotConverted => "not_converted",
        LostReason::GivenUp => "given_up",
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
