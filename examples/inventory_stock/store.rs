//! The shop's database.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params};
use zookeeper_recipes::Token;

use crate::common::Error;

/// Marks a database as ours, so that no other is overwritten.
const APPLICATION_ID: i32 = 0x666c_7368;

/// For how long a statement waits for another process's.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// When nobody else has been able to write for so long, somebody is stuck.
const STUCK: Duration = Duration::from_millis(500);

/// A token is two columns, and the table keeps the highest of a writer and the highest of a reader. The holder of a lock
/// shows its token before reading and when writing; no former holder is let in after it.
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

/// One process's connection to the database.
#[derive(Debug)]
pub(crate) struct Store {
    db: Connection,
}

/// What became of a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Sold,
    /// The row has a younger token: somebody else has had the lock since.
    Fenced,
}

/// The end of the day, for one product.
#[derive(Debug)]
pub(crate) struct Stocktaking {
    pub(crate) sku: String,
    pub(crate) left: u32,
    /// In order.
    pub(crate) orders: Vec<Order>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// Counts through all products.
    pub(crate) id: i64,
    pub(crate) user: u32,
    /// What the buyer left.
    pub(crate) left: u32,
}

impl Store {
    /// Makes the tables. Only a file that is new, or that was a former sale's, is written to.
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        let store = Self::open(path)?;
        store.make_tables().map_err(|error| unusable(path, &error))?;
        Ok(store)
    }

    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let open = || {
            let db = Connection::open(path)?;
            db.busy_timeout(BUSY_TIMEOUT)?;
            // What is committed survives a killed process so too; a power cut, an example need not survive.
            db.pragma_update(None, "synchronous", "NORMAL")?;
            Ok::<_, Error>(Self { db })
        };
        open().map_err(|error| unusable(path, &error))
    }

    fn make_tables(&self) -> Result<(), Error> {
        let tables: u32 = self.db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        let id: i32 = self.db.pragma_query_value(None, "application_id", |row| row.get(0))?;
        if tables > 0 && id != APPLICATION_ID {
            return Err("it has tables that are not a sale's".into());
        }
        // With a write-ahead log a reader never waits for a writer.
        self.db.execute_batch("PRAGMA journal_mode = WAL")?;
        self.db.pragma_update(None, "application_id", APPLICATION_ID)?;
        self.db.execute_batch(TABLES)?;
        Ok(())
    }

    /// Puts goods on the shelf.
    pub(crate) fn fill(&self, sku: &str, left: u32, token: Option<Token>) -> Result<(), Error> {
        let (zxid, n) = token.map_or(Ok((0, 0)), columns)?;
        let insert = "INSERT INTO stock (sku, left, write_zxid, write_n) VALUES (?1, ?2, ?3, ?4)";
        self.db.execute(insert, params![sku, left, zxid, n])?;
        Ok(())
    }

    /// How many are left.
    pub(crate) fn left(&self, sku: &str) -> Result<u32, Error> {
        let mut select = self.db.prepare_cached("SELECT left FROM stock WHERE sku = ?1")?;
        let left = select.query_row([sku], |row| row.get(0)).optional()?;
        left.ok_or_else(|| format!("there is no {sku} in the database").into())
    }

    /// Says how many are left to the holder of a lock, and lets no former holder write from now on; nothing if a later one
    /// has been here.
    ///
    /// That the token is shown already here is not pedantry. A former holder may wake up between this look and the write
    /// that is computed from it; a database that saw tokens only in writes would let that one in, and then this one.
    pub(crate) fn look(&mut self, sku: &str, token: Token) -> Result<Option<u32>, Error> {
        let look = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if !pass(&look, sku, token)? {
            return Ok(None);
        }
        let left = look
            .prepare_cached("SELECT left FROM stock WHERE sku = ?1")?
            .query_row([sku], |row| row.get(0))?;
        look.commit()?;
        Ok(Some(left))
    }

    /// Writes the new stock and the order, or neither. With a token, only if no younger one has been here.
    pub(crate) fn sell(
        &mut self,
        sku: &str,
        left: u32,
        user: u32,
        token: Option<Token>,
    ) -> Result<Written, Error> {
        let sale = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(token) = token {
            if !pass(&sale, sku, token)? {
                return Ok(Written::Fenced);
            }
        }
        let (zxid, n) = token.map(columns).transpose()?.unzip();
        sale.prepare_cached("UPDATE stock SET left = ?2 WHERE sku = ?1")?.execute(params![sku, left])?;
        let insert = "INSERT INTO orders (sku, user, left, token_zxid, token_n) VALUES (?1, ?2, ?3, ?4, ?5)";
        sale.prepare_cached(insert)?.execute(params![sku, user, left, zxid, n])?;
        sale.commit()?;
        Ok(Written::Sold)
    }

    /// Whether somebody keeps all others from writing, who must have been stopped in the middle of a transaction.
    pub(crate) fn is_stuck(&mut self) -> Result<bool, Error> {
        self.db.busy_timeout(STUCK)?;
        let stuck = match self.db.transaction_with_behavior(TransactionBehavior::Immediate) {
            Ok(_) => false,
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => true,
            Err(error) => return Err(error.into()),
        };
        self.db.busy_timeout(BUSY_TIMEOUT)?;
        Ok(stuck)
    }

    /// Counts what is there.
    pub(crate) fn take_stock(&self, sku: String) -> Result<Stocktaking, Error> {
        let mut select = self.db.prepare("SELECT id, user, left FROM orders WHERE sku = ?1 ORDER BY id")?;
        let orders = select
            .query_map([&sku], |row| Ok(Order { id: row.get(0)?, user: row.get(1)?, left: row.get(2)? }))?
            .collect::<Result<_, _>>()?;
        Ok(Stocktaking { left: self.left(&sku)?, sku, orders })
    }
}

/// Stores the token, unless one that it must not follow has been here: a younger one of a writer, or, for a writer, also of
/// a reader. (Readers are inside together, and none of them makes another too old.) That is all that a resource has to do to
/// be safe from holders that come too late.
fn pass(transaction: &Transaction<'_>, sku: &str, token: Token) -> Result<bool, Error> {
    let (zxid, n) = columns(token)?;
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

fn columns(token: Token) -> Result<(i64, i64), Error> {
    Ok((token.zxid(), i64::try_from(token.counter())?))
}
