//! The stock: a table in SQLite, which compares fencing tokens.

use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension, Result, Transaction, TransactionBehavior, params};
use zookeeper_recipes::FencingToken;

use crate::DATABASE_WAIT;

/// The database, whose calls block.
#[derive(Debug)]
pub struct Stock {
    file: PathBuf,
}

/// The outcome of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sale {
    /// One was sold.
    Sold {
        /// How many there are after it.
        left: u32,
    },
    /// None was left.
    SoldOut,
    /// There is no such item.
    Unknown,
    /// A later holder of the lock has been at the item: the token is smaller than the stored one.
    Refused,
}

impl Stock {
    /// Opens the database in this file, and makes the table if it is not there.
    ///
    /// # Errors
    /// SQLite's.
    pub fn open(file: impl Into<PathBuf>) -> Result<Self> {
        let stock = Self { file: file.into() };
        stock.connect()?.execute_batch(
            "CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, left_over INTEGER NOT NULL,
                write_zxid BIGINT NOT NULL DEFAULT 0, write_n BIGINT NOT NULL DEFAULT 0)",
        )?;
        Ok(stock)
    }

    /// Sets how many of an item there are.
    ///
    /// # Errors
    /// SQLite's.
    pub fn set(&self, sku: &str, left: u32) -> Result<()> {
        let sql = "INSERT INTO stock (sku, left_over) VALUES (?1, ?2)
                   ON CONFLICT (sku) DO UPDATE SET left_over = ?2";
        self.connect()?.execute(sql, params![sku, left]).map(drop)
    }

    /// Returns how many of an item there are; `None` if there is no such item.
    ///
    /// # Errors
    /// SQLite's.
    pub fn left(&self, sku: &str) -> Result<Option<u32>> {
        left(&self.connect()?, sku)
    }

    /// Sells one of an item: reads the stock, decides, and writes, under the lock with this token.
    ///
    /// # Errors
    /// SQLite's.
    pub fn sell(&self, sku: &str, token: FencingToken) -> Result<Sale> {
        let mut connection = self.connect()?;
        let reading = begin(&mut connection)?;
        let Some(before) = left(&reading, sku)? else {
            return Ok(Sale::Unknown);
        };
        if !admits(&reading, sku, token)? {
            return Ok(Sale::Refused);
        }
        reading.commit()?;
        // Between the two the customer pays, say: only the lock keeps other orders away.
        let Some(after) = before.checked_sub(1) else {
            return Ok(Sale::SoldOut);
        };
        let writing = begin(&mut connection)?;
        if !admits(&writing, sku, token)? {
            return Ok(Sale::Refused);
        }
        writing.execute(
            "UPDATE stock SET left_over = ?2 WHERE sku = ?1",
            params![sku, after],
        )?;
        writing.commit()?;
        Ok(Sale::Sold { left: after })
    }

    fn connect(&self) -> Result<Connection> {
        let connection = Connection::open(&self.file)?;
        connection.busy_timeout(DATABASE_WAIT)?;
        Ok(connection)
    }
}

fn begin(connection: &mut Connection) -> Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

fn left(connection: &Connection, sku: &str) -> Result<Option<u32>> {
    connection
        .query_row("SELECT left_over FROM stock WHERE sku = ?1", [sku], |row| {
            row.get(0)
        })
        .optional()
}

/// Stores the token, unless the stored one is greater. Returns whether it was stored.
fn admits(transaction: &Transaction<'_>, sku: &str, token: FencingToken) -> Result<bool> {
    let (zxid, n): (i64, i64) = token.into();
    let sql = "UPDATE stock SET write_zxid = ?2, write_n = ?3
               WHERE sku = ?1 AND (write_zxid, write_n) <= (?2, ?3)";
    Ok(transaction.execute(sql, params![sku, zxid, n])? == 1)
}
