//! Fencing tokens.

use std::fmt;

/// A number that grows with every exclusive grant of one lock, for the protected resource to compare.
///
/// A lock cannot stop a process that was paused (by its garbage collector, its hypervisor, `SIGSTOP`) while it
/// held the lock and that wakes after the lock was given to somebody else. The resource can: it remembers the
/// highest token it has seen and refuses a smaller one.
///
/// The token is the pair of the zxid of the transaction that created the lock node (`czxid`, unique and growing
/// over the whole ensemble) and a counter that tells grants on one node apart. It is *not* the sequence number
/// in the node's name, which starts at zero again once ZooKeeper has removed an empty lock directory.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken {
    // The derived order compares in this order.
    zxid: i64,
    counter: u64,
}

impl FencingToken {
    /// Puts a token together again from what [`zxid`](Self::zxid) and [`counter`](Self::counter) answered, for
    /// a resource that stores the two numbers.
    #[must_use]
    pub const fn from_parts(zxid: i64, counter: u64) -> Self {
        Self { zxid, counter }
    }

    /// The zxid of the transaction that created the lock node.
    #[must_use]
    pub const fn zxid(self) -> i64 {
        self.zxid
    }

    /// Which grant on that node this is, from 0.
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

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.zxid, self.counter)
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
        }
    }
}
