//! Who is first, and whom to watch. Pure.
//!
//! Sequence numbers are the parent's count of creates, a 32-bit number that wraps. The order is therefore that of
//! the wrapping difference, which is the order of creation as long as two numbers are less than 2^31 creates apart.
//! It is antisymmetric, so no two contenders can both be first in one list; it is *not* transitive over more than
//! half of the circle, so it is never handed to a sort: places are found by comparing with one node, our own.

use std::cmp::Ordering;

use super::name::{Child, Family, classify};

/// One listing of a lock directory, read for one family of recipes.
#[derive(Debug)]
pub(crate) struct Queue<'a> {
    contenders: Vec<Contender<'a>>,
    strays: Vec<&'a str>,
}

#[derive(Clone, Copy, Debug)]
struct Contender<'a> {
    name: &'a str,
    sequence: i32,
}

/// Why a directory cannot be queued in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable<'a> {
    /// This node queues in another order: it would be let in beside us.
    OtherOrder(&'a str),
    /// The numbers have wrapped. Curator sorts the names as text, where `-` comes before the digits, so to a Java
    /// peer every newcomer is first; Go drops the sign. Nobody can queue with them from here on.
    Exhausted,
}

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// Nobody is before it. Once true, true for as long as the node lives, however old the list.
    First,
    /// Somebody is. `predecessor` is the nearest; `sole` says that it is the only one, so that its deletion alone
    /// makes us first: nothing can ever be created before us.
    Behind { predecessor: &'a str, sole: bool },
}

impl<'a> Queue<'a> {
    /// Reads the children of a lock directory.
    pub(crate) fn read(children: &'a [String], family: Family) -> Result<Self, Unusable<'a>> {
        let mut queue = Self { contenders: Vec::with_capacity(children.len()), strays: Vec::new() };
        for name in children {
            match classify(name, family) {
                Child::Contender(sequence) if sequence < 0 => return Err(Unusable::Exhausted),
                Child::Contender(sequence) => queue.contenders.push(Contender { name, sequence }),
                Child::OtherOrder => return Err(Unusable::OtherOrder(name)),
                Child::Stray => queue.strays.push(name),
            }
        }
        Ok(queue)
    }

    /// Nodes that no lock recipe made.
    pub(crate) fn strays(&self) -> &[&'a str] {
        &self.strays
    }

    /// Whether nobody queues here.
    pub(crate) fn is_empty(&self) -> bool {
        self.contenders.is_empty()
    }

    /// Where the node `name` stands; nothing if the list does not have it, which proves nothing.
    pub(crate) fn place(&self, name: &str) -> Option<Place<'a>> {
        let own = self.contenders.iter().find(|contender| contender.name == name)?;
        let mut ahead = 0_usize;
        let mut nearest: Option<&Contender<'a>> = None;
        for contender in &self.contenders {
            if order(contender, own) == Ordering::Less {
                ahead += 1;
                if nearest.is_none_or(|nearest| closer(contender, nearest, own)) {
                    nearest = Some(contender);
                }
            }
        }
        Some(
            nearest.map_or(Place::First, |nearest| Place::Behind {
                predecessor: nearest.name,
                sole: ahead == 1,
            }),
        )
    }

    /// All contenders in order, the holder first.
    pub(crate) fn in_order(mut self) -> Vec<&'a str> {
        // All numbers are positive here (`read`), so the plain order is total and the wrapping one agrees.
        self.contenders.sort_by(|a, b| (a.sequence, a.name).cmp(&(b.sequence, b.name)));
        self.contenders.into_iter().map(|contender| contender.name).collect()
    }
}

/// The order of two contenders: by wrapping difference, ties by name.
fn order(a: &Contender<'_>, b: &Contender<'_>) -> Ordering {
    match a.sequence.wrapping_sub(b.sequence) {
        0 => a.name.cmp(b.name),
        // Exactly half the circle apart: each is before the other by difference. The name decides, so that one
        // of them is first and they do not wait for each other.
        i32::MIN => a.name.cmp(b.name),
        difference => difference.cmp(&0),
    }
}

