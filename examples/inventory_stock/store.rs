//! The shop's database, which compares fencing tokens.

use std::path::Path;
use std::time::Duration;

use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params,
};
use zookeeper_recipes::Token;

use crate::common::Error;

/// Marks a database as a sale's, so that no other is overwritten.
const APPLICATION_ID: i32 = 0x666c_7368;

/// How long a statement waits for another process's transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a transaction may take before its process is taken to be paused in it.
const STUCK: Duration = Duration::from_millis(500);

/// A token is two columns. The table keeps the highest token of a writer and the highest of a
/// reader; the holder of a lock shows its token when it reads and when it writes, and no earlier
/// holder is granted the lock after it.
const TABLES: &str = "
    DROP TABLE IF EXISTS stock;
    DROP TABLE IF EXISTS orders;
    CREATE TABLE stock (
        sku TEXT PRIMARY KEY, left INTEGER NOT NULL,
        write_zxid INTEGER NOT NULL DEFAULT 0, write_n INTEGER NOT NULL DEFAULT 0,
        read_zxid INTEGER NOT NULL DEFAULT 0, read_n INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE orders (
        id INTEGER PRIMARY KEY, sku TEXT NOT NULL, user INTEGER NOT NULL, left INTEGER NOT NULL,
        token_zxid INTEGER, token_n INTEGER);";

/// The connection of one process to the database.
#[derive(Debug)]
pub(crate) struct Store {
    db: Connection,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sale {
    Committed,
    /// The row has a later token: another process has had the lock since.
    Fenced,
}

/// The database's contents for one product after the sale.
#[derive(Debug)]
pub(crate) struct Count {
    pub(crate) sku: String,
    pub(crate) left: u32,
    /// The orders as they were committed.
    pub(crate) orders: Vec<Order>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// Counts the orders of all products.
    pub(crate) id: i64,
    pub(crate) user: u32,
    /// The stock after it.
    pub(crate) left: u32,
}

impl Store {
    /// Creates the tables. Writes to a file only if it is new, or an earlier sale's.
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        let store = Self::open(path)?;
        store
            .create_tables()
            .map_err(|error| unusable(path, &error))?;
        Ok(store)
    }

    /// Opens a database that has its tables.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let open = || {
            let db = Connection::open(path)?;
            db.busy_timeout(BUSY_TIMEOUT)?;
            // A committed write survives a killed process. The example does not test power cuts.
            db.pragma_update(None, "synchronous", "NORMAL")?;
            Ok::<_, Error>(Self { db })
        };
        open().map_err(|error| unusable(path, &error))
    }

    fn create_tables(&self) -> Result<(), Error> {
        let tables: u32 = self
            .db
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        let id: i32 = self
            .db
            .pragma_query_value(None, "application_id", |row| row.get(0))?;
        if tables > 0 && id != APPLICATION_ID {
            return Err("it has tables that are not a sale's".into());
        }
        // With a write-ahead log a reader never waits for a writer.
        self.db.execute_batch("PRAGMA journal_mode = WAL")?;
        self.db
            .pragma_update(None, "application_id", APPLICATION_ID)?;
        self.db.execute_batch(TABLES)?;
        Ok(())
    }

    /// Adds a product and its stock.
    pub(crate) fn fill(&self, sku: &str, left: u32, token: Option<Token>) -> Result<(), Error> {
        let (zxid, n) = token.map_or((0, 0), <(i64, i64)>::from);
        let insert = "INSERT INTO stock (sku, left, write_zxid, write_n) VALUES (?1, ?2, ?3, ?4)";
        self.db.execute(insert, params![sku, left, zxid, n])?;
        Ok(())
    }

    /// Returns the stock, without comparing a token.
    pub(crate) fn left(&self, sku: &str) -> Result<u32, Error> {
        let mut select = self
            .db
            .prepare_cached("SELECT left FROM stock WHERE sku = ?1")?;
        let left = select.query_row([sku], |row| row.get(0)).optional()?;
        left.ok_or_else(|| format!("there is no {sku} in the database").into())
    }

    /// Returns the stock to the holder of a lock, and refuses all earlier holders from now on;
    /// returns `None` if a later holder has been here.
    ///
    /// The read needs the token too. A former holder may resume between this read and the write
    /// that is computed from it; a database that compared tokens only in writes would accept both
    /// writes.
    pub(crate) fn read(&mut self, sku: &str, token: Token) -> Result<Option<u32>, Error> {
        let transaction = self
            .db
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        if !accept(&transaction, sku, token)? {
            return Ok(None);
        }
        let left = transaction
            .prepare_cached("SELECT left FROM stock WHERE sku = ?1")?
            .query_row([sku], |row| row.get(0))?;
        transaction.commit()?;
        Ok(Some(left))
    }

    /// Writes the new stock and the order, or neither. With a token, only if no later holder has
    /// been here.
    pub(crate) fn sell(
        &mut self,
        sku: &str,
        left: u32,
        user: u32,
        token: Option<Token>,
    ) -> Result<Sale, Error> {
        let transaction = self
            .db
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(token) = token {
            if !accept(&transaction, sku, token)? {
                return Ok(Sale::Fenced);
            }
        }
        let (zxid, n) = token.map(<(i64, i64)>::from).unzip();
        let update = "UPDATE stock SET left = ?2 WHERE sku = ?1";
        transaction
            .prepare_cached(update)?
            .execute(params![sku, left])?;
        let insert =
            "INSERT INTO orders (sku, user, left, token_zxid, token_n) VALUES (?1, ?2, ?3, ?4, ?5)";
        transaction
            .prepare_cached(insert)?
            .execute(params![sku, user, left, zxid, n])?;
        transaction.commit()?;
        Ok(Sale::Committed)
    }

    /// Returns whether a process keeps all others from writing: one that was paused in the middle
    /// of a transaction.
    pub(crate) fn is_write_locked(&mut self) -> Result<bool, Error> {
        self.db.busy_timeout(STUCK)?;
        let locked = match self
            .db
            .transaction_with_behavior(TransactionBehavior::Immediate)
        {
            Ok(_) => false,
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => true,
            Err(error) => return Err(error.into()),
        };
        self.db.busy_timeout(BUSY_TIMEOUT)?;
        Ok(locked)
    }

    /// Returns whether there is an order of this user.
    pub(crate) fn has_bought(&self, user: u32) -> Result<bool, Error> {
        let mut select = self
            .db
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM orders WHERE user = ?1)")?;
        Ok(select.query_row([user], |row| row.get(0))?)
    }

    /// Returns the stock and the orders of a product.
    pub(crate) fn count(&self, sku: String) -> Result<Count, Error> {
        let mut select = self
            .db
            .prepare("SELECT id, user, left FROM orders WHERE sku = ?1 ORDER BY id")?;
        let orders = select
            .query_map([&sku], |row| {
                Ok(Order {
                    id: row.get(0)?,
                    user: row.get(1)?,
                    left: row.get(2)?,
                })
            })?
            .collect::<Result<_, _>>()?;
        Ok(Count {
            left: self.left(&sku)?,
            sku,
            orders,
        })
    }
}

