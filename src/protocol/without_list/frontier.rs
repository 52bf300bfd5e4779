//! Knows which nodes are gone from the front of a lock's queue, so that a new node is first without
//! a list (docs/protocol.md#succession). Pure.
//!
//! ZooKeeper numbers the children of a directory by its count of creates, of children of any kind.
//! If all that was made by the creates up to N is gone, and the next node of this session has the
//! number N + 1, nothing was created between, and it is alone. A downgrade makes a node with the
//! number of another, but its create is counted like any other.
//!
//! # Invariants
//! 1. Knowledge of a directory is not used after the directory was removed and created again, which
//!    restarts the numbers. It is known by a node of this session, and is used only while the
//!    directory is watched, and only if the watched one was created before that node.
//! 2. Knowledge stays true: a node that is gone does not come back, and a number is given once.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::protocol::node_name::{Child, Kind, Naming, classify};
use crate::protocol::numbers::SessionNumber;
use crate::protocol::own_nodes::Gone;

/// The number of grants in a row without a wait after which the next node is expected to be first.
const QUIET: u32 = 3;

/// How many nodes that hold the lock are remembered. Of further ones, which are readers', the end
/// is not noticed.
const MOST_HOLDERS: usize = 64;

/// A node of this session, as its create was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Numbered {
    pub(crate) kind: Kind,
    pub(crate) sequence: i32,
    pub(crate) czxid: i64,
}

impl Numbered {
    /// Returns the number of a created node; `None` if that or the zxid of its creation is not
    /// known.
    pub(crate) fn of(name: &str, czxid: Option<i64>, naming: Naming) -> Option<Self> {
        match (classify(name, naming), czxid) {
            (Child::Contender { sequence, kind }, Some(czxid)) => Some(Self {
                kind,
                sequence,
                czxid,
            }),
            _ => None,
        }
    }
}

/// The knowledge of the newest session that has been asked about. Knowledge of an earlier session
/// is forgotten then, and calls for an earlier session change nothing.
#[derive(Debug, Default)]
pub(crate) struct SessionFrontier {
    session: SessionNumber,
    frontier: Frontier,
}

impl SessionFrontier {
    /// Returns the knowledge of a session, which begins empty; `None` if a newer session has begun.
    pub(crate) fn in_session(&mut self, session: SessionNumber) -> Option<&mut Frontier> {
        if session > self.session {
            *self = Self {
                session,
                frontier: Frontier::default(),
            };
        }
        (session == self.session).then_some(&mut self.frontier)
    }
}

