//! Decides the error of a call whose deadline has passed (docs/protocol.md#deadline).
//!
//! A caller has to distinguish a lock that others hold from servers that do not answer: the former
//! is normal, the latter an outage (docs/protocol.md#live-contender). Locks, permits and
//! multi-locks record two facts in a [`Waiting`] while they work:
//!
//! - the live contenders ahead, as a server or this client has last seen them;
//! - the event that the call waits for: an answer to a request, or the end of other contenders.
//!
//! When the time has passed, [`Waiting::late`] decides by both:
//!
//! 1. A call that waits for the lock, with live contenders ahead, reports them ([`Late::Busy`]). A
//!    try reports them only if all of its requests have been answered, because a try waits for
//!    answers alone.
//! 2. A call that pauses, because other processes have deleted its nodes, reports the deletions
//!    ([`Late::Deleted`]).
//! 3. Every other call reports the answer that is missing ([`Late::NoAnswer`]).

use std::fmt;
use std::time::Duration;

use crate::error::ConnectError;
use crate::protocol::acquire::IfBusy;
use crate::values::path::NodePath;
use crate::values::shown::why;

/// The live contenders that another must wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) count: usize,
    /// The first of their nodes; `None` if it is not known.
    pub(crate) first: Option<NodePath>,
}

impl Ahead {
    /// Returns the contenders that are left when one is gone; `None` if that was the last.
    pub(crate) fn without_one(self) -> Option<Self> {
        let count = self.count.checked_sub(1).filter(|count| *count > 0)?;
        Some(Self { count, ..self })
    }
}

/// The event that a call waits for, other than another contender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    #[default]
    Session,
    /// A slot: this client has as many attempts and orphans as its limit allows.
    Slot,
    Parents,
    Create,
    List,
    /// The end of other contenders, or the deletion of an earlier node of this client.
    Deletion,
    /// A renewal of the lease.
    Renewal,
    /// The leases of a semaphore.
    Leases,
    /// The transaction by which permits are taken.
    Permits,
    /// The next try, after another process deleted the directory, or `deleted` nodes of the call in
    /// a row.
    Retry {
        deleted: u32,
    },
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Session => "no session",
            Self::Slot => {
                "no answer to the requests of this client's earlier calls, which have all the nodes that it may have"
            }
            Self::Parents => "no answer to the creation of the lock's directory",
            Self::Create => "no answer to the creation of the lock node",
            Self::List => "no answer to the list of the lock's directory",
            Self::Deletion => "no answer to the deletion of an earlier node of this client",
            Self::Leases => "no answer to the question how many permits are free",
            Self::Permits => "no answer to the transaction that takes the permits",
            Self::Renewal => "no confirmation that the servers keep the session",
            Self::Retry { .. } => "no end of the pause before the next try",
        })
    }
}

/// The deadline has passed, and no live contender was seen ahead.
#[derive(Debug, thiserror::Error)]
#[error(
    "{waits_for} within {waited:?}{}",
    source.as_ref().map(|source| format!(": {}", why(source))).unwrap_or_default()
)]
pub(crate) struct NoAnswer {
    pub(crate) waits_for: WaitsFor,
    pub(crate) waited: Duration,
    /// Why the client has no session, if it has none and that is known.
    pub(crate) source: Option<ConnectError>,
}

/// The other contenders that a call has seen, and the event that it waits for.
#[derive(Clone, Default)]
pub(crate) struct Waiting {
    ahead: Option<Ahead>,
    waits_for: WaitsFor,
}

/// The error of a call whose time has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// Live contenders were ahead.
    Busy(Ahead),
    /// Other processes deleted the directory, or this many nodes of the call.
    Deleted(u32),
    NoAnswer(WaitsFor),
}

impl Waiting {
    /// Returns the live contenders ahead; `None` if there are none, or they are not known.
    pub(crate) fn ahead(&self) -> Option<&Ahead> {
        self.ahead.as_ref()
    }

    /// Records the live contenders ahead, as a server or this client has just seen them. `None` if
    /// there are none, or if the known ones may be gone: the session has ended, the call has a new
    /// node, or the lock was granted.
    pub(crate) fn saw(&mut self, ahead: Option<Ahead>) {
        self.ahead = ahead;
    }

    /// Records the event that the call waits for from now on.
    pub(crate) fn waits_for(&mut self, waits_for: WaitsFor) {
        self.waits_for = waits_for;
    }

