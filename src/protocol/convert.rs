//! The conversion of a held write lock into a read lock, and back, as a state machine. Pure.
//!
//! Its [task](crate::engine::while_held::convert) carries out each [`ConvertStep`] and returns its
//! [`ConvertEvent`], until the step is [`ConvertStep::Finish`]. A conversion waits for no other
//! contender.
//!
//! # Invariants
//! 1. **A downgrade is one transaction**, which creates a read node with the number of the write
//!    node and deletes the write node. At no moment does neither exist, so no queued writer is
//!    granted the lock in between (CURATOR-621; docs/protocol.md#downgrade).
//! 2. **An upgrade creates a write node** with the same number as the read node, and decides by a
//!    list after that ([`Queue::upgrade`](crate::protocol::queue::Queue::upgrade)). The write node
//!    names its read node, so that other upgraders do not take it for a writer that came when its
//!    number says (docs/protocol.md#upgrade).
//! 3. A conversion ends with exactly one node, or the hold is lost, for example if the servers
//!    refuse to delete the other node (docs/protocol.md#conversion-ends).
//! 4. **Each grant to write has a separate fencing token**, above those of all earlier holders and
//!    below those of all later ones. An upgraded writer's zxid is that of the creation of its write
//!    node or, if that is lower, the one before the creation of the first node that waits for it.
//!    That node is a writer's, and while it waits, no contender with a greater number is granted
//!    the lock. If it is gone when the servers are asked for it, the next node in the list counts,
//!    which has been waiting too. A counter, which grows with each upgrade of the hold, puts the
//!    token above that of a reader with the same zxid (docs/protocol.md#upgraded-token).
//! 5. A request whose outcome is unknown is repeated with the same name until it is known. The
//!    names are not sequential, so the repetition finds the effect of the first request, and as a
//!    committed write of the same session it decides the first one too.

use std::sync::Arc;

use crate::protocol::failure::{Answer, Failure, FailureKind};
use crate::protocol::queue::{Listing, Queue, Unusable, Upgrade};

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ConvertStep {
    Do(ConvertRequest),
    /// Pause, for longer with each failure in a row (`failures` is 0 for the first). Then `Retry`.
    Pause {
        failures: u32,
    },
    Finish(Converted),
}

/// A request to the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ConvertRequest {
    /// One transaction: create an ephemeral node with this full name, and delete the other.
    Swap { create: String, delete: String },
    /// Create an ephemeral node with this full name.
    Create { name: String },
    /// List the directory.
    List,
    /// Read when a node was created.
    Inspect { name: String },
    /// Delete a node.
    Delete { name: String },
}

/// The result of a step.
pub(crate) enum ConvertEvent {
    /// Of [`ConvertRequest::Swap`] and [`ConvertRequest::Create`].
    Created(Created),
    /// Of [`ConvertRequest::List`].
    Listed(Answer<Listing>),
    /// Of [`ConvertRequest::Inspect`]: the zxid of its creation.
    Inspected(Answer<i64>),
    /// Of [`ConvertRequest::Delete`].
    Deleted(Answer<()>),
    /// Of [`ConvertStep::Pause`].
    Retry,
}

/// The outcome of a create.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Created {
    /// Created, with the zxid if the reply has it.
    Done {
        czxid: Option<i64>,
    },
    /// A node of that name exists. Names are unique, so an earlier request of this conversion
    /// created it.
    Exists,
    /// The directory, or the node to delete, does not exist.
    Missing,
    Failed(Failure),
}

/// How a conversion ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Converted {
    /// The lock is held by `node` from now on, and the other node is gone. `zxid` is that of the
    /// fencing token after an upgrade.
    Done { node: String, zxid: Option<i64> },
    /// The lock is held as before.
    Kept(NotConverted),
    /// The lock is lost: its node is `gone`, or a node could not be deleted, or the outcome cannot
    /// be known. The nodes in `delete` are to be deleted, one after the other.
    Lost { gone: bool, delete: Vec<String> },
    /// The session has ended.
    SessionGone,
}

/// Why a lock could not be converted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NotConverted {
    /// Another reader may hold the lock.
    Contended,
    /// The servers refused a request.
    Refused(Failure),
    /// The directory is unusable.
    Unusable(Unusable),
}

