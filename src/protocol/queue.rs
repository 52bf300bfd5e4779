//! The order of a lock directory's contenders: which of them is first, and which one each of the
//! others waits for.
//! Pure.
//!
//! A list of the directory is read once, into a [`Queue`]: children that are not contenders are set
//! apart, and the contenders are sorted by their sequence numbers
//! (docs/protocol.md#sequence-order). [`Queue::position`] then decides:
//! - A writer, and each contender of a mutex, waits for the contender right before it.
//! - A reader waits for the last writer before it, if there is one.
//! - A contender that waits for none is first: it may hold the lock.
//!
//! ```text
//!   number          31      32      33      34      35
//!   contender     reader  reader  writer  reader  reader
//!   waits for        -       -      32      33      33
//! ```
//! The numbers are the directory's count of creates, in 32 bits. Once a node has the largest,
//! ZooKeeper 3.8.0 refuses further sequential creates, but those that were already on their way get
//! negative numbers. A Java client, which sorts the names as text, would then take each newcomer
//! for the first, and the Go client drops the sign. So a directory with a negative number is
//! refused.
//!
//! Two numbers are equal only after a downgrade by Curator, which creates a read node with the
//! number of the write node while that still exists. The reader is then before the writer. A server
//! never gives equal numbers. If contenders of one kind have them, the names decide, so that all
//! clients of this library agree.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::protocol::node_name::{Child, Kind, Naming, classify};

/// The queue that one list of a lock directory shows, or why the directory is unusable.
pub(crate) type Listing = Result<Arc<Queue>, Unusable>;

/// The contenders that one list of a lock directory shows, in order.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Queue {
    naming: Naming,
    contenders: Vec<QueueEntry>,
    /// The first contender of another order, and its number.
    other_order: Option<(i32, String)>,
    pub(crate) foreign_children: Vec<String>,
    /// The contenders of this client that were to be deleted when the list arrived. By the time
    /// that an attempt reads the list, one may be gone, and then only this set shows that it was to
    /// be deleted.
    leaving: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct QueueEntry {
    sequence: i32,
    kind: Kind,
    name: String,
    /// The index of the nearest writer before it.
    writer_before: Option<usize>,
}

/// Why a contender cannot queue in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Unusable {
    /// This node queues in another order, so both contenders would be granted the lock.
    OtherOrder(String),
    /// The sequence numbers have wrapped.
    Exhausted,
}

/// The position of a node in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position<'a> {
    /// No node before it blocks it.
    First,
    /// The node must wait; `predecessor` is the nearest node that it waits for.
    Behind { predecessor: &'a str },
}

impl Queue {
    /// Orders the children of a lock directory, of which none is to be deleted.
    #[cfg(test)]
    pub(crate) fn read(children: Vec<String>, naming: Naming) -> Listing {
        Self::read_with(children, naming, BTreeSet::new())
    }

    /// Orders the children of a lock directory, of which `leaving` are to be deleted.
    pub(crate) fn read_with(
        children: Vec<String>,
        naming: Naming,
        leaving: BTreeSet<String>,
    ) -> Listing {
        let mut contenders = Vec::with_capacity(children.len());
        let mut foreign_children = Vec::new();
        let mut other_order: Option<(i32, String)> = None;
        for name in children {
            match classify(&name, naming) {
                // One negative number is enough, of any recipe: all children of the directory have
                // their numbers from the same count.
                Child::Contender { sequence, .. } | Child::OtherOrder { sequence }
                    if sequence < 0 =>
                {
                    return Err(Unusable::Exhausted);
                }
                Child::Contender { sequence, kind } => {
                    contenders.push(QueueEntry {
                        sequence,
                        kind,
                        name,
                        writer_before: None,
                    });
                }
                Child::OtherOrder { sequence } => {
                    // The lowest number decides, because a waiter is refused only for a contender
                    // that is before it.
                    other_order = other_order.into_iter().chain([(sequence, name)]).min();
                }
                Child::Foreign => foreign_children.push(name),
            }
        }
        // The servers list children in no particular order. `rank` searches by the same key.
        contenders.sort_unstable_by(|a, b| a.key().cmp(&b.key()));
        // One pass finds the last writer before each contender. A search for each reader would take
        // quadratic time, and a list may have thousands of contenders.
        let mut writer = None;
        for (i, contender) in contenders.iter_mut().enumerate() {
            contender.writer_before = writer;
            if contender.kind == Kind::Exclusive {
                writer = Some(i);
            }
        }
        Ok(Arc::new(Self {
            naming,
            contenders,
            other_order,
            foreign_children,
            leaving,
        }))
    }

