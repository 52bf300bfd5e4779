//! The watches, which belong to connections and are removed with them.

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
    /// The list that must permit the client to read, where that is asked for.
    pub(crate) acl: Option<Arc<[Acl]>>,
}

#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Whether the version is before 3.9: a watch then replaces one of another mode on the same
    /// path (ZOOKEEPER-4466), and recursive ones are in both tables.
    before_3_9: bool,
    entries: HashMap<(Table, String), BTreeMap<u64, Modes>>,
    of_connection: HashMap<u64, HashSet<(Table, String)>>,
    recursive: usize,
    /// The connections with a persistent watch on the null path.
    null: HashSet<u64>,
}

impl Watches {
    pub(crate) fn new(before_3_9: bool) -> Self {
        Self {
            before_3_9,
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, connection: u64, table: Table, path: &str, mode: Mode) {
        if self.before_3_9 {
            for other in [Mode::OneShot, Mode::Persistent, Mode::Recursive] {
                self.take(connection, table, path, other);
            }
        }
        let key = (table, path.to_owned());
        let modes = self
            .entries
            .entry(key.clone())
            .or_default()
            .entry(connection)
            .or_default();
        if mode == Mode::Recursive && !modes.recursive {
            self.recursive += 1;
        }
        *modes.flag(mode) = true;
        self.of_connection
            .entry(connection)
            .or_default()
            .insert(key);
    }

    /// Adds the watch of an `addWatch`: persistent watches are in both tables, recursive ones need
    /// only the first.
    pub(crate) fn add_persistent(&mut self, connection: u64, path: &str, recursive: bool) {
        let mode = if recursive {
            Mode::Recursive
        } else {
            Mode::Persistent
        };
        self.add(connection, Table::Data, path, mode);
        if self.before_3_9 || !recursive {
            self.add(connection, Table::Child, path, mode);
        }
    }

    /// Adds a persistent watch on the null path.
    pub(crate) fn add_null(&mut self, connection: u64) -> Result<(), ServerError> {
        if self.null.insert(connection) || !self.before_3_9 {
            Ok(())
        } else {
            Err(ServerError::Marshalling)
        }
    }

    /// Returns the tables and modes of a kind of watches. Kinds: 1 child, 2 data, 3 any, 4
    /// persistent, 5 recursive.
    fn targets(&self, kind: i32) -> Result<Vec<(Table, Mode)>, ServerError> {
        let (data, child) = (Table::Data, Table::Child);
        let all =
            |table| [Mode::OneShot, Mode::Persistent, Mode::Recursive].map(|mode| (table, mode));
        // Since 3.9 those of one table are the one-shot watches: the others have kinds of their
        // own.
        Ok(match kind {
            1 if self.before_3_9 => all(child).to_vec(),
            2 if self.before_3_9 => all(data).to_vec(),
            1 => vec![(child, Mode::OneShot)],
            2 => vec![(data, Mode::OneShot)],
            3 => [all(data), all(child)].concat(),
            4 if !self.before_3_9 => vec![(data, Mode::Persistent), (child, Mode::Persistent)],
            5 if !self.before_3_9 => vec![(data, Mode::Recursive), (child, Mode::Recursive)],
            _ => return Err(ServerError::Marshalling),
        })
    }

    /// Handles `checkWatches`. Until 3.8 it answers whether anyone has a watch on the path in the
    /// tables.
    pub(crate) fn check(
        &self,
        connection: u64,
        path: Option<&str>,
        kind: i32,
    ) -> Result<(), ServerError> {
        let targets = self.targets(kind)?;
        let Some(path) = path else {
            let trips = self.before_3_9;
            return Err(if trips {
                ServerError::Marshalling
            } else {
                ServerError::NoWatcher
            });
        };
        if self.before_3_9 {
            return self.check_parents(&targets, path);
        }
        let mut targets = targets.into_iter();
        if targets.any(|(table, mode)| self.has(connection, table, path, mode)) {
            Ok(())
        } else {
            Err(ServerError::NoWatcher)
        }
    }

    /// Handles `checkWatches` as ZooKeeper does until 3.8: it walks from the path to its parents,
    /// to find recursive watches on these, and fails for a path without a slash.
    fn check_parents(&self, targets: &[(Table, Mode)], path: &str) -> Result<(), ServerError> {
        let on = |table| self.entries.contains_key(&(table, path.to_owned()));
        let tables = [Table::Data, Table::Child]
            .into_iter()
            .filter(|table| targets.iter().any(|(of, _)| of == table));
        let (mut found, mut trips) = (false, false);
        for table in tables {
            let here = !path.is_empty() && on(table);
            let climbs = !here && self.recursive > 0 && !path.starts_with('/');
            trips |= !path.is_empty() && (!path.contains('/') || climbs);
            found |= here;
        }
        if trips {
            Err(ServerError::Marshalling)
        } else if found {
            Ok(())
        } else {
            Err(ServerError::NoWatcher)
        }
    }

    /// Handles `removeWatches`. There is none on the null path.
    pub(crate) fn remove(
        &mut self,
        connection: u64,
        path: Option<&str>,
        kind: i32,
    ) -> Result<(), ServerError> {
        let mut found = false;
        for (table, mode) in self.targets(kind)? {
            found |= path.is_some_and(|path| self.take(connection, table, path, mode));
        }
        if found {
            Ok(())
        } else {
            Err(ServerError::NoWatcher)
        }
    }

    fn has(&self, connection: u64, table: Table, path: &str, mode: Mode) -> bool {
        let watchers = self.entries.get(&(table, path.to_owned()));
        let modes = watchers.and_then(|watchers| watchers.get(&connection));
        modes.copied().is_some_and(|mut modes| *modes.flag(mode))
    }

    fn take(&mut self, connection: u64, table: Table, path: &str, mode: Mode) -> bool {
        let key = (table, path.to_owned());
        let Some(watchers) = self.entries.get_mut(&key) else {
            return false;
        };
        let Some(modes) = watchers.get_mut(&connection) else {
            return false;
        };
        if !*modes.flag(mode) {
            return false;
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
        self.null.remove(&connection);
        for (table, path) in self.of_connection.remove(&connection).unwrap_or_default() {
            for mode in [Mode::OneShot, Mode::Persistent, Mode::Recursive] {
                self.take(connection, table, &path, mode);
            }
        }
    }

    /// Removes the one-shot watches of some connections that a change triggers; returns the events,
    /// in the order in which ZooKeeper sends them.
    pub(crate) fn fire(&mut self, change: &Change, of: impl Fn(u64) -> bool) -> Vec<Event> {
        let Change {
            what,
            path,
            acl,
            parent_acl,
            ..
        } = change;
        let kind = match what {
            Happened::Created => CREATED,
            Happened::Deleted => DELETED,
            Happened::Data => DATA_CHANGED,
            Happened::Acl => return Vec::new(),
        };
        let mut events = Vec::new();
        let mut tell = |connections: BTreeSet<u64>, kind: i32, path: &str, acl: &Arc<[Acl]>| {
            let event = |connection| {
                let acl = Some(Arc::clone(acl));
                Event {
                    connection,
                    kind,
                    path: path.to_owned(),
                    acl,
                }
            };
            events.extend(connections.into_iter().map(event));
        };
        let mut watchers = self.trigger(Table::Data, path, kind, &of);
        if kind == DELETED {
            // A connection receives one event, even if it is in both tables.
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

    fn trigger(
        &mut self,
        table: Table,
        path: &str,
        kind: i32,
        of: &impl Fn(u64) -> bool,
    ) -> BTreeSet<u64> {
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
            self.take(connection, table, path, Mode::OneShot);
        }
        if recursive && self.recursive > 0 && path != "/" {
            let mut at = path;
            while at != "/" {
                at = parent(at);
                if let Some(watchers) = self.entries.get(&(table, at.to_owned())) {
                    let wanted = watchers
                        .iter()
                        .filter(|(id, modes)| modes.recursive && of(**id));
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

    /// Returns the number of watches of some connections.
    pub(crate) fn count(&self, of: impl Fn(u64) -> bool) -> usize {
        let watchers = self.entries.values().flat_map(BTreeMap::keys);
        watchers.filter(|connection| of(**connection)).count()
    }

    /// Returns the connections that watch a path, in either table.
    pub(crate) fn on(&self, path: &str) -> BTreeSet<u64> {
        let of = |table| self.entries.get(&(table, path.to_owned()));
        [of(Table::Data), of(Table::Child)]
            .into_iter()
            .flatten()
            .flat_map(BTreeMap::keys)
            .copied()
            .collect()
    }

    /// Returns the paths and connections of the data table, which is the one that ZooKeeper's
    /// four-letter words show.
    pub(crate) fn data_watches(&self) -> BTreeMap<&str, Vec<u64>> {
        let data = self
            .entries
            .iter()
            .filter(|((table, _), _)| *table == Table::Data);
        data.map(|((_, path), watchers)| (path.as_str(), watchers.keys().copied().collect()))
            .collect()
    }
}

fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        None | Some(("", _)) => "/",
        Some((parent, _)) => parent,
    }
}
