//! The faults other than lost requests and replies.

use super::{DeletionStage, Doing, PendingDeletion, World};

impl World<'_> {
    /// Ends the session of a client, which deletes its nodes and drops its requests. Contending
    /// attempts start again in the next one.
    pub(super) fn expire(&mut self, c: usize) {
        self.clients[c].session = self.clients[c].session.next();
        // The watch on the directory belongs to the session.
        self.clients[c].without_list.interrupt();
        let callers = &self.callers;
        self.directory
            .nodes
            .retain(|_, (owner, _)| callers[*owner].client != c);
        for i in self.callers_of(c) {
            // The servers carry out nothing that an expired session has sent.
            self.callers[i].late = None;
            match std::mem::replace(&mut self.callers[i].doing, Doing::Idle) {
                // A hold is lost with its session, and is not acquired again by itself.
                Doing::Idle | Doing::Holding { .. } | Doing::Downgrading { .. } => {}
                _ => self.callers[i].doing = Doing::Begins,
            }
        }
        // Deletions that were carried out before the end are still reported to the client, as
        // answers that come late.
        let not_carried_out = |deletion: &PendingDeletion| {
            matches!(
                deletion.at,
                DeletionStage::New { .. }
                    | DeletionStage::HandingOver { .. }
                    | DeletionStage::Plain
            )
        };
        self.deletions
            .retain(|one| one.client != c || !not_carried_out(one));
    }

    /// Another process deletes a node.
    pub(super) fn delete_by_hand(&mut self, n: usize) {
        let Some(name) = self.directory.nodes.keys().nth(n).cloned() else {
            return;
        };
        if let Some((owner, _)) = self.directory.nodes.remove(&name) {
            // The owner may find its node missing from here on, which is otherwise an error of the
            // library.
            self.callers[owner].deleted_by_hand = true;
        }
        self.directory
            .deleted_by_hand
            .insert(name, self.directory.clock);
    }

    /// Another process deletes the directory with all nodes. It is created again, now or by the
    /// attempts that miss it.
    pub(super) fn remove_directory(&mut self) {
        // The watches on the directory fire before any client can see the new one.
        self.watches_fire();
        while !self.directory.nodes.is_empty() {
            self.delete_by_hand(0);
        }
        // The directory has a new creation zxid and new numbers, even if it is missing for a time.
        self.directory.make_again();
        self.directory.missing = !self.choices.chance(128);
    }
}
