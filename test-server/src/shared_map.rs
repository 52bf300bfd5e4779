//! A map whose clones share what they have in common. A clone costs nothing, and a change of either
//! map copies only the few slots on the way to the changed entry.

use std::borrow::Borrow;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::Arc;

/// The bits of a hash that choose a slot of a branch.
const BITS: u32 = 4;
/// The slots of a branch.
const SLOTS: usize = 1 << BITS;
/// The entries of a leaf above which a branch replaces it.
const LEAF: usize = 16;

#[derive(Clone, Debug)]
enum Slot<K, V> {
    Leaf(Vec<(K, V)>),
    Branch(Vec<Arc<Self>>),
}

#[derive(Clone, Debug)]
pub(crate) struct SharedMap<K, V> {
    root: Arc<Slot<K, V>>,
    len: usize,
    hasher: RandomState,
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self {
            root: Arc::new(Slot::Leaf(Vec::new())),
            len: 0,
            hasher: RandomState::new(),
        }
    }
}

/// Returns the slot of a hash in a branch at a depth, which is counted in bits.
fn index(hash: u64, depth: u32) -> usize {
    (hash >> depth) as usize % SLOTS
}

impl<K, V> SharedMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the entries, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let (mut slots, mut entries) = (vec![&*self.root], [].iter());
        std::iter::from_fn(move || {
            loop {
                if let Some((key, value)) = entries.next() {
                    return Some((key, value));
                }
                match slots.pop()? {
                    Slot::Leaf(leaf) => entries = leaf.iter(),
                    Slot::Branch(below) => slots.extend(below.iter().map(|slot| &**slot)),
                }
            }
        })
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }
}

impl<K: Clone + Eq + Hash, V: Clone> SharedMap<K, V> {
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        let (mut slot, mut depth) = (&*self.root, 0);
        loop {
            match slot {
                Slot::Leaf(leaf) => {
                    let entry = leaf.iter().find(|(known, _)| known.borrow() == key);
                    return entry.map(|(_, value)| value);
                }
                Slot::Branch(below) => {
                    slot = below.get(index(hash, depth))?;
                    depth += BITS;
                }
            }
        }
    }

    pub(crate) fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let leaf = self.leaf_of(key)?;
        let entry = leaf.iter_mut().find(|(known, _)| (*known).borrow() == key);
        entry.map(|(_, value)| value)
    }

    /// Adds an entry, or replaces its value.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let hasher = &self.hasher;
        if Arc::make_mut(&mut self.root).insert(&|key| hasher.hash_one(key), 0, key, value) {
            self.len += 1;
        }
    }

    pub(crate) fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let leaf = self.leaf_of(key)?;
        let position = leaf
            .iter()
            .position(|(known, _)| (*known).borrow() == key)?;
        let (_, value) = leaf.swap_remove(position);
        self.len -= 1;
        Some(value)
    }

    /// Returns the leaf of an entry, which no other map shares any more; `None`, without a copy, if
    /// there is no such entry.
    fn leaf_of<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut Vec<(K, V)>>
    where
        K: Borrow<Q>,
    {
        self.get(key)?;
        let hash = self.hasher.hash_one(key);
        let (mut slot, mut depth) = (Arc::make_mut(&mut self.root), 0);
        loop {
            match slot {
                Slot::Leaf(leaf) => return Some(leaf),
                Slot::Branch(below) => {
                    slot = Arc::make_mut(below.get_mut(index(hash, depth))?);
                    depth += BITS;
                }
            }
        }
    }
}

