//! The service, which writes down who comes and who goes.

use std::collections::HashMap;
use std::path::Path;

use rusqlite::{Connection, params};

use crate::common::{Error, db};

const TABLES: &str = "
    CREATE TABLE log (
        -- In the order of the commits.
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        -- The connection of the service that is used.
        slot INTEGER NOT NULL,
        -- 1 if a visitor comes, -1 if it goes.
        change INTEGER NOT NULL
    );
";

#[derive(Debug)]
pub(crate) struct Service(Connection);

/// How the service was used.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// Visitors that came and went.
    pub(crate) served: u32,
    /// The most visitors that were there at once.
    pub(crate) peak: i64,
    /// Visitors that used a connection while another did.
    pub(crate) clashes: u32,
}

impl Service {
    pub(crate) fn create(file: &Path) -> Result<Self, Error> {
        db::create(file, TABLES).map(Self)
    }

    pub(crate) fn open(file: &Path) -> Result<Self, Error> {
        db::open(file).map(Self)
    }

    /// Records that a visitor enters.
    pub(crate) fn enter(&self, slot: u32) -> Result<(), Error> {
        self.log(slot, 1)
    }

    /// Records that a visitor leaves.
    pub(crate) fn leave(&self, slot: u32) -> Result<(), Error> {
        self.log(slot, -1)
    }

    fn log(&self, slot: u32, change: i64) -> Result<(), Error> {
        let mut insert = self
            .0
            .prepare_cached("INSERT INTO log (slot, change) VALUES (?1, ?2)")?;
        insert.execute(params![slot, change])?;
        Ok(())
    }

    /// Evaluates the log.
    pub(crate) fn usage(&self) -> Result<Usage, Error> {
        let mut select = self.0.prepare("SELECT slot, change FROM log ORDER BY id")?;
        let mut rows = select.query([])?;
        let (mut usage, mut inside, mut at_slot) =
            (Usage::default(), 0, HashMap::<u32, i64>::new());
        while let Some(row) = rows.next()? {
            let (slot, change): (u32, i64) = (row.get(0)?, row.get(1)?);
            inside += change;
            usage.peak = usage.peak.max(inside);
            let here = at_slot.entry(slot).or_default();
            *here += change;
            usage.clashes += u32::from(change > 0 && *here > 1);
            usage.served += u32::from(change < 0);
        }
        Ok(usage)
    }
}
