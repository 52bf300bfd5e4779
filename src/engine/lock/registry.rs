//! Values that are shared by key, for as long as something else keeps them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Weak;

use crate::session::threads::mutex::{Mutex, MutexGuard};

/// Weak references by key.
#[derive(Debug)]
pub(crate) struct Registry<K, V>(Mutex<HashMap<K, Weak<V>>>);

/// The references of a [`Registry`].
pub(crate) type Entries<'a, K, V> = MutexGuard<'a, HashMap<K, Weak<V>>>;

impl<K, V> Default for Registry<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> Registry<K, V> {
    /// Locks the registry. No value may be dropped while it is locked: its drop calls
    /// [`forget`](Self::forget).
    pub(crate) fn lock(&self) -> Entries<'_, K, V> {
        self.0.lock()
    }

    /// Removes the entry of a value that has been dropped, unless another value has taken its key already.
    pub(crate) fn forget(&self, key: &K) {
        let mut entries = self.lock();
        if entries.get(key).is_some_and(|value| value.strong_count() == 0) {
            entries.remove(key);
        }
    }
}
