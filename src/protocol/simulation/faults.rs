//! The faults other than lost requests and replies.

use super::{DeletionStage, Doing, PendingDeletion, World};

impl World<'_> {
    /// Ends the session of a client, which deletes its nodes and drops its requests. Contending
    /// attempts start again in the next one.
    pub(super) fn expire(&mut self, c: usize) {
        self.clients[c].session = self.clients[c].session.next();
        self.clients[c].without_list.interrupt();
        let callers = &self.callers;
        self.directory
            .nodes
            .retain(|_, (owner, _)| callers[*owner].client != c);
        for i in self.callers_of(c) {
            self.callers[i].late = None;
            match std::mem::replace(&mut self.callers[i].doing, Doing::Idle) {
                Doing::Idle | Doing::Holding { .. } | Doing::Downgrading { .. } => {}
                _ => self.callers[i].doing = Doing::Begins,
            }
        }
        let unheard = |deletion: &PendingDeletion| {
            matches!(
                deletion.at,
                DeletionStage::New { .. }
                    | DeletionStage::HandingOver { .. }
                    | DeletionStage::Plain
            )
        };
        self.deletions
            .retain(|one| one.client != c || !unheard(one));
    }

    /// Another process deletes a node.
    pub(super) fn delete_by_hand(&mut self, n: usize) {
        let Some(name) = self.directory.nodes.keys().nth(n).cloned() else {
            return;
        };
        if let Some((owner, _)) = self.directory.nodes.remove(&name) {
            self.callers[owner].deleted_by_hand = true;
        }
        self.directory
            .deleted_by_hand
            .insert(name, self.directory.clock);
    }

    /// Another process deletes the directory with all nodes. It is created again, now or by the
    /// attempts that miss it.
    pub(super) fn remove_directory(&mut self) {
        self.watches_fire();
        while !self.directory.nodes.is_empty() {
            self.delete_by_hand(0);
        }
        self.directory.make_again();
        self.directory.missing = !self.choices.chance(128);
    }
}