/// The state machine; see the [module](self).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Conversion {
    /// The node by which the lock is held.
    own: String,
    /// The node by which it is to be held.
    new: String,
    phase: ConversionPhase,
    /// The zxid of the creation of the new node, `None` until it is known; later that of the
    /// fencing token.
    zxid: Option<i64>,
    /// Whether the outcome of a create of the new node was unknown.
    uncertain: bool,
    failures: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ConversionPhase {
    Downgrade,
    Upgrade,
    /// The new node exists: list the other contenders.
    Judge,
    /// The new node is deleted again.
    Retreat(NotConverted),
    /// No other reader can hold the lock. Read when the new node was created, if that is not known,
    /// and when the `next` node, which waits for it, was created.
    Weigh {
        queue: Arc<Queue>,
        next: usize,
    },
    /// The upgrade has succeeded: the old node is deleted. To the next upgrade it would look like a
    /// reader that holds the lock.
    Settle,
}

impl Conversion {
    /// Begins to downgrade the write node `own` to the read node `new`. Returns the first step too.
    pub(crate) fn downgrade(own: String, new: String) -> (Self, ConvertStep) {
        Self::start(own, new, ConversionPhase::Downgrade)
    }

    /// Begins to upgrade the read node `own` to the write node `new`. Returns the first step too.
    pub(crate) fn upgrade(own: String, new: String) -> (Self, ConvertStep) {
        Self::start(own, new, ConversionPhase::Upgrade)
    }

    fn start(own: String, new: String, phase: ConversionPhase) -> (Self, ConvertStep) {
        let conversion = Self {
            own,
            new,
            phase,
            zxid: None,
            uncertain: false,
            failures: 0,
        };
        let first = conversion.ask();
        (conversion, first)
    }

    /// Returns the request of the current phase.
    fn ask(&self) -> ConvertStep {
        ConvertStep::Do(match &self.phase {
            ConversionPhase::Downgrade => ConvertRequest::Swap {
                create: self.new.clone(),
                delete: self.own.clone(),
            },
            ConversionPhase::Upgrade => ConvertRequest::Create {
                name: self.new.clone(),
            },
            ConversionPhase::Judge => ConvertRequest::List,
            ConversionPhase::Weigh { queue, next } => {
                let name = self
                    .zxid
                    .and_then(|_| queue.others(&self.own, &self.new).nth(*next));
                ConvertRequest::Inspect {
                    name: name.unwrap_or(&self.new).to_owned(),
                }
            }
            ConversionPhase::Retreat(_) => ConvertRequest::Delete {
                name: self.new.clone(),
            },
            ConversionPhase::Settle => ConvertRequest::Delete {
                name: self.own.clone(),
            },
        })
    }

    /// Handles the result of the last step. Returns the next step.
    pub(crate) fn on(&mut self, event: ConvertEvent) -> ConvertStep {
        match event {
            ConvertEvent::Retry => self.ask(),
            ConvertEvent::Created(made @ (Created::Done { .. } | Created::Exists)) => {
                match (&self.phase, made) {
                    (ConversionPhase::Downgrade, _) => self.done(),
                    (_, Created::Done { czxid }) => {
                        self.zxid = czxid;
                        self.go_on(ConversionPhase::Judge)
                    }
                    _ => self.go_on(ConversionPhase::Judge),
                }
            }
            // If an earlier request had been carried out, the new node would exist.
            ConvertEvent::Created(Created::Missing) => Self::lost(true, Vec::new()),
            ConvertEvent::Created(Created::Failed(failure)) => {
                self.uncertain |= failure.kind == FailureKind::Unknown;
                let phase = self.phase.clone();
                self.failed(failure, |conversion, refused| match phase {
                    _ if !conversion.uncertain => ConvertStep::Finish(Converted::Kept(refused)),
                    // The request was not answered at first, and refused when repeated: whether it
                    // happened is unknown.
                    ConversionPhase::Downgrade => conversion.stuck(),
                    _ => conversion.go_on(ConversionPhase::Retreat(refused)),
                })
            }
            ConvertEvent::Listed(Answer::Is(Ok(queue))) => {
                match (queue.usable(), queue.upgrade(&self.own, &self.new)) {
                    (_, Upgrade::Gone) if queue.rank(&self.own).is_none() => {
                        Self::lost(true, vec![self.new.clone()])
                    }
                    (Err(unusable), _) => {
                        self.go_on(ConversionPhase::Retreat(NotConverted::Unusable(unusable)))
                    }
                    (_, Upgrade::Alone) => self.weigh(queue, 0),
                    (_, Upgrade::Contended | Upgrade::Gone) => {
                        self.go_on(ConversionPhase::Retreat(NotConverted::Contended))
                    }
                }
            }
            ConvertEvent::Listed(Answer::Is(Err(unusable))) => {
                self.go_on(ConversionPhase::Retreat(NotConverted::Unusable(unusable)))
            }
            ConvertEvent::Listed(Answer::No(failure)) => match failure.kind {
                // The directory can be deleted only after the nodes.
                FailureKind::NoNode => Self::lost(true, vec![self.new.clone()]),
                _ => self.failed_or_retreat(failure),
            },
            ConvertEvent::Inspected(answer) => self.weighed(answer),
            ConvertEvent::Deleted(Answer::Is(())) => self.finished(),
            ConvertEvent::Deleted(Answer::No(failure)) => match failure.kind {
                FailureKind::NoNode => self.finished(),
                // With both nodes the hold would be neither a reader nor a writer.
                _ => self.failed(failure, |conversion, _| conversion.stuck()),
            },
        }
    }

