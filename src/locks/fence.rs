//! The resource's side of fencing: a resource that remembers the highest token refuses the write of
//! an earlier holder (docs/protocol.md#fencing-token).

use thiserror::Error;

use crate::session::threads::mutex::Mutex;
use crate::values::token::{FencingToken, ReadToken, Token};

/// Remembers the highest fencing tokens that a resource has seen, and refuses smaller ones.
///
/// This is the rule for a protected resource, here for a resource in memory:
/// - A **writer** (also the holder of a mutex or a fair lock) is compared with the highest token of
///   a writer *and* of a reader, and remembered as the highest writer.
/// - A **reader** is compared with the highest token of a writer only, because readers that hold
///   the lock together have tokens in no meaningful order, and remembered as the highest reader.
///
/// Therefore a former writer is refused once a later writer or reader has been seen, and a former
/// reader once a later writer has been seen. Equal tokens pass, because a holder may read and write
/// several times.
///
/// **Check the token before a read, too**, if a later write depends on it. Otherwise a former
/// holder that resumes between the present holder's read and write is admitted, and its write is
/// overwritten.
///
/// # Examples
/// ```
/// use zookeeper_recipes::{FenceGate, FencingToken, ReadToken, Token};
///
/// let gate = FenceGate::new();
/// let (older, newer) = (FencingToken::from_parts(7, 0), FencingToken::from_parts(9, 0));
/// gate.admit(older)?;
/// gate.admit(newer)?;
/// gate.admit(newer)?;
/// // The first holder was paused, and continues too late.
/// assert_eq!(gate.admit(older).unwrap_err().highest(), Token::Write(newer));
///
/// // Readers that hold the lock together arrive in any order.
/// let (one, two) = (ReadToken::from_parts(11, 0), ReadToken::from_parts(12, 0));
/// gate.admit(two)?;
/// gate.admit(one)?;
/// // Now the second holder is late as well.
/// assert_eq!(gate.admit(newer).unwrap_err().highest(), Token::Read(two));
/// # Ok::<(), zookeeper_recipes::StaleToken>(())
/// ```
///
/// # In SQL
/// A resource that stores its data makes the same comparison in the store, in the transaction that
/// reads or writes. The highest tokens are in 64-bit columns next to the data, which must be `NOT
/// NULL` and 0 by default, because otherwise no row ever matches. Without read locks, omit the
/// columns for readers.
///
/// ```sql
/// CREATE TABLE stock (
///   sku VARCHAR(40) PRIMARY KEY, remaining BIGINT NOT NULL,
///   write_zxid BIGINT NOT NULL DEFAULT 0, write_n BIGINT NOT NULL DEFAULT 0,
///   read_zxid BIGINT NOT NULL DEFAULT 0, read_n BIGINT NOT NULL DEFAULT 0);
///
/// -- Under a write lock or a mutex, first in the transaction, whether it writes or only reads:
/// UPDATE stock SET write_zxid = ?2, write_n = ?3
///  WHERE sku = ?1 AND (write_zxid, write_n) <= (?2, ?3) AND (read_zxid, read_n) <= (?2, ?3);
/// -- no row matched: the lock is lost; roll back
///
/// -- Under a read lock, first in the transaction that reads:
/// UPDATE stock SET read_n = CASE WHEN (read_zxid, read_n) < (?2, ?3) THEN ?3 ELSE read_n END,
///                  read_zxid = CASE WHEN read_zxid < ?2 THEN ?2 ELSE read_zxid END
///  WHERE sku = ?1 AND (write_zxid, write_n) <= (?2, ?3);
/// -- no row matched: the lock is lost; roll back
/// ```
///
/// The parameters are the key and the two numbers of the guard's token, which converts into `(i64,
/// i64)`. SQLite, PostgreSQL and MySQL compare pairs like that. For other databases write `(a < ?2
/// OR (a = ?2 AND b <= ?3))` for each `<=`, with the outer parentheses, and `(a < ?2 OR (a = ?2 AND
/// b < ?3))` for the `<` in the `CASE` of the reader. The placeholders are SQLite's; PostgreSQL
/// writes `$2`, and MySQL `?`, once for each use.
///
/// The number of rows *matched* decides. A MySQL client returns the number of rows changed, and so
/// refuses a holder that shows its token twice, unless it connects with `CLIENT_FOUND_ROWS`
/// (`useAffectedRows=false` in JDBC). A missing row refuses every holder, whereas an empty gate
/// admits the first one.
///
/// ```
/// use rusqlite::{Connection, params};
/// use zookeeper_recipes::FencingToken;
///
/// const WRITER: &str = "UPDATE stock SET write_zxid = ?2, write_n = ?3
///     WHERE sku = ?1 AND (write_zxid, write_n) <= (?2, ?3) AND (read_zxid, read_n) <= (?2, ?3)";
///
/// /// Takes one item, and returns how many are left; `None` if the lock was lost.
/// fn take(db: &mut Connection, token: FencingToken) -> rusqlite::Result<Option<i64>> {
///     let (zxid, counter): (i64, i64) = token.into();
///     let transaction = db.transaction()?; // rolled back when dropped
///     if transaction.execute(WRITER, params!["sku-42", zxid, counter])? == 0 {
///         return Ok(None);
///     }
///     transaction.execute("UPDATE stock SET remaining = remaining - 1 WHERE sku = 'sku-42'", [])?;
///     let left = "SELECT remaining FROM stock WHERE sku = 'sku-42'";
///     let left = transaction.query_row(left, [], |row| row.get(0))?;
///     transaction.commit()?;
///     Ok(Some(left))
/// }
///
/// # let mut db = Connection::open_in_memory()?;
/// # db.execute_batch(
/// #     "CREATE TABLE stock (
/// #        sku VARCHAR(40) PRIMARY KEY, remaining BIGINT NOT NULL,
/// #        write_zxid BIGINT NOT NULL DEFAULT 0, write_n BIGINT NOT NULL DEFAULT 0,
/// #        read_zxid BIGINT NOT NULL DEFAULT 0, read_n BIGINT NOT NULL DEFAULT 0);
/// #      INSERT INTO stock (sku, remaining) VALUES ('sku-42', 5);",
/// # )?;
/// let (older, newer) = (FencingToken::from_parts(7, 0), FencingToken::from_parts(9, 0));
/// assert_eq!(take(&mut db, older)?, Some(4));
/// assert_eq!(take(&mut db, newer)?, Some(3));
/// assert_eq!(take(&mut db, older)?, None); // refused, and nothing was written
/// # Ok::<(), rusqlite::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct FenceGate {
    highest: Mutex<Highest>,
}

