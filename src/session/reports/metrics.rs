//! The metrics, through the `metrics` facade. Only the journal's thread calls this module, because
//! the recorder is third-party code.
//!
//! The names are part of the public interface; see docs/observability.md.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ::metrics::{
    Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

const WAIT: &str = "zookeeper_recipes_lock_wait_seconds";
const HOLD: &str = "zookeeper_recipes_lock_hold_seconds";
const QUEUE_AHEAD: &str = "zookeeper_recipes_lock_queue_ahead";
const WAITING: &str = "zookeeper_recipes_lock_waiting";
const HELD: &str = "zookeeper_recipes_lock_held";
const GRANTS: &str = "zookeeper_recipes_lock_grants_total";
const NOT_GRANTED: &str = "zookeeper_recipes_lock_not_granted_total";
const LOSSES: &str = "zookeeper_recipes_lock_losses_total";
const ORPHANS: &str = "zookeeper_recipes_orphans_deleted_total";
const SESSIONS_BEGUN: &str = "zookeeper_recipes_sessions_begun_total";
const SESSIONS_ENDED: &str = "zookeeper_recipes_sessions_ended_total";
const HEARTBEATS_LATE: &str = "zookeeper_recipes_heartbeats_late_total";
const MISSED: &str = "zookeeper_recipes_observer_missed_total";

/// The ways in which locks are granted: the labels of `How`.
const HOW: [&str; 6] = [
    "list",
    "succession",
    "event",
    "handed_over",
    "memory",
    "shared",
];

/// Why a call was not granted its lock.
const NOT_GRANTED_REASONS: [&str; 6] = [
    "busy",
    "timed_out",
    "cancelled",
    "connection",
    "closed",
    "refused",
];

/// How a lock was lost, and how a session ended: the labels of `LostReason`.
const LOST_REASONS: [&str; 8] = [
    "session_expired",
    "session_replaced",
    "node_deleted",
    "lease_expired",
    "lease_over",
    "closed",
    "not_converted",
    "given_up",
];

/// The recipe and the prefix of a call. So the number of series depends on the recipes and
/// prefixes, not on the paths.
pub(crate) type Series = (&'static str, Arc<str>);

thread_local! {
    /// The number of calls that wait, and of calls that hold a lock, on the journal's thread. The
    /// calls are counted here, because a recorder may be installed at any time.
    static COUNTS: RefCell<HashMap<Series, (i64, i64)>> = RefCell::default();
}

fn labels((recipe, prefix): &Series) -> Vec<Label> {
    vec![
        Label::from_static_parts("recipe", recipe),
        Label::new("prefix", Arc::clone(prefix)),
    ]
}

fn with(series: &Series, key: &'static str, value: &'static str) -> Vec<Label> {
    let mut labels = labels(series);
    labels.push(Label::from_static_parts(key, value));
    labels
}

/// Records how many calls wait, and how many hold a lock, after this change.
fn change(series: &Series, change: (i64, i64)) {
    let (is_new, waiting, held) = COUNTS.with_borrow_mut(|counts| {
        let known = counts.len();
        let count = counts.entry(series.clone()).or_default();
        *count = (count.0 + change.0, count.1 + change.1);
        let (waiting, held) = *count;
        (counts.len() > known, waiting, held)
    });
    // The recorder is called after the count, because it may panic.
    if is_new {
        begin_at_zero(series);
    }
    #[expect(clippy::cast_precision_loss, reason = "so many do not fit into memory")]
    for (gauge, count) in [(WAITING, waiting as f64), (HELD, held as f64)] {
        gauge!(gauge, labels(series)).set(count);
    }
}

/// Records all counters of locks with these labels as zero, so that the first event is a change.
/// (No rate can be computed for a series that begins with its first event.)
fn begin_at_zero(series: &Series) {
    let begin = |name: &'static str, key: &'static str, value: &'static str| {
        counter!(name, with(series, key, value)).increment(0);
    };
    HOW.iter().for_each(|how| begin(GRANTS, "how", how));
    NOT_GRANTED_REASONS
        .iter()
        .for_each(|reason| begin(NOT_GRANTED, "reason", reason));
    LOST_REASONS
        .iter()
        .for_each(|reason| begin(LOSSES, "reason", reason));
}

pub(crate) fn asked(series: &Series) {
    change(series, (1, 0));
}

pub(crate) fn queued(series: &Series, ahead: Option<usize>) {
    // Some callers cannot say how many are ahead, such as readers that wait in memory.
    if let Some(ahead) = ahead {
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        histogram!(QUEUE_AHEAD, labels(series)).record(f64::from(ahead));
    }
}

pub(crate) fn granted(series: &Series, how: &'static str, waited: Duration) {
    change(series, (-1, 1));
    histogram!(WAIT, labels(series)).record(waited.as_secs_f64());
    counter!(GRANTS, with(series, "how", how)).increment(1);
}

pub(crate) fn not_granted(series: &Series, reason: &'static str) {
    change(series, (-1, 0));
    counter!(NOT_GRANTED, with(series, "reason", reason)).increment(1);
}