/// The knowledge of one session of one directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Frontier {
    /// No contender is left of the creates up to here.
    no_contender: Option<GoneThrough>,
    /// No writer is left of the creates up to here.
    no_writer: Option<GoneThrough>,
    /// The nodes that hold the lock, by name.
    holders: BTreeMap<Arc<str>, GrantedNode>,
    /// How many grants in a row have not waited.
    free_grants: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct GrantedNode {
    node: Numbered,
    /// Whether its deletion was sent. It is answered before anything that is sent from then on.
    leaving: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct GoneThrough {
    /// The last of these creates; -1 before the first.
    through: i32,
    /// When the node was created by which this is known.
    since: i64,
}

impl GoneThrough {
    /// Returns the same of one create more, which made a node that is gone or does not count.
    fn beyond(self, node: Numbered) -> Self {
        // An older node is one of another incarnation.
        let is_next =
            self.through.checked_add(1) == Some(node.sequence) && node.czxid >= self.since;
        if is_next {
            Self {
                through: node.sequence,
                ..self
            }
        } else {
            self
        }
    }
}

impl Frontier {
    /// Returns whether the next node of this kind is expected to be first once its create is
    /// answered, as far as this client is concerned.
    pub(crate) fn expects(&self, kind: Kind) -> bool {
        let known = match kind {
            Kind::Exclusive => {
                self.no_contender.is_some() && self.holders.values().all(|holder| holder.leaving)
            }
            Kind::Shared => self.no_writer.is_some(),
        };
        known && self.is_quiet()
    }

    fn is_quiet(&self) -> bool {
        self.free_grants >= QUIET
    }

    /// Decides whether a node of this session is first, now that its create was answered, and notes
    /// it. `directory` is when the directory was created that is watched since, and still exists.
    pub(crate) fn decide_first(&mut self, node: Numbered, directory: i64) -> bool {
        let known = match node.kind {
            Kind::Exclusive => self.no_contender,
            Kind::Shared => self.no_writer,
        };
        let is_first = known.is_some_and(|known| {
            let here = directory < known.since && known.since < node.czxid;
            here && known.through.checked_add(1) == Some(node.sequence)
        });
        if !is_first {
            self.free_grants = 0;
        } else if node.kind == Kind::Shared {
            // This is set at once: the next reader's reply may be judged before this one is granted
            // the lock.
            self.no_writer = Some(GoneThrough {
                through: node.sequence,
                since: node.czxid,
            });
        }
        is_first
    }

    /// Records that a node of this session is first in the queue, by whatever proof, and holds the
    /// lock. `free` is whether it has not waited for others.
    ///
    /// Returns whether the directory is worth a watch.
    pub(crate) fn granted(&mut self, name: &str, node: Numbered, free: bool) -> bool {
        let (since, sequence) = (node.czxid, node.sequence);
        // This is not expected: if numbers have wrapped, nothing is granted.
        let Some(before) = sequence.checked_sub(1).filter(|_| sequence >= 0) else {
            return false;
        };
        let known = if node.kind == Kind::Exclusive {
            self.no_contender
        } else {
            self.no_writer
        };
        // The notification of the previous node's end may be late.
        let follows = known.is_some_and(|known| known.through >= before)
            || self
                .holders
                .values()
                .any(|holder| holder.node.sequence == before);
        self.free_grants = match (free, follows) {
            (true, true) => self.free_grants.saturating_add(1),
            // The first of a row; or another client has come in between.
            (true, false) => 1,
            (false, _) => 0,
        };
        // An older node most likely belongs to an earlier incarnation, and its notification is
        // late.
        let is_newer = |known: Option<GoneThrough>| known.is_none_or(|known| known.since < since);
        match node.kind {
            Kind::Exclusive => {
                self.no_contender = Some(GoneThrough {
                    through: before,
                    since,
                });
                self.no_writer = self.no_contender;
            }
            Kind::Shared if is_newer(self.no_writer) => {
                self.no_writer = Some(GoneThrough {
                    through: sequence,
                    since,
                });
            }
            Kind::Shared => {}
        }
        if self.holders.len() < MOST_HOLDERS {
            self.holders.insert(
                name.into(),
                GrantedNode {
                    node,
                    leaving: false,
                },
            );
        }
        self.is_quiet()
    }

    /// Records that the deletion of a node of this session was sent.
    pub(crate) fn leaves(&mut self, name: &str) {
        if let Some(holder) = self.holders.get_mut(name) {
            holder.leaving = true;
        }
    }

    /// Records that a node of this session is gone, or that its deletion is refused.
    pub(crate) fn gone(&mut self, name: &str, how: Gone<'_>) {
        let holder = self.holders.remove(name);
        match (how, holder) {
            (Gone::Deleted | Gone::HandedOver { .. }, Some(GrantedNode { node, .. })) => {
                self.no_contender = self.no_contender.map(|known| known.beyond(node));
                self.no_writer = self.no_writer.map(|known| known.beyond(node));
            }
            (Gone::Deleted | Gone::HandedOver { .. }, None) => {}
            (Gone::Unclear, _) => (self.no_contender, self.no_writer) = (None, None),
        }
    }

    /// Every zxid in it, for the model.
    #[cfg(test)]
    pub(super) fn each_zxid(&mut self, f: &mut dyn FnMut(&mut i64)) {
        let known = [&mut self.no_contender, &mut self.no_writer]
            .into_iter()
            .flatten();
        known.map(|known| &mut known.since).for_each(&mut *f);
        self.holders
            .values_mut()
            .map(|holder| &mut holder.node.czxid)
            .for_each(f);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::node_name::{Dialect, Family};
    use crate::protocol::numbers::by_value::session_number;

    /// The directory of most tests, and a later one.
    const DIRECTORY: i64 = 100;
    const LATER: i64 = 200;

    fn writer(sequence: i32) -> Numbered {
        Numbered {
            kind: Kind::Exclusive,
            sequence,
            czxid: DIRECTORY + 1 + i64::from(sequence),
        }
    }

    fn reader(sequence: i32) -> Numbered {
        Numbered {
            kind: Kind::Shared,
            ..writer(sequence)
        }
    }

    /// Granted to each of these, which was gone before the next came.
    fn after(nodes: &[Numbered]) -> Frontier {
        let mut frontier = Frontier::default();
        for node in nodes {
            frontier.granted(&node.sequence.to_string(), *node, true);
            frontier.gone(&node.sequence.to_string(), Gone::Deleted);
        }
        frontier
    }

    // Shows: succession
    #[test]
    fn next_number_alone_is_first() {
        for (sequence, first) in [(6, false), (7, false), (8, true), (9, false)] {
            assert_eq!(
                after(&[writer(7)]).decide_first(writer(sequence), DIRECTORY),
                first,
                "{sequence}"
            );
            // The reader that is gone is no more of an obstacle than one that is there.
            assert_eq!(
                after(&[reader(7)]).decide_first(reader(sequence), DIRECTORY),
                first,
                "{sequence}"
            );
            assert_eq!(
                after(&[writer(7)]).decide_first(reader(sequence), DIRECTORY),
                first,
                "{sequence}"
            );
        }
        assert!(
            !after(&[]).decide_first(writer(0), DIRECTORY),
            "nothing is known"
        );
        assert!(after(&[writer(0)]).decide_first(writer(1), DIRECTORY));
        assert!(!after(&[writer(i32::MAX)]).decide_first(writer(i32::MIN), DIRECTORY));
        let mut frontier = Frontier::default();
        frontier.granted("7", writer(7), true);
        assert!(
            !frontier.decide_first(writer(7), DIRECTORY),
            "by itself nothing is known"
        );
    }

    // Shows: succession
    #[test]
    fn writer_needs_all_readers_gone() {
        assert!(
            !after(&[reader(7)]).decide_first(writer(8), DIRECTORY),
            "other readers may be inside"
        );
        assert!(after(&[writer(6), reader(7)]).decide_first(writer(8), DIRECTORY));
    }

    #[test]
    fn end_of_later_reader_proves_nothing() {
        let mut frontier = after(&[writer(6)]);
        frontier.granted("7", reader(7), true);
        frontier.granted("8", reader(8), true);
        frontier.gone("8", Gone::Deleted);
        assert!(
            !frontier.decide_first(writer(9), DIRECTORY),
            "the older reader is inside"
        );
        frontier.gone("7", Gone::Deleted);
        assert!(frontier.decide_first(writer(8), DIRECTORY));
    }

    // Shows: succession
    #[test]
    fn present_holder_blocks_next_writer() {
        let mut frontier = after(&[writer(6)]);
        frontier.granted("7", writer(7), true);
        assert!(!frontier.decide_first(writer(8), DIRECTORY));
        assert!(!frontier.decide_first(reader(8), DIRECTORY));
        frontier.gone("7", Gone::HandedOver { to: "8" });
        assert!(frontier.decide_first(reader(8), DIRECTORY));
        assert!(
            frontier.decide_first(reader(9), DIRECTORY),
            "beside the reader"
        );
        assert!(
            !frontier.decide_first(writer(10), DIRECTORY),
            "the readers may be there"
        );
    }

    // Shows: succession
    #[test]
    fn unclear_deletion_discards_all_knowledge() {
        let mut frontier = after(&[writer(6)]);
        frontier.granted("7", writer(7), true);
        frontier.gone("7", Gone::Unclear);
        for sequence in 7..9 {
            assert!(!frontier.decide_first(writer(sequence), DIRECTORY));
            assert!(!frontier.decide_first(reader(sequence), DIRECTORY));
        }
        // A downgrade's node, which was granted nothing.
        let mut frontier = after(&[writer(6)]);
        frontier.gone("other", Gone::Unclear);
        assert!(!frontier.decide_first(writer(7), DIRECTORY));
    }

    // Shows: succession, directory-watch
    #[test]
    fn knowledge_of_earlier_directory_is_discarded() {
        assert!(!after(&[writer(7)]).decide_first(
            Numbered {
                czxid: LATER + 1,
                ..writer(8)
            },
            LATER
        ));
        assert!(
            !after(&[writer(7)]).decide_first(writer(8), writer(7).czxid),
            "the node was not in it"
        );
        // The deletion in the earlier directory is told after the grant in the later one.
        let mut frontier = Frontier::default();
        frontier.granted("7", writer(7), true);
        frontier.granted(
            "later 7",
            Numbered {
                czxid: LATER + 1,
                ..writer(7)
            },
            true,
        );
        frontier.gone("7", Gone::Deleted);
        assert!(!frontier.decide_first(
            Numbered {
                czxid: LATER + 2,
                ..writer(8)
            },
            LATER
        ));
        frontier.gone("later 7", Gone::Deleted);
        assert!(frontier.decide_first(
            Numbered {
                czxid: LATER + 2,
                ..writer(8)
            },
            LATER
        ));
        // Nor does a node of the earlier one follow what is known of the later.
        assert!(!frontier.decide_first(writer(8), DIRECTORY));
    }

    #[test]
    fn readers_reported_unordered_lose_nothing() {
        let mut frontier = Frontier::default();
        frontier.granted("8", reader(8), true);
        frontier.granted("7", reader(7), true);
        assert!(frontier.decide_first(reader(9), DIRECTORY));
        // Another client's nodes came between.
        frontier.granted("12", reader(12), true);
        assert!(frontier.decide_first(reader(13), DIRECTORY));
    }

    #[test]
    fn three_uncontended_readers_quiet_a_path() {
        let mut frontier = Frontier::default();
        for (sequence, quiet) in [(0, false), (1, false), (2, true)] {
            assert_eq!(
                frontier.granted(&sequence.to_string(), reader(sequence), true),
                quiet
            );
            frontier.gone(&sequence.to_string(), Gone::Deleted);
        }
        assert!(frontier.expects(Kind::Shared));
        assert!(
            !frontier.granted("3", writer(3), true),
            "nothing is known of readers before them"
        );
    }

    // Shows: succession
    #[test]
    fn three_uncontended_grants_quiet_a_path() {
        let mut frontier = Frontier::default();
        for (sequence, quiet) in [(0, false), (1, false), (2, true), (3, true)] {
            assert_eq!(
                frontier.granted(&sequence.to_string(), writer(sequence), true),
                quiet
            );
            assert!(!frontier.expects(Kind::Exclusive), "while it is there");
            frontier.gone(&sequence.to_string(), Gone::Deleted);
            assert_eq!(frontier.expects(Kind::Exclusive), quiet);
            assert_eq!(frontier.expects(Kind::Shared), quiet);
        }
        assert!(frontier.decide_first(writer(4), DIRECTORY));
        assert!(frontier.expects(Kind::Exclusive));
        assert!(
            !frontier.decide_first(writer(5), DIRECTORY),
            "another was between"
        );
        assert!(!frontier.expects(Kind::Exclusive));
        assert!(!frontier.granted("5", writer(5), true));
        assert!(!frontier.granted("6", writer(6), true));
        assert!(frontier.granted("7", writer(7), true));
        assert!(!frontier.granted("9", writer(9), false), "it has waited");
    }

    // Shows: succession
    #[test]
    fn sent_deletion_lets_writer_expect_grant() {
        let mut frontier = after(&[writer(5), writer(6), writer(7)]);
        frontier.granted("8", writer(8), true);
        assert!(!frontier.expects(Kind::Exclusive), "while it is there");
        frontier.leaves("8");
        assert!(frontier.expects(Kind::Exclusive));
        assert!(
            !frontier.clone().decide_first(writer(9), DIRECTORY),
            "the deletion is not answered"
        );
        frontier.gone("8", Gone::Deleted);
        assert!(frontier.decide_first(writer(9), DIRECTORY));
    }

    // Shows: succession
    #[test]
    fn knowledge_belongs_to_its_session() {
        let mut known = SessionFrontier::default();
        *known.in_session(session_number(1)).unwrap() = after(&[writer(0), writer(1), writer(2)]);
        assert!(
            known
                .in_session(session_number(1))
                .unwrap()
                .expects(Kind::Exclusive)
        );
        assert!(known.in_session(session_number(0)).is_none());
        assert_eq!(
            known.in_session(session_number(2)),
            Some(&mut Frontier::default())
        );
        assert!(known.in_session(session_number(1)).is_none());
    }

    #[test]
    fn only_known_contenders_are_numbered() {
        let naming = Naming {
            family: Family::Exclusive,
            dialect: Dialect::Curator,
        };
        let of = |name, czxid| Numbered::of(name, czxid, naming);
        assert_eq!(of("_c_id-lock-0000000007", Some(108)), Some(writer(7)));
        assert_eq!(of("_c_id-lock-0000000007", None), None);
        assert_eq!(of("a note", Some(108)), None);
    }

    #[test]
    fn recurring_stranger_prevents_expectation() {
        let mut frontier = Frontier::default();
        for sequence in [0, 2, 4, 6, 8] {
            frontier.granted(&sequence.to_string(), writer(sequence), true);
            frontier.gone(&sequence.to_string(), Gone::Deleted);
            assert!(!frontier.expects(Kind::Exclusive), "{sequence}");
        }
    }

    #[test]
    fn memory_of_holders_is_bounded() {
        let mut frontier = Frontier::default();
        for sequence in 0..1000 {
            frontier.granted(&sequence.to_string(), reader(sequence), true);
        }
        assert_eq!(frontier.holders.len(), MOST_HOLDERS);
    }
}
