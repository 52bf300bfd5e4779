//! The table and the cache in front of it: two databases, as they would be on two servers, so that
//! no transaction spans both. Each compares fencing tokens.

use std::path::Path;

use rusqlite::{Connection, params};
use zookeeper_recipes::{FencingToken, ReadToken};

use crate::common::{Error, db};

/// Table and cache keep the highest token of a writer and the highest of a reader that they have
/// seen. A cache whose version is `NULL` is empty.
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

/// How a writer's statement stores its token, and its condition: neither a later writer nor a later
/// reader has been here.
const WRITER: [&str; 2] = [
    "write_zxid = ?1, write_n = ?2",
    "(write_zxid, write_n) <= (?1, ?2) AND (read_zxid, read_n) <= (?1, ?2)",
];

/// The same for a reader: no later writer has been here. Readers hold the lock together, so none
/// makes another's token too old.
const READER: [&str; 2] = [
    "read_n = CASE WHEN (read_zxid, read_n) < (?1, ?2) THEN ?2 ELSE read_n END,
     read_zxid = CASE WHEN read_zxid < ?1 THEN ?1 ELSE read_zxid END",
    "(write_zxid, write_n) <= (?1, ?2)",
];

/// The result of a statement with a token. A statement without one is always applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Applied,
    /// A later token has been here.
    Refused,
}

/// The table, of one row.
#[derive(Debug)]
pub(crate) struct Table(Connection);

/// The cache, of one entry.
#[derive(Debug)]
pub(crate) struct Cache(Connection);

/// Creates the table and the cache in a directory.
pub(crate) fn create(directory: &Path) -> Result<(), Error> {
    for (file, tables) in [("table.sqlite", TABLE), ("cache.sqlite", CACHE)] {
        db::create(&directory.join(file), tables)?;
    }
    Ok(())
}

impl Table {
    pub(crate) fn open(directory: &Path) -> Result<Self, Error> {
        Ok(Self(db::open(&directory.join("table.sqlite"))?))
    }

    /// Returns the committed version.
    pub(crate) fn version(&self) -> Result<u32, Error> {
        let mut select = self.0.prepare_cached("SELECT version FROM price")?;
        Ok(select.query_row([], |row| row.get(0))?)
    }

    /// Returns the committed version to a reader that will put it into the cache; `None` if a later
    /// writer has been here.
    ///
    /// From now on no former writer can change the row. One that was paused after it had emptied
    /// the cache, and resumed after this reader has filled it, would leave a stale entry.
    pub(crate) fn read(&self, token: Option<ReadToken>) -> Result<Option<u32>, Error> {
        let [store_token, is_latest] = READER;
        let read = format!("UPDATE price SET {store_token} WHERE {is_latest} RETURNING version");
        self.returning_version(&read, columns(token))
    }

    /// Makes and returns a new version; returns `None` if a later holder has been here.
    pub(crate) fn update(&self, token: Option<FencingToken>) -> Result<Option<u32>, Error> {
        let [store_token, is_latest] = WRITER;
        let update = format!(
            "UPDATE price SET version = version + 1, {store_token} WHERE {is_latest} RETURNING version"
        );
        self.returning_version(&update, columns(token))
    }

    /// Returns the version that a statement returns; `None` if it changes no row.
    fn returning_version(
        &self,
        statement: &str,
        (zxid, n): (i64, i64),
    ) -> Result<Option<u32>, Error> {
        let mut statement = self.0.prepare_cached(statement)?;
        let mut rows = statement.query([zxid, n])?;
        let version = rows.next()?.map(|row| row.get(0)).transpose()?;
        // The statement commits when its last row has been read.
        while rows.next()?.is_some() {}
        Ok(version)
    }
}

impl Cache {
    pub(crate) fn open(directory: &Path) -> Result<Self, Error> {
        Ok(Self(db::open(&directory.join("cache.sqlite"))?))
    }

    /// Returns the entry; `None` if the cache is empty.
    pub(crate) fn get(&self) -> Result<Option<u32>, Error> {
        let mut select = self.0.prepare_cached("SELECT version FROM price")?;
        Ok(select.query_row([], |row| row.get(0))?)
    }

    /// Empties the cache, for a writer. Readers that held the lock before it cannot fill it any
    /// more.
    pub(crate) fn clear(&self, token: Option<FencingToken>) -> Result<Step, Error> {
        let ((zxid, n), [store_token, is_latest]) = (columns(token), WRITER);
        let clear = format!("UPDATE price SET version = NULL, {store_token} WHERE {is_latest}");
        Ok(step(self.0.prepare_cached(&clear)?.execute([zxid, n])?))
    }

    /// Puts a version into the cache, for a reader.
    pub(crate) fn fill(&self, version: u32, token: Option<ReadToken>) -> Result<Step, Error> {
        let ((zxid, n), [store_token, is_latest]) = (columns(token), READER);
        let fill = format!("UPDATE price SET version = ?3, {store_token} WHERE {is_latest}");
        Ok(step(
            self.0
                .prepare_cached(&fill)?
                .execute(params![zxid, n, version])?,
        ))
    }
}

fn step(rows: usize) -> Step {
    if rows == 1 {
        Step::Applied
    } else {
        Step::Refused
    }
}

fn columns(token: Option<impl Into<(i64, i64)>>) -> (i64, i64) {
    // Without a lock all tokens are equal, and none is refused.
    token.map_or((0, 0), Into::into)
}
