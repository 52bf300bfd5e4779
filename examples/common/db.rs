//! An SQLite database that several processes use.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use super::Error;

/// How long a statement waits for the statement of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Creates a database with these tables.
pub(crate) fn create(file: &Path, tables: &str) -> Result<Connection, Error> {
    let db = open(file)?;
    // With a write-ahead log a reader never waits for a writer.
    db.execute_batch("PRAGMA journal_mode = WAL")?;
    db.execute_batch(tables)?;
    Ok(db)
}

/// Opens a database that has its tables.
pub(crate) fn open(file: &Path) -> Result<Connection, Error> {
    let db = Connection::open(file)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    // A committed write survives a killed process. The examples do not test power cuts.
    db.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(db)
}
