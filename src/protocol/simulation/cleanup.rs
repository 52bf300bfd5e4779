//! How the nodes that are left over are deleted: by a hand-over or a plain deletion each, whose
//! request or answer may be lost. The real `LocalQueue` then decides which attempts are notified.

use super::choices::Fate;
use super::{DeletionStage, Doing, PendingDeletion, World};
use crate::protocol::acquire::Orphans;
use crate::protocol::local_queue::Gone;

impl World<'_> {
    pub(super) fn settle_late(&mut self, i: usize) {
        // The servers carry out the requests of a session in order. So when a later one is sent,
        // the create under way is carried out, or was lost with its connection.
        if let Some(beginning) = self.callers[i].late.take() {
            if !self.choices.chance(128) && !self.directory.missing {
                self.directory.create(self.owner(i), &beginning);
            }
        }
    }

    pub(super) fn clean(&mut self, i: usize, orphans: Orphans) {
        for name in orphans.names {
            self.pass_to_cleanup(i, name, false);
        }
        for id in orphans.ids {
            // Cleanup's write decides the creates under way, then it lists.
            self.settle_late(i);
            let beginning = self.directory.naming.prefix(&id, self.callers[i].kind);
            let found = self
                .directory
                .nodes
                .keys()
                .find(|name| name.starts_with(&beginning))
                .cloned();
            found
                .into_iter()
                .for_each(|name| self.pass_to_cleanup(i, name, false));
        }
    }

    pub(super) fn pass_to_cleanup(&mut self, i: usize, name: String, hand_over: bool) {
        let client = self.callers[i].client;
        let session = self.clients[client].session;
        self.deleted += 1;
        let at = DeletionStage::New { hand_over };
        self.deletions.push(PendingDeletion {
            id: self.deleted,
            client,
            session,
            name,
            at,
        });
    }

    /// Takes one step of one deletion.
    pub(super) fn delete_next(&mut self, k: usize) {
        let PendingDeletion {
            client,
            session,
            name,
            at,
            ..
        } = &self.deletions[k];
        let (client, session, name, at) = (*client, *session, name.clone(), at.clone());
        let there = self.directory.nodes.contains_key(&name);
        let next = match at {
            DeletionStage::New { hand_over } => {
                // The successor is chosen when the transaction is sent, and not before: another
                // node may be next by then.
                let heir = self.clients[client]
                    .queue
                    .heir(session, &name)
                    .filter(|_| hand_over);
                heir.map_or(DeletionStage::Plain, |to| DeletionStage::HandingOver {
                    to: to.to_string(),
                })
            }
            DeletionStage::HandingOver { to } => {
                // The transaction checks the successor's node, and deletes the holder's.
                let both = there && self.directory.nodes.contains_key(&to);
                let fate = self.choices.fate();
                if both && fate != (Fate::Lost { carried_out: false }) {
                    self.delete(&name);
                }
                match (fate, both) {
                    // The hand-over is sent once. A plain deletion decides its outcome, and makes
                    // the successor list (docs/protocol.md#waiting-in-memory).
                    (Fate::Lost { .. }, _) => DeletionStage::Plain,
                    (Fate::Answered, true) => DeletionStage::HandedOver {
                        to,
                        at: self.directory.clock,
                    },
                    // One of the two nodes is deleted already, so nothing is changed. A plain
                    // deletion is right in either case.
                    (Fate::Answered, false) => DeletionStage::Plain,
                }
            }
            // The servers refuse the deletion, for example by a changed ACL. The node stays until
            // its session ends.
            DeletionStage::Plain if self.choices.chance(8) => {
                self.directory.stuck.insert(name.clone());
                DeletionStage::Unclear
            }
            DeletionStage::Plain => match self.choices.fate() {
                Fate::Lost { carried_out } => {
                    // The deletion is repeated until there is a definite answer. The answer to the
                    // repetition is then that there is no such node.
                    if carried_out {
                        self.delete(&name);
                    }
                    DeletionStage::Plain
                }
                Fate::Answered if there => {
                    self.delete(&name);
                    DeletionStage::Deleted
                }
                Fate::Answered => DeletionStage::Unclear,
            },
            // The client has its answer, and notifies the attempts that wait behind the node.
            answered => {
                self.deletions.remove(k);
                let how = match &answered {
                    DeletionStage::Deleted => Gone::Deleted,
                    DeletionStage::HandedOver { to, at } => {
                        // The transaction has shown that the successor's node existed when it was
                        // carried out. If that node was deleted since, the successor is found by
                        // its wait.
                        let heir = self.directory.nodes.get(to).map(|(caller, _)| *caller);
                        if let Some(heir) = heir.or_else(|| self.waits_as(to)) {
                            self.callers[heir].seen = *at;
                        }
                        Gone::HandedOver { to }
                    }
                    _ => Gone::Unclear,
                };
                self.clients[client].without_list.gone(session, &name, how);
                self.queue(client, |queue, _| queue.gone(session, &name, how));
                return;
            }
        };
        self.deletions[k].at = next;
    }

    /// Returns the caller that waits in memory by this node.
    pub(super) fn waits_as(&self, name: &str) -> Option<usize> {
        self.callers.iter().position(|caller| match &caller.doing {
            Doing::Waiting(contender, _) => contender.queued_as() == Some(name),
            _ => false,
        })
    }

    pub(super) fn delete(&mut self, name: &str) {
        self.directory.nodes.remove(name);
    }
}