/// Whether `a`, which is before `own`, is nearer to it than `b`, which is before it too.
fn closer(a: &Contender<'_>, b: &Contender<'_>, own: &Contender<'_>) -> bool {
    let distance = |contender: &Contender<'_>| own.sequence.wrapping_sub(contender.sequence).unsigned_abs();
    (distance(b), a.name) > (distance(a), b.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    fn place<'a>(children: &'a [String], own: &str) -> Option<Place<'a>> {
        Queue::read(children, Family::Exclusive).unwrap().place(own)
    }

    #[test]
    fn the_lowest_number_is_first_whatever_stands_before_it() {
        let list = names(&["zz-lock-0000000003", "aa-lock-0000000010", "mm-lock-0000000007", "stray"]);
        assert_eq!(place(&list, "zz-lock-0000000003"), Some(Place::First));
        let behind = |predecessor, sole| Some(Place::Behind { predecessor, sole });
        assert_eq!(place(&list, "mm-lock-0000000007"), behind("zz-lock-0000000003", true));
        assert_eq!(place(&list, "aa-lock-0000000010"), behind("mm-lock-0000000007", false));
        assert_eq!(place(&list, "xx-lock-0000000011"), None, "a list without our node says nothing");
        let queue = Queue::read(&list, Family::Exclusive).unwrap();
        assert_eq!(queue.strays(), ["stray"]);
        assert_eq!(queue.in_order(), ["zz-lock-0000000003", "mm-lock-0000000007", "aa-lock-0000000010"]);
    }

    #[test]
    fn equal_numbers_are_ordered_by_name() {
        let list = names(&["b-lock-0000000001", "a-lock-0000000001", "c-lock-0000000001"]);
        assert_eq!(place(&list, "a-lock-0000000001"), Some(Place::First));
        assert_eq!(
            place(&list, "c-lock-0000000001"),
            Some(Place::Behind { predecessor: "b-lock-0000000001", sole: false })
        );
    }

    #[test]
    fn unusable_directories() {
        let list = names(&["a-lock-2147483647", "b-lock--2147483648"]);
        assert_eq!(Queue::read(&list, Family::Exclusive).unwrap_err(), Unusable::Exhausted);
        let list = names(&["a-lock-0000000001", "b-__WRIT__0000000002"]);
        let error = Queue::read(&list, Family::Exclusive).unwrap_err();
        assert_eq!(error, Unusable::OtherOrder("b-__WRIT__0000000002"));
    }

    #[test]
    fn the_order_goes_on_over_the_wrap() {
        let older = Contender { name: "z", sequence: i32::MAX };
        let newer = Contender { name: "a", sequence: i32::MIN };
        assert_eq!(order(&older, &newer), Ordering::Less);
        assert_eq!(order(&newer, &older), Ordering::Greater);
    }

    /// Numbers near each other, near the wrap, and anywhere.
    fn sequence() -> impl Strategy<Value = i32> {
        prop_oneof![0..20_i32, (i32::MAX - 10)..=i32::MAX, i32::MIN..(i32::MIN + 10), any::<i32>()]
    }

    proptest! {
        /// Whatever the numbers, wrapped ones included, at most one contender can think it is first, and every
        /// other one watches a node that is really there and before it.
        #[test]
        fn never_two_first(sequences in prop::collection::vec((sequence(), "[a-c]{1,2}"), 1..12)) {
            let names: Vec<String> = sequences
                .iter()
                .enumerate()
                .map(|(i, (sequence, name))| format!("{name}{i}-lock-{sequence:010}"))
                .collect();
            let queue = Queue {
                contenders: names
                    .iter()
                    .zip(&sequences)
                    .map(|(name, (sequence, _))| Contender { name, sequence: *sequence })
                    .collect(),
                strays: Vec::new(),
            };
            let mut first = 0;
            for own in &names {
                match queue.place(own).unwrap() {
                    Place::First => first += 1,
                    Place::Behind { predecessor, .. } => {
                        prop_assert_ne!(predecessor, own);
                        prop_assert!(names.iter().any(|name| name == predecessor));
                    }
                }
            }
            prop_assert!(first <= 1, "{first} first in {names:?}");
        }

        /// Without a wrap the places are those of the plain sort that Curator does: exactly one first, everyone
        /// else behind the one just before it, and strays change nothing.
        #[test]
        fn agrees_with_curators_sort(
            mut sequences in prop::collection::btree_set(0..i32::MAX, 1..12),
            strays in prop::collection::vec("[a-z0-9]{0,8}", 0..4),
        ) {
            sequences.insert(i32::MAX);
            let sorted: Vec<String> = sequences.iter().map(|n| format!("x{}-lock-{n:010}", n % 7)).collect();
            let mut listed = sorted.clone();
            listed.extend(strays);
            listed.reverse();
            let queue = Queue::read(&listed, Family::Exclusive).unwrap();
            for (i, own) in sorted.iter().enumerate() {
                let expected = match i {
                    0 => Place::First,
                    _ => Place::Behind { predecessor: &sorted[i - 1], sole: i == 1 },
                };
                prop_assert_eq!(queue.place(own), Some(expected));
            }
            prop_assert_eq!(queue.in_order(), sorted.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
}
