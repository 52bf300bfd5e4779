//! The table and the cache in front of it: two databases, as they would be on two servers, so that no transaction spans both.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params};
use zookeeper_recipes::{FencingToken, ReadToken, Token};

use crate::common::Error;

/// For how long a statement waits for another process's.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Both keep the highest token of a writer and the highest of a reader that they have been shown. A cache without a version
/// is empty.
const TABLE: &str = "
    CREATE TABLE price (
        id INTEGER PRIMARY KEY, version INTEGER NOT NULL,
        write_zxid INTEGER NOT NULL DEFAULT 0, write_n INTEGER NOT NULL DEFAULT 0,
        read_zxid INTEGER NOT NULL DEFAULT 0, read_n INTEGER NOT NULL DEFAULT 0);
    INSERT INTO price (id, version) VALUES (1, 1);";
const CACHE: &str = "
    CREATE TABLE price (
        id INTEGER PRIMARY KEY, version INTEGER,
        write_zxid INTEGER NOT NULL DEFAULT 0, write_n INTEGER NOT NULL DEFAULT 0,
        read_zxid INTEGER NOT NULL DEFAULT 0, read_n INTEGER NOT NULL DEFAULT 0);
    INSERT INTO price (id, version) VALUES (1, NULL);";

/// What a writer's statement does with its token, and when it is let in: not after a later writer, nor after a later reader.
const WRITER: [&str; 2] = [
    "write_zxid = ?1, write_n = ?2",
    "(write_zxid, write_n) <= (?1, ?2) AND (read_zxid, read_n) <= (?1, ?2)",
];

/// The same of a reader: not after a later writer. Readers are inside together, and none of them makes another too old.
const READER: [&str; 2] = [
    "read_n = CASE WHEN (read_zxid, read_n) < (?1, ?2) THEN ?2 ELSE read_n END,
     read_zxid = CASE WHEN read_zxid < ?1 THEN ?1 ELSE read_zxid END",
    "(write_zxid, write_n) <= (?1, ?2)",
];

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

    /// The committed version, for a reader that will put it into the cache; nothing if a later writer has been here. No
    /// former writer can change the row any more: it was paused, has emptied the cache before this reader fills it, and
    /// would leave it stale.
    pub(crate) fn look(&self, token: Option<ReadToken>) -> Result<Option<u32>, Error> {
        let [mark, unless] = READER;
        self.one(&format!("UPDATE price SET {mark} WHERE {unless} RETURNING version"), columns(token)?)
    }

    /// A new version; nothing if a later holder has been here.
    pub(crate) fn update(&self, token: Option<FencingToken>) -> Result<Option<u32>, Error> {
        let [mark, unless] = WRITER;
        let update =
            format!("UPDATE price SET version = version + 1, {mark} WHERE {unless} RETURNING version");
        self.one(&update, columns(token)?)
    }

    /// The version that a statement answers with, if it changes the row.
    fn one(&self, statement: &str, (zxid, n): (i64, i64)) -> Result<Option<u32>, Error> {
        let mut statement = self.0.prepare_cached(statement)?;
        let mut rows = statement.query([zxid, n])?;
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

    /// Takes out what is in it, for a writer. Readers that were there before cannot fill it any more.
    pub(crate) fn clear(&self, token: Option<FencingToken>) -> Result<Step, Error> {
        let ((zxid, n), [mark, unless]) = (columns(token)?, WRITER);
        let clear = format!("UPDATE price SET version = NULL, {mark} WHERE {unless}");
        step(self.0.prepare_cached(&clear)?.execute([zxid, n])?)
    }

    /// Puts something in, for a reader.
    pub(crate) fn fill(&self, version: u32, token: Option<ReadToken>) -> Result<Step, Error> {
        let ((zxid, n), [mark, unless]) = (columns(token)?, READER);
        let fill = format!("UPDATE price SET version = ?3, {mark} WHERE {unless}");
        step(self.0.prepare_cached(&fill)?.execute(params![zxid, n, version])?)
    }
}

fn step(rows: usize) -> Result<Step, Error> {
    Ok(if rows == 1 { Step::Done } else { Step::Refused })
}

fn columns(token: Option<impl Into<Token>>) -> Result<(i64, i64), Error> {
    // Without a lock all are equal, and nobody is refused.
    let token = token.map(Into::into);
    token.map_or(Ok((0, 0)), |token| Ok((token.zxid(), i64::try_from(token.counter())?)))
}
