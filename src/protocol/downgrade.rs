//! The downgrade of a held write lock to a read lock: what follows from each answer to its
//! transaction. Pure.
//!
//! The transaction creates a read node with the number of the write node, and deletes the write
//! node. At no moment does neither exist, so no queued writer is granted the lock in between
//! (CURATOR-621; docs/protocol.md#downgrade). A downgrade waits for no other contender.
//!
//! A transaction whose outcome is unknown is sent again with the same names until its outcome is
//! known. The name of the read node is not sequential, so the repetition finds what the first one
//! created, and as a committed write of the same session it decides the first one too. So a
//! downgrade ends with exactly one node, or the hold is lost (docs/protocol.md#conversion-ends).
//!
//! Its [task](crate::engine::while_held::convert) sends the transaction and returns each
//! [`Answered`], until the step is [`DowngradeStep::Finish`].

use crate::protocol::failure::{Failure, FailureKind};

/// The answer to the transaction.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Answered {
    /// The read node exists. Its name is unique, so a transaction of this downgrade created it and
    /// deleted the write node.
    Done,
    /// The kind is `NoNode` if the write node or the directory does not exist.
    Failed(Failure),
}

/// The step after an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DowngradeStep {
    /// Pause, for longer with each failure in a row (`failures` is 0 for the first). Then send the
    /// same transaction again.
    Repeat {
        failures: u32,
    },
    Finish(Downgraded),
}

/// How a downgrade ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Downgraded {
    /// The lock is held by the read node from now on, and the write node is gone.
    Done,
    /// The servers refused the transaction. The lock is held by the write node as before.
    Refused(Failure),
    /// The lock is lost: another process has deleted the write node.
    NodeDeleted,
    /// The lock is lost: the servers refused the transaction after one whose outcome is unknown,
    /// so that either node may be the one that exists. Both are to be deleted.
    Unknown,
    /// The session has ended.
    SessionGone,
}

/// What a downgrade remembers of the answers before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Downgrade {
    /// Whether the outcome of a transaction was unknown.
    is_uncertain: bool,
    failures: u32,
}

impl Downgrade {
    /// Handles the answer to the transaction. Returns the next step.
    pub(crate) fn on(&mut self, answer: Answered) -> DowngradeStep {
        let failure = match answer {
            // The read node exists, by this transaction or by an earlier one without an answer.
            Answered::Done => return DowngradeStep::Finish(Downgraded::Done),
            Answered::Failed(failure) => failure,
        };
        self.is_uncertain |= failure.kind == FailureKind::Unknown;
        match failure.kind {
            // When the session ends, the servers delete whichever of the two nodes exists.
            FailureKind::SessionGone => DowngradeStep::Finish(Downgraded::SessionGone),
            // Neither node exists: an earlier transaction that was carried out would have left the
            // read node, which the answer `Done` reports. So another process has deleted the write
            // node, and the next contender may hold the lock.
            FailureKind::NoNode => DowngradeStep::Finish(Downgraded::NodeDeleted),
            // The refusal of a repetition does not say what became of the transaction before it. A
            // transaction sets no watch, so `TooManyWatches` does not occur here.
            FailureKind::Refused(_) | FailureKind::TooManyWatches => {
                DowngradeStep::Finish(if self.is_uncertain {
                    Downgraded::Unknown
                } else {
                    Downgraded::Refused(failure)
                })
            }
            // Only the end of the session bounds the repetitions. An end by a guess could delete
            // the node that holds the lock, or leave the other one.
            FailureKind::NotNow | FailureKind::Unknown => {
                let failures = self.failures;
                self.failures = failures.saturating_add(1);
                DowngradeStep::Repeat { failures }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::failure::Refusal;

    fn failed(kind: FailureKind) -> Answered {
        Answered::Failed(kind.into())
    }

    fn refused() -> Answered {
        failed(FailureKind::Refused(Refusal::Other))
    }

    fn ends(end: Downgraded) -> DowngradeStep {
        DowngradeStep::Finish(end)
    }

    // Shows: downgrade
    #[test]
    fn downgrade_is_one_transaction() {
        assert_eq!(
            Downgrade::default().on(Answered::Done),
            ends(Downgraded::Done)
        );
    }

    #[test]
    fn unknown_outcome_is_asked_again() {
        let mut downgrade = Downgrade::default();
        for failures in [0, 1] {
            assert_eq!(
                downgrade.on(failed(FailureKind::Unknown)),
                DowngradeStep::Repeat { failures }
            );
        }
        assert_eq!(downgrade.on(Answered::Done), ends(Downgraded::Done));
    }

    // Shows: conversion-ends
    #[test]
    fn refusal_keeps_the_write_lock() {
        let kind = FailureKind::Refused(Refusal::Other);
        assert_eq!(
            Downgrade::default().on(failed(kind)),
            ends(Downgraded::Refused(kind.into()))
        );
        // Unless the transaction may have been carried out before.
        let mut downgrade = Downgrade::default();
        downgrade.on(failed(FailureKind::Unknown));
        assert_eq!(downgrade.on(failed(kind)), ends(Downgraded::Unknown));
        // A server that asked for patience has carried out nothing.
        let mut patient = Downgrade::default();
        assert_eq!(
            patient.on(failed(FailureKind::NotNow)),
            DowngradeStep::Repeat { failures: 0 }
        );
        assert!(matches!(
            patient.on(refused()),
            DowngradeStep::Finish(Downgraded::Refused(_))
        ));
    }

    #[test]
    fn missing_node_is_a_loss() {
        let mut downgrade = Downgrade::default();
        downgrade.on(failed(FailureKind::Unknown));
        let missing = failed(FailureKind::NoNode);
        assert_eq!(downgrade.on(missing), ends(Downgraded::NodeDeleted));
    }

    #[test]
    fn session_end_ends_the_downgrade() {
        let mut downgrade = Downgrade::default();
        downgrade.on(failed(FailureKind::Unknown));
        assert_eq!(
            downgrade.on(failed(FailureKind::SessionGone)),
            ends(Downgraded::SessionGone)
        );
    }
}
