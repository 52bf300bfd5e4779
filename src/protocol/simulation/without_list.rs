//! Grants without a list: what the clients know of the directory, by the real
//! [`SessionFrontier`], and a model of their watches.

use super::World;
use crate::protocol::acquire::OwnNode;
use crate::protocol::local_queue::Gone;
use crate::protocol::node_name::Kind;
use crate::protocol::numbers::SessionNumber;
use crate::protocol::without_list::frontier::{Numbered, SessionFrontier};

/// What a client knows of the directory.
#[derive(Default)]
pub(super) struct Knowledge {
    frontier: SessionFrontier,
    watch: Watch,
    /// How many nodes were first without a list.
    first: usize,
}

/// The watch of a client on the directory.
#[derive(Default)]
enum Watch {
    #[default]
    None,
    Asked,
    /// The servers have set it on the directory that was created then. `answered` is whether the
    /// client knows, `over` whether it has fired, or the connection was interrupted.
    Set {
        czxid: i64,
        answered: bool,
        over: bool,
    },
}

impl Knowledge {
    /// Returns when the directory was created, if the client knows that it exists since.
    fn created(&self) -> Option<i64> {
        match self.watch {
            Watch::Set {
                czxid,
                // A watch counts only once its answer has arrived, because that names the directory
                // (docs/protocol.md#directory-watch).
                answered: true,
                over: false,
            } => Some(czxid),
            _ => None,
        }
    }

    /// Returns whether the client knows that the directory is watched.
    pub(super) fn is_watched(&self) -> bool {
        self.created().is_some()
    }

    /// Returns whether the servers or their answer are to make the next step of the watch.
    pub(super) fn is_asked(&self) -> bool {
        matches!(
            self.watch,
            Watch::Asked
                | Watch::Set {
                    answered: false,
                    ..
                }
        )
    }

    pub(super) fn gone(&mut self, session: SessionNumber, name: &str, how: Gone<'_>) {
        // The end of a node of an earlier session says nothing about this one.
        if let Some(frontier) = self.frontier.in_session(session) {
            frontier.gone(name, how);
        }
    }

    /// The connection is interrupted, or the session ends.
    pub(super) fn interrupt(&mut self) {
        self.watch = Watch::None;
    }
}

impl World<'_> {
    /// Returns whether a client leaves the list out because the next node may be first.
    pub(super) fn may_be_first(&mut self, c: usize, kind: Kind) -> bool {
        if !self.clients[c].without_list.is_watched() {
            return false;
        }
        // A create without a list that does not lead to a grant costs time, but is safe, so a
        // random choice may leave the list out.
        let tries = self.choices.chance(160);
        let client = &mut self.clients[c];
        let known = client.without_list.frontier.in_session(client.session);
        tries || known.is_some_and(|frontier| frontier.expects(kind))
    }

    /// Decides whether a created node of a client is first, without a list.
    pub(super) fn decide_first(&mut self, c: usize, node: &OwnNode) -> bool {
        let client = &mut self.clients[c];
        let knowledge = &mut client.without_list;
        // Whether the watch has fired is checked now, when the create has been answered: events and
        // answers arrive in the order of the connection.
        let (Some(directory), Some(node)) = (
            knowledge.created(),
            Numbered::of(&node.name, node.czxid, self.directory.naming),
        ) else {
            return false;
        };
        let known = knowledge.frontier.in_session(client.session);
        let is_first = known.is_some_and(|frontier| frontier.decide_first(node, directory));
        knowledge.first += usize::from(is_first);
        is_first
    }

    /// A client is granted the lock by this node.
    pub(super) fn note_grant(&mut self, c: usize, name: &str, czxid: i64) {
        let node = Numbered::of(name, Some(czxid), self.directory.naming);
        // The model does not record whether a grant has waited, and draws it. A wrong value costs a
        // list, never exclusion.
        let (node, free) = (node.expect("a contender"), !self.choices.chance(26));
        let client = &mut self.clients[c];
        let known = client.without_list.frontier.in_session(client.session);
        let watch = known.is_some_and(|frontier| frontier.granted(name, node, free));
        // A watch is harmless at any time, so it is also set earlier than the library does, which
        // tests more states.
        let watch = watch || self.choices.chance(160);
        let knowledge = &mut self.clients[c].without_list;
        if watch && !matches!(knowledge.watch, Watch::Asked) && !knowledge.is_watched() {
            knowledge.watch = Watch::Asked;
        }
    }

    /// Takes one step of the watch of a client; or another client creates a foreign child, and
    /// deletes it.
    pub(super) fn watch(&mut self, c: usize) {
        let missing = self.directory.missing;
        let watch = &mut self.clients[c].without_list.watch;
        match watch {
            // The watch was not answered, or was interrupted.
            Watch::Asked | Watch::Set { .. } if self.choices.chance(8) => *watch = Watch::None,
            Watch::Asked if missing => *watch = Watch::None,
            Watch::Asked => {
                // The answer names the creation of the directory, as the watch has found it.
                *watch = Watch::Set {
                    czxid: self.directory.czxid,
                    answered: false,
                    over: false,
                };
            }
            Watch::Set { answered, .. } => *answered = true,
            Watch::None if !missing => {
                // A foreign child takes a number, so the next contender does not directly follow
                // the last.
                self.directory.created += 1;
                self.directory.zxid += 1;
            }
            Watch::None => {}
        }
    }

    /// The watches of a directory that is removed fire.
    pub(super) fn watches_fire(&mut self) {
        for client in &mut self.clients {
            if let Watch::Set { over, .. } = &mut client.without_list.watch {
                *over = true;
            }
        }
    }

    /// Returns how many nodes were first without a list.
    pub(super) fn first_without_list(&self) -> usize {
        self.clients
            .iter()
            .map(|client| client.without_list.first)
            .sum()
    }
}
