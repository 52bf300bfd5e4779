//! The metrics, by the `metrics` facade. Called by the journal's thread only: the recorder is foreign code.
//!
//! The names are part of the public interface; see docs/observability.md.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::session::note::{How, Subject};

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

/// The ways in which locks are granted.
const HOW: [How; 7] =
    [How::List, How::Succession, How::Event, How::HandedOver, How::Memory, How::Kept, How::Shared];

/// Why a call was not granted its lock.
const NOT_GRANTED_REASONS: [&str; 6] = ["busy", "timed_out", "cancelled", "connection", "closed", "refused"];

/// How a lock was lost, and how a session ended.
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

/// The labels of metrics of locks: there are as many as recipes and prefixes, whatever the paths are.
fn labels(prefix: &Arc<str>, recipe: &'static str) -> Vec<::metrics::Label> {
    vec![
        ::metrics::Label::from_static_parts("recipe", recipe),
        ::metrics::Label::new("prefix", Arc::clone(prefix)),
    ]
}

fn with(mut labels: Vec<::metrics::Label>, key: &'static str, value: &'static str) -> Vec<::metrics::Label> {
    labels.push(::metrics::Label::from_static_parts(key, value));
    labels
}

/// How many calls wait, and how many hold a lock, by recipe and prefix. Counted here, since a recorder may be
/// installed at any time.
#[derive(Debug, Default)]
pub(super) struct Gauges(HashMap<(&'static str, Arc<str>), (i64, i64)>);

impl Gauges {
    /// Tells the numbers after this change.
    pub(super) fn change(&mut self, subject: &Subject, recipe: &'static str, change: (i64, i64)) {
        let known = self.0.len();
        let (waiting, held) = self.0.entry((recipe, Arc::clone(&subject.prefix))).or_default();
        *waiting += change.0;
        *held += change.1;
        #[expect(clippy::cast_precision_loss, reason = "so many do not fit into memory")]
        let (waiting, held) = (*waiting as f64, *held as f64);
        let labels = labels(&subject.prefix, recipe);
        // After the count: the recorder may panic.
        if self.0.len() > known {
            begin_at_zero(&labels);
        }
        gauge!(WAITING, labels.clone()).set(waiting);
        gauge!(HELD, labels).set(held);
    }
}

/// Tells of all counters of locks with these labels, so that the first event is a change: a rate is not
/// computed of a series that begins with it.
fn begin_at_zero(labels: &[::metrics::Label]) {
    let begin = |name: &'static str, key: &'static str, value: &'static str| {
        counter!(name, with(labels.to_vec(), key, value)).increment(0);
    };
    HOW.iter().for_each(|how| begin(GRANTS, "how", how.label()));
    NOT_GRANTED_REASONS.iter().for_each(|reason| begin(NOT_GRANTED, "reason", reason));
    LOST_REASONS.iter().for_each(|reason| begin(LOSSES, "reason", reason));
}

pub(super) fn queued(subject: &Subject, ahead: usize) {
    let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
    histogram!(QUEUE_AHEAD, labels(&subject.prefix, subject.recipe)).record(f64::from(ahead));
}

pub(super) fn granted(subject: &Subject, how: &'static str, waited: Duration) {
    let labels = labels(&subject.prefix, subject.recipe);
    histogram!(WAIT, labels.clone()).record(waited.as_secs_f64());
    counter!(GRANTS, with(labels, "how", how)).increment(1);
}

pub(super) fn not_granted(subject: &Subject, reason: &'static str) {
    counter!(NOT_GRANTED, with(labels(&subject.prefix, subject.recipe), "reason", reason)).increment(1);
}

/// A hold has ended, by a loss if a reason is given.
pub(super) fn over(subject: &Subject, recipe: &'static str, lost: Option<&'static str>, held: Duration) {
    let labels = labels(&subject.prefix, recipe);
    histogram!(HOLD, labels.clone()).record(held.as_secs_f64());
    if let Some(reason) = lost {
        counter!(LOSSES, with(labels, "reason", reason)).increment(1);
    }
}

pub(super) fn orphan_deleted() {
    counter!(ORPHANS).increment(1);
}

pub(super) fn heartbeat_late() {
    counter!(HEARTBEATS_LATE).increment(1);
}

/// A session has begun: the metrics are described with each, and counters begin, since a recorder only gets
/// the values that are recorded after its installation.
pub(super) fn session_began(locks: &Gauges) {
    describe_histogram!(WAIT, Unit::Seconds, "Time from the call to the grant.");
    describe_histogram!(HOLD, Unit::Seconds, "Time from the grant to the release or the loss.");
    describe_histogram!(QUEUE_AHEAD, Unit::Count, "Contenders known to be ahead when a call began to wait.");
    describe_gauge!(WAITING, Unit::Count, "Calls of this process that wait for a lock.");
    describe_gauge!(HELD, Unit::Count, "Locks that this process holds.");
    describe_counter!(
        GRANTS,
        Unit::Count,
        "Locks granted, by how: memory, kept and shared without a request."
    );
    describe_counter!(NOT_GRANTED, Unit::Count, "Calls that were not granted the lock, by reason.");
    describe_counter!(LOSSES, Unit::Count, "Locks lost while they were held, by reason.");
    describe_counter!(ORPHANS, Unit::Count, "Nodes deleted by cleanup that no caller needed.");
    describe_counter!(SESSIONS_BEGUN, Unit::Count, "Sessions established.");
    describe_counter!(SESSIONS_ENDED, Unit::Count, "Sessions ended, by reason.");
    describe_counter!(
        HEARTBEATS_LATE,
        Unit::Count,
        "Heartbeats answered later than the interval, or not at all."
    );
    describe_counter!(
        MISSED,
        Unit::Count,
        "Calls and events that were not observed: the recorder is too slow."
    );
    counter!(SESSIONS_BEGUN).increment(1);
    for counter in [ORPHANS, HEARTBEATS_LATE, MISSED] {
        counter!(counter).increment(0);
    }
    for reason in LOST_REASONS {
        counter!(SESSIONS_ENDED, "reason" => reason).increment(0);
    }
    for (recipe, prefix) in locks.0.keys() {
        begin_at_zero(&labels(prefix, recipe));
    }
}

pub(super) fn session_ended(reason: &'static str) {
    counter!(SESSIONS_ENDED, "reason" => reason).increment(1);
}

pub(super) fn missed(missed: u64) {
    counter!(MISSED).increment(missed);
}
