//! Who is first, whom to watch, and who may change from reader to writer. Pure.
//!
//! Sequence numbers are the directory's count of creates, a 32-bit number that wraps after 2^31 of them. To a Java
//! peer, which sorts the names as text, every newcomer is first from then on, and Go drops the sign: so a directory
//! with a wrapped number is refused, and the order is the plain one of the numbers. Ties are only between nodes that
//! a conversion (downgrade, upgrade) gave the number of another: the reader is before the writer, then the names decide.

use std::sync::Arc;

use crate::protocol::node_name::{Child, Kind, Naming, classify, converts};

/// One listing of a lock directory, or why it cannot be queued in.
pub(crate) type Listing = Result<Arc<Queue>, Unusable>;

/// The contenders of one listing of a lock directory, in order.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Queue {
    naming: Naming,
    contenders: Vec<Contender>,
    /// The first of those that queue in another order, with its number.
    foreign: Option<(i32, String)>,
    foreign_children: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Contender {
    sequence: i32,
    kind: Kind,
    name: String,
    /// A conversion's write node: it came later than its number says.
    converted: bool,
    /// Where the nearest writer before it is.
    writer_before: Option<usize>,
}

/// Why a directory cannot be queued in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Unusable {
    /// This node queues in another order: it would be let in beside us.
    OtherOrder(String),
    /// The numbers have wrapped.
    Exhausted,
}

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position<'a> {
    /// Nobody whom it has to wait for is before it.
    First,
    /// It has to wait; this is the nearest node that it waits for.
    Behind { predecessor: &'a str },
}

/// Whether a reader that has put a write node beside its read node may be the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upgrade {
    /// Nobody else can be inside.
    Alone,
    /// Another reader may be inside.
    Contended,
    /// The list lacks one of the two nodes.
    Gone,
}

impl Queue {
    /// Reads the children of a lock directory.
    pub(crate) fn read(children: Vec<String>, naming: Naming) -> Listing {
        let mut contenders = Vec::with_capacity(children.len());
        let mut foreign_children = Vec::new();
        let mut foreign: Option<(i32, String)> = None;
        for name in children {
            match classify(&name, naming) {
                Child::Contender { sequence, .. } | Child::OtherOrder { sequence } if sequence < 0 => {
                    return Err(Unusable::Exhausted);
                }
                Child::Contender { sequence, kind } => {
                    let converted = converts(&name, naming).is_some();
                    contenders.push(Contender { sequence, kind, name, converted, writer_before: None });
                }
                Child::OtherOrder { sequence } => {
                    if foreign.as_ref().is_none_or(|(first, _)| sequence < *first) {
                        foreign = Some((sequence, name));
                    }
                }
                Child::Foreign => foreign_children.push(name),
            }
        }
        contenders.sort_unstable_by(|a, b| a.key().cmp(&b.key()));
        let mut writer = None;
        for (i, contender) in contenders.iter_mut().enumerate() {
            contender.writer_before = writer;
            if contender.kind == Kind::Exclusive {
                writer = Some(i);
            }
        }
        Ok(Arc::new(Self { naming, contenders, foreign, foreign_children }))
    }

    /// Whether the directory can be looked at, or joined, by one that is not in it: not while a contender there queues in
    /// another order.
    pub(crate) fn usable(&self) -> Result<(), Unusable> {
        self.usable_before(i32::MAX)
    }

    /// Whether the node `name` can queue in the directory: not behind one that queues in another order. One that came
    /// later ends no wait: it has to wait itself, or is refused.
    pub(crate) fn usable_by(&self, name: &str) -> Result<(), Unusable> {
        match classify(name, self.naming) {
            Child::Contender { sequence, .. } => self.usable_before(sequence),
            Child::OtherOrder { .. } | Child::Foreign => self.usable(),
        }
    }

    fn usable_before(&self, sequence: i32) -> Result<(), Unusable> {
        match &self.foreign {
            Some((number, name)) if *number <= sequence => Err(Unusable::OtherOrder(name.clone())),
            _ => Ok(()),
        }
    }

    /// Nodes that no lock recipe made.
    pub(crate) fn foreign_children(&self) -> &[String] {
        &self.foreign_children
    }

    /// How many contenders of any kind are before the node `name`; nothing if the list does not have it.
    pub(crate) fn rank(&self, name: &str) -> Option<usize> {
        let Child::Contender { sequence, kind } = classify(name, self.naming) else { return None };
        self.contenders.binary_search_by(|contender| contender.key().cmp(&(sequence, kind, name))).ok()
    }

