//! Creates of one session whose attempts ended before the outcome was known, and whose nodes
//! cleanup did not find.
//!
//! A server may still carry out such a create. The node would block the lock until the session
//! ends, because no other part of the client knows it. So each list of the directory is searched
//! for the ids of these creates, and the nodes that are found are deleted
//! (docs/protocol.md#write-barrier).
//!
//! Cleanup does not find a node if the servers refuse the requests of cleanup. Otherwise the create
//! can be carried out late only if a server keeps its request back until after the write behind
//! which cleanup lists. ZooKeeper does not, because it processes the requests of a session in
//! order. But an entry costs little, and a forgotten node would cost the lock.
//!
//! Creates that cleanup has not looked for yet are in [`creates`](super::creates), which limits
//! their number and so never forgets one. The creates in this table have no other limit, so when
//! the table is full, the oldest create is forgotten.

use std::collections::{HashSet, VecDeque};

use crate::protocol::node_name::id;
use crate::session::threads::mutex::Mutex;
use crate::values::path::LockPath;

/// How many such creates a session remembers. They are rare (the reply was lost, and the attempt
/// has ended), so the limit only keeps a faulty server from filling the memory.
const MAX_UNKNOWN_CREATES: usize = 16_384;

/// The creates of one session whose outcome is unknown. If a later list of the directory shows the
/// node of such a create, the node is deleted (docs/protocol.md#write-barrier). Each entry is the
/// server path of the directory and the id of the create; the oldest is first.
#[derive(Default)]
pub(crate) struct UnknownCreates(Mutex<VecDeque<(String, String)>>);

impl UnknownCreates {
    pub(crate) fn remember(&self, directory: &LockPath, id: &str) {
        let mut creates = self.0.lock();
        // The oldest create is the least likely one to be carried out after all this time.
        if creates.len() == MAX_UNKNOWN_CREATES {
            creates.pop_front();
        }
        creates.push_back((directory.server().to_owned(), id.to_owned()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Returns the children of a directory that come from such creates, and forgets these creates.
    pub(crate) fn take_late<'a>(
        &self,
        directory: &LockPath,
        children: &'a [String],
    ) -> Vec<&'a str> {
        let mut creates = self.0.lock();
        let is_here = |(at, _): &&(String, String)| at == directory.server();
        let unknown: HashSet<&str> = creates
            .iter()
            .filter(is_here)
            .map(|(_, id)| &**id)
            .collect();
        if unknown.is_empty() {
            // Usually the directory has no such create, and the names of a long list are not looked
            // at.
            return Vec::new();
        }
        let is_late = |child: &&String| id(child).is_some_and(|id| unknown.contains(id));
        let late: Vec<&str> = children
            .iter()
            .filter(is_late)
            .map(String::as_str)
            .collect();
        let found: HashSet<&str> = late.iter().filter_map(|name| id(name)).collect();
        // A found create is settled: the caller passes its node to cleanup, which deletes the node.
        creates.retain(|create| !is_here(&create) || !found.contains(&*create.1));
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0a8a2e5c-7d5b-4c3a-9a51-0d6f0b0c1d2e";
    const B: &str = "1b8a2e5c-7d5b-4c3a-9a51-0d6f0b0c1d2e";

    /// docs/protocol.md#write-barrier
    #[test]
    fn node_of_unknown_create_is_found() {
        let path = |path| LockPath::parse("", path).unwrap();
        let children = [A, B].map(|id| format!("_c_{id}-lock-0000000001"));
        let creates = UnknownCreates::default();
        let late = |at: &LockPath| -> Vec<String> {
            creates
                .take_late(at, &children)
                .into_iter()
                .map(ToOwned::to_owned)
                .collect()
        };
        assert!(late(&path("/a")).is_empty() && creates.is_empty());
        creates.remember(&path("/a"), A);
        assert!(!creates.is_empty());
        assert!(late(&path("/b")).is_empty());
        assert_eq!(late(&path("/a")), children[..1]);
        assert!(late(&path("/a")).is_empty());
    }

    #[test]
    fn unlisted_node_is_found_later() {
        let directory = LockPath::parse("", "/a").unwrap();
        let children = [A, B].map(|id| format!("_c_{id}-lock-0000000001"));
        let creates = UnknownCreates::default();
        creates.remember(&directory, A);
        creates.remember(&directory, B);
        assert_eq!(
            creates.take_late(&directory, &children[..1]),
            [&*children[0]]
        );
        assert_eq!(creates.take_late(&directory, &children), [&*children[1]]);
    }

    #[test]
    fn oldest_of_too_many_is_forgotten() {
        let directory = LockPath::parse("", "/a").unwrap();
        let children = [A, B].map(|id| format!("_c_{id}-lock-0000000001"));
        let creates = UnknownCreates::default();
        creates.remember(&directory, A);
        creates.remember(&directory, B);
        for number in 2..MAX_UNKNOWN_CREATES {
            creates.remember(&directory, &number.to_string());
        }
        creates.remember(&directory, "one more");
        assert_eq!(creates.take_late(&directory, &children), [&*children[1]]);
    }
}