    fn failed(
        &mut self,
        failure: Failure,
        refused: impl FnOnce(&mut Self, NotConverted) -> ConvertStep,
    ) -> ConvertStep {
        match failure.kind {
            FailureKind::SessionGone => ConvertStep::Finish(Converted::SessionGone),
            FailureKind::Refused(_) | FailureKind::TooManyWatches => {
                refused(self, NotConverted::Refused(failure))
            }
            FailureKind::NoNode | FailureKind::NotNow | FailureKind::Unknown => {
                let failures = self.failures;
                self.failures = failures.saturating_add(1);
                ConvertStep::Pause { failures }
            }
        }
    }

    fn failed_or_retreat(&mut self, failure: Failure) -> ConvertStep {
        self.failed(failure, |conversion, refused| {
            conversion.go_on(ConversionPhase::Retreat(refused))
        })
    }

    /// Reads the next zxid that the fencing token depends on, or goes on if there is none left.
    fn weigh(&mut self, queue: Arc<Queue>, next: usize) -> ConvertStep {
        if self.zxid.is_some() && queue.others(&self.own, &self.new).nth(next).is_none() {
            return self.go_on(ConversionPhase::Settle);
        }
        self.go_on(ConversionPhase::Weigh { queue, next })
    }

    fn weighed(&mut self, answer: Answer<i64>) -> ConvertStep {
        let ConversionPhase::Weigh { queue, next } = self.phase.clone() else {
            return self.ask();
        };
        match (answer, self.zxid) {
            (Answer::Is(czxid), None) => {
                self.zxid = Some(czxid);
                self.weigh(queue, next)
            }
            (Answer::Is(czxid), Some(own)) => {
                self.zxid = Some(own.min(czxid - 1));
                self.go_on(ConversionPhase::Settle)
            }
            (Answer::No(failure), own) => match (failure.kind, own) {
                // The new node: another process has deleted it.
                (FailureKind::NoNode, None) => {
                    self.go_on(ConversionPhase::Retreat(NotConverted::Contended))
                }
                // It will never hold the lock. Those behind it in the list have been waiting too.
                (FailureKind::NoNode, Some(_)) => self.weigh(queue, next + 1),
                _ => self.failed_or_retreat(failure),
            },
        }
    }

    fn go_on(&mut self, phase: ConversionPhase) -> ConvertStep {
        self.phase = phase;
        self.failures = 0;
        self.ask()
    }

    fn done(&self) -> ConvertStep {
        ConvertStep::Finish(Converted::Done {
            node: self.new.clone(),
            zxid: self.zxid,
        })
    }

    /// One of the two nodes is gone.
    fn finished(&self) -> ConvertStep {
        match &self.phase {
            ConversionPhase::Retreat(why) => ConvertStep::Finish(Converted::Kept(why.clone())),
            _ => self.done(),
        }
    }

    /// There may be two nodes, and neither can be deleted for certain.
    fn stuck(&self) -> ConvertStep {
        Self::lost(false, vec![self.new.clone(), self.own.clone()])
    }

