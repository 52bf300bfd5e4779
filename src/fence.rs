//! The resource's side of fencing.

use std::sync::{Mutex, PoisonError};

use thiserror::Error;

use crate::token::{FencingToken, ReadToken, Token};

/// Remembers the highest tokens that a resource has seen, and refuses older ones.
///
/// This is what a protected resource does, here for one that lives in memory:
/// - a **writer** (or the holder of a mutex) is compared with the highest token of a writer *and* of a reader, and
///   remembered as the highest writer;
/// - a **reader** is compared with the highest token of a writer only, because readers that hold the lock together have
///   tokens in no particular order, and remembered as the highest reader.
///
/// So a former writer that wakes up late is refused as soon as a later writer or reader has been here, and a former reader as
/// soon as a later writer has. Equal tokens pass: one holder may read and write several times.
///
/// **Show the token when you read, too**, if what you write depends on it: with `check` before the read. Otherwise a former
/// holder that wakes up after the next one has read, and before it writes, is let in, and the next one overwrites it.
///
/// # In SQL
/// A resource that stores its data does the same in the store, in the transaction that reads or writes. The highest tokens
/// are in columns beside the data (64 bits, `NOT NULL`, with a default of 0, or no row will ever match). A database for locks
/// of which none is a read lock needs no columns for readers.
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
/// The parameters are the key, [`zxid`](FencingToken::zxid) and [`counter`](FencingToken::counter) of the guard's token.
/// (SQLite, PostgreSQL and MySQL compare pairs like that; elsewhere write `a < ?2 OR (a = ?2 AND b <= ?3)`.) What counts is
/// the number of rows *matched*: a MySQL client reports rows changed, and so refuses a holder that shows its token twice, unless
/// it connects with `CLIENT_FOUND_ROWS` (`useAffectedRows=false` in JDBC). A row that does not exist refuses every holder, where an
/// empty gate lets the first in.
///
/// ```
/// use zookeeper_recipes::{FenceGate, FencingToken, ReadToken, Token};
///
/// let gate = FenceGate::new();
/// let (older, newer) = (FencingToken::from_parts(7, 0), FencingToken::from_parts(9, 0));
/// gate.check(older)?;
/// gate.check(newer)?;
/// gate.check(newer)?;
/// // The first holder was paused, and wakes up too late.
/// assert_eq!(gate.check(older).unwrap_err().highest(), Token::Write(newer));
///
/// // Readers come in together, in no particular order.
/// let (one, two) = (ReadToken::from_parts(11, 0), ReadToken::from_parts(12, 0));
/// gate.check(two)?;
/// gate.check(one)?;
/// // Now the second holder is late as well.
/// assert_eq!(gate.check(newer).unwrap_err().highest(), Token::Read(two));
/// # Ok::<(), zookeeper_recipes::Fenced>(())
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
    /// A gate that has seen nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { highest: Mutex::new(Highest { write: None, read: None }) }
    }

    /// Lets the holder of a lock in, and from then on no former holder that it has to be protected from: the token of any
    /// guard will do.
    ///
    /// # Errors
    /// [`Fenced`] if a newer token has been seen: of a writer, or, when a writer asks, also of a reader.
    pub fn check(&self, token: impl Into<Token>) -> Result<(), Fenced> {
        let token = token.into();
        let mut highest = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
        let older = |than: Option<Token>| than.filter(|than| numbers(*than) > numbers(token));
        let write = older(highest.write.map(Token::Write));
        let fence = match token {
            Token::Write(_) => write.or_else(|| older(highest.read.map(Token::Read))),
            Token::Read(_) => write,
        };
        if let Some(highest) = fence {
            return Err(Fenced { token, highest });
        }
        match token {
            Token::Write(token) => highest.write = Some(token),
            Token::Read(token) => highest.read = highest.read.max(Some(token)),
        }
        Ok(())
    }
}

/// Tokens of both kinds are in one order; they are two types because not all comparisons mean something.
fn numbers(token: Token) -> (i64, u64) {
    (token.zxid(), token.counter())
}

/// The token is older than one that the resource has seen: the one that presents it has lost the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the fencing token {token} of a {} is older than {highest} of a {}: the lock was given away in between",
    kind(token),
    kind(highest)
)]
pub struct Fenced {
    token: Token,
    highest: Token,
}

fn kind(token: &Token) -> &'static str {
    match token {
        Token::Write(_) => "writer",
        Token::Read(_) => "reader",
    }
}

impl Fenced {
    /// The token that was refused.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// The token that it was refused for: the highest of a writer, or else of a reader.
    #[must_use]
    pub fn highest(&self) -> Token {
        self.highest
    }
}