    /// Returns whether a contender of this client was to be deleted when the list arrived, and so
    /// is not a live contender.
    pub(crate) fn is_leaving(&self, name: &str) -> bool {
        self.leaving.contains(name)
    }

    /// Returns an error if any contender queues in another order: newcomers and looks at the queue
    /// are refused then.
    pub(crate) fn usable(&self) -> Result<(), Unusable> {
        // No number is larger: a newcomer is behind each contender of the list.
        self.usable_before(i32::MAX)
    }

    /// Returns an error if a contender of another order is before the node `name`. A later one ends
    /// no wait: it must wait itself, or is refused (docs/protocol.md#mixed-recipes).
    pub(crate) fn usable_by(&self, name: &str) -> Result<(), Unusable> {
        match classify(name, self.naming) {
            Child::Contender { sequence, .. } => self.usable_before(sequence),
            // A name without a place in this order is treated as a newcomer.
            Child::OtherOrder { .. } | Child::Foreign => self.usable(),
        }
    }

    fn usable_before(&self, sequence: i32) -> Result<(), Unusable> {
        match &self.other_order {
            // A server gives each number once, so with an equal number one of the two nodes was not
            // numbered by the server, and either may be the first.
            Some((number, name)) if *number <= sequence => Err(Unusable::OtherOrder(name.clone())),
            _ => Ok(()),
        }
    }

    /// Returns how many contenders of any kind are before the node `name`. `None` if the list does
    /// not show it.
    pub(crate) fn rank(&self, name: &str) -> Option<usize> {
        let Child::Contender { sequence, kind } = classify(name, self.naming) else {
            return None;
        };
        // The name contains the whole key, so no index by names is needed.
        self.contenders
            .binary_search_by(|contender| contender.key().cmp(&(sequence, kind, name)))
            .ok()
    }

    /// Returns the position of the node `name`. `None` if the list does not show it, which does not
    /// prove that it does not exist.
    pub(crate) fn position(&self, name: &str) -> Option<Position<'_>> {
        let rank = self.rank(name)?;
        let own = self.contenders.get(rank)?;
        let predecessor = match own.kind {
            // Each contender before this one excludes it, but waiting for the nearest is enough:
            // when that one is gone, the next list shows the others that are left.
            Kind::Exclusive => rank.checked_sub(1),
            // Readers do not exclude each other, so those in between are skipped.
            Kind::Shared => own.writer_before,
        };
        let Some(predecessor) = predecessor.and_then(|i| self.contenders.get(i)) else {
            return Some(Position::First);
        };
        Some(Position::Behind {
            predecessor: &predecessor.name,
        })
    }

    /// Returns the contenders before the node `name`, the nearest first.
    pub(crate) fn before(&self, name: &str) -> impl Iterator<Item = &str> {
        // Nothing is known to be before a node that the list does not show.
        let rank = self.rank(name).unwrap_or_default();
        self.contenders
            .iter()
            .take(rank)
            .rev()
            .map(|contender| &*contender.name)
    }

    /// Returns how many contenders the node `name` must wait for, and their names in order. Without
    /// a name, or if the list does not show it, returns those of a newcomer of this kind.
    pub(crate) fn in_the_way(
        &self,
        name: Option<&str>,
        kind: Kind,
    ) -> (usize, impl Iterator<Item = &str>) {
        // A newcomer would be behind all that the list shows.
        let rank = name
            .and_then(|name| self.rank(name))
            .unwrap_or(self.contenders.len());
        let before = self.contenders.iter().take(rank);
        let waited_for = move |contender: &&QueueEntry| {
            kind == Kind::Exclusive || contender.kind == Kind::Exclusive
        };
        let count = match kind {
            // All contenders before a writer are in its way, so none need be looked at.
            Kind::Exclusive => rank,
            Kind::Shared => before.clone().filter(waited_for).count(),
        };
        (
            count,
            before.filter(waited_for).map(|contender| &*contender.name),
        )
    }

    /// Returns how many of [those](Self::in_the_way) were to be deleted when the list arrived.
    pub(crate) fn leaving_in_the_way(&self, name: Option<&str>, kind: Kind) -> usize {
        let own = name.and_then(|name| self.rank(name));
        // Few contenders are leaving, and thousands may be listed, so each leaving one is looked up
        // by its name. A name that the list does not show has no rank.
        let leaving = self.leaving.iter().filter_map(|name| self.rank(name));
        leaving
            .filter(|rank| own.is_none_or(|own| *rank < own))
            .filter_map(|rank| self.contenders.get(rank))
            .filter(|other| kind == Kind::Exclusive || other.kind == Kind::Exclusive)
            .count()
    }

    /// Returns the name of the contender that begins with `beginning`.
    pub(crate) fn find(&self, beginning: &str) -> Option<&str> {
        self.contenders
            .iter()
            .map(|contender| &*contender.name)
            .find(|name| name.starts_with(beginning))
    }

    /// Returns the contenders of one kind, or of all, in order.
    pub(crate) fn in_order(&self, kind: Option<Kind>) -> impl Iterator<Item = &str> {
        let wanted = move |contender: &&QueueEntry| kind.is_none_or(|kind| contender.kind == kind);
        self.contenders
            .iter()
            .filter(wanted)
            .map(|contender| &*contender.name)
    }
}