    fn lost(gone: bool, delete: Vec<String>) -> ConvertStep {
        ConvertStep::Finish(Converted::Lost { gone, delete })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::failure::Refusal;
    use crate::protocol::node_name::{Dialect, Family, Naming};

    const REFUSED: FailureKind = FailureKind::Refused(Refusal::Other);
    const READ: &str = "_c_me-__READ__0000000005";
    const WRITE: &str = "_c_up-of-me-__WRIT__0000000005";

    fn upgrade() -> Conversion {
        let (conversion, step) = Conversion::upgrade(READ.to_owned(), WRITE.to_owned());
        assert_eq!(
            step,
            ConvertStep::Do(ConvertRequest::Create {
                name: WRITE.to_owned()
            })
        );
        conversion
    }

    fn downgrade() -> Conversion {
        let (conversion, step) = Conversion::downgrade(WRITE.to_owned(), READ.to_owned());
        assert_eq!(step, swap());
        conversion
    }

    fn swap() -> ConvertStep {
        ConvertStep::Do(ConvertRequest::Swap {
            create: READ.to_owned(),
            delete: WRITE.to_owned(),
        })
    }

    fn retreat() -> ConvertStep {
        ConvertStep::Do(ConvertRequest::Delete {
            name: WRITE.to_owned(),
        })
    }

    fn listed(names: &[&str]) -> ConvertEvent {
        let naming = Naming {
            family: Family::ReadWrite,
            dialect: Dialect::Curator,
        };
        ConvertEvent::Listed(Answer::Is(Queue::read(
            names.iter().map(ToString::to_string).collect(),
            naming,
        )))
    }

    fn done(node: &str, zxid: Option<i64>) -> ConvertStep {
        ConvertStep::Finish(Converted::Done {
            node: node.to_owned(),
            zxid,
        })
    }

    fn made() -> ConvertEvent {
        ConvertEvent::Created(Created::Done { czxid: Some(70) })
    }

    fn settle() -> ConvertStep {
        ConvertStep::Do(ConvertRequest::Delete {
            name: READ.to_owned(),
        })
    }

    fn inspect(name: &str) -> ConvertStep {
        ConvertStep::Do(ConvertRequest::Inspect {
            name: name.to_owned(),
        })
    }

    // Shows: downgrade
    #[test]
    fn a_downgrade_is_one_transaction() {
        assert_eq!(
            downgrade().on(ConvertEvent::Created(Created::Done { czxid: None })),
            done(READ, None)
        );
    }

    #[test]
    fn a_lost_reply_is_asked_for_again_by_the_same_names() {
        let mut conversion = downgrade();
        let lost = || ConvertEvent::Created(Created::Failed(FailureKind::Unknown.into()));
        assert_eq!(conversion.on(lost()), ConvertStep::Pause { failures: 0 });
        assert_eq!(conversion.on(ConvertEvent::Retry), swap());
        assert_eq!(conversion.on(lost()), ConvertStep::Pause { failures: 1 });
        assert_eq!(conversion.on(ConvertEvent::Retry), swap());
        assert_eq!(
            conversion.on(ConvertEvent::Created(Created::Exists)),
            done(READ, None)
        );
    }

    #[test]
    fn a_refused_downgrade_keeps_the_write_lock() {
        let refused = || ConvertEvent::Created(Created::Failed(REFUSED.into()));
        assert_eq!(
            downgrade().on(refused()),
            ConvertStep::Finish(Converted::Kept(NotConverted::Refused(REFUSED.into())))
        );
        // Unless it may have happened before.
        let mut conversion = downgrade();
        conversion.on(ConvertEvent::Created(Created::Failed(
            FailureKind::Unknown.into(),
        )));
        let delete = vec![READ.to_owned(), WRITE.to_owned()];
        assert_eq!(
            conversion.on(refused()),
            ConvertStep::Finish(Converted::Lost {
                gone: false,
                delete
            })
        );
    }

    #[test]
    fn a_node_deleted_by_hand_is_a_lost_lock() {
        let lost = |delete: &[&str]| {
            let delete = delete.iter().map(ToString::to_string).collect();
            ConvertStep::Finish(Converted::Lost { gone: true, delete })
        };
        assert_eq!(
            downgrade().on(ConvertEvent::Created(Created::Missing)),
            lost(&[])
        );
        assert_eq!(
            upgrade().on(ConvertEvent::Created(Created::Missing)),
            lost(&[])
        );
        let mut conversion = upgrade();
        conversion.on(made());
        assert_eq!(conversion.on(listed(&[WRITE])), lost(&[WRITE]));
    }

    #[test]
    fn an_upgrade_puts_the_write_node_beside_and_looks() {
        let mut conversion = upgrade();
        assert_eq!(conversion.on(made()), ConvertStep::Do(ConvertRequest::List));
        assert_eq!(conversion.on(listed(&[READ, WRITE])), settle());
        let lost = ConvertEvent::Deleted(Answer::no(FailureKind::Unknown));
        assert_eq!(conversion.on(lost), ConvertStep::Pause { failures: 0 });
        assert_eq!(conversion.on(ConvertEvent::Retry), settle());
        assert_eq!(
            conversion.on(ConvertEvent::Deleted(Answer::no(FailureKind::NoNode))),
            done(WRITE, Some(70))
        );
    }

    /// The zxid before that of the first that waits, if that is older than the write node.
    // Shows: upgraded-token
    #[test]
    fn the_token_of_an_upgraded_writer_is_below_that_of_the_first_that_waits() {
        let (first, second) = ("w-__WRIT__0000000006", "r-__READ__0000000007");
        let weighing = || {
            let mut conversion = upgrade();
            conversion.on(made());
            assert_eq!(
                conversion.on(listed(&[READ, WRITE, first, second])),
                inspect(first)
            );
            conversion
        };
        let is = |czxid| ConvertEvent::Inspected(Answer::Is(czxid));
        let no = |kind| ConvertEvent::Inspected(Answer::no(kind));
        let deleted = || ConvertEvent::Deleted(Answer::Is(()));
        for (czxid, zxid) in [(60, 59), (90, 70)] {
            let mut conversion = weighing();
            assert_eq!(conversion.on(is(czxid)), settle());
            assert_eq!(conversion.on(deleted()), done(WRITE, Some(zxid)));
        }
        // Once it has gone, the next has been waiting all the same.
        let mut conversion = weighing();
        assert_eq!(
            conversion.on(no(FailureKind::Unknown)),
            ConvertStep::Pause { failures: 0 }
        );
        assert_eq!(conversion.on(ConvertEvent::Retry), inspect(first));
        assert_eq!(conversion.on(no(FailureKind::NoNode)), inspect(second));
        assert_eq!(conversion.on(is(60)), settle());
        assert_eq!(conversion.on(deleted()), done(WRITE, Some(59)));
        let mut conversion = weighing();
        conversion.on(no(FailureKind::NoNode));
        assert_eq!(conversion.on(no(FailureKind::NoNode)), settle());
        assert_eq!(conversion.on(deleted()), done(WRITE, Some(70)));
        let mut conversion = weighing();
        assert_eq!(conversion.on(no(REFUSED)), retreat());
    }

    // Shows: fencing-token
    #[test]
    fn an_upgrade_whose_reply_was_lost_asks_when_its_write_node_was_created() {
        let waits = "w-__WRIT__0000000006";
        let weighing = |list: &[&str]| {
            let mut conversion = upgrade();
            conversion.on(ConvertEvent::Created(Created::Failed(
                FailureKind::Unknown.into(),
            )));
            conversion.on(ConvertEvent::Retry);
            conversion.on(ConvertEvent::Created(Created::Exists));
            assert_eq!(conversion.on(listed(list)), inspect(WRITE));
            conversion
        };
        let is = |czxid| ConvertEvent::Inspected(Answer::Is(czxid));
        assert_eq!(weighing(&[READ, WRITE]).on(is(70)), settle());
        assert_eq!(weighing(&[READ, WRITE, waits]).on(is(70)), inspect(waits));
        let gone = ConvertEvent::Inspected(Answer::no(FailureKind::NoNode));
        assert_eq!(weighing(&[READ, WRITE]).on(gone), retreat());
    }

    #[test]
    fn an_upgrade_beside_another_reader_takes_its_write_node_back_and_waits_until_it_is_gone() {
        let mut conversion = upgrade();
        conversion.on(made());
        assert_eq!(
            conversion.on(listed(&[READ, WRITE, "r-__READ__0000000006"])),
            retreat()
        );
        let lost = ConvertEvent::Deleted(Answer::no(FailureKind::Unknown));
        assert_eq!(conversion.on(lost), ConvertStep::Pause { failures: 0 });
        assert_eq!(conversion.on(ConvertEvent::Retry), retreat());
        let gone = ConvertEvent::Deleted(Answer::no(FailureKind::NoNode));
        assert_eq!(
            conversion.on(gone),
            ConvertStep::Finish(Converted::Kept(NotConverted::Contended))
        );
    }

    /// All later contenders would wait for it.
    #[test]
    fn a_write_node_that_may_exist_is_never_left() {
        let refused = || ConvertEvent::Created(Created::Failed(REFUSED.into()));
        assert_eq!(
            upgrade().on(refused()),
            ConvertStep::Finish(Converted::Kept(NotConverted::Refused(REFUSED.into())))
        );
        let mut conversion = upgrade();
        conversion.on(ConvertEvent::Created(Created::Failed(
            FailureKind::Unknown.into(),
        )));
        assert_eq!(conversion.on(refused()), retreat());
        let mut conversion = upgrade();
        conversion.on(made());
        assert_eq!(
            conversion.on(ConvertEvent::Listed(Answer::no(REFUSED))),
            retreat()
        );
        let mut conversion = upgrade();
        conversion.on(made());
        assert_eq!(
            conversion.on(listed(&[READ, WRITE, "x-lock-0000000001"])),
            retreat()
        );
        let why = NotConverted::Unusable(Unusable::OtherOrder("x-lock-0000000001".to_owned()));
        assert_eq!(
            conversion.on(ConvertEvent::Deleted(Answer::Is(()))),
            ConvertStep::Finish(Converted::Kept(why))
        );
    }

    /// The write node first: with it alone others wait, with the read node alone they come in.
    // Shows: conversion-ends
    #[test]
    fn a_node_that_may_not_be_deleted_is_a_lost_lock() {
        let refused = || ConvertEvent::Deleted(Answer::no(REFUSED));
        let lost = || {
            let delete = vec![WRITE.to_owned(), READ.to_owned()];
            ConvertStep::Finish(Converted::Lost {
                gone: false,
                delete,
            })
        };
        let mut retreating = upgrade();
        retreating.on(made());
        assert_eq!(
            retreating.on(listed(&[READ, WRITE, "r-__READ__0000000006"])),
            retreat()
        );
        assert_eq!(retreating.on(refused()), lost());
        let mut settling = upgrade();
        settling.on(made());
        assert_eq!(settling.on(listed(&[READ, WRITE])), settle());
        // Also when it was under way before.
        settling.on(ConvertEvent::Deleted(Answer::no(FailureKind::Unknown)));
        settling.on(ConvertEvent::Retry);
        assert_eq!(settling.on(refused()), lost());
    }

    #[test]
    fn a_write_node_that_is_not_there_is_no_lock() {
        // Deleted by another process; deleted here too, to be sure.
        let mut conversion = upgrade();
        conversion.on(made());
        assert_eq!(conversion.on(listed(&[READ])), retreat());
        assert_eq!(
            conversion.on(ConvertEvent::Deleted(Answer::Is(()))),
            ConvertStep::Finish(Converted::Kept(NotConverted::Contended))
        );
        // The directory is gone, and all nodes with it.
        let mut conversion = upgrade();
        conversion.on(made());
        let gone = ConvertEvent::Listed(Answer::no(FailureKind::NoNode));
        let delete = vec![WRITE.to_owned()];
        assert_eq!(
            conversion.on(gone),
            ConvertStep::Finish(Converted::Lost { gone: true, delete })
        );
    }

    #[test]
    fn a_server_that_asks_for_patience_gets_it() {
        let later = || FailureKind::NotNow;
        let mut conversion = downgrade();
        assert_eq!(
            conversion.on(ConvertEvent::Created(Created::Failed(later().into()))),
            ConvertStep::Pause { failures: 0 }
        );
        assert_eq!(conversion.on(ConvertEvent::Retry), swap());
        let mut conversion = upgrade();
        conversion.on(made());
        assert_eq!(
            conversion.on(ConvertEvent::Listed(Answer::no(later()))),
            ConvertStep::Pause { failures: 0 }
        );
        assert_eq!(
            conversion.on(ConvertEvent::Retry),
            ConvertStep::Do(ConvertRequest::List)
        );
        assert_eq!(
            conversion.on(ConvertEvent::Listed(Answer::no(later()))),
            ConvertStep::Pause { failures: 1 }
        );
        conversion.on(ConvertEvent::Retry);
        conversion.on(listed(&[READ, WRITE]));
        // Another request, another count.
        assert_eq!(
            conversion.on(ConvertEvent::Deleted(Answer::no(later()))),
            ConvertStep::Pause { failures: 0 }
        );
    }

    #[test]
    fn the_end_of_the_session_ends_it() {
        let over = || FailureKind::SessionGone;
        let ended = ConvertStep::Finish(Converted::SessionGone);
        assert_eq!(
            downgrade().on(ConvertEvent::Created(Created::Failed(over().into()))),
            ended
        );
        let mut conversion = upgrade();
        conversion.on(made());
        assert_eq!(
            conversion.on(ConvertEvent::Listed(Answer::no(over()))),
            ended
        );
    }
}