    /// Returns the error with which the call may end. `own` is a hold of the same client that is in
    /// its way, which needs no server.
    ///
    /// A call that waits for others may report them if it has seen them, and has since seen neither
    /// their end nor the end of the session; a last request to the servers only shows who is left.
    /// A try waits for answers, so a missing answer is the reason for its end: others count only
    /// once all of its requests are answered.
    pub(crate) fn late(self, if_busy: IfBusy, own: impl FnOnce() -> Option<Ahead>) -> Late {
        // A call that waits for a deletion has no request under way.
        let answered = self.waits_for == WaitsFor::Deletion;
        match (self.ahead.or_else(own), self.waits_for) {
            (Some(ahead), _) if if_busy == IfBusy::Wait || answered => Late::Busy(ahead),
            // Servers have answered, with the deletion of the call's nodes or directory, so the
            // error must not look like an outage.
            (_, WaitsFor::Retry { deleted }) => Late::Deleted(deleted),
            // Contenders that a try has seen are not reported while an answer is missing: they may
            // have left since.
            (_, waits_for) => Late::NoAnswer(waits_for),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(count: usize) -> Option<Ahead> {
        Some(Ahead { count, first: None })
    }

    fn after(ahead: Option<Ahead>, waits_for: WaitsFor) -> Waiting {
        let mut waiting = Waiting::default();
        waiting.saw(ahead);
        waiting.waits_for(waits_for);
        waiting
    }

    // Shows: live-contender
    #[test]
    fn only_seen_contenders_are_busy() {
        for if_busy in [IfBusy::Wait, IfBusy::Fail] {
            for waits_for in [WaitsFor::Session, WaitsFor::List, WaitsFor::Deletion] {
                let late = after(None, waits_for).late(if_busy, || None);
                assert_eq!(late, Late::NoAnswer(waits_for));
            }
        }
        // A look under way does not make those unseen that were seen before it.
        let late = after(ahead(3), WaitsFor::List).late(IfBusy::Wait, || None);
        assert_eq!(
            late,
            Late::Busy(Ahead {
                count: 3,
                first: None
            })
        );
        // A hold of the same client is in the way.
        assert!(matches!(
            after(None, WaitsFor::List).late(IfBusy::Wait, || ahead(1)),
            Late::Busy(_)
        ));
    }

    // Shows: live-contender
    #[test]
    fn foreign_deletion_is_no_missing_answer() {
        for if_busy in [IfBusy::Wait, IfBusy::Fail] {
            let late = after(None, WaitsFor::Retry { deleted: 2 }).late(if_busy, || None);
            assert_eq!(late, Late::Deleted(2));
        }
        let late = after(None, WaitsFor::Retry { deleted: 0 }).late(IfBusy::Wait, || ahead(1));
        assert!(matches!(late, Late::Busy(_)));
    }

    // Shows: live-contender
    #[test]
    fn last_seen_contenders_are_ahead() {
        let mut waiting = after(ahead(3), WaitsFor::Deletion);
        assert_eq!(waiting.ahead(), ahead(3).as_ref());
        waiting.saw(None);
        assert_eq!(waiting.ahead(), None);
    }

    // Shows: live-contender
    #[test]
    fn unanswered_try_is_not_busy() {
        let missing = after(ahead(3), WaitsFor::List).late(IfBusy::Fail, || None);
        assert_eq!(missing, Late::NoAnswer(WaitsFor::List));
        let answered = after(ahead(3), WaitsFor::Deletion).late(IfBusy::Fail, || None);
        assert_eq!(
            answered,
            Late::Busy(Ahead {
                count: 3,
                first: None
            })
        );
    }

    #[test]
    fn waiting_call_names_missing_answer() {
        assert_eq!(WaitsFor::Session.to_string(), "no session");
        assert!(WaitsFor::Slot.to_string().contains("earlier calls"));
    }

    // Shows: live-contender
    #[test]
    fn departed_contenders_are_not_ahead() {
        let left = ahead(2).and_then(Ahead::without_one);
        assert_eq!(left, ahead(1));
        let left = left.and_then(Ahead::without_one);
        assert_eq!(left, None);
        let late = after(left, WaitsFor::Deletion).late(IfBusy::Wait, || None);
        assert_eq!(late, Late::NoAnswer(WaitsFor::Deletion));
    }
}
