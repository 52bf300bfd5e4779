//! The holds of one read node that readers of one client share. Pure.
//!
//! ```text
//!            a writer queues, or trouble            the last one leaves
//!      Open -----------------------------> Closed ----------------------> its node is deleted
//!       | |                                 | |
//!       | '--- the only one takes it out ---' '---> Taken: of one hold, shared no more
//!       |                                   |
//!       '--- the servers do not have it ----'-----> Gone: all readers inside are notified
//! ```
//! A node is *open* while further readers may share it: for a moment after its grant, or, if it is kept, while no
//! writer queues, as far as a watch tells. A node that is kept has an *anchor*, a hold that no caller has, so that it
//! stays when no reader is inside. Any other goes with its last reader (docs/protocol.md#kept-read-node).
//!
//! This is the only record of who is inside a node, and of its end. A hold leaves it once, by the event that
//! ends the hold's use of the node.

use std::collections::BTreeMap;

/// The holds of one read node, by their numbers.
#[derive(Debug)]
pub(crate) struct Readers<H> {
    /// Its readers, and its anchor while it is kept.
    inside: BTreeMap<u64, H>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Further readers may share it. It is kept if it has an anchor.
    Open { anchor: Option<u64> },
    /// None joins any more.
    Closed,
    /// It is not shared any more: one hold has it, which converts it or has it deleted.
    Taken,
    /// The servers have said that it does not exist.
    Gone,
}

/// The consequence of the end of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Nothing: its node is still another's, or gone, or the hold has left it before.
    Stays,
    /// It was the last of its node, which must be deleted.
    Last,
    /// It has the node for itself, and its end is the node's.
    NotShared,
}

impl<H> Readers<H> {
    /// Returns the node of a granted reader, which is closed.
    pub(crate) fn new(reader: u64, hold: H) -> Self {
        Self { inside: BTreeMap::from([(reader, hold)]), stage: Stage::Closed }
    }

    /// Opens a node whose reader was granted the lock just now, and which is kept if it has an anchor.
    pub(crate) fn open(&mut self, anchor: Option<(u64, H)>) {
        self.stage = Stage::Open { anchor: anchor.as_ref().map(|(number, _)| *number) };
        self.inside.extend(anchor);
    }

    /// Adds a reader, if the node is open. Returns whether it is.
    pub(crate) fn join(&mut self, reader: u64, hold: H) -> bool {
        if self.is_open() {
            self.inside.insert(reader, hold);
        }
        self.is_open()
    }

    /// Adds a reader that waited for the node together with the reader that was granted it and is still
    /// inside. Returns `false` if it is gone.
    pub(crate) fn admit(&mut self, reader: u64, hold: H) -> bool {
        let is_there = !self.inside.is_empty();
        if is_there {
            self.inside.insert(reader, hold);
        }
        is_there
    }

    /// Removes a hold, which ends.
    pub(crate) fn leave(&mut self, hold: u64) -> Leaving {
        if self.stage == Stage::Taken {
            return Leaving::NotShared;
        }
        if self.is_anchor(hold) {
            self.stage = Stage::Closed;
        }
        // A reader that has left already does not take the node from the readers inside.
        match self.inside.remove(&hold) {
            Some(_) if self.inside.is_empty() => {
                self.stage = Stage::Closed;
                Leaving::Last
            }
            _ => Leaving::Stays,
        }
    }

    /// Closes the node, if it is open: no reader joins it any more, and the anchor, if there is one, has left it.
    /// Returns whether no reader is inside: then the anchor has the node for itself.
    ///
    /// At once, and not when the anchor is released: a reader that is alone by then may have taken the node out,
    /// which is not to be deleted.
    pub(crate) fn close(&mut self) -> bool {
        let Stage::Open { anchor } = self.stage else { return false };
        self.stage = Stage::Closed;
        let is_last = anchor.is_some_and(|anchor| self.leave(anchor) == Leaving::Last);
        if is_last {
            self.stage = Stage::Taken;
        }
        is_last
    }

    /// Takes the node out of the shared ones, if this reader is its only one. Returns `false` if others share it.
    /// A reader that has left already takes nothing.
    pub(crate) fn take_out(&mut self, reader: u64) -> bool {
        let others = self.inside.keys().filter(|hold| **hold != reader && !self.is_anchor(**hold)).count();
        if others > 0 {
            return false;
        }
        if self.inside.contains_key(&reader) {
            self.inside.clear();
            self.stage = Stage::Taken;
        }
        true
    }

    /// Records that the servers have said that the node does not exist. Returns all readers inside, which the
    /// caller must notify; none if this was known. From here on none joins.
    pub(crate) fn gone(&mut self) -> Vec<H> {
        // A hold that has taken the node out notices its end by itself.
        if self.stage == Stage::Taken {
            return Vec::new();
        }
        self.stage = Stage::Gone;
        std::mem::take(&mut self.inside).into_values().collect()
    }

    /// Returns whether the servers have said that the node does not exist.
    pub(crate) fn is_gone(&self) -> bool {
        self.stage == Stage::Gone
    }

