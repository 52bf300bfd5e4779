//! Holds, which are released, lost or downgraded.

use super::choices::Fate;
use super::{Doing, World};
use crate::protocol::downgrade::{Answered, Downgrade, DowngradeStep, Downgraded};
use crate::protocol::failure::{FailureKind, Refusal};
use crate::protocol::node_name::Kind;

impl World<'_> {
    /// The lock is released, or lost.
    pub(super) fn release(&mut self, i: usize, name: String, hand_over: bool) {
        self.pass_to_cleanup(i, name, hand_over);
        self.callers[i].doing = Doing::Idle;
    }

    pub(super) fn downgrade(&mut self, i: usize, name: String) {
        // The read node has an id of its own, and no create of the queue has the same.
        let id = self.new_id(i);
        let new = self.directory.naming.downgraded_name(&name, &id).unwrap();
        self.callers[i].doing = Doing::Downgrading {
            name,
            new,
            downgrade: Downgrade::default(),
        };
    }

    /// Sends the transaction of a downgrade once.
    pub(super) fn downgrading(
        &mut self,
        i: usize,
        name: String,
        new: String,
        mut downgrade: Downgrade,
    ) {
        // The servers refuse the transaction: nothing is changed.
        let answer = if self.choices.chance(20) {
            Answered::Failed(FailureKind::Refused(Refusal::Other).into())
        } else {
            let fate = self.choices.fate();
            // A repetition of a transaction that was carried out finds the read node, and changes
            // nothing.
            let happens = fate != (Fate::Lost { carried_out: false });
            let owner = self.owner(i);
            let made = happens.then(|| self.directory.exchange(owner, &new, &name));
            let is_answered = matches!(fate, Fate::Answered);
            made.filter(|_| is_answered)
                .unwrap_or_else(|| Answered::Failed(FailureKind::Unknown.into()))
        };
        self.callers[i].doing = match downgrade.on(answer) {
            DowngradeStep::Repeat { .. } => Doing::Downgrading {
                name,
                new,
                downgrade,
            },
            DowngradeStep::Finish(Downgraded::Done) => {
                let exists = self.directory.nodes.contains_key(&new);
                assert!(exists, "held by a node that does not exist");
                // Readers behind the node may hold the lock with this caller from here on.
                self.callers[i].kind = Kind::Shared;
                Doing::Holding { name: new }
            }
            // The write node was never in doubt, and still holds the lock.
            DowngradeStep::Finish(Downgraded::Refused(_)) => Doing::Holding { name },
            DowngradeStep::Finish(Downgraded::NodeDeleted) => {
                // The downgrade itself never leaves the lock without a node.
                assert!(self.callers[i].deleted_by_hand, "lost without a reason");
                Doing::Idle
            }
            DowngradeStep::Finish(Downgraded::Unknown) => {
                // Either node may be the one that exists. The task deletes both, and a refused one
                // stays until the session ends.
                for name in [new, name] {
                    if self.choices.chance(100) {
                        self.directory.stuck.insert(name);
                    } else {
                        self.delete(&name);
                    }
                }
                Doing::Idle
            }
            DowngradeStep::Finish(Downgraded::SessionGone) => {
                panic!("sessions end by `expire` here")
            }
        };
    }
}
