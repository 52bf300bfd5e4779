//! The table and the cache in front of it: two databases, as they would be on two servers, so that no transaction spans both.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params};
use zookeeper_recipes::FencingToken;

use crate::common::Error;

/// For how long a statement waits for another process's.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The table keeps the youngest token that it has been shown, the cache the youngest writer's. A cache without a version
/// is empty.
const TABLE: &str = "
    CREATE TABLE price (id INTEGER PRIMARY KEY, version INTEGER NOT NULL, zxid INTEGER NOT NULL, n INTEGER NOT NULL);
    INSERT INTO price VALUES (1, 1, 0, 0);";
const CACHE: &str = "
    CREATE TABLE price (id INTEGER PRIMARY KEY, version INTEGER, zxid INTEGER NOT NULL, n INTEGER NOT NULL);
    INSERT INTO price VALUES (1, NULL, 0, 0);";

/// Whether a step was let in. Who has no token always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Done,
    /// Somebody with a younger token has been here.
    Refused,
}

/// The row that matters.
#[derive(Debug)]
pub(crate) struct Table(Connection);

/// A copy of it, for quick reads.
#[derive(Debug)]
pub(crate) struct Cache(Connection);

/// Makes both.
pub(crate) fn create(directory: &Path) -> Result<(), Error> {
    for (file, tables) in [("table.sqlite", TABLE), ("cache.sqlite", CACHE)] {
        let db = open(&directory.join(file))?;
        // With a write-ahead log a reader never waits for a writer.
        db.execute_batch("PRAGMA journal_mode = WAL")?;
        db.execute_batch(tables)?;
    }
    Ok(())
}

fn open(file: &Path) -> Result<Connection, Error> {
    let db = Connection::open(file)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    // What is committed survives a killed process so too; a power cut, an example need not survive.
    db.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(db)
}

impl Table {
    pub(crate) fn open(directory: &Path) -> Result<Self, Error> {
        Ok(Self(open(&directory.join("table.sqlite"))?))
    }

    /// The committed version.
    pub(crate) fn version(&self) -> Result<u32, Error> {
        let mut select = self.0.prepare_cached("SELECT version FROM price")?;
        Ok(select.query_row([], |row| row.get(0))?)
    }

    /// The committed version, for a reader who will put it into the cache. No writer with an older token can change the row
    /// any more: it was paused, has emptied the cache before this reader fills it, and would leave it stale.
    pub(crate) fn look(&self, token: Option<FencingToken>) -> Result<u32, Error> {
        let (zxid, n) = columns(token)?;
        // If there is a younger token, let it be. A reader's does no harm; a writer's is in the cache too, which will refuse us.
        let mark = "UPDATE price SET zxid = ?1, n = ?2 WHERE (zxid, n) < (?1, ?2)";
        self.0.prepare_cached(mark)?.execute([zxid, n])?;
        self.version()
    }

    /// A new version; nothing if somebody with a younger token has been here.
    pub(crate) fn update(&self, token: Option<FencingToken>) -> Result<Option<u32>, Error> {
        let (zxid, n) = columns(token)?;
        let mut update = self.0.prepare_cached(
            "UPDATE price SET version = version + 1, zxid = ?1, n = ?2 WHERE (zxid, n) <= (?1, ?2) RETURNING version",
        )?;
        let mut rows = update.query([zxid, n])?;
        let version = rows.next()?.map(|row| row.get(0)).transpose()?;
        // The statement ends, and commits, with its last row.
        while rows.next()?.is_some() {}
        Ok(version)
    }
}

impl Cache {
    pub(crate) fn open(directory: &Path) -> Result<Self, Error> {
        Ok(Self(open(&directory.join("cache.sqlite"))?))
    }

    /// What is in it.
    pub(crate) fn get(&self) -> Result<Option<u32>, Error> {
        let mut select = self.0.prepare_cached("SELECT version FROM price")?;
        Ok(select.query_row([], |row| row.get(0))?)
    }

    /// Takes out what is in it, for a writer. Readers who were there before cannot fill it any more.
    pub(crate) fn clear(&self, token: Option<FencingToken>) -> Result<Step, Error> {
        let (zxid, n) = columns(token)?;
        let clear = "UPDATE price SET version = NULL, zxid = ?1, n = ?2 WHERE (zxid, n) <= (?1, ?2)";
        step(self.0.prepare_cached(clear)?.execute([zxid, n])?)
    }

    /// Puts something in, for a reader. Its token is only compared with the writers': readers are inside together, and
    /// none of them makes another too old.
    pub(crate) fn fill(&self, version: u32, token: Option<FencingToken>) -> Result<Step, Error> {
        let (zxid, n) = columns(token)?;
        let fill = "UPDATE price SET version = ?1 WHERE (zxid, n) <= (?2, ?3)";
        step(self.0.prepare_cached(fill)?.execute(params![version, zxid, n])?)
    }
}

fn step(rows: usize) -> Result<Step, Error> {
    Ok(if rows == 1 { Step::Done } else { Step::Refused })
}

fn columns(token: Option<FencingToken>) -> Result<(i64, i64), Error> {
    // Without a lock all are equal, and nobody is refused.
    token.map_or(Ok((0, 0)), |token| Ok((token.zxid(), i64::try_from(token.counter())?)))
}
