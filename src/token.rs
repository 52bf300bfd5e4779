//! Fencing tokens.

use std::fmt;

/// What the tokens of readers and those of writers have in common, but for their types.
macro_rules! token {
    ($(#[$docs:meta])* $token:ident, $(#[$zxid:meta])* zxid, $(#[$counter:meta])* counter) => {
        $(#[$docs])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $token {
            // The derived order compares in this order.
            zxid: i64,
            counter: u64,
        }

        impl $token {
            /// Puts a token together again from what [`zxid`](Self::zxid) and [`counter`](Self::counter) returned, for
            /// a resource that stores the two numbers.
            #[must_use]
            pub const fn from_parts(zxid: i64, counter: u64) -> Self {
                Self { zxid, counter }
            }

            $(#[$zxid])*
            #[must_use]
            pub const fn zxid(self) -> i64 {
                self.zxid
            }

            $(#[$counter])*
            #[must_use]
            pub const fn counter(self) -> u64 {
                self.counter
            }

            /// The token in 16 bytes that sort like the token itself.
            #[must_use]
            pub const fn to_be_bytes(self) -> [u8; 16] {
                // Flipping the sign bit makes the bytes of a signed number sort like the number.
                let zxid = (self.zxid as u64) ^ (1 << 63);
                (((zxid as u128) << 64) | self.counter as u128).to_be_bytes()
            }

            /// The reverse of [`to_be_bytes`](Self::to_be_bytes).
            #[must_use]
            pub const fn from_be_bytes(bytes: [u8; 16]) -> Self {
                let both = u128::from_be_bytes(bytes);
                Self { zxid: (((both >> 64) as u64) ^ (1 << 63)) as i64, counter: both as u64 }
            }
        }

        impl fmt::Display for $token {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}.{}", self.zxid, self.counter)
            }
        }
    };
}

token! {
    /// A number that grows with every grant of one lock to a single holder (a mutex's, a fair lock's, a writer's), for the
    /// protected resource to compare.
    ///
    /// A lock cannot stop a process that was paused (by its garbage collector, its hypervisor, `SIGSTOP`) while it
    /// held the lock and that wakes after the lock was given to another one. The resource can: it remembers the
    /// highest tokens it has seen and refuses a smaller one ([`FenceGate`](crate::FenceGate) has the rule and its SQL).
    ///
    /// The token is the pair of a zxid (the number of a transaction, unique and growing over the whole ensemble) and a
    /// counter that tells grants by one node apart. It is *not* the sequence number in the node's name, which starts at zero
    /// again once ZooKeeper has removed an empty lock directory.
    ///
    /// Each grant to write has a token of its own, also one by [`try_upgrade`](crate::ReadGuard::try_upgrade): it is greater
    /// than the tokens of all readers and writers that held the lock before, and smaller than those of all that get it later.
    /// (A guard by [`WriteGuard::read`](crate::WriteGuard::read) is of the same grant, and so is what it becomes.)
    /// Readers have tokens of another type, [`ReadToken`].
    ///
    /// Tokens of different locks, and of different ensembles, say nothing about each other. An ensemble that was
    /// rebuilt or restored from an older snapshot starts with smaller zxids: reset what the resource remembers.
    ///
    /// ```
    /// use zookeeper_recipes::FencingToken;
    ///
    /// let older = FencingToken::from_parts(7, 0);
    /// let newer = FencingToken::from_parts(9, 0);
    /// assert!(newer > older);
    /// assert_eq!(FencingToken::from_be_bytes(newer.to_be_bytes()), newer);
    /// assert_eq!(newer.to_string(), "9.0");
    /// ```
    FencingToken,
    /// The zxid of the transaction that created the lock node. After an upgrade it is that of the creation of the write
    /// node, or of the transaction before the creation of the first node that waits behind it, whichever is smaller.
    zxid,
    /// How often the guard has been [upgraded](crate::ReadGuard::try_upgrade): which grant to write of its hold this is.
    counter
}

token! {
    /// A number that orders a reader's grant among those to write, for the protected resource to compare.
    ///
    /// It is greater than the [`FencingToken`] of every writer that held the lock before, and smaller than that of every
    /// writer that gets it later. Readers that hold the lock together have tokens in no particular order, so a resource
    /// remembers the highest but refuses no reader for it: only a writer that is older than a reader
    /// ([`FenceGate`](crate::FenceGate)). That is why the type is another one.
    ///
    /// A guard that was [downgraded](crate::WriteGuard::downgrade), and one from [`read`](crate::WriteGuard::read), has the
    /// numbers of its writer's token.
    ///
    /// ```
    /// use zookeeper_recipes::ReadToken;
    ///
    /// let token = ReadToken::from_parts(9, 0);
    /// assert_eq!(ReadToken::from_be_bytes(token.to_be_bytes()), token);
    /// assert_eq!(token.to_string(), "9.0");
    /// ```
    ReadToken,
    /// The zxid of the transaction that created the lock node; after a downgrade, that of the writer's token.
    zxid,
    /// 0; after a downgrade, that of the writer's token.
    counter
}

/// The token of a guard whose kind is known at run time only ([`AnyGuard`](crate::AnyGuard)).
///
/// It has no order: what a token is compared with depends on its kind ([`FenceGate::check`](crate::FenceGate::check)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Token {
    /// Of one that holds the lock alone: a mutex's, a fair lock's, a writer's.
    Write(FencingToken),
    /// Of a reader.
    Read(ReadToken),
}

impl Token {
    /// The first number of either; see [`FencingToken::zxid`].
    #[must_use]
    pub const fn zxid(self) -> i64 {
        match self {
            Self::Write(token) => token.zxid(),
            Self::Read(token) => token.zxid(),
        }
    }

    /// The second number of either; see [`FencingToken::counter`].
    #[must_use]
    pub const fn counter(self) -> u64 {
        match self {
            Self::Write(token) => token.counter(),
            Self::Read(token) => token.counter(),
        }
    }
}

impl From<FencingToken> for Token {
    fn from(token: FencingToken) -> Self {
        Self::Write(token)
    }
}

impl From<ReadToken> for Token {
    fn from(token: ReadToken) -> Self {
        Self::Read(token)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(token) => token.fmt(f),
            Self::Read(token) => token.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_round_trip_and_sort_like_the_token(a: (i64, u64), b: (i64, u64)) {
            let (a, b) = (FencingToken::from_parts(a.0, a.1), FencingToken::from_parts(b.0, b.1));
            prop_assert_eq!(FencingToken::from_be_bytes(a.to_be_bytes()), a);
            prop_assert_eq!(a.to_be_bytes().cmp(&b.to_be_bytes()), a.cmp(&b));
            let read = ReadToken::from_parts(a.zxid(), a.counter());
            prop_assert_eq!(read.to_be_bytes(), a.to_be_bytes());
            prop_assert_eq!(ReadToken::from_be_bytes(read.to_be_bytes()), read);
        }
    }
}