    /// Where the node `name` stands; nothing if the list does not have it, which proves nothing.
    pub(crate) fn position(&self, name: &str) -> Option<Position<'_>> {
        let rank = self.rank(name)?;
        let own = self.contenders.get(rank)?;
        let predecessor = match own.kind {
            Kind::Exclusive => rank.checked_sub(1),
            Kind::Shared => own.writer_before,
        };
        let Some(predecessor) = predecessor.and_then(|i| self.contenders.get(i)) else {
            return Some(Position::First);
        };
        Some(Position::Behind { predecessor: &predecessor.name })
    }

    /// Whether the holder of the read node `read` may become the writer, now that its write node `write` is there too.
    ///
    /// From the moment that `write` existed, later readers wait behind it. One that was there before may be inside,
    /// unless a writer has been before it since it came: strictly, by its number. A conversion's write node is no such
    /// writer, since it came later than its number says; and whether its owner is inside by it, gives it up, or has left it
    /// behind because it could not delete it, does not show, with or without the read node (`upgrade_model.rs`).
    pub(crate) fn upgrade(&self, read: &str, write: &str) -> Upgrade {
        if self.rank(read).is_none() || self.rank(write).is_none() {
            return Upgrade::Gone;
        }
        let mut writer: Option<i32> = None;
        for other in self.contenders.iter().filter(|other| other.name != read && other.name != write) {
            match other.kind {
                Kind::Exclusive if other.converted => return Upgrade::Contended,
                // In order: the first has the lowest number.
                Kind::Exclusive => writer = writer.or(Some(other.sequence)),
                Kind::Shared if writer.is_some_and(|writer| writer < other.sequence) => {}
                Kind::Shared => return Upgrade::Contended,
            }
        }
        Upgrade::Alone
    }

    /// All but the two nodes of an upgrade, in order: where no other can be inside, those that wait.
    pub(crate) fn others<'a>(&'a self, read: &'a str, write: &'a str) -> impl Iterator<Item = &'a str> {
        let names = self.contenders.iter().map(|contender| &*contender.name);
        names.filter(move |name| *name != read && *name != write)
    }

    /// Those before the node `name`, the nearest first.
    pub(crate) fn before(&self, name: &str) -> impl Iterator<Item = &str> {
        let rank = self.rank(name).unwrap_or_default();
        self.contenders.iter().take(rank).rev().map(|contender| &*contender.name)
    }

    /// How many contenders the node `name` has to wait for, and their names in order; all of that kind's if it is a
    /// newcomer's (no name), or the list does not have it.
    pub(crate) fn in_the_way(&self, name: Option<&str>, kind: Kind) -> (usize, impl Iterator<Item = &str>) {
        let rank = name.and_then(|name| self.rank(name)).unwrap_or(self.contenders.len());
        let before = self.contenders.iter().take(rank);
        let waited_for =
            move |contender: &&Contender| kind == Kind::Exclusive || contender.kind == Kind::Exclusive;
        let count = match kind {
            Kind::Exclusive => rank,
            Kind::Shared => before.clone().filter(waited_for).count(),
        };
        (count, before.filter(waited_for).map(|contender| &*contender.name))
    }

    /// The name of a contender that begins like this.
    pub(crate) fn find(&self, beginning: &str) -> Option<&str> {
        self.contenders.iter().map(|contender| &*contender.name).find(|name| name.starts_with(beginning))
    }

    /// The contenders in order, of one kind or of all.
    pub(crate) fn in_order(&self, kind: Option<Kind>) -> impl Iterator<Item = &str> {
        let wanted = move |contender: &&Contender| kind.is_none_or(|kind| contender.kind == kind);
        self.contenders.iter().filter(wanted).map(|contender| &*contender.name)
    }
}

