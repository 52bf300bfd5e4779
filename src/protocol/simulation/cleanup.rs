//! How the nodes that are left over are deleted.

use super::choices::Fate;
use super::{DeletionStage, Doing, PendingDeletion, World};
use crate::protocol::acquire::Orphans;
use crate::protocol::local_queue::Gone;

impl World<'_> {
    pub(super) fn settle_late(&mut self, i: usize) {
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
                let heir = self.clients[client]
                    .queue
                    .heir(session, &name)
                    .filter(|_| hand_over);
                heir.map_or(DeletionStage::Plain, |to| DeletionStage::HandingOver {
                    to: to.to_string(),
                })
            }
            DeletionStage::HandingOver { to } => {
                let both = there && self.directory.nodes.contains_key(&to);
                let fate = self.choices.fate();
                if both && fate != (Fate::Lost { carried_out: false }) {
                    self.delete(&name);
                }
                match (fate, both) {
                    (Fate::Lost { .. }, _) => DeletionStage::Plain,
                    (Fate::Answered, true) => DeletionStage::HandedOver {
                        to,
                        at: self.directory.clock,
                    },
                    (Fate::Answered, false) => DeletionStage::Plain,
                }
            }
            DeletionStage::Plain if self.choices.chance(8) => {
                self.directory.stuck.insert(name.clone());
                DeletionStage::Unclear
            }
            DeletionStage::Plain => match self.choices.fate() {
                Fate::Lost { carried_out } => {
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
            heard => {
                self.deletions.remove(k);
                let how = match &heard {
                    DeletionStage::Deleted => Gone::Deleted,
                    DeletionStage::HandedOver { to, at } => {
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