impl<K: Clone + Eq, V: Clone> Slot<K, V> {
    /// Adds an entry, or replaces its value; returns whether the entry is new.
    fn insert(&mut self, hash: &impl Fn(&K) -> u64, depth: u32, key: K, value: V) -> bool {
        match self {
            Self::Branch(below) => {
                let slot = below.get_mut(index(hash(&key), depth)).map(Arc::make_mut);
                slot.is_some_and(|slot| slot.insert(hash, depth + BITS, key, value))
            }
            Self::Leaf(leaf) => {
                if let Some((_, known)) = leaf.iter_mut().find(|(known, _)| *known == key) {
                    *known = value;
                    return false;
                }
                leaf.push((key, value));
                // When a hash has no bits left, the remaining entries share a leaf.
                if leaf.len() > LEAF && depth + BITS <= u64::BITS {
                    let mut leaves: [Vec<(K, V)>; SLOTS] = Default::default();
                    for entry in leaf.drain(..) {
                        if let Some(leaf) = leaves.get_mut(index(hash(&entry.0), depth)) {
                            leaf.push(entry);
                        }
                    }
                    let leaves = leaves.into_iter().map(|leaf| Arc::new(Self::Leaf(leaf)));
                    *self = Self::Branch(leaves.collect());
                }
                true
            }
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone + PartialEq> PartialEq for SharedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
            && self
                .iter()
                .all(|(key, value)| other.get(key) == Some(value))
    }
}

#[cfg(test)]
impl<K, V> SharedMap<K, V> {
    /// Returns how many entries are in leaves that another map does not share.
    pub(crate) fn copied_from(&self, other: &Self) -> usize {
        fn leaves<K, V>(slot: &Arc<Slot<K, V>>, found: &mut Vec<(*const Slot<K, V>, usize)>) {
            match &**slot {
                Slot::Leaf(leaf) => found.push((Arc::as_ptr(slot), leaf.len())),
                Slot::Branch(below) => below.iter().for_each(|slot| leaves(slot, found)),
            }
        }
        let (mut mine, mut others) = (Vec::new(), Vec::new());
        leaves(&self.root, &mut mine);
        leaves(&other.root, &mut others);
        let others: std::collections::HashSet<_> =
            others.into_iter().map(|(leaf, _)| leaf).collect();
        mine.into_iter()
            .filter(|(leaf, _)| !others.contains(leaf))
            .map(|(_, entries)| entries)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::hash::Hasher;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn maps_hold_what_was_inserted(
            changes in proptest::collection::vec((0..3u8, 0..100u32), 0..600),
            cloned_at in 0..600usize,
        ) {
            let (mut map, mut model) = (SharedMap::default(), HashMap::new());
            let mut clone = None;
            for (number, (what, key)) in changes.into_iter().enumerate() {
                if number == cloned_at {
                    clone = Some((map.clone(), model.clone()));
                }
                match what {
                    0 => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    1 => {
                        map.insert(key, number);
                        model.insert(key, number);
                    }
                    _ => {
                        prop_assert_eq!(map.get_mut(&key), model.get_mut(&key));
                        map.get_mut(&key).into_iter().for_each(|value| *value += 1);
                        model.get_mut(&key).into_iter().for_each(|value| *value += 1);
                    }
                }
                prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(map.get(&key), model.get(&key));
            }
            for (map, model) in [(map, model)].into_iter().chain(clone) {
                let entries: HashMap<u32, usize> = map.iter().map(|(key, value)| (*key, *value)).collect();
                prop_assert_eq!(entries, model);
            }
        }
    }

    #[test]
    fn clones_share_all_but_changes() {
        let mut map = SharedMap::default();
        for key in 0..100_000 {
            map.insert(key, key);
        }
        let mut changed = map.clone();
        assert_eq!(changed.copied_from(&map), 0);
        changed.insert(7, 0);
        changed.remove(&8);
        changed.remove(&200_000);
        changed.insert(300_000, 0);
        assert!(changed.copied_from(&map) <= 4 * LEAF);
        assert!(changed != map);
        assert_eq!((map.get(&7), map.get(&8)), (Some(&7), Some(&8)));
    }

    #[test]
    fn equal_hashes_share_a_leaf() {
        #[derive(Clone, Debug, PartialEq, Eq)]
        struct Same(u32);
        impl Hash for Same {
            fn hash<H: Hasher>(&self, _: &mut H) {}
        }
        let mut map = SharedMap::default();
        for key in 0..100 {
            map.insert(Same(key), key);
        }
        assert_eq!(map.len(), 100);
        assert!((0..100).all(|key| map.get(&Same(key)) == Some(&key)));
        assert_eq!(map.remove(&Same(50)), Some(50));
        assert_eq!(map.get(&Same(50)), None);
    }
}
