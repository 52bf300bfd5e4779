//! The faults other than lost requests and replies.

use super::{DeletionStage, Doing, PendingDeletion, Watch, World};

impl World<'_> {
    /// Ends the session of a client, which deletes its nodes and drops its requests. Contending
    /// attempts start again in the next one.
    pub(super) fn expire(&mut self, c: usize) {
        self.clients[c].session = self.clients[c].session.next();
        self.clients[c].watch = Watch::None;
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
        for client in &mut self.clients {
            client.watch.over();
        }
        while !self.directory.nodes.is_empty() {
            self.delete_by_hand(0);
        }
        self.directory.make_again();
        self.directory.missing = !self.choices.chance(128);
    }

    /// Takes one step of the watch of a client; or another client creates a foreign child, and
    /// deletes it.
    pub(super) fn watch(&mut self, c: usize) {
        let missing = self.directory.missing;
        let watch = &mut self.clients[c].watch;
        match watch {
            // The watch was not answered, or was interrupted.
            Watch::Asked | Watch::Set { .. } if self.choices.chance(8) => *watch = Watch::None,
            Watch::Asked if missing => *watch = Watch::None,
            Watch::Asked => {
                *watch = Watch::Set {
                    czxid: self.directory.czxid,
                    answered: false,
                    over: false,
                };
            }
            Watch::Set { answered, .. } => *answered = true,
            Watch::None if !missing => {
                self.directory.created += 1;
                self.directory.zxid += 1;
            }
            Watch::None => {}
        }
    }
}