/// Stores the token and returns `true`, unless a later holder has been here: a later writer, or,
/// for a writer, a later reader. (Readers hold the lock together, so none makes another's token too
/// old.) This is all that a resource has to do to be safe from former holders.
fn accept(transaction: &Transaction<'_>, sku: &str, token: Token) -> Result<bool, Error> {
    let (zxid, n) = token.into();
    let update = match token {
        Token::Write(_) => {
            "UPDATE stock SET write_zxid = ?2, write_n = ?3
             WHERE sku = ?1 AND (write_zxid, write_n) <= (?2, ?3) AND (read_zxid, read_n) <= (?2, ?3)"
        }
        Token::Read(_) => {
            "UPDATE stock SET read_n = CASE WHEN (read_zxid, read_n) < (?2, ?3) THEN ?3 ELSE read_n END,
                              read_zxid = CASE WHEN read_zxid < ?2 THEN ?2 ELSE read_zxid END
             WHERE sku = ?1 AND (write_zxid, write_n) <= (?2, ?3)"
        }
    };
    let mut update = transaction.prepare_cached(update)?;
    Ok(update.execute(params![sku, zxid, n])? == 1)
}

fn unusable(path: &Path, error: &Error) -> Error {
    format!("the database {} cannot be used: {error}", path.display()).into()
}
