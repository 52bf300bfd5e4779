//! The watches. They belong to connections, and are removed with them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::error::ServerError;
use crate::txn::{Change, Happened};
use crate::wire::Acl;

pub(crate) const CREATED: i32 = 1;
pub(crate) const DELETED: i32 = 2;
pub(crate) const DATA_CHANGED: i32 = 3;
pub(crate) const CHILDREN_CHANGED: i32 = 4;

/// The table of a watch. `exists` and `getData` share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Table {
    Data,
    Child,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    OneShot,
    Persistent,
    Recursive,
}

#[derive(Clone, Copy, Debug, Default)]
struct Modes {
    one_shot: bool,
    persistent: bool,
    recursive: bool,
}

impl Modes {
    fn flag(&mut self, mode: Mode) -> &mut bool {
        match mode {
            Mode::OneShot => &mut self.one_shot,
            Mode::Persistent => &mut self.persistent,
            Mode::Recursive => &mut self.recursive,
        }
    }

    fn none(self) -> bool {
        !(self.one_shot || self.persistent || self.recursive)
    }
}

/// An event for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) connection: u64,
    pub(crate) kind: i32,
    pub(crate) path: String,
    /// The list that must permit the client to read; `None` for the events that follow `setWatches`, which
    /// ZooKeeper sends without a check.
    pub(crate) acl: Option<Arc<[Acl]>>,
}

#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Until 3.8 a watch replaces one of another mode on the same path (ZOOKEEPER-4466), and recursive ones
    /// are in both tables.
    before_3_9: bool,
    entries: HashMap<(Table, String), BTreeMap<u64, Modes>>,
    of_connection: HashMap<u64, HashSet<(Table, String)>>,
    recursive: usize,
}

impl Watches {
    pub(crate) fn new(before_3_9: bool) -> Self {
        Self { before_3_9, ..Self::default() }
    }

    pub(crate) fn add(&mut self, connection: u64, table: Table, path: &str, mode: Mode) {
        if self.before_3_9 {
            for other in [Mode::OneShot, Mode::Persistent, Mode::Recursive] {
                self.take(connection, table, path, other, false);
            }
        }
        let key = (table, path.to_owned());
        let modes = self.entries.entry(key.clone()).or_default().entry(connection).or_default();
        if mode == Mode::Recursive && !modes.recursive {
            self.recursive += 1;
        }
        *modes.flag(mode) = true;
        self.of_connection.entry(connection).or_default().insert(key);
    }

    /// Adds the watch of an `addWatch`: persistent watches are in both tables, recursive ones need only the
    /// first.
    pub(crate) fn add_persistent(&mut self, connection: u64, path: &str, recursive: bool) {
        let mode = if recursive { Mode::Recursive } else { Mode::Persistent };
        self.add(connection, Table::Data, path, mode);
        if self.before_3_9 || !recursive {
            self.add(connection, Table::Child, path, mode);
        }
    }

    /// Handles `checkWatches` and `removeWatches`. Kinds: 1 child, 2 data, 3 any, 4 persistent, 5 recursive.
    pub(crate) fn remove(
        &mut self,
        connection: u64,
        path: &str,
        kind: i32,
        check_only: bool,
    ) -> Result<(), ServerError> {
        let all = [Mode::OneShot, Mode::Persistent, Mode::Recursive];
        // Since 3.9 those of one table are the one-shot watches: the others have kinds of their own.
        let in_table = if self.before_3_9 { &all[..] } else { &[Mode::OneShot] };
        let targets: &[(Table, &[Mode])] = match kind {
            1 => &[(Table::Child, in_table)],
            2 => &[(Table::Data, in_table)],
            3 => &[(Table::Data, &all), (Table::Child, &all)],
            4 => &[(Table::Data, &[Mode::Persistent]), (Table::Child, &[Mode::Persistent])],
            5 => &[(Table::Data, &[Mode::Recursive]), (Table::Child, &[Mode::Recursive])],
            _ => return Err(ServerError::Marshalling),
        };
        if self.before_3_9 && kind > 3 {
            // 3.8 has no such kinds.
            return Err(ServerError::Marshalling);
        }
        let mut found = false;
        for (table, modes) in targets {
            for mode in *modes {
                found |= self.take(connection, *table, path, *mode, check_only);
            }
        }
        if found { Ok(()) } else { Err(ServerError::NoWatcher) }
    }