#[derive(Debug, Default)]
struct Highest {
    write: Option<FencingToken>,
    read: Option<ReadToken>,
}

impl FenceGate {
    /// Creates a gate that has seen no token.
    ///
    /// ```
    /// static STOCK: zookeeper_recipes::FenceGate = zookeeper_recipes::FenceGate::new();
    /// # let _ = &STOCK;
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self {
            highest: Mutex::new(Highest {
                write: None,
                read: None,
            }),
        }
    }

    /// Admits the holder with this token, and from then on refuses the former holders that it
    /// excludes.
    ///
    /// The call takes the token of any guard: [`FencingToken`], [`ReadToken`] or [`Token`].
    ///
    /// # Errors
    /// [`StaleToken`] if a greater token of a writer has been seen, or, if `token` is a writer's,
    /// of a reader.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::{FenceGate, InterProcessMutex};
    ///
    /// let gate = FenceGate::new(); // of the resource
    /// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
    ///
    /// let guard = mutex.lock().await?;
    /// let token = guard.fencing_token();
    /// gate.admit(token)?;
    /// guard.release().await?;
    ///
    /// let guard = mutex.lock().await?;
    /// gate.admit(guard.fencing_token())?;
    /// assert!(gate.admit(token).is_err()); // of the former holder
    /// # Ok(())
    /// # }
    /// ```
    pub fn admit(&self, token: impl Into<Token>) -> Result<(), StaleToken> {
        let token = token.into();
        let mut highest = self.highest.lock();
        // An equal token is admitted, because a holder may write more than once.
        let older = |than: Option<Token>| than.filter(|than| numbers(*than) > numbers(token));
        let write = older(highest.write.map(Token::Write));
        let fence = match token {
            // A writer waits for all readers before it, so its token is above all of theirs.
            Token::Write(_) => write.or_else(|| older(highest.read.map(Token::Read))),
            // Readers that hold the lock together have tokens in no particular order, so a reader
            // is compared with writers only (docs/protocol.md#reader-tokens).
            Token::Read(_) => write,
        };
        if let Some(highest) = fence {
            return Err(StaleToken { token, highest });
        }
        match token {
            // The token has passed the comparison above, so no writer's token is higher.
            Token::Write(token) => highest.write = Some(token),
            Token::Read(token) => highest.read = highest.read.max(Some(token)),
        }
        Ok(())
    }
}

/// Returns the numbers of a token, which order tokens of both kinds. Not every comparison has a
/// meaning.
fn numbers(token: Token) -> (i64, u64) {
    (token.zxid(), token.counter())
}

/// Error of [`FenceGate::admit`]: the resource has seen a greater token, so the lock was lost.
///
/// ```
/// use zookeeper_recipes::{FenceGate, FencingToken, StaleToken, Token};
///
/// let gate = FenceGate::new();
/// let (older, newer) = (FencingToken::from_parts(7, 0), FencingToken::from_parts(9, 0));
/// gate.admit(newer)?;
/// let error: StaleToken = gate.admit(older).unwrap_err();
/// assert_eq!((error.token(), error.highest()), (Token::Write(older), Token::Write(newer)));
/// # Ok::<(), StaleToken>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the fencing token {} of a {} is older than {} of a {}: the lock was given away in between",
    shown(*token),
    kind(token),
    shown(*highest),
    kind(highest)
)]
pub struct StaleToken {
    token: Token,
    highest: Token,
}

/// Returns the numbers of a token for a message, which names the kind in words.
fn shown(token: Token) -> FencingToken {
    FencingToken::from_parts(token.zxid(), token.counter())
}

fn kind(token: &Token) -> &'static str {
    match token {
        Token::Write(_) => "writer",
        Token::Read(_) => "reader",
    }
}

impl StaleToken {
    /// Returns the token that was refused.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns the greater token that was seen: the highest token of a writer, or else of a reader.
    #[must_use]
    pub fn highest(&self) -> Token {
        self.highest
    }
}
