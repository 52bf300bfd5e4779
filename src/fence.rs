//! The resource's side of fencing.

use std::sync::{Mutex, PoisonError};

use thiserror::Error;

use crate::token::FencingToken;

/// Remembers the highest [`FencingToken`] that a resource has seen, and refuses older ones.
///
/// This is what a protected resource does, here for one that lives in memory. One that stores its data does the same
/// in the store, in the transaction that writes; in SQL, with the token in two columns beside the data (`NOT NULL`, with a
/// default of 0, or no row will ever match):
///
/// ```sql
/// UPDATE stock SET remaining = ?1, token_zxid = ?2, token_n = ?3
///  WHERE sku = ?4
///    AND (token_zxid < ?2 OR (token_zxid = ?2 AND token_n <= ?3));
/// -- no row changed: the writer has lost its lock; roll back
/// ```
///
/// Equal tokens pass: one holder may read and write several times.
///
/// **Show the token when you read, too**, if what you write depends on it: with `check` before the read, or the same
/// `UPDATE` of the token columns in the transaction that reads. Otherwise a former holder that wakes up after the next
/// one has read, and before it writes, is let in, and the next one overwrites it.
///
/// ```
/// use zookeeper_recipes::{FenceGate, FencingToken};
///
/// let gate = FenceGate::new();
/// let (older, newer) = (FencingToken::from_parts(7, 0), FencingToken::from_parts(9, 0));
/// gate.check(older)?;
/// gate.check(newer)?;
/// gate.check(newer)?;
/// // The first holder was paused, and wakes up too late.
/// assert_eq!(gate.check(older).unwrap_err().highest(), newer);
/// # Ok::<(), zookeeper_recipes::Fenced>(())
/// ```
#[derive(Debug, Default)]
pub struct FenceGate {
    highest: Mutex<Option<FencingToken>>,
}

impl FenceGate {
    /// A gate that has seen nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { highest: Mutex::new(None) }
    }

    /// Lets a writer in, and from then on nobody with an older token.
    ///
    /// # Errors
    /// [`Fenced`] if a newer token has been seen.
    pub fn check(&self, token: FencingToken) -> Result<(), Fenced> {
        let mut highest = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
        match *highest {
            Some(highest) if highest > token => Err(Fenced { token, highest }),
            _ => {
                *highest = Some(token);
                Ok(())
            }
        }
    }

    /// Lets a reader in unless a newer writer has been there. Readers that hold a lock together have tokens in no
    /// particular order, so they are not remembered.
    ///
    /// # Errors
    /// [`Fenced`] if a writer with a newer token has been seen.
    pub fn check_read(&self, token: FencingToken) -> Result<(), Fenced> {
        match *self.highest.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(highest) if highest > token => Err(Fenced { token, highest }),
            _ => Ok(()),
        }
    }
}

/// The token is older than one that the resource has seen: whoever presents it has lost the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the fencing token {token} is older than {highest}: the lock was given to somebody else in between")]
pub struct Fenced {
    token: FencingToken,
    highest: FencingToken,
}

impl Fenced {
    /// The token that was refused.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The highest token seen.
    #[must_use]
    pub fn highest(&self) -> FencingToken {
        self.highest
    }
}