    fn take(&mut self, connection: u64, table: Table, path: &str, mode: Mode, check_only: bool) -> bool {
        let key = (table, path.to_owned());
        let Some(watchers) = self.entries.get_mut(&key) else {
            return false;
        };
        let Some(modes) = watchers.get_mut(&connection) else {
            return false;
        };
        if !*modes.flag(mode) || check_only {
            return *modes.flag(mode);
        }
        *modes.flag(mode) = false;
        if mode == Mode::Recursive {
            self.recursive -= 1;
        }
        if modes.none() {
            watchers.remove(&connection);
            if watchers.is_empty() {
                self.entries.remove(&key);
            }
            if let Some(keys) = self.of_connection.get_mut(&connection) {
                keys.remove(&key);
            }
        }
        true
    }

    pub(crate) fn disconnect(&mut self, connection: u64) {
        for (table, path) in self.of_connection.remove(&connection).unwrap_or_default() {
            for mode in [Mode::OneShot, Mode::Persistent, Mode::Recursive] {
                self.take(connection, table, &path, mode, false);
            }
        }
    }

    /// Removes the one-shot watches of some connections that a change triggers; returns the events, in the
    /// order in which ZooKeeper sends them.
    pub(crate) fn fire(&mut self, change: &Change, of: impl Fn(u64) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        let mut tell = |connections: BTreeSet<u64>, kind: i32, path: &str, acl: &Arc<[Acl]>| {
            let event = |connection| {
                let acl = Some(Arc::clone(acl));
                Event { connection, kind, path: path.to_owned(), acl }
            };
            events.extend(connections.into_iter().map(event));
        };
        let Change { what, path, acl, parent_acl } = change;
        let kind = match what {
            Happened::Created => CREATED,
            Happened::Deleted => DELETED,
            Happened::Data => DATA_CHANGED,
        };
        let mut watchers = self.trigger(Table::Data, path, kind, &of);
        if kind == DELETED {
            // One event per connection, even if it is in both tables.
            watchers.append(&mut self.trigger(Table::Child, path, kind, &of));
        }
        tell(watchers, kind, path, acl);
        if kind != DATA_CHANGED {
            let parent = parent(path);
            let watchers = self.trigger(Table::Child, parent, CHILDREN_CHANGED, &of);
            tell(watchers, CHILDREN_CHANGED, parent, parent_acl);
        }
        events
    }

    fn trigger(&mut self, table: Table, path: &str, kind: i32, of: &impl Fn(u64) -> bool) -> BTreeSet<u64> {
        let recursive = kind != CHILDREN_CHANGED;
        let mut told = BTreeSet::new();
        let mut spent = Vec::new();
        if let Some(watchers) = self.entries.get(&(table, path.to_owned())) {
            for (connection, modes) in watchers.iter().filter(|(connection, _)| of(**connection)) {
                if modes.one_shot {
                    spent.push(*connection);
                }
                if modes.one_shot || modes.persistent || (modes.recursive && recursive) {
                    told.insert(*connection);
                }
            }
        }
        for connection in spent {
            self.take(connection, table, path, Mode::OneShot, false);
        }
        if recursive && self.recursive > 0 && path != "/" {
            let mut at = path;
            while at != "/" {
                at = parent(at);
                if let Some(watchers) = self.entries.get(&(table, at.to_owned())) {
                    let wanted = watchers.iter().filter(|(id, modes)| modes.recursive && of(**id));
                    told.extend(wanted.map(|(id, _)| *id));
                }
            }
        }
        told
    }

    /// Returns the number of watches: one for each path, table and connection.
    pub(crate) fn len(&self) -> usize {
        self.entries.values().map(BTreeMap::len).sum()
    }

    /// Returns the connections that watch a path, in either table.
    pub(crate) fn on(&self, path: &str) -> BTreeSet<u64> {
        let of = |table| self.entries.get(&(table, path.to_owned()));
        [of(Table::Data), of(Table::Child)].into_iter().flatten().flat_map(BTreeMap::keys).copied().collect()
    }

    /// Returns the paths and connections of the data table, which is the one that ZooKeeper's four-letter
    /// words show.
    pub(crate) fn data_watches(&self) -> BTreeMap<&str, Vec<u64>> {
        let data = self.entries.iter().filter(|((table, _), _)| *table == Table::Data);
        data.map(|((_, path), watchers)| (path.as_str(), watchers.keys().copied().collect())).collect()
    }
}

fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        None | Some(("", _)) => "/",
        Some((parent, _)) => parent,
    }
}