impl Contender {
    fn key(&self) -> (i32, Kind, &str) {
        (self.sequence, self.kind, &self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::node_name::{Dialect, Family};
    use proptest::prelude::*;

    const MUTEX: Naming = Naming { family: Family::Exclusive, dialect: Dialect::Curator };
    const READ_WRITE: Naming = Naming { family: Family::ReadWrite, dialect: Dialect::Curator };

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    fn read(list: &[&str], naming: Naming) -> Arc<Queue> {
        Queue::read(names(list), naming).unwrap()
    }

    fn behind(predecessor: &str) -> Option<Position<'_>> {
        Some(Position::Behind { predecessor })
    }

    #[test]
    fn the_lowest_number_is_first_whatever_stands_before_it() {
        let queue = read(&["zz-lock-0000000003", "aa-lock-0000000010", "mm-lock-0000000007", "stray"], MUTEX);
        assert_eq!(queue.position("zz-lock-0000000003"), Some(Position::First));
        assert_eq!(queue.position("mm-lock-0000000007"), behind("zz-lock-0000000003"));
        assert_eq!(queue.position("aa-lock-0000000010"), behind("mm-lock-0000000007"));
        assert_eq!(queue.position("xx-lock-0000000011"), None, "a list without our node says nothing");
        assert_eq!(queue.position("stray"), None);
        assert_eq!(queue.foreign_children(), ["stray"]);
        let order = ["zz-lock-0000000003", "mm-lock-0000000007", "aa-lock-0000000010"];
        assert!(queue.in_order(None).eq(order));
        assert_eq!(queue.rank("aa-lock-0000000010"), Some(2));
        assert_eq!(queue.find("mm-"), Some("mm-lock-0000000007"));
    }

    #[test]
    fn equal_numbers_are_ordered_by_name() {
        let queue = read(&["b-lock-0000000001", "a-lock-0000000001", "c-lock-0000000001"], MUTEX);
        assert_eq!(queue.position("a-lock-0000000001"), Some(Position::First));
        assert_eq!(queue.position("c-lock-0000000001"), behind("b-lock-0000000001"));
    }

    #[test]
    fn unusable_directories() {
        for wrapped in ["b-lock--2147483648", "b-__WRIT__-2147483648"] {
            let list = names(&["a-lock-2147483647", wrapped]);
            assert_eq!(Queue::read(list, MUTEX).unwrap_err(), Unusable::Exhausted);
        }
    }

    #[test]
    fn contenders_of_another_order_are_in_the_way_of_those_behind_them_only() {
        let (first, later) = ("b-__WRIT__0000000002", "a-__READ__0000000005");
        let queue =
            read(&["a-lock-0000000001", later, "b-lock-0000000002", first, "c-lock-0000000003"], MUTEX);
        let refused = Err(Unusable::OtherOrder(first.to_owned()));
        assert_eq!(queue.usable(), refused, "to newcomers");
        assert_eq!(queue.usable_by("a-lock-0000000001"), Ok(()));
        assert_eq!(
            queue.usable_by("b-lock-0000000002"),
            refused,
            "the same number is none that the server gave"
        );
        assert_eq!(queue.usable_by("c-lock-0000000003"), refused);
        assert_eq!(read(&["a-lock-0000000001", "stray"], MUTEX).usable(), Ok(()));
    }

    #[test]
    fn readers_wait_for_the_last_writer_before_them_and_writers_for_whoever_is() {
        let list = ["r-__READ__1", "s-__READ__2", "w-__WRIT__3", "t-__READ__4", "u-__READ__5", "x-__WRIT__6"];
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
        assert!(queue.in_the_way(Some(x), Kind::Exclusive).1.eq(queue.in_order(None).take(5)));
        assert_eq!(
            (queue.in_the_way(Some(x), Kind::Exclusive).0, queue.in_the_way(Some(u), Kind::Shared).0),
            (5, 1)
        );
        let readers = Queue::read(vec![r.clone()], READ_WRITE).unwrap();
        assert_eq!(readers.in_the_way(None, Kind::Shared).0, 0);
        assert_eq!(readers.in_the_way(None, Kind::Exclusive).0, 1);
    }

    #[test]
    fn an_upgrade_needs_that_no_other_reader_can_be_inside() {
        let (own, write) = ("_c_me-__READ__0000000005", "_c_up-of-me-__WRIT__0000000005");
        let verdict = |others: &[&str]| {
            let mut list = names(others);
            list.extend(names(&[own, write]));
            Queue::read(list, READ_WRITE).unwrap().upgrade(own, write)
        };
        assert_eq!(verdict(&[]), Upgrade::Alone);
        assert_eq!(verdict(&["_c_r-__READ__0000000004"]), Upgrade::Contended);
        assert_eq!(verdict(&["_c_r-__READ__0000000006"]), Upgrade::Contended);
        // Readers that have been waiting for a writer of somebody else since they came.
        let (w6, r7) = ("_c_w-__WRIT__0000000006", "_c_r-__READ__0000000007");
        assert_eq!(verdict(&[w6]), Upgrade::Alone);
        assert_eq!(verdict(&[w6, r7]), Upgrade::Alone);
        assert_eq!(verdict(&["_c_w-__WRIT__0000000008", r7]), Upgrade::Contended);
        // A writer that has become a reader, in the place of a writer: it is before a writer of its number.
        assert_eq!(verdict(&["_c_d-__READ__0000000006", w6]), Upgrade::Contended);
        let without = Queue::read(names(&[own]), READ_WRITE).unwrap();
        assert_eq!(without.upgrade(own, write), Upgrade::Gone);
    }

    /// It came later than its number says, so readers with higher numbers may have been inside before it.
    #[test]
    fn a_conversions_write_node_proves_nothing_about_readers_and_is_in_the_way_itself() {
        let (own, write) = ("_c_me-__READ__0000000005", "_c_up-of-me-__WRIT__0000000005");
        let verdict = |others: &[&str]| {
            let mut list = names(others);
            list.extend(names(&[own, write]));
            Queue::read(list, READ_WRITE).unwrap().upgrade(own, write)
        };
        let (read, other) = ("_c_u-__READ__0000000003", "_c_v-of-u-__WRIT__0000000003");
        let reader = "_c_r-__READ__0000000007";
        assert_eq!(verdict(&[read, other]), Upgrade::Contended);
        // Its read node is gone: it is inside, or has left this behind.
        assert_eq!(verdict(&[other]), Upgrade::Contended);
        assert_eq!(verdict(&[other, reader]), Upgrade::Contended);
        assert_eq!(verdict(&["_c_w-__WRIT__0000000006", reader, other]), Upgrade::Contended);
        // One that we have left behind ourselves.
        assert_eq!(verdict(&["_c_old-of-me-__WRIT__0000000005"]), Upgrade::Contended);
        // To all others it is a writer of its number.
        let queue = self::read(&[read, other, reader], READ_WRITE);
        assert_eq!(queue.position(reader), behind(other));
        assert_eq!(queue.position(other), behind(read));
    }

    /// Curator's own predicate, written after what its drivers do: the keys are what follows the marker, sorted as
    /// text, ties in the order of the list; every child counts.
    mod curator {
        pub(super) fn sorted<'a>(children: &'a [String], markers: &[&str]) -> Vec<&'a str> {
            let key = |name: &'a str| {
                let after =
                    |name: &'a str, marker: &&str| name.rfind(*marker).map(|at| &name[at + marker.len()..]);
                markers.iter().fold(name, |name, marker| after(name, marker).unwrap_or(name))
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
            !sorted.iter().take_while(|name| **name != own).any(|name| name.contains("__WRIT__"))
        }
    }

    /// Numbers near each other, near the wrap, and anywhere.
    fn sequence() -> impl Strategy<Value = i32> {
        prop_oneof![6 => 0..12_i32, 1 => (i32::MAX - 3)..=i32::MAX, 1 => i32::MIN..(i32::MIN + 3), 1 => any::<i32>()]
    }

    /// Names of all sorts: ours, Curator's, Go's, others' orders, strays, duplicates of numbers.
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
        let foreign = children.iter().filter_map(|name| match classify(name, naming) {
            Child::OtherOrder { sequence } => Some(sequence),
            _ => None,
        });
        let foreign = foreign.min();
        let Ok(queue) = Queue::read(children, naming) else { return };
        assert_eq!(queue.usable().is_err(), foreign.is_some());
        for contender in &queue.contenders {
            let refused = queue.usable_by(&contender.name).is_err();
            assert_eq!(refused, foreign.is_some_and(|foreign| foreign <= contender.sequence), "{queue:?}");
        }
        let of = |kind| queue.in_order(Some(kind)).filter(|name| holds(&queue, name)).count();
        let (readers, writers) = (of(Kind::Shared), of(Kind::Exclusive));
        assert!(writers <= 1, "{writers} writers inside: {queue:?}");
        assert!(writers == 0 || readers == 0, "a writer beside {readers} readers: {queue:?}");
        if let Some(first) = queue.in_order(None).next() {
            assert!(holds(&queue, first), "nobody is inside: {queue:?}");
        }
        for name in queue.in_order(None) {
            if let Some(Position::Behind { predecessor, .. }) = queue.position(name) {
                assert!(queue.rank(predecessor) < queue.rank(name));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

        /// Whatever the names, at most one exclusive contender is inside, and then no reader is; somebody is always
        /// inside, and everybody else waits for one that is really there and before it.
        #[test]
        fn never_two_inside(
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

        /// With numbers that differ, as the server makes them, and nothing but contenders, everybody whom Curator's
        /// own rule lets in is let in here, and nobody else. (Where numbers tie, Curator goes by the order of the
        /// list; where they have wrapped, and where there are strays, it is wrong or stuck.)
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

        /// A downgraded node, which has the number of the write node that it replaced, keeps all later writers out, here
        /// and by Curator's rule, wherever the list shows it.
        #[test]
        fn a_downgraded_reader_keeps_its_place(later in prop::collection::btree_set(6..100_i32, 1..10), at in 0..10_usize) {
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