    /// Returns whether further readers may share the node.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open { .. })
    }

    /// Returns whether this hold is the anchor of the node.
    pub(crate) fn is_anchor(&self, hold: u64) -> bool {
        self.stage == (Stage::Open { anchor: Some(hold) })
    }

    /// Returns whether a reader is inside.
    pub(crate) fn is_in_use(&self) -> bool {
        self.inside.len() > usize::from(matches!(self.stage, Stage::Open { anchor: Some(_) }))
    }

    /// Returns a hold that is inside.
    pub(crate) fn any(&self) -> Option<&H> {
        self.inside.values().next()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Joins,
        /// One that waited with the first.
        Admitted,
        /// The hold with this index ends; a second time, if its end is noticed by two.
        Leaves(usize),
        Closes,
        /// The reader with this index converts the node; also one that has ended, before it finds that out.
        TakesOut(usize),
        Gone,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => Just(Event::Joins),
            1 => Just(Event::Admitted),
            4 => (0..6_usize).prop_map(Event::Leaves),
            1 => Just(Event::Closes),
            1 => (0..6_usize).prop_map(Event::TakesOut),
            1 => Just(Event::Gone),
        ]
    }

    proptest! {
        /// A node is deleted once, after its last reader and its anchor, or by the one that has it alone; never under
        /// a reader, also if one leaves twice. No reader joins a closed one, and all that are inside are told of its
        /// end.
        // Shows: kept-read-node
        #[test]
        fn a_shared_read_node_goes_once_and_with_its_last_hold(
            opens in any::<bool>(),
            is_kept in any::<bool>(),
            events in proptest::collection::vec(event(), 0..60),
        ) {
            const ANCHOR: u64 = 2;
            let mut readers = Readers::new(1, 1);
            // Those that are inside, and all that ever were.
            let (mut inside, mut all) = (BTreeSet::from([1]), vec![1]);
            let is_kept = opens && is_kept;
            if opens {
                readers.open(is_kept.then_some((ANCHOR, ANCHOR)));
            }
            if is_kept {
                inside.insert(ANCHOR);
                all.push(ANCHOR);
            }
            let (mut open, mut taken_by, mut is_gone, mut deletions) = (opens, None, false, 0);
            for (next, event) in (ANCHOR + 1..).zip(events) {
                match event {
                    Event::Joins => {
                        prop_assert_eq!(readers.join(next, next), open);
                        if open {
                            inside.insert(next);
                            all.push(next);
                        }
                    }
                    Event::Admitted => {
                        let is_there = !inside.is_empty();
                        prop_assert_eq!(readers.admit(next, next), is_there);
                        if is_there {
                            inside.insert(next);
                            all.push(next);
                        }
                    }
                    Event::Leaves(index) => if let Some(&hold) = all.get(index) {
                        // Its first end is in `inside`, and any further is not.
                        let was_inside = inside.remove(&hold);
                        if hold == ANCHOR || was_inside && inside.is_empty() {
                            open = false;
                        }
                        let left = readers.leave(hold);
                        let expected = match taken_by {
                            Some(_) => Leaving::NotShared,
                            None if was_inside && inside.is_empty() => Leaving::Last,
                            None => Leaving::Stays,
                        };
                        prop_assert_eq!(left, expected);
                        if left == Leaving::Last {
                            prop_assert!(!is_gone);
                            deletions += 1;
                        }
                    },
                    Event::Closes => {
                        let was_open = std::mem::replace(&mut open, false);
                        let is_last = was_open && is_kept && inside.remove(&ANCHOR) && inside.is_empty();
                        prop_assert_eq!(readers.close(), is_last);
                        if is_last {
                            taken_by = Some(ANCHOR);
                        }
                    }
                    Event::TakesOut(index) => {
                        let reader = all.iter().filter(|hold| **hold != ANCHOR).nth(index).copied();
                        if let Some(reader) = reader {
                            let is_alone = inside.iter().all(|hold| *hold == reader || *hold == ANCHOR);
                            prop_assert_eq!(readers.take_out(reader), is_alone);
                            if is_alone && inside.contains(&reader) {
                                inside.clear();
                                (open, taken_by) = (false, Some(reader));
                            }
                        }
                    }
                    Event::Gone => {
                        let told: BTreeSet<_> = readers.gone().into_iter().collect();
                        prop_assert_eq!(&told, &inside, "one is not told");
                        inside.clear();
                        open = false;
                        is_gone |= taken_by.is_none();
                    }
                }
                prop_assert!(deletions <= 1);
                prop_assert!(deletions == 0 || inside.is_empty(), "deleted under a reader");
                prop_assert_eq!((readers.is_open(), readers.is_gone()), (open, is_gone));
                prop_assert_eq!(readers.is_anchor(ANCHOR), open && is_kept);
                prop_assert_eq!(readers.any().is_some(), !inside.is_empty());
                prop_assert_eq!(readers.is_in_use(), inside.iter().any(|hold| *hold != ANCHOR || !open));
            }
        }
    }
}