impl Queue {
    /// Returns all contenders with their kinds, in order.
    pub(crate) fn contenders(&self) -> impl Iterator<Item = (&str, Kind)> {
        self.contenders
            .iter()
            .map(|contender| (&*contender.name, contender.kind))
    }

    /// Returns the contenders that hold the lock, or are about to: the readers at the head of the
    /// queue or, if a writer is first, that writer.
    pub(crate) fn holders(&self) -> impl Iterator<Item = (&str, Kind)> {
        // A writer that is first holds the lock alone.
        let readers = self
            .contenders()
            .take_while(|(_, kind)| *kind == Kind::Shared)
            .count();
        self.contenders().take(readers.max(1))
    }
}

impl QueueEntry {
    /// The order of contenders: by number, then a reader before a writer, then by name.
    fn key(&self) -> (i32, Kind, &str) {
        (self.sequence, self.kind, &self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::node_name::{Dialect, Family};
    use proptest::prelude::*;

    const MUTEX: Naming = Naming {
        family: Family::Exclusive,
        dialect: Dialect::Curator,
    };
    const READ_WRITE: Naming = Naming {
        family: Family::ReadWrite,
        dialect: Dialect::Curator,
    };

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    fn read(list: &[&str], naming: Naming) -> Arc<Queue> {
        Queue::read(names(list), naming).unwrap()
    }

    fn behind(predecessor: &str) -> Option<Position<'_>> {
        Some(Position::Behind { predecessor })
    }

    // Shows: sequence-order
    #[test]
    fn lowest_number_is_first() {
        let queue = read(
            &[
                "zz-lock-0000000003",
                "aa-lock-0000000010",
                "mm-lock-0000000007",
                "foreign",
            ],
            MUTEX,
        );
        assert_eq!(queue.position("zz-lock-0000000003"), Some(Position::First));
        assert_eq!(
            queue.position("mm-lock-0000000007"),
            behind("zz-lock-0000000003")
        );
        assert_eq!(
            queue.position("aa-lock-0000000010"),
            behind("mm-lock-0000000007")
        );
        assert_eq!(
            queue.position("xx-lock-0000000011"),
            None,
            "a list without our node says nothing"
        );
        assert_eq!(queue.position("foreign"), None);
        assert_eq!(queue.foreign_children, ["foreign"]);
        let order = [
            "zz-lock-0000000003",
            "mm-lock-0000000007",
            "aa-lock-0000000010",
        ];
        assert!(queue.in_order(None).eq(order));
        assert_eq!(queue.rank("aa-lock-0000000010"), Some(2));
        assert_eq!(queue.find("mm-"), Some("mm-lock-0000000007"));
    }

    // Shows: identity
    #[test]
    fn leading_readers_hold_together() {
        let holders = |list: &[&str]| -> Vec<String> {
            read(list, READ_WRITE)
                .holders()
                .map(|(name, _)| name.to_owned())
                .collect()
        };
        let (r1, r2, w3, r4) = (
            "a__READ__0000000001",
            "b__READ__0000000002",
            "c__WRIT__0000000003",
            "d__READ__0000000004",
        );
        assert_eq!(holders(&[]), [""; 0]);
        assert_eq!(holders(&[w3, r4]), [w3]);
        assert_eq!(holders(&[r4, w3, r2, r1]), [r1, r2]);
        assert_eq!(holders(&[r4, r1]), [r1, r4]);
        let queue = read(&["b-lock-0000000002", "a-lock-0000000001"], MUTEX);
        assert!(queue.holders().eq([("a-lock-0000000001", Kind::Exclusive)]));
        assert_eq!(queue.contenders().count(), 2);
    }

    // Shows: sequence-order
    #[test]
    fn equal_numbers_are_ordered_by_name() {
        let queue = read(
            &[
                "b-lock-0000000001",
                "a-lock-0000000001",
                "c-lock-0000000001",
            ],
            MUTEX,
        );
        assert_eq!(queue.position("a-lock-0000000001"), Some(Position::First));
        assert_eq!(
            queue.position("c-lock-0000000001"),
            behind("b-lock-0000000001")
        );
        let others = read(&["b-__WRIT__0000000001", "a-__WRIT__0000000001"], MUTEX);
        assert_eq!(
            others.usable(),
            Err(Unusable::OtherOrder("a-__WRIT__0000000001".to_owned()))
        );
    }

    #[test]
    fn numbers_begin_with_zero() {
        let queue = read(&["b-lock-0000000001", "a-lock-0000000000"], MUTEX);
        assert_eq!(queue.position("a-lock-0000000000"), Some(Position::First));
        let other = read(&["a-__WRIT__0000000000"], MUTEX);
        assert_eq!(
            other.usable(),
            Err(Unusable::OtherOrder("a-__WRIT__0000000000".to_owned()))
        );
    }

    #[test]
    fn rejects_unusable_directories() {
        for wrapped in ["b-lock--2147483648", "b-__WRIT__-2147483648"] {
            let list = names(&["a-lock-2147483647", wrapped]);
            assert_eq!(Queue::read(list, MUTEX).unwrap_err(), Unusable::Exhausted);
        }
    }

    #[test]
    fn other_orders_block_those_behind() {
        let (first, later) = ("b-__WRIT__0000000002", "a-__READ__0000000005");
        let queue = read(
            &[
                "a-lock-0000000001",
                later,
                "b-lock-0000000002",
                first,
                "c-lock-0000000003",
            ],
            MUTEX,
        );
        let refused = Err(Unusable::OtherOrder(first.to_owned()));
        assert_eq!(queue.usable(), refused, "to newcomers");
        assert_eq!(queue.usable_by("a-lock-0000000001"), Ok(()));
        assert_eq!(
            queue.usable_by("b-lock-0000000002"),
            refused,
            "an equal number is not one that the server gave to both"
        );
        assert_eq!(queue.usable_by("c-lock-0000000003"), refused);
        assert_eq!(
            read(&["a-lock-0000000001", "foreign"], MUTEX).usable(),
            Ok(())
        );
    }

    // Shows: read-write
    #[test]
    fn readers_await_writers_writers_await_all() {
        let list = [
            "r-__READ__1",
            "s-__READ__2",
            "w-__WRIT__3",
            "t-__READ__4",
            "u-__READ__5",
            "x-__WRIT__6",
        ];
        let list = list.map(|name| {
            let (name, sequence) = name.split_at(name.len() - 1);
            format!("{name}000000000{sequence}")
        });
        let [r, s, w, t, u, x] = &list;
        let queue = Queue::read(list.to_vec(), READ_WRITE).unwrap();
        assert_eq!(queue.position(r), Some(Position::First));
        assert_eq!(queue.position(s), Some(Position::First));
        assert_eq!(queue.position(w), behind(s));
        assert_eq!(queue.position(t), behind(w));
        assert_eq!(queue.position(u), behind(w));
        assert_eq!(queue.position(x), behind(u));
        assert!(queue.in_order(Some(Kind::Exclusive)).eq([w.as_str(), x]));
        assert!(queue.in_the_way(None, Kind::Shared).1.eq([w.as_str(), x]));
        assert!(
            queue
                .in_the_way(Some(x), Kind::Exclusive)
                .1
                .eq(queue.in_order(None).take(5))
        );
        assert_eq!(
            (
                queue.in_the_way(Some(x), Kind::Exclusive).0,
                queue.in_the_way(Some(u), Kind::Shared).0
            ),
            (5, 1)
        );
        let readers = Queue::read(vec![r.clone()], READ_WRITE).unwrap();
        assert_eq!(readers.in_the_way(None, Kind::Shared).0, 0);
        assert_eq!(readers.in_the_way(None, Kind::Exclusive).0, 1);
        let gone = "v-__WRIT__0000000007".to_owned();
        let leaving = [r.clone(), w.clone(), x.clone(), gone].into();
        let queue = Queue::read_with(list.to_vec(), READ_WRITE, leaving).unwrap();
        let leaving = |name, kind| queue.leaving_in_the_way(name, kind);
        assert_eq!(leaving(None, Kind::Exclusive), 3);
        assert_eq!(leaving(None, Kind::Shared), 2);
        assert_eq!(leaving(Some(u), Kind::Exclusive), 2);
        assert_eq!(leaving(Some(u), Kind::Shared), 1);
        assert_eq!(leaving(Some(x), Kind::Exclusive), 2);
        assert!(queue.is_leaving(w) && !queue.is_leaving(u));
    }

    /// Curator's own predicate, modelled on its `LockInternalsSorter` and drivers: the key is
    /// what follows the marker, sorted as text, equal keys in the order of the list. Every child
    /// counts.
    mod curator {
        pub(super) fn sorted<'a>(children: &'a [String], markers: &[&str]) -> Vec<&'a str> {
            let key = |name: &'a str| {
                let after = |name: &'a str, marker: &&str| {
                    name.rfind(*marker).map(|at| &name[at + marker.len()..])
                };
                markers
                    .iter()
                    .fold(name, |name, marker| after(name, marker).unwrap_or(name))
            };
            let mut sorted: Vec<&str> = children.iter().map(String::as_str).collect();
            sorted.sort_by_key(|name| key(name));
            sorted
        }

        pub(super) fn mutex_holds(children: &[String], own: &str) -> bool {
            sorted(children, &["lock-"]).first() == Some(&own)
        }

        pub(super) fn write_holds(children: &[String], own: &str) -> bool {
            sorted(children, &["__READ__", "__WRIT__"]).first() == Some(&own)
        }

        pub(super) fn read_holds(children: &[String], own: &str) -> bool {
            let sorted = sorted(children, &["__READ__", "__WRIT__"]);
            !sorted
                .iter()
                .take_while(|name| **name != own)
                .any(|name| name.contains("__WRIT__"))
        }
    }

    /// Numbers near each other, near the wrap, and anywhere.
    fn sequence() -> impl Strategy<Value = i32> {
        prop_oneof![6 => 0..12_i32, 1 => (i32::MAX - 3)..=i32::MAX, 1 => i32::MIN..(i32::MIN + 3), 1 => any::<i32>()]
    }

    /// Names of all sorts: ours, Curator's, Go's, those of other orders, foreign ones, equal
    /// numbers.
    fn any_name(markers: &'static [&'static str]) -> impl Strategy<Value = String> {
        let head = prop_oneof![
            Just("_c_5f3b2a10-8c1d-4f6e-9a7b-0123456789ab-"),
            Just("_c_5f3b2a108c1d4f6e9a7b0123456789ab-"),
            Just("")
        ];
        let kind = prop_oneof![8 => proptest::sample::select(markers), 1 => Just("zzz")];
        (head, "[a-c]", kind, sequence())
            .prop_map(|(head, unique, kind, n)| format!("{head}{unique}{kind}{n:010}"))
    }

    fn holds(queue: &Queue, name: &str) -> bool {
        queue.position(name) == Some(Position::First)
    }

    fn check(children: Vec<String>, naming: Naming) {
        let other_order = children
            .iter()
            .filter_map(|name| match classify(name, naming) {
                Child::OtherOrder { sequence } => Some(sequence),
                _ => None,
            });
        let other_order = other_order.min();
        let Ok(queue) = Queue::read(children, naming) else {
            return;
        };
        assert_eq!(queue.usable().is_err(), other_order.is_some());
        for contender in &queue.contenders {
            let refused = queue.usable_by(&contender.name).is_err();
            assert_eq!(
                refused,
                other_order.is_some_and(|first| first <= contender.sequence),
                "{queue:?}"
            );
        }
        let holders = |kind| {
            queue
                .in_order(Some(kind))
                .filter(|name| holds(&queue, name))
                .count()
        };
        let (readers, writers) = (holders(Kind::Shared), holders(Kind::Exclusive));
        assert!(writers <= 1, "{writers} writers hold the lock: {queue:?}");
        assert!(
            writers == 0 || readers == 0,
            "a writer beside {readers} readers: {queue:?}"
        );
        if let Some(first) = queue.in_order(None).next() {
            assert!(
                holds(&queue, first),
                "no contender holds the lock: {queue:?}"
            );
        }
        for name in queue.in_order(None) {
            if let Some(Position::Behind { predecessor, .. }) = queue.position(name) {
                assert!(queue.rank(predecessor) < queue.rank(name));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

        /// At most one exclusive contender holds the lock, whatever the names are, and then no
        /// reader does. There always is a holder, and every other contender waits for one that
        /// exists and is before it.
        // Shows: grant
        #[test]
        fn two_holders_never_coexist(
            mutexes in prop::collection::hash_set(any_name(&["lock-"]), 1..10),
            others in prop::collection::hash_set(any_name(&["__READ__", "__WRIT__"]), 1..10),
            mixed in prop::collection::hash_set(any_name(&["__READ__", "__WRIT__", "lock-", "__lock__", "__rlock__"]), 1..10),
        ) {
            check(mutexes.into_iter().collect(), MUTEX);
            check(others.into_iter().collect(), READ_WRITE);
            for dialect in [Dialect::Curator, Dialect::Kazoo] {
                for family in [Family::Exclusive, Family::ReadWrite] {
                    check(mixed.iter().cloned().collect(), Naming { family, dialect });
                }
            }
        }

        /// With the server's distinct numbers and nothing but contenders, the holders are those of
        /// Curator's own rule and no others. (With equal numbers Curator goes by the order of the
        /// list; with wrapped numbers, or foreign children, it is wrong or stuck.)
        // Shows: grant
        #[test]
        fn agrees_with_curators_predicate(
            numbers in prop::collection::btree_set(0..1_000_000_i32, 1..20),
            kinds in prop::collection::vec(any::<bool>(), 20),
            rotate in 0..20_usize,
        ) {
            let make = |marker: &dyn Fn(usize) -> &'static str| {
                let mut list: Vec<String> = numbers
                    .iter()
                    .enumerate()
                    .map(|(i, n)| format!("_c_{}-{}{n:010}", (i * 7) % 10, marker(i)))
                    .collect();
                let by = rotate % list.len();
                list.rotate_left(by);
                list
            };
            let list = make(&|_| "lock-");
            let queue = Queue::read(list.clone(), MUTEX).unwrap();
            prop_assert!(queue.in_order(None).eq(curator::sorted(&list, &["lock-"])));
            for name in &list {
                prop_assert_eq!(holds(&queue, name), curator::mutex_holds(&list, name));
            }
            let list = make(&|i| if kinds[i] { "__READ__" } else { "__WRIT__" });
            let queue = Queue::read(list.clone(), READ_WRITE).unwrap();
            for name in &list {
                let theirs =
                    if name.contains("__READ__") { curator::read_holds(&list, name) } else { curator::write_holds(&list, name) };
                prop_assert_eq!(holds(&queue, name), theirs, "{}", name);
            }
        }

        /// A downgraded node has the number of the write node that it replaced, and so keeps all
        /// later writers out, here and by Curator's rule, wherever it is in the list.
        #[test]
        fn downgraded_reader_keeps_its_place(later in prop::collection::btree_set(6..100_i32, 1..10), at in 0..10_usize) {
            let mut list: Vec<String> = later.iter().map(|n| format!("_c_w-__WRIT__{n:010}")).collect();
            let own = "_c_a-__READ__0000000005";
            list.insert(at % (list.len() + 1), own.to_owned());
            let queue = Queue::read(list.clone(), READ_WRITE).unwrap();
            prop_assert!(holds(&queue, own) && curator::read_holds(&list, own));
            for name in list.iter().filter(|name| name.as_str() != own) {
                prop_assert!(!holds(&queue, name) && !curator::write_holds(&list, name));
            }
        }
    }
}
