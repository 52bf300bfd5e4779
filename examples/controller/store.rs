//! The resource that the leader writes to, and the record of the writes.

use std::path::Path;

use rusqlite::{Connection, params};
use zookeeper_recipes::FencingToken;

use crate::common::{Error, db};

const TABLES: &str = "
    CREATE TABLE state (
        value INTEGER NOT NULL,
        -- The highest term that was shown here.
        zxid INTEGER NOT NULL,
        n INTEGER NOT NULL
    );
    INSERT INTO state VALUES (0, 0, 0);
    CREATE TABLE term (id INTEGER PRIMARY KEY, zxid INTEGER NOT NULL, n INTEGER NOT NULL);
    CREATE TABLE stop (id INTEGER PRIMARY KEY);
    CREATE TABLE write (id INTEGER PRIMARY KEY, zxid INTEGER NOT NULL, n INTEGER NOT NULL);
";

#[derive(Debug)]
pub(crate) struct Store(Connection);

/// The writes in their order.
#[derive(Debug)]
pub(crate) struct Audit {
    pub(crate) terms: u32,
    pub(crate) writes: u32,
    /// Writes that were taken after one of a later term.
    pub(crate) stale_writes: u32,
    /// Terms that are not greater than the one before.
    pub(crate) terms_out_of_order: u32,
}

impl Store {
    pub(crate) fn create(file: &Path) -> Result<Self, Error> {
        db::create(file, TABLES).map(Self)
    }

    pub(crate) fn open(file: &Path) -> Result<Self, Error> {
        db::open(file).map(Self)
    }

    /// Notes that a term begins.
    pub(crate) fn begin(&self, term: FencingToken) -> Result<(), Error> {
        let (zxid, n): (i64, i64) = term.into();
        self.0.execute(
            "INSERT INTO term (zxid, n) VALUES (?1, ?2)",
            params![zxid, n],
        )?;
        Ok(())
    }

    /// Returns how many leaders have been stopped so far.
    pub(crate) fn stops(&self) -> Result<u32, Error> {
        Ok(self
            .0
            .query_row("SELECT count(*) FROM stop", [], |row| row.get(0))?)
    }

    /// Notes that a leader is stopped.
    pub(crate) fn stop(&self) -> Result<(), Error> {
        self.0.execute("INSERT INTO stop DEFAULT VALUES", [])?;
        Ok(())
    }

    /// Writes in a term; returns `false` if a later one has been shown here, and writes nothing
    /// then. Without the fence, the store does not compare terms.
    pub(crate) fn write(&mut self, term: FencingToken, fence: bool) -> Result<bool, Error> {
        let (zxid, n): (i64, i64) = term.into();
        let transaction = self.0.transaction()?;
        let written = transaction.execute(
            "UPDATE state SET value = value + 1, zxid = max(zxid, ?1), n = ?2
              WHERE (zxid, n) <= (?1, ?2) OR NOT ?3",
            params![zxid, n, fence],
        )?;
        if written == 0 {
            // Dropping the transaction rolls it back.
            return Ok(false);
        }
        transaction.execute(
            "INSERT INTO write (zxid, n) VALUES (?1, ?2)",
            params![zxid, n],
        )?;
        transaction.commit()?;
        Ok(true)
    }

    pub(crate) fn audit(&self) -> Result<Audit, Error> {
        let sql = "SELECT (SELECT count(*) FROM term), (SELECT count(*) FROM write),
             (SELECT count(*) FROM write WHERE EXISTS (SELECT 1 FROM write AS earlier
                 WHERE earlier.id < write.id AND (earlier.zxid, earlier.n) > (write.zxid, write.n))),
             (SELECT count(*) FROM term WHERE EXISTS (SELECT 1 FROM term AS earlier
                 WHERE earlier.id < term.id AND (earlier.zxid, earlier.n) >= (term.zxid, term.n)))";
        Ok(self.0.query_row(sql, [], |row| {
            Ok(Audit {
                terms: row.get(0)?,
                writes: row.get(1)?,
                stale_writes: row.get(2)?,
                terms_out_of_order: row.get(3)?,
            })
        })?)
    }
}