pub(crate) fn converted(before: &Series, recipe: &'static str) {
    // A conversion is neither a grant nor an end, so only the gauges change.
    change(before, (0, -1));
    change(&(recipe, Arc::clone(&before.1)), (0, 1));
}

/// Records that a hold has ended; by a loss, if a reason is given.
pub(crate) fn over(series: &Series, lost: Option<&'static str>, held: Duration) {
    change(series, (0, -1));
    histogram!(HOLD, labels(series)).record(held.as_secs_f64());
    if let Some(reason) = lost {
        counter!(LOSSES, with(series, "reason", reason)).increment(1);
    }
}

pub(crate) fn orphan_deleted() {
    counter!(ORPHANS).increment(1);
}

pub(crate) fn heartbeat_late() {
    counter!(HEARTBEATS_LATE).increment(1);
}

/// A client has begun. Its counters begin before its first session, so that an alert sees a process
/// that has never reached the servers.
pub(crate) fn client_began() {
    describe_histogram!(WAIT, Unit::Seconds, "Time from the call to the grant.");
    describe_histogram!(
        HOLD,
        Unit::Seconds,
        "Time from the grant to the release or the loss."
    );
    describe_histogram!(
        QUEUE_AHEAD,
        Unit::Count,
        "Contenders known to be ahead when a call began to wait."
    );
    describe_gauge!(
        WAITING,
        Unit::Count,
        "Calls of this process that wait for a lock."
    );
    describe_gauge!(HELD, Unit::Count, "Locks that this process holds.");
    for (name, text) in [
        (
            GRANTS,
            "Locks granted, by how: memory and shared without a request.",
        ),
        (
            NOT_GRANTED,
            "Calls that were not granted the lock, by reason.",
        ),
        (LOSSES, "Locks lost while they were held, by reason."),
        (ORPHANS, "Nodes deleted by cleanup that no caller needed."),
        (SESSIONS_BEGUN, "Sessions established."),
        (SESSIONS_ENDED, "Sessions ended, by reason."),
        (
            HEARTBEATS_LATE,
            "Heartbeats answered later than the interval, or not at all.",
        ),
        (
            MISSED,
            "Calls and events that were not observed: the recorder is too slow.",
        ),
    ] {
        describe_counter!(name, Unit::Count, text);
    }
    // An increment by zero keeps the value of a counter that has one already.
    for counter in [SESSIONS_BEGUN, ORPHANS, HEARTBEATS_LATE, MISSED] {
        counter!(counter).increment(0);
    }
    for reason in LOST_REASONS {
        counter!(SESSIONS_ENDED, "reason" => reason).increment(0);
    }
    // The series of earlier calls begin at zero too, in a recorder that was installed after these
    // calls.
    let known: Vec<Series> = COUNTS.with_borrow(|counts| counts.keys().cloned().collect());
    known.iter().for_each(begin_at_zero);
}

/// A session has begun. The metrics begin again with each, since a recorder only gets the values
/// that are recorded after its installation.
pub(crate) fn session_began() {
    client_began();
    counter!(SESSIONS_BEGUN).increment(1);
}

pub(crate) fn session_ended(reason: &'static str) {
    counter!(SESSIONS_ENDED, "reason" => reason).increment(1);
}

pub(crate) fn missed(missed: u64) {
    counter!(MISSED).increment(missed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::LostReason;
    use crate::session::reports::observer::How;

    /// Returns the next variant, or the first one. A new variant does not compile until it has an
    /// arm, and so an entry in the array.
    fn next_how(how: Option<How>) -> Option<How> {
        Some(match how {
            None => How::List,
            Some(How::List) => How::Succession,
            Some(How::Succession) => How::Event,
            Some(How::Event) => How::HandedOver,
            Some(How::HandedOver) => How::Memory,
            Some(How::Memory) => How::Shared,
            Some(How::Shared) => return None,
        })
    }

    /// See [`next_how`].
    fn next_reason(reason: Option<LostReason>) -> Option<LostReason> {
        Some(match reason {
            None => LostReason::SessionExpired,
            Some(LostReason::SessionExpired) => LostReason::SessionReplaced,
            Some(LostReason::SessionReplaced) => LostReason::NodeDeleted,
            Some(LostReason::NodeDeleted) => LostReason::LeaseExpired,
            Some(LostReason::LeaseExpired) => LostReason::LeaseOver,
            Some(LostReason::LeaseOver) => LostReason::Closed,
            Some(LostReason::Closed) => LostReason::NotConverted,
            Some(LostReason::NotConverted) => LostReason::GivenUp,
            Some(LostReason::GivenUp) => return None,
        })
    }

    #[test]
    fn every_label_begins_at_zero() {
        let hows = std::iter::successors(next_how(None), |how| next_how(Some(*how)));
        let reasons = std::iter::successors(next_reason(None), |reason| next_reason(Some(*reason)));
        assert_eq!(hows.map(How::label).collect::<Vec<_>>(), HOW);
        assert_eq!(
            reasons.map(LostReason::label).collect::<Vec<_>>(),
            LOST_REASONS
        );
    }
}
